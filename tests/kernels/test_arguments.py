"""What every kernel refuses, and what is far away but allowed."""

from dataclasses import replace

import pytest
import torch

from kernels import (
    candidate_blocks,
    decode_attention,
    flash_attention,
    group_pool,
    hyper_connection,
    indexer_scores,
    mla_decode,
    moe_experts,
    select_topk,
    sparse_attention,
    sparse_attention_fp4,
)
from kernels.packed_rows import FP4, FP8
from kernels.quantise import pack, unpack

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]
SMALL4, SMALL8 = replace(FP4, values=32, name="a"), replace(FP8, values=32, name="b")
# Calls by the shapes of their tensors (int: zeros of int32, bytes: of uint8), and the arguments
# of which a row, so many last axes, is counted in 32 bits.
CALLS = {
    "decode": (decode_attention, dict(query_BTHD=(3, 1, 6, 20), key_BSKD=(3, 7, 3, 20),
                                      value_BSKD=(3, 7, 3, 20)),
               dict(query_BTHD=1, key_BSKD=1, value_BSKD=1)),
    "prefill": (flash_attention, dict(query_BTHD=(3, 5, 6, 20), key_BSKD=(3, 7, 3, 20),
                                      value_BSKD=(3, 7, 3, 20)),
                dict(query_BTHD=1, key_BSKD=1, value_BSKD=1)),
    "mla": (mla_decode, dict(query_BTHC=(3, 1, 6, 20), rope_query_BTHR=(3, 1, 6, 8), scale=0.2,
                             latent_BSC=(3, 7, 20), rope_BSR=(3, 7, 8)),
            dict(query_BTHC=2, rope_query_BTHR=2, latent_BSC=1, rope_BSR=1)),
    "indexer": (indexer_scores, dict(query_BTID=(3, 5, 6, 20), weight_BTI=(3, 5, 6),
                                     key_BSD=(3, 7, 20)),
                dict(query_BTID=2, weight_BTI=1, key_BSD=1)),
    "sparse": (sparse_attention, dict(query_BTHD=(3, 5, 6, 20), entry_BSD=(3, 7, 20),
                                      index_BTk=(int, 3, 5, 2), window_BWD=(3, 9, 20)),
               dict(entry_BSD=1, window_BWD=1)),
    "packed": (sparse_attention_fp4,
               dict(query_BTHD=(3, 5, 6, 32), entry_BSY=(bytes, 3, 7, SMALL4.nbytes),
                    index_BTk=(int, 3, 5, 2), window_BWZ=(bytes, 3, 9, SMALL8.nbytes)),
               dict(entry_BSY=1, window_BWZ=1)),
    "experts": (moe_experts, dict(x_NX=(7, 20), experts_Nk=(int, 7, 3), weights_Nk=(7, 3),
                                  gate_EFX=(5, 12, 20), up_EFX=(5, 12, 20), down_EXF=(5, 20, 12)),
                dict(x_NX=1, gate_EFX=2, up_EFX=2, down_EXF=2)),
    "pool": (group_pool, dict(value_BSC=(3, 12, 20), gate_BSC=(3, 12, 20), ratio=4),
             dict(value_BSC=1, gate_BSC=1)),
    "mix": (hyper_connection, dict(copies_BTNX=(3, 4, 3, 20), found_BTX=(3, 4, 20), base_M=(15,),
                                   flat_BTM=(3, 4, 15), scale_3=(3,), next_fn_MF=(15, 60)),
            dict(copies_BTNX=2, found_BTX=1, next_fn_MF=2)),
    "pack": (pack, dict(values=(7, 5, 32), row=SMALL4), dict(values=1)),
    "unpack": (unpack, dict(rows=(bytes, 7, 5, SMALL4.nbytes), row=SMALL4), dict(rows=1)),
}
FAR = [(name, argument, axis) for name, (_, _, rows) in CALLS.items()
       for argument, axes in rows.items() for axis in range(-axes, 0)]


def zeros(shape, device):
    if not isinstance(shape, tuple):
        return shape
    dtype = {int: torch.int32, bytes: torch.uint8}.get(shape[0])
    return torch.zeros(shape[1:] if dtype else shape, dtype=dtype or torch.float32, device=device)


@pytest.mark.interpreter
@pytest.mark.parametrize("name, argument, axis", FAR)
def test_a_row_spread_beyond_32_bits_is_refused(name, argument, axis, tmp_path):
    function, shapes, _ = CALLS[name]
    call = {key: zeros(shape, "cpu") for key, shape in shapes.items()}
    dense = call[argument]
    strides = list(dense.stride())
    strides[axis] = 2**31 // (dense.shape[axis] - 1) + 1  # it fits in 32 bits, the offset does not
    size = sum((n - 1) * stride for n, stride in zip(dense.shape, strides)) + 1
    flat = torch.from_file(str(tmp_path / "far.bin"), shared=True, size=size, dtype=dense.dtype)
    call[argument] = flat.as_strided(dense.shape, strides)  # a sparse file: no memory is used
    said = argument.rsplit("_", 1)[0] if argument[-1].isupper() else argument
    with pytest.raises(ValueError, match=rf"^{said} has shape .* within 2\*\*31 elements: use"):
        function(**call, impl="triton")


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("far", [2**31 - 2, 2**31 + 5, 2**40])
@pytest.mark.parametrize("rows", [False, True])
def test_a_start_beyond_32_bits_sees_everything(impl, far, rows, draw, device):
    score, query, weight = draw(0, 3, 5, 37), draw(1, 3, 5, 6, 20), draw(2, 3, 5, 6)
    start = torch.tensor([far, 37, far], device=device) if rows else far
    for call in (lambda start: select_topk(score, 4, start=start, impl=impl),
                 lambda start: candidate_blocks(score, keep=3, start=start, impl=impl),
                 lambda start: indexer_scores(query, weight, draw(3, 3, 37, 20), start=start,
                                              impl=impl)):
        assert torch.equal(call(start), call(40))
        assert not torch.equal(call(start), call(20))
    nothing = select_topk(score, 4, start=-far, impl=impl)
    assert (nothing == -1).all()


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("name, wrong, said", [
    ("decode", dict(window=True), "window is True; expected None or a whole number"),
    ("decode", dict(splits=True), "splits is True; expected None or a whole number"),
    ("decode", dict(scale="x"), "scale is 'x'; expected a number"),
    ("prefill", dict(window=True), "window is True; expected None or a whole number"),
    ("prefill", dict(scale="x"), "scale is 'x'; expected a number"),
    ("mla", dict(scale=None), "scale is None; expected a number"),
    ("mla", dict(splits=True), "splits is True; expected None or a whole number"),
    ("sparse", dict(reach=True), "reach is True; expected None or a whole number"),
    ("sparse", dict(scale="x"), "scale is 'x'; expected a number"),
    ("packed", dict(splits=0.5), "splits is 0.5; expected None or a whole number"),
    ("packed", dict(scale="x"), "scale is 'x'; expected a number"),
    ("experts", dict(limit=True), "limit is True; expected None or a number above 0"),
])
def test_wrong_words_are_named(impl, name, wrong, said, device):
    function, shapes, _ = CALLS[name]
    call = {key: zeros(shape, device) for key, shape in shapes.items()}
    with pytest.raises(ValueError, match=said):
        function(**{**call, **wrong}, impl=impl)
