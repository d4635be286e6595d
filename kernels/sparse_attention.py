"""Sparse attention: a token reads a window and the entries chosen for it, and nothing else.

An entry e is key and value at once, one for all heads; of V3.2's entries (a latent of 512
and a rope key of 64) the value is the first 512 numbers. With the window's rows and the
chosen entries of token t in one list:

    score_s = scale * query_t,h . e_s
    output_t,h = sum_s exp(score_s) * e_s / (exp(sink_h) + sum_s exp(score_s))

The sink (V4) is a logit of each head to which no value belongs. It enters the denominator
only, so it is what an entry of value 0 would be: the running sum simply starts with it.

- All heads read the same entries. One program takes a token and up to BLOCK_H heads: an
  entry is gathered once for them, and is key in one matrix product and value in the next.
- Gathering needs no memory of its own. An index becomes an address, and the rows of a
  block may lie anywhere; each of them is one piece of 1,024 bytes.
- In decode there are few tokens, so a token's list is cut into splits, which
  `decode_attention`'s second kernel merges. In prefill the tokens are enough.

A place of the list may be empty (index -1), and so may a whole block: its scores are -inf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.running_softmax import (
    own_part,
    share_and_lse,
    sink_or_nothing,
    store_split,
    weigh_block,
)
from kernels.sparse_list import (
    Call,
    SparseShape,
    block_sizes,
    check_call,
    check_splits,
    default_splits,
    list_traffic,
    merge,
    parts_of,
    strides,
)
from kernels.sparse_twin import twin

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_VALUE = 512
LARGEST_TAIL = 128  # numbers of a key beyond its value
PRODUCTS = ("_attend_chosen",)


def sparse_attention(
    query_BTHD: Float[Tensor, "B T H D"],
    entry_BSD: Float[Tensor, "B S D"] | None,
    index_BTk: Int[Tensor, "B T k"] | None,
    *,
    window_BWD: Float[Tensor, "B W D"] | None = None,
    window_lengths: Int[Tensor, " B"] | None = None,
    reach: int | None = None,
    sink_H: Float[Tensor, " H"] | None = None,
    value_dim: int | None = None,
    scale: float | None = None,
    splits: int | None = None,
    impl: str | None = None,
) -> Float[Tensor, "B T H V"]:
    """Attention of T new tokens over the entries chosen for each, and over a window.

    Args:
        query_BTHD: queries of the new tokens.
        entry_BSD: far entries, any strides; None if there are none.
        index_BTk: which of them each token reads, as `select_topk` gives it: int32 or
            int64, -1 for none. What is not listed is never read; what is listed twice
            counts twice.
        window_BWD: rows of the newest tokens, the last T of them the new tokens' own, or
            None. With one new token, a ring in any order that holds what it sees.
        window_lengths: valid rows of each row of the batch, its new tokens with them; W
            if None. What lies beyond is never read.
        reach: a token sees this many rows, its own the last of them; W if None.
        sink_H: a logit of each head that takes part in the denominator only.
        value_dim: V, the value is an entry's first V numbers; D if None.
        scale: factor on the scores; 1 / sqrt(D) if None.
        splits: how many parts a token's list is cut into; chosen from the shapes if None.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Returns the output in the query's dtype; sums are in fp32. A token that sees nothing
    gets zeros. Raises ValueError naming the argument, its shape and what was expected.
    """
    call = check_call(query_BTHD, entry_BSD, index_BTk, window_BWD, window_lengths, reach,
                      sink_H, splits)
    D = call.sizes["D"]
    value_dim = D if value_dim is None else value_dim
    if not isinstance(value_dim, int) or not 1 <= value_dim <= D:
        raise ValueError(f"value_dim is {value_dim!r}; expected None or a whole number from 1 "
                         f"to {D}, the numbers of an entry")
    scale = D**-0.5 if scale is None else arguments.number(scale=scale)
    if not backend.use_triton(impl, DTYPES, query=query_BTHD, **call.rows()):
        return twin(query_BTHD, call, scale, value_dim)
    arguments.head_dims(LARGEST_VALUE, value=value_dim)
    check_splits(splits, value_dim)
    arguments.in_32_bits(1, **call.rows())
    if D - value_dim > LARGEST_TAIL:
        raise ValueError(f"entry has {D} numbers and value_dim is {value_dim}; expected at most "
                         f"{LARGEST_TAIL} more")
    return _launch(query_BTHD, call, scale, value_dim, splits)


@triton.jit
def _attend_rows(
    row_S, number_d, there_S, query_HV, query_HR, scale, highest_H, total_H, output_HV,
    VALUE: tl.constexpr, TAIL: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_R: tl.constexpr,
):
    """The rows at these addresses, each read once: as keys, then as values."""
    number_V = tl.arange(0, BLOCK_V)
    row_SV = tl.load(row_S[:, None] + number_V[None, :] * number_d,
                     mask=there_S[:, None] & (number_V[None, :] < VALUE), other=0.0)
    score_HS = tl.dot(query_HV, tl.trans(row_SV), input_precision="ieee")
    if TAIL:
        number_R = VALUE + tl.arange(0, BLOCK_R)  # the rest of a key
        row_SR = tl.load(row_S[:, None] + number_R[None, :] * number_d,
                         mask=there_S[:, None] & (number_R[None, :] < VALUE + TAIL), other=0.0)
        score_HS = tl.dot(query_HR, tl.trans(row_SR), score_HS, input_precision="ieee")
    weight_HS, highest_H, total_H, shrink_H = weigh_block(score_HS * scale, there_S, highest_H,
                                                           total_H)
    output_HV = tl.dot(weight_HS.to(row_SV.dtype), row_SV, output_HV * shrink_H[:, None],
                       input_precision="ieee")
    return highest_H, total_H, output_HV


@triton.jit
def _attend_chosen(
    query, entry, index, window, lengths, sink, partial, partial_lse,
    scale, tokens, entries, chosen, rows, reach, splits,
    entry_b, entry_s, entry_d,
    window_b, window_w, window_d,
    HEADS: tl.constexpr, VALUE: tl.constexpr, TAIL: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_R: tl.constexpr,
):
    """One program: BLOCK_H heads of one token, over one split of its list."""
    place_S = tl.arange(0, BLOCK_S)
    head, split, at, batch, first, last, near, begin, end = own_part(
        window, lengths, tokens, chosen, rows, reach, splits, HEADS, BLOCK_H, BLOCK_S)

    # Here and at the end a scalar says where, and offsets are known in advance: that saves
    # registers, and the output needs half of all there are.
    query += (at * HEADS + head) * (VALUE + TAIL)
    member_H1, number_V = tl.arange(0, BLOCK_H)[:, None], tl.arange(0, BLOCK_V)
    query_HV = tl.load(query + member_H1 * (VALUE + TAIL) + number_V[None, :],
                       mask=(member_H1 < HEADS - head) & (number_V[None, :] < VALUE), other=0.0)
    query_HR = query_HV
    if TAIL:
        number_R = VALUE + tl.arange(0, BLOCK_R)
        query_HR = tl.load(query + member_H1 * (VALUE + TAIL) + number_R[None, :],
                           mask=(member_H1 < HEADS - head) & (number_R[None, :] < VALUE + TAIL),
                           other=0.0)
    highest_H, total_H = sink_or_nothing(sink, head, split, HEADS, BLOCK_H)
    output_HV = tl.zeros([BLOCK_H, BLOCK_V], tl.float32)
    if window is not None:
        for block in range(begin, tl.minimum(end, near)):
            row_S = first + block * BLOCK_S + place_S
            highest_H, total_H, output_HV = _attend_rows(
                window + batch * window_b + row_S.to(tl.int64) * window_w, window_d,
                row_S < last, query_HV, query_HR, scale, highest_H, total_H, output_HV,
                VALUE, TAIL, BLOCK_V, BLOCK_R)
    if index is not None:
        index += at * chosen
        for block in range(tl.maximum(begin, near) - near, end - near):
            place = block * BLOCK_S + place_S
            row_S = tl.load(index + place, mask=place < chosen, other=-1)
            highest_H, total_H, output_HV = _attend_rows(
                entry + batch * entry_b + row_S.to(tl.int64) * entry_s, entry_d,
                (row_S >= 0) & (row_S < entries), query_HV, query_HR, scale, highest_H, total_H,
                output_HV, VALUE, TAIL, BLOCK_V, BLOCK_R)

    share_H, lse_H = share_and_lse(highest_H, total_H)
    output_HV = (output_HV * share_H[:, None]).to(partial.dtype.element_ty)
    store_split(partial, partial_lse, at * splits + split, head, lse_H, output_HV,
                 HEADS, VALUE, BLOCK_H, BLOCK_V)


def _launch(query_BTHD, call: Call, scale, value_dim, splits):
    B, T, H, D, S, k, W = (call.sizes[letter] for letter in "BTHDSkW")
    blocks = _blocks(H, max(k, W), value_dim, D - value_dim, query_BTHD.dtype)
    splits = splits or default_splits(B * T, H, k, call.reach, value_dim, blocks,
                                      query_BTHD.device)
    output = query_BTHD.new_empty(B, T, H, value_dim)
    partial, partial_lse = parts_of(output, splits)
    _attend_chosen[(B * T * splits * -(-H // blocks["BLOCK_H"]),)](
        query_BTHD.contiguous(), call.entry_BSD, call.index_BTk, call.window_BWD, call.lengths_B,
        call.sink_H, partial, partial_lse, scale, T, S, k, W, call.reach, splits,
        *strides(call.entry_BSD, 3), *strides(call.window_BWD, 3),
        HEADS=H, VALUE=value_dim, TAIL=D - value_dim, **blocks)
    if partial_lse is not None:
        merge(partial, partial_lse, output, splits)
    return output


def _blocks(heads, list_length, value_dim, tail, dtype):
    """Block sizes: few large ones in the interpreter, where each operation costs alike."""
    block_v = arguments.power_of_two(value_dim, 16)
    block_r = arguments.power_of_two(tail, 16) if tail else 1
    if backend.current().name == "interpret":
        block_s = min(arguments.power_of_two(max(list_length, 1), 16), 65536 // block_v)
        return dict(BLOCK_H=arguments.power_of_two(heads), BLOCK_S=block_s, BLOCK_V=block_v,
                    BLOCK_R=block_r)
    most_heads, block_s, warps, stages = block_sizes(dtype)
    block_h = max(16, min(arguments.power_of_two(heads), most_heads))
    return dict(BLOCK_H=block_h, BLOCK_S=block_s, BLOCK_V=block_v, BLOCK_R=block_r,
                num_warps=warps, num_stages=stages)


def traffic(*, head_dim, value_dim=None, itemsize=2, **listed) -> dict[str, int]:
    """Bytes that the kernels load and store, and FLOPs; see `sparse_list.list_traffic`.

    `itemsize` is bytes per number of queries, entries and rows.
    """
    return list_traffic(dim=head_dim, value_dim=value_dim or head_dim,
                        entry_bytes=head_dim * itemsize, row_bytes=head_dim * itemsize,
                        itemsize=itemsize, **listed)


sparse_attention.traffic = traffic  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape(SparseShape):
    """Rows of numbers: what is drawn is the queries' dtype."""

    head_dim: int = 512
    value_dim: int | None = None

    def arguments(self, device="cpu", seed=0) -> dict:
        draw = drawing(self.dtype, device, seed)
        far = draw(self.batch, self.entries, self.head_dim) if self.entries else None
        near = draw(self.batch, self.rows, self.head_dim) if self.rows else None
        return dict(query_BTHD=draw(self.batch, self.tokens, self.heads, self.head_dim),
                    entry_BSD=far, window_BWD=near, value_dim=self.value_dim,
                    **self.common(device, seed))


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the blocks and splits that would be chosen here."""
    value_dim = shape.value_dim or shape.head_dim
    reach = shape.rows if shape.reach is None else min(shape.reach, shape.rows)
    blocks = _blocks(shape.heads, max(shape.chosen, shape.rows), value_dim,
                     shape.head_dim - value_dim, shape.dtype)
    splits = shape.splits or default_splits(shape.batch * shape.tokens, shape.heads, shape.chosen,
                                            reach, value_dim, blocks, None)
    return traffic(head_dim=shape.head_dim, value_dim=value_dim, splits=splits,
                   block=blocks["BLOCK_H"], **shape.sizes())


BF16, FP16 = torch.bfloat16, torch.float16
V32: dict[str, Any] = dict(head_dim=576, value_dim=512, sink=False)

SMALL = (
    Shape("window and chosen", 2, 5, 3, 37, 9, 2, rows=12, reach=7, head_dim=40),
    Shape("window only, rows of other lengths", 3, 2, 5, rows=19, reach=6, lengths=(1, 0, 19),
          head_dim=24),
    Shape("latent and rope", 2, 3, 6, 129, 33, head_dim=46, value_dim=40, sink=False),
    Shape("nothing chosen", 2, 1, 3, 5, 4, empty=4, head_dim=20, sink=False),
    Shape("three splits", 1, 1, 12, 700, 300, 7, rows=128, splits=3),
    Shape("bf16", 1, 2, 6, 77, 33, rows=20, head_dim=96, dtype=BF16),
)

REAL = (
    Shape("v4-flash 1M, groups of 4", 1, 1, 64, 262_144, 512, rows=128, dtype=BF16),
    Shape("v4-flash 64K x 16", 16, 1, 64, 16_384, 512, rows=128, dtype=BF16),
    Shape("v4-flash chunk", 1, 256, 64, 16_384, 512, rows=383, reach=128, dtype=BF16),
    Shape("v4-pro 1M, groups of 4", 1, 1, 128, 262_144, 1_024, rows=128, dtype=BF16),
    Shape("v4-pro chunk", 1, 256, 128, 16_384, 1_024, rows=383, reach=128, dtype=BF16),
    Shape("v4.1-flash 64K x 64", 64, 1, 64, 65_536, 512, rows=128, dtype=BF16),
    Shape("v3.2 128K", 1, 1, 128, 131_072, 2_048, dtype=BF16, **V32),
    Shape("v3.2 chunk", 1, 256, 128, 131_072, 2_048, dtype=BF16, **V32),
    Shape("window only", 2, 1, 64, rows=128, lengths=(128, 40), dtype=BF16),
    Shape("one entry", 1, 1, 3, 1, 1, rows=1, head_dim=96, dtype=FP16),
    Shape("fp32", 2, 1, 64, 4_096, 512, rows=128),
    Shape("fp32 latent and rope", 1, 3, 16, 4_096, 512, **V32),
)
