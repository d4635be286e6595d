"""sparse_attention_fp4 against sparse attention over the numbers that the bytes stand for."""

from dataclasses import replace

import pytest
import torch

from kernels import bounds, gates, sparse_attention, sparse_attention_fp4
from kernels.check import poisoned
from kernels.packed_rows import FP4, FP8, pack_twin
from tests.kernels.test_sparse_attention import lists
from tinymodels import layouts
from tinymodels.cache import packing

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]


def packed(row, values):
    """Rows as `quantise.pack` makes them, for any number of values."""
    return pack_twin(values, replace(row, values=values.shape[-1]))


def opened(rows, dim):
    """What the bytes of V4.1's rows stand for, by `tinymodels`."""
    if rows is None:
        return None
    layout = layouts.entry_fp8(dim) if rows.shape[-1] > dim else layouts.entry_fp4(dim)
    return packing.unpack(layout, rows.cpu(), torch.float64)["latent"]


def wanted(query, entry, index, window=None, sink=None, **options):
    """`sparse_attention`'s twin in fp64, which has tests of its own."""
    dim = query.shape[-1]
    sink = None if sink is None else sink.cpu()
    return sparse_attention(query.cpu().double(), opened(entry, dim), index.cpu(), sink_H=sink,
                            window_BWD=opened(window, dim), impl="torch", **options)


