"""Sparse attention over V4.1's cache as it lies in memory: rows of 288 and of 528 bytes.

The same attention as `sparse_attention`. Here a far entry is 256 bytes of E2M1 codes, two
in a byte, the even one low, and 32 scales in E4M3; a row of the window is 512 codes in
E4M3 and 16 scales in UE8M0 (arXiv 2609.19969). What moves through memory are these bytes.
A program turns them into numbers in its registers, a block of rows at a time, and the
numbers are never written to memory: 3.6 times fewer bytes are read than in bf16. How codes
become numbers is in `kernels.unpack_in_registers`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.packed_rows import FP4, FP8, Row, unpack_twin
from kernels.running_softmax import (
    own_part,
    share_and_lse,
    sink_or_nothing,
    store_split,
    weigh_block,
)
from kernels.sparse_attention import LARGEST_VALUE
from kernels.sparse_list import (
    Call,
    SparseShape,
    arch,
    check_call,
    check_splits,
    default_splits,
    list_traffic,
    merge,
    parts_of,
    strides,
)
from kernels.sparse_twin import twin
from kernels.unpack_in_registers import read_fp4, read_fp8

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8

DTYPES = (torch.float32, torch.bfloat16)  # fp16 cannot hold every value of a row
PRODUCTS = ("_attend_packed",)


def sparse_attention_fp4(
    query_BTHD: Float[Tensor, "B T H D"],
    entry_BSY: UInt8[Tensor, "B S Y"] | None,
    index_BTk: Int[Tensor, "B T k"] | None,
    *,
    window_BWZ: UInt8[Tensor, "B W Z"] | None = None,
    window_lengths: Int[Tensor, " B"] | None = None,
    reach: int | None = None,
    sink_H: Float[Tensor, " H"] | None = None,
    scale: float | None = None,
    splits: int | None = None,
    impl: str | None = None,
) -> Float[Tensor, "B T H D"]:
    """Attention of T new tokens over packed entries chosen for each, and a packed window.

    Args:
        query_BTHD: queries of the new tokens; D is a multiple of 32.
        entry_BSY: far entries, D/2 bytes of codes and D/16 scales (288 at D = 512), as
            `quantise.pack` makes them; None if there are none.
        index_BTk, window_lengths, reach, sink_H, scale, splits, impl: as in
            `sparse_attention`.
        window_BWZ: rows of the newest tokens, D codes and D/32 scales (528), or None.

    Returns the output in the query's dtype; sums are in fp32. A token that sees nothing
    gets zeros. Raises ValueError naming the argument, its shape and what was expected.
    """
    D = arguments.match(query=("B T H D", query_BTHD))["D"]
    if D % FP8.block:
        raise ValueError(f"query has head dim {D}; expected a multiple of {FP8.block}, the values "
                         "that share a scale in the window")
    formats = _formats(D)
    call = check_call(query_BTHD, entry_BSY, index_BTk, window_BWZ, window_lengths, reach,
                      sink_H, splits, formats)
    scale = D**-0.5 if scale is None else arguments.number(scale=scale)
    if not backend.use_triton(impl, DTYPES, query=query_BTHD):
        far, near = (lambda rows, dtype, row=row: unpack_twin(rows, row, dtype) for row in formats)
        return twin(query_BTHD, call, scale, D, (far, near))
    arguments.head_dims(LARGEST_VALUE, query=D)
    check_splits(splits, D)
    arguments.in_32_bits(1, **call.rows())
    return _launch(query_BTHD, call, scale, splits)


def _formats(dim: int) -> tuple[Row, Row]:
    """Rows of V4.1 with so many values."""
    def of(row: Row) -> Row:
        same = dim == row.values
        return row if same else replace(row, name=f"{row.name} of {dim}", values=dim)

    return of(FP4), of(FP8)


@triton.jit
def _add_rows(even_SP, odd_SP, there_S, query_even_HP, query_odd_HP, scale, highest_H, total_H,
              output_even_HP, output_odd_HP):
    """A block of the list, as keys and then as values."""
    score_HS = tl.dot(query_even_HP, tl.trans(even_SP), input_precision="ieee")
    score_HS = tl.dot(query_odd_HP, tl.trans(odd_SP), score_HS, input_precision="ieee")
    weight_HS, highest_H, total_H, shrink_H = weigh_block(score_HS * scale, there_S, highest_H,
                                                           total_H)
    weight_HS = weight_HS.to(even_SP.dtype)
    output_even_HP = tl.dot(weight_HS, even_SP, output_even_HP * shrink_H[:, None],
                            input_precision="ieee")
    output_odd_HP = tl.dot(weight_HS, odd_SP, output_odd_HP * shrink_H[:, None],
                           input_precision="ieee")
    return highest_H, total_H, output_even_HP, output_odd_HP


@triton.jit
def _attend_packed(
    query, entry, index, window, lengths, sink, partial, partial_lse,
    scale, tokens, entries, chosen, rows, reach, splits,
    entry_b, entry_s, entry_y, window_b, window_w, window_z,
    HEADS: tl.constexpr, DIM: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """One program: BLOCK_H heads of one token, over one split of its list."""
    place_S = tl.arange(0, BLOCK_S)
    head, split, at, batch, first, last, near, begin, end = own_part(
        window, lengths, tokens, chosen, rows, reach, splits, HEADS, BLOCK_H, BLOCK_S)

    query += (at * HEADS + head) * DIM
    member_H1, number_1D = tl.arange(0, BLOCK_H)[:, None], tl.arange(0, BLOCK_D)[None, :]
    query_HD = tl.load(query + member_H1 * DIM + number_1D,
                       mask=(member_H1 < HEADS - head) & (number_1D < DIM), other=0.0)
    even_HP, odd_HP = tl.split(tl.reshape(query_HD, [BLOCK_H, BLOCK_D // 2, 2]))
    highest_H, total_H = sink_or_nothing(sink, head, split, HEADS, BLOCK_H)
    output_even_HP = tl.zeros([BLOCK_H, BLOCK_D // 2], tl.float32)
    output_odd_HP = tl.zeros([BLOCK_H, BLOCK_D // 2], tl.float32)
    if window is not None:
        for block in range(begin, tl.minimum(end, near)):
            row_S = first + block * BLOCK_S + place_S
            there_S = row_S < last
            row_even_SP, row_odd_SP = read_fp8(
                window + batch * window_b + row_S.to(tl.int64) * window_w, window_z, there_S,
                query_HD.dtype, DIM, BLOCK_D)
            highest_H, total_H, output_even_HP, output_odd_HP = _add_rows(
                row_even_SP, row_odd_SP, there_S, even_HP, odd_HP, scale, highest_H, total_H,
                output_even_HP, output_odd_HP)
    if index is not None:
        index += at * chosen
        for block in range(tl.maximum(begin, near) - near, end - near):
            place = block * BLOCK_S + place_S
            row_S = tl.load(index + place, mask=place < chosen, other=-1)
            there_S = (row_S >= 0) & (row_S < entries)
            row_even_SP, row_odd_SP = read_fp4(
                entry + batch * entry_b + row_S.to(tl.int64) * entry_s, entry_y, there_S,
                query_HD.dtype, DIM, BLOCK_D)
            highest_H, total_H, output_even_HP, output_odd_HP = _add_rows(
                row_even_SP, row_odd_SP, there_S, even_HP, odd_HP, scale, highest_H, total_H,
                output_even_HP, output_odd_HP)

    share_H, lse_H = share_and_lse(highest_H, total_H)
    even_HP = (output_even_HP * share_H[:, None]).to(partial.dtype.element_ty)
    odd_HP = (output_odd_HP * share_H[:, None]).to(partial.dtype.element_ty)
    output_HD = tl.reshape(tl.join(even_HP, odd_HP), [BLOCK_H, BLOCK_D])
    store_split(partial, partial_lse, at * splits + split, head, lse_H, output_HD,
                 HEADS, DIM, BLOCK_H, BLOCK_D)


def _launch(query_BTHD, call: Call, scale, splits):
    B, T, H, D, S, k, W = (call.sizes[letter] for letter in "BTHDSkW")
    blocks = _blocks(H, max(k, W), D, query_BTHD.dtype)
    splits = splits or default_splits(B * T, H, k, call.reach, D, blocks, query_BTHD.device)
    output = query_BTHD.new_empty(B, T, H, D)
    partial, partial_lse = parts_of(output, splits)
    _attend_packed[(B * T * splits * -(-H // blocks["BLOCK_H"]),)](
        query_BTHD.contiguous(), call.entry_BSD, call.index_BTk, call.window_BWD, call.lengths_B,
        call.sink_H, partial, partial_lse, scale, T, S, k, W, call.reach, splits,
        *strides(call.entry_BSD, 3), *strides(call.window_BWD, 3),
        HEADS=H, DIM=D, **blocks)
    if partial_lse is not None:
        merge(partial, partial_lse, output, splits)
    return output


def _blocks(heads, list_length, dim, dtype):
    """Block sizes: few large ones in the interpreter, where each operation costs alike."""
    block_d = arguments.power_of_two(dim)
    if backend.current().name == "interpret":
        block_s = min(arguments.power_of_two(max(list_length, 1), 16), 65536 // block_d)
        return dict(BLOCK_H=arguments.power_of_two(heads), BLOCK_S=block_s, BLOCK_D=block_d)
    # Sizes that `python -m kernels compile` shows to fit without a spill. Codes and numbers
    # take registers beside the output, so there is room for 32 heads (16 on an A100) and not
    # for 64: the other programs of a token find its rows in the L2 cache.
    if backend.vendor() == "hip":
        most_heads, block_s, warps, stages = (16 if dtype == torch.float32 else 32), 16, 4, 1
    elif dtype == torch.float32:  # no matrix instruction of full precision
        most_heads, block_s, warps, stages = 16, 16, 8 if block_d <= 256 else 16, 1
    else:
        most_heads, block_s, warps, stages = (16, 16, 4, 2) if arch() == 80 else (32, 16, 8, 2)
    block_h = max(16, min(arguments.power_of_two(heads), most_heads))
    return dict(BLOCK_H=block_h, BLOCK_S=block_s, BLOCK_D=block_d, num_warps=warps,
                num_stages=stages)


def traffic(*, head_dim, itemsize=2, **listed) -> dict[str, int]:
    """Bytes that the kernels load and store, and FLOPs; see `sparse_list.list_traffic`.

    `itemsize` is bytes per number of queries and output; rows have their bytes.
    """
    far, near = _formats(head_dim)
    return list_traffic(dim=head_dim, value_dim=head_dim, entry_bytes=far.nbytes,
                        row_bytes=near.nbytes, itemsize=itemsize, **listed)


sparse_attention_fp4.traffic = traffic  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape(SparseShape):
    """Rows of random bytes that stand for numbers; `dtype` is that of the queries."""

    head_dim: int = 512

    def arguments(self, device="cpu", seed=0) -> dict:
        query = drawing(self.dtype, device, seed)(self.batch, self.tokens, self.heads,
                                                  self.head_dim)
        far, near = _formats(self.head_dim)
        # Scales from 2**-3 to 3/8, and from 2**-10 to 2**-8: numbers of about 1.
        entry = self._bytes(self.entries, far, (32, 45), device, seed + 2)
        window = self._bytes(self.rows, near, (117, 120), device, seed + 3)
        return dict(query_BTHD=query, entry_BSY=entry, window_BWZ=window,
                    **self.common(device, seed))

    def _bytes(self, count, row: Row, scales, device, seed):
        if not count:
            return None
        if backend.current().name == "offline":
            return torch.empty(self.batch, count, row.nbytes, dtype=torch.uint8)
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(0, 256, (self.batch, count, row.nbytes), generator=generator,
                             dtype=torch.uint8)
        if row.bits == 8:
            rows[(rows & 127) == 127] -= 1  # NaN
        rows[..., row.scales_at:] = torch.randint(*scales, rows[..., row.scales_at:].shape,
                                                  generator=generator, dtype=torch.uint8)
        return rows.to(device)


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the blocks and splits that would be chosen here."""
    reach = shape.rows if shape.reach is None else min(shape.reach, shape.rows)
    blocks = _blocks(shape.heads, max(shape.chosen, shape.rows), shape.head_dim, shape.dtype)
    splits = shape.splits or default_splits(shape.batch * shape.tokens, shape.heads, shape.chosen,
                                            reach, shape.head_dim, blocks, None)
    return traffic(head_dim=shape.head_dim, splits=splits, block=blocks["BLOCK_H"],
                   **shape.sizes())


