"""Decode with a latent cache (MLA, absorbed): one small row serves all heads as key and value.

The cache has, for each entry, a latent c of C numbers and a rope key r of R numbers (V2,
arXiv 2405.04434, section 2.1). With W_UK absorbed into the query, head h scores

    score_s = scale * (query_h . c_s + rope_h . r_s)
    output_h = sum_s softmax(score)_s * c_s

and W_UV, applied by the caller, makes the head's output from that sum of latents. As in
`decode_attention` the entries are cut into splits that are merged by their log-sum-exps;
two things differ.

- All H heads share the one row: a group of 128 heads in V3 where GQA has 8. The products
  are wide enough for the matrix unit, and one program takes BLOCK_H heads.
- Key and value are the same numbers. A block of latents is read once, multiplied with the
  queries for the scores, and multiplied again with the weights for the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.split_kv import _merge_splits, default_splits

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_LATENT = 512
LARGEST_ROPE = 128
PRODUCTS = ("_attend_latent",)


def mla_decode(
    query_BTHC: Float[Tensor, "B 1 H C"],
    rope_query_BTHR: Float[Tensor, "B 1 H R"],
    latent_BSC: Float[Tensor, "B S C"],
    rope_BSR: Float[Tensor, "B S R"],
    *,
    scale: float,
    lengths: Int[Tensor, " B"] | None = None,
    splits: int | None = None,
    impl: str | None = None,
) -> Float[Tensor, "B 1 H C"]:
    """Attention of one new token over a latent cache that already holds its row.

    Args:
        query_BTHC: queries with W_UK absorbed; T is 1.
        rope_query_BTHR: the part of the queries that carries the position.
        latent_BSC, rope_BSR: the cache, any strides.
        scale: factor on the scores: 1 / sqrt(nope + rope) of the head, not of C.
        lengths: valid entries of each row of the batch; S if None. What lies beyond is
            never read. A row of length 0 gives zeros.
        splits: how many parts the entries are cut into; chosen from the shapes if None.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Returns each head's sum of latents in the query's dtype; sums are in fp32.
    Raises ValueError naming the argument, its shape and what was expected.
    """
    sizes = arguments.match(
        query=("B T H C", query_BTHC), rope_query=("B T H R", rope_query_BTHR),
        latent=("B S C", latent_BSC), rope=("B S R", rope_BSR))
    if sizes["T"] != 1:
        raise ValueError(f"query has shape {tuple(query_BTHC.shape)}: T is {sizes['T']}, expected "
                         "1 new token")
    arguments.none_or_at_least_1(splits=splits)
    lengths_B = arguments.entry_counts(lengths, sizes["B"], sizes["S"], query_BTHC.device)
    scale = arguments.number(scale=scale)
    tensors = {"query": query_BTHC, "rope_query": rope_query_BTHR, "latent": latent_BSC,
               "rope": rope_BSR}
    if not backend.use_triton(impl, DTYPES, **tensors):
        return twin(query_BTHC, rope_query_BTHR, latent_BSC, rope_BSR, scale, lengths_B)
    arguments.head_dims(LARGEST_LATENT, latent=sizes["C"])
    arguments.head_dims(LARGEST_ROPE, rope=sizes["R"])
    arguments.in_32_bits(2, query=query_BTHC, rope_query=rope_query_BTHR)
    arguments.in_32_bits(1, latent=latent_BSC, rope=rope_BSR)
    rows = (query_BTHC, rope_query_BTHR, latent_BSC, rope_BSR)
    return _launch(*rows, scale, lengths_B, splits, sizes)


def twin(query_BTHC, rope_query_BTHR, latent_BSC, rope_BSR, scale, lengths_B=None):
    """The same in plain torch, in fp32 or wider."""
    B, S, _ = latent_BSC.shape
    wide = torch.promote_types(query_BTHC.dtype, torch.float32)
    position_S = torch.arange(S, device=query_BTHC.device)
    length_B1 = (position_S.new_full((B, 1), S) if lengths_B is None else lengths_B[:, None])
    visible_BS = position_S < length_B1
    # What is not visible may be anything, NaN included: 0 * NaN would be NaN.
    latent_BSC = torch.where(visible_BS[:, :, None], latent_BSC.to(wide), 0)
    rope_BSR = torch.where(visible_BS[:, :, None], rope_BSR.to(wide), 0)
    score_BHS = torch.einsum("bthc,bsc->bhs", query_BTHC.to(wide), latent_BSC)
    score_BHS = score_BHS + torch.einsum("bthr,bsr->bhs", rope_query_BTHR.to(wide), rope_BSR)
    score_BHS = (score_BHS * scale).masked_fill(~visible_BS[:, None], -torch.inf)
    any_B11 = visible_BS.any(1)[:, None, None]
    weight_BHS = torch.where(any_B11, torch.softmax(score_BHS, dim=-1), 0)
    return torch.einsum("bhs,bsc->bhc", weight_BHS, latent_BSC)[:, None].to(query_BTHC.dtype)


@triton.jit
def _attend_latent(
    query, rope_query, latent, rope, lengths, partial, partial_lse, scale, entries, splits,
    query_b, query_h, query_c, rope_query_b, rope_query_h, rope_query_r,
    latent_b, latent_s, latent_c, rope_b, rope_s, rope_r,
    HEADS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):
    """One program: BLOCK_H heads of one row of the batch, over one split of the entries."""
    program = tl.program_id(0)  # ((b * splits) + split) * parts + part: neighbours share rows
    PARTS: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    head_H = (program % PARTS) * BLOCK_H + tl.arange(0, BLOCK_H)
    split = program // PARTS % splits
    batch = (program // PARTS // splits).to(tl.int64)
    number_C = tl.arange(0, BLOCK_C)
    number_R = tl.arange(0, BLOCK_R)

    length = entries
    if lengths is not None:
        length = tl.minimum(tl.load(lengths + batch), entries)
    share = tl.cdiv(tl.cdiv(length, splits), BLOCK_S) * BLOCK_S
    begin = split * share
    end = tl.minimum(begin + share, length)

    query_HC = tl.load(
        query + batch * query_b + head_H[:, None] * query_h + number_C[None, :] * query_c,
        mask=(head_H[:, None] < HEADS) & (number_C[None, :] < LATENT), other=0.0)
    rope_query_HR = tl.load(
        rope_query + batch * rope_query_b + head_H[:, None] * rope_query_h
        + number_R[None, :] * rope_query_r,
        mask=(head_H[:, None] < HEADS) & (number_R[None, :] < ROPE), other=0.0)
    highest_H = tl.full([BLOCK_H], -float("inf"), tl.float32)
    total_H = tl.zeros([BLOCK_H], tl.float32)
    output_HC = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for start in range(begin, end, BLOCK_S):
        entry = start + tl.arange(0, BLOCK_S)
        there = entry < end
        entry_at = entry.to(tl.int64)[:, None]
        latent_SC = tl.load(latent + batch * latent_b + entry_at * latent_s
                            + number_C[None, :] * latent_c,
                            mask=there[:, None] & (number_C[None, :] < LATENT), other=0.0)
        rope_SR = tl.load(rope + batch * rope_b + entry_at * rope_s + number_R[None, :] * rope_r,
                          mask=there[:, None] & (number_R[None, :] < ROPE), other=0.0)
        score_HS = tl.dot(query_HC, tl.trans(latent_SC), input_precision="ieee")
        score_HS = tl.dot(rope_query_HR, tl.trans(rope_SR), score_HS, input_precision="ieee")
        score_HS = tl.where(there[None, :], score_HS * scale, -float("inf"))
        # A block has at least one entry, so the new maximum is finite.
        higher_H = tl.maximum(highest_H, tl.max(score_HS, 1))
        shrink_H = tl.exp(highest_H - higher_H)
        weight_HS = tl.exp(score_HS - higher_H[:, None])
        total_H = total_H * shrink_H + tl.sum(weight_HS, 1)
        output_HC = output_HC * shrink_H[:, None] + tl.dot(
            weight_HS.to(latent_SC.dtype), latent_SC, input_precision="ieee")
        highest_H = higher_H

    # An empty split has a total of 0: its output is 0 and its log-sum-exp -inf.
    some_H = total_H > 0
    output_HC = output_HC / tl.where(some_H, total_H, 1.0)[:, None]
    lse_H = tl.where(some_H, highest_H + tl.log(tl.where(some_H, total_H, 1.0)), -float("inf"))
    at_H = (batch * splits + split) * HEADS + head_H
    tl.store(partial + at_H[:, None] * LATENT + number_C[None, :], output_HC,
             mask=(head_H[:, None] < HEADS) & (number_C[None, :] < LATENT))
    tl.store(partial_lse + at_H, lse_H, mask=head_H < HEADS)


def _launch(query_BTHC, rope_query_BTHR, latent_BSC, rope_BSR, scale, lengths_B, splits, sizes):
    B, S, H, C, R = (sizes[letter] for letter in ("B", "S", "H", "C", "R"))
    blocks = _blocks(S, H, C, R, query_BTHC.dtype)
    if splits is None:
        splits = _splits(B, S, H, blocks, query_BTHC.device)
    partial = query_BTHC.new_empty(B * splits, H, C, dtype=torch.float32)
    partial_lse = query_BTHC.new_empty(B * splits, H, dtype=torch.float32)
    output = query_BTHC.new_empty(B, 1, H, C)
    strides = [tensor.stride(axis) for tensor in (query_BTHC, rope_query_BTHR)
               for axis in (0, 2, 3)]
    _attend_latent[(B * splits * -(-H // blocks["BLOCK_H"]),)](
        query_BTHC, rope_query_BTHR, latent_BSC, rope_BSR, lengths_B, partial, partial_lse,
        scale, S, splits, *strides, *latent_BSC.stride(), *rope_BSR.stride(),
        HEADS=H, LATENT=C, ROPE=R, **blocks)
    _merge_splits[(B * H,)](partial, partial_lse, output, splits, GROUP=H, VALUE_DIM=C,
                            BLOCK_N=arguments.power_of_two(splits), BLOCK_V=blocks["BLOCK_C"])
    return output


def _blocks(entries, heads, latent, rope, dtype):
    """Block sizes: few large ones in the interpreter, where each operation costs alike."""
    block_c, block_r = arguments.power_of_two(latent, 16), arguments.power_of_two(rope, 16)
    if backend.current().name == "interpret":
        block_s = min(arguments.power_of_two(entries, 16), 65536 // block_c)
        return dict(BLOCK_H=arguments.power_of_two(heads), BLOCK_S=block_s,
                    BLOCK_C=block_c, BLOCK_R=block_r)
    # Sizes that `python -m kernels compile` shows to fit all targets without a spill.
    block_h, block_s, warps, stages = 16, 32, 4, 2
    if dtype == torch.float32:
        # A thread of AMD's has 512 registers if there are few; NVIDIA's has 255.
        block_s, warps, stages = 16, 4 if backend.vendor() == "hip" else 8, 1
    return dict(BLOCK_H=block_h, BLOCK_S=block_s, BLOCK_C=block_c, BLOCK_R=block_r,
                num_warps=warps, num_stages=stages)


def _splits(batch, entries, heads, blocks, device) -> int:
    parts = -(-heads // blocks["BLOCK_H"])
    return default_splits(batch, entries, parts, {**blocks, "BLOCK_V": blocks["BLOCK_C"]}, device)


def traffic(*, batch=1, entries, heads, latent_dim, rope_dim, lengths=None, splits=1, block=16,
            itemsize=2) -> dict[str, int]:
    """Bytes that the two kernels load and store, and the FLOPs of the products.

    A row is read once by each block of `block` heads (caches on the chip may answer all
    but the first of these reads). `lengths` is a list of ints or None; `itemsize` is bytes
    per number of queries and rows. The partial outputs are fp32 and counted both ways.
    """
    parts = -(-heads // block)
    visible = sum([entries] * batch if lengths is None else lengths)
    partial = 4 * batch * heads * splits * (latent_dim + 1)
    read = (visible * parts + batch * heads * splits) * (latent_dim + rope_dim) * itemsize
    return {
        "bytes_read": read + partial + (0 if lengths is None else 4 * batch * splits * parts),
        "bytes_written": partial + batch * heads * latent_dim * itemsize,
        "flops": 2 * visible * heads * (2 * latent_dim + rope_dim),
    }


mla_decode.traffic = traffic  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape:
    """One new token of H heads against S rows of a latent and a rope key."""

    label: str
    batch: int
    entries: int
    heads: int
    latent_dim: int = 512
    rope_dim: int = 64
    lengths: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float32

    def arguments(self, device="cpu", seed=0) -> dict:
        draw = drawing(self.dtype, device, seed)
        lengths = self.lengths and torch.tensor(self.lengths, dtype=torch.int32, device=device)
        return dict(query_BTHC=draw(self.batch, 1, self.heads, self.latent_dim),
                    rope_query_BTHR=draw(self.batch, 1, self.heads, self.rope_dim),
                    latent_BSC=draw(self.batch, self.entries, self.latent_dim),
                    rope_BSR=draw(self.batch, self.entries, self.rope_dim),
                    scale=(self.latent_dim + self.rope_dim) ** -0.5, lengths=lengths)


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the splits that would be chosen here."""
    blocks = _blocks(shape.entries, shape.heads, shape.latent_dim, shape.rope_dim, shape.dtype)
    splits = _splits(shape.batch, shape.entries, shape.heads, blocks, None)
    return traffic(batch=shape.batch, entries=shape.entries, heads=shape.heads,
                   latent_dim=shape.latent_dim, rope_dim=shape.rope_dim, lengths=shape.lengths,
                   splits=splits, block=blocks["BLOCK_H"], itemsize=shape.dtype.itemsize)


SMALL = (
    Shape("small latent", 2, 37, 3, 24, 6),
    Shape("rows of other lengths, one of 0", 3, 129, 5, 40, 12, lengths=(1, 0, 129)),
    Shape("one entry", 2, 1, 6, 96, 20),
    Shape("the latent of V3", 1, 300, 12),
    Shape("bf16", 1, 131, 6, 96, 20, dtype=torch.bfloat16),
)

REAL = (
    Shape("deepseek-v3 128K", 1, 131_072, 128, dtype=torch.bfloat16),
    Shape("deepseek-v3 8K x 16", 16, 8_192, 128, lengths=(8_192,) * 16, dtype=torch.bfloat16),
    Shape("deepseek-v2-lite 32K", 1, 32_768, 16, dtype=torch.bfloat16),
    Shape("one entry", 1, 1, 3, 96, 24, dtype=torch.float16),
    Shape("fp32", 2, 4_096, 16),
)