def close(output, answer, tolerance=1e-5):
    assert torch.isfinite(output).all()
    torch.testing.assert_close(output.cpu().double(), answer, rtol=0, atol=tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("tokens, heads, dim, entries, k, rows, reach, splits", [
    (1, 3, 96, 37, 9, 12, None, None),
    (3, 6, 160, 129, 33, 12, 7, 2),
    (2, 5, 32, 19, 1, 3, 1, 3),
])
def test_equals_attention_over_the_numbers(impl, seed, tokens, heads, dim, entries, k, rows,
                                           reach, splits, draw, device):
    query, sink = draw(seed, 3, tokens, heads, dim), draw(seed + 3, heads)
    entry, window = (packed(FP4, draw(seed + 1, 3, entries, dim)),
                     packed(FP8, draw(seed + 2, 3, rows, dim)))
    index = lists(seed, 3, tokens, entries, k, empty=(0, 1, k)).to(device)
    with poisoned():
        output = sparse_attention_fp4(query, entry, index, window_BWZ=window, reach=reach,
                                      sink_H=sink, splits=splits, impl=impl)
    close(output, wanted(query, entry, index, window, sink, reach=reach))


@pytest.mark.parametrize("impl", IMPLS)
def test_real_rows(impl, draw, device):
    query, entry, window = draw(0, 1, 1, 5, 512), draw(1, 1, 70, 512), draw(2, 1, 9, 512)
    entry, window = packed(FP4, entry), packed(FP8, window)
    assert (entry.shape[2], window.shape[2]) == (288, 528)
    index = lists(3, 1, 1, 70, 30, (4,)).to(device)
    output = sparse_attention_fp4(query, entry, index, window_BWZ=window, impl=impl)
    close(output, wanted(query, entry, index, window))


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("which", ["entry", "window"])
def test_every_code_and_every_scale(impl, which, device):
    # One visible row: the output is that row, whatever its score. So all 256 bytes of codes
    # and all scales, NaN among them, must come out as the numbers they stand for.
    row = FP4 if which == "entry" else FP8
    rows = torch.zeros(256, 1, row.nbytes, dtype=torch.uint8, device=device)
    rows[:, 0, :row.scales_at] = torch.arange(row.scales_at, device=device) % 256
    rows[:, 0, row.scales_at:] = torch.arange(256, device=device)[:, None]
    query = torch.zeros(256, 1, 1, 512, device=device)
    index = torch.zeros(256, 1, 1, dtype=torch.int32, device=device)
    if which == "entry":
        output = sparse_attention_fp4(query, rows, index, impl=impl)
    else:
        finite = rows[:, :, :row.scales_at]
        finite[(finite & 127) == 127] = 5  # a NaN would be the score of its row, too
        output = sparse_attention_fp4(query, None, None, window_BWZ=rows, impl=impl)
    numbers = opened(rows, 512)[:, :, None]
    sound = torch.isfinite(numbers.float()).all(-1).flatten()
    sound &= numbers.abs().amax(-1).flatten() < 2.0**120
    assert sound.sum() == (254 if which == "entry" else 239)
    # A weight of 1 times a number of up to 2**120, and no rounding: equal to the bit.
    assert torch.equal(output[sound].cpu().double(), numbers[sound])
    assert not torch.isfinite(output.cpu()[~torch.isfinite(numbers.float()).flatten(1).all(1)]
                              ).flatten(1).all(1).any()


@pytest.mark.parametrize("impl", IMPLS)
def test_a_nan_code_of_the_window_is_nan(impl, draw, device):
    query, window = draw(0, 2, 1, 3, 64), packed(FP8, draw(1, 2, 5, 64))
    window[1, 2, 40] = 255
    output = sparse_attention_fp4(query, None, None, window_BWZ=window, impl=impl)
    assert torch.isfinite(output[0]).all() and output[1].isnan().all()


@pytest.fixture
def small_blocks(monkeypatch):
    module = gates.module("sparse_attention_fp4")
    usual = module._blocks
    monkeypatch.setattr(module, "_blocks", lambda *args: {**usual(*args), "BLOCK_S": 16})


@pytest.mark.triton_runs
@pytest.mark.parametrize("splits", [1, 3, 64])
def test_many_blocks_and_splits(splits, draw, device, small_blocks):
    query, entry = draw(3, 2, 2, 3, 32), draw(4, 2, 300, 32)
    entry += 0.3 * query[:, :1, 0] * torch.arange(300, device=device)[:, None] / 100
    entry, window = packed(FP4, entry), packed(FP8, draw(5, 2, 45, 32))
    index = lists(6, 2, 2, 300, 90, empty=(0, 50, 90)).to(device)
    index[0, 0] = index[0, 0].flip(0)
    index[1, 1, :40] = -1  # leading blocks with nothing in them
    with poisoned():
        output = sparse_attention_fp4(query, entry, index, window_BWZ=window, reach=40,
                                      sink_H=draw(7, 3), splits=splits, impl="triton")
    close(output, wanted(query, entry, index, window, draw(7, 3), reach=40))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("splits", [None, 3])
@pytest.mark.parametrize("sink", [None, 0.5])
def test_nothing_visible_and_garbage_where_nothing_is_read(impl, splits, sink, draw, device):
    query = draw(0, 3, 2, 5, 64)
    entry, window = packed(FP4, draw(1, 3, 30, 64)), packed(FP8, draw(2, 3, 20, 64))
    index = lists(3, 3, 2, 30, 7, empty=(7, 7, 7, 0, 3, 7)).to(device)
    lengths = torch.tensor([0, 1, 20], device=device)
    sink = None if sink is None else torch.full((5,), sink, device=device)
    answer = wanted(query, entry, index, window, sink, window_lengths=lengths.cpu(), reach=6)
    for b in range(3):  # 255 is NaN as a code of the window and as a scale
        used = index[b].flatten().tolist()
        entry[b, [s for s in range(30) if s not in used]] = 255
        window[b, int(lengths[b]):], window[b, :max(0, int(lengths[b]) - 7)] = 255, 255
    with poisoned():
        output = sparse_attention_fp4(query, entry, index, window_BWZ=window, sink_H=sink,
                                      window_lengths=lengths, reach=6, splits=splits, impl=impl)
    close(output, answer)
    assert (output[0] == 0).all() and (output[1, 0] == 0).all()


@pytest.mark.triton_runs
def test_bf16_queries_meet_exact_numbers(draw, device):
    # Every number of the rows has at most 6 bits, so bf16 rounds none of them. With one row
    # visible no weight is rounded either: the bf16 output is exact.
    query, entry = draw(0, 2, 3, 5, 96, dtype=torch.bfloat16), packed(FP4, draw(1, 2, 40, 96))
    index = lists(2, 2, 3, 40, 1).to(device)
    output = sparse_attention_fp4(query, entry, index, impl="triton")
    rows = opened(entry, 96)[torch.arange(2)[:, None], index[..., 0].cpu().long()]
    assert output.dtype == torch.bfloat16
    assert torch.equal(output.cpu().double(), rows[:, :, None].expand(-1, -1, 5, -1))
    many = lists(4, 2, 3, 40, 20).to(device)
    close(sparse_attention_fp4(query, entry, many, impl="triton").double(),
          wanted(query, entry, many), 2e-2)


@pytest.mark.parametrize("impl", IMPLS)
def test_views_and_odd_addresses(impl, draw, device):
    query = draw(0, 64, 5, 3, 2).permute(3, 2, 1, 0)
    entry, window = packed(FP4, draw(1, 2, 30, 64)), packed(FP8, draw(2, 2, 10, 64))
    index = lists(3, 7, 3, 30, 2).permute(2, 1, 0).to(device)
    answer = wanted(query, entry, index, window)
    wider = torch.full((30, 2, 45), 255, dtype=torch.uint8, device=device)
    wider[..., 5:41] = entry.transpose(0, 1)
    taller = torch.full((2, 66, 21), 255, dtype=torch.uint8, device=device)
    taller[..., 1::2] = window.transpose(1, 2)
    output = sparse_attention_fp4(query, wider[..., 5:41].transpose(0, 1), index, impl=impl,
                                  window_BWZ=taller[..., 1::2].transpose(1, 2))
    close(output, answer)


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw):
    def far_apart(name, tensor, strides):
        size = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, strides))
        flat = torch.from_file(str(tmp_path / name), shared=True, size=size, dtype=tensor.dtype)
        view = flat.as_strided(tensor.shape, strides)
        view.copy_(tensor)
        return view

    query, index = draw(0, 3, 2, 5, 32), lists(3, 3, 2, 19, 4)
    entry, window = packed(FP4, draw(1, 3, 19, 32)), packed(FP8, draw(2, 3, 5, 32))
    with bounds.checking_overflow():
        output = sparse_attention_fp4(
            query, far_apart("entry", entry, (36, 2**27 + 8, 1)), index, splits=2, impl="triton",
            window_BWZ=far_apart("window", window, (2**30 + 40, 36, 1)))
    close(output, wanted(query, entry, index, window))