BF16 = torch.bfloat16

SMALL = (
    Shape("window and chosen", 2, 5, 3, 37, 9, 2, rows=12, reach=7, head_dim=96),
    Shape("window only, rows of other lengths", 3, 2, 5, rows=19, reach=6, lengths=(1, 0, 19),
          head_dim=32),
    Shape("chosen only", 2, 3, 6, 129, 33, head_dim=160, sink=False),
    Shape("nothing chosen", 2, 1, 3, 5, 4, empty=4, head_dim=64, sink=False),
    Shape("three splits", 1, 1, 12, 700, 300, 7, rows=128, splits=3),
    Shape("bf16", 1, 2, 6, 77, 33, rows=20, head_dim=96, dtype=BF16),
)

REAL = (
    Shape("v4.1-flash 1M", 1, 1, 64, 1_048_576, 512, rows=128, dtype=BF16),
    Shape("v4.1-flash 64K x 64", 64, 1, 64, 65_536, 512, rows=128, dtype=BF16),
    Shape("v4.1-flash chunk", 1, 256, 64, 65_536, 512, rows=383, reach=128, dtype=BF16),
    Shape("window only", 2, 1, 64, rows=128, lengths=(128, 40), dtype=BF16),
    Shape("128 heads", 1, 1, 128, 262_144, 1_024, rows=128, dtype=BF16),
    Shape("one entry", 1, 1, 3, 1, 1, rows=1, head_dim=96, dtype=BF16),
    Shape("fp32", 2, 1, 64, 4_096, 512, rows=128, head_dim=256),
)