@pytest.mark.interpreter
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("lengths", [None, [23, 0, 9]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_counted_is_foretold_and_only_bytes_of_rows_are_read(splits, lengths, dtype, draw):
    query, index = draw(0, 3, 2, 6, 96, dtype=dtype), lists(3, 3, 2, 150, 40, (0, 15, 40))
    entry, window = packed(FP4, draw(1, 3, 150, 96)), packed(FP8, draw(2, 3, 23, 96))
    with bounds.counting() as counts, bounds.checking_overflow():
        sparse_attention_fp4(query, entry, index, window_BWZ=window, reach=12, sink_H=draw(4, 6),
                             splits=splits, impl="triton",
                             window_lengths=None if lengths is None else torch.tensor(lengths))
    found = int((index >= 0).sum())
    said = sparse_attention_fp4.traffic(
        batch=3, tokens=2, heads=6, head_dim=96, chosen=40, found=found, rows=23, reach=12,
        window_lengths=lengths, sink=True, splits=splits, itemsize=dtype.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])
    near = 6 * 12 if lengths is None else 2 * 12 + 0 + 8 + 9
    assert counts["entry"].bytes_loaded == found * (48 + 6)
    assert counts["window"].bytes_loaded == near * (96 + 3)


def test_the_bytes_of_v4_1():
    # One token of V4.1: 512 of 288 bytes and 128 of 528; the same rows in bf16 are 1,024 each.
    call = dict(tokens=1, heads=64, head_dim=512, chosen=512, rows=128, sink=True)
    packed_bytes = sparse_attention_fp4.traffic(**call)["bytes_read"]
    rest = 512 * 4 + 64 * 512 * 2 + 64 * 4
    assert packed_bytes - rest == 512 * 288 + 128 * 528 == 215_040
    assert sparse_attention.traffic(**call)["bytes_read"] - rest == 640 * 1_024


@pytest.mark.parametrize("options, words", [
    ({"splits": 0}, "splits is 0"), ({"impl": "gpu"}, "impl is 'gpu'"),
    ({"query_BTHD": torch.zeros(2, 3, 6, 48)}, "query has head dim 48; expected a multiple of 32"),
    ({"entry_BSY": torch.zeros(2, 9, 64)}, r"expected \[2, S, 36\], a row 'FP4 288 of 64'"),
    ({"entry_BSY": torch.zeros(2, 9, 36)}, "entry has dtype torch.float32; expected torch.uint8"),
    ({"window_BWZ": torch.zeros(2, 9, 64).byte()}, r"expected \[2, W, 66\], a row 'FP8 528 of 64'"),
    ({"index_BTk": torch.full((2, 3, 4), 9)}, "index goes from 9 to 9"),
    ({"entry_BSY": None}, "index is given and entry is None"),
])
def test_errors_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        sparse_attention_fp4(**{"query_BTHD": torch.zeros(2, 3, 6, 64), "impl": "torch",
                                "entry_BSY": torch.zeros(2, 9, 36).byte(),
                                "index_BTk": torch.zeros(2, 3, 4).int(), **options})


@pytest.mark.triton_runs
def test_fp16_has_no_room_for_all_numbers(draw, device):
    query, entry = draw(0, 1, 1, 2, 32, dtype=torch.float16), packed(FP4, draw(1, 1, 5, 32))
    index = torch.zeros(1, 1, 2, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="query is float16; the kernel has float32, bfloat16"):
        sparse_attention_fp4(query, entry, index, impl="triton")
    assert sparse_attention_fp4(query, entry, index).dtype == torch.float16  # by the twin
