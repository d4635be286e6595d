"""Prefill: many new tokens look back at the cache and at each other, causally.

T new tokens are the last T of the S entries (their own keys are already among them), so
token t sits at position S - T + t. For query head h and kv head k = h // (H / K):

    score_ts = scale * query_t,h . key_s,k      where s <= S - T + t, else -inf
    output_t,h = sum_s softmax(score_t)_s * value_s,k

The T x S table of scores is never stored. One program takes a block of queries and walks
over blocks of keys, carrying for each query the highest score m so far, the sum l of
exp(score - m), and the weighted sum o of values. A block with a higher maximum m' first
shrinks what was summed by exp(m - m'):

    l' = exp(m - m') * l + sum_s exp(score_s - m')
    o' = exp(m - m') * o + sum_s exp(score_s - m') * value_s

and the output is o / l at the end (FlashAttention-2; Dao, 2023). Blocks that no query of
the program may see are not visited: those after its last query, and with a window those
that have dropped out of it.

The mask is aligned at the end ("bottom-right"): the last query sees everything. Torch's
`is_causal` aligns at the beginning, which is the same only if T = S.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import AttentionShape as Shape
from kernels.backend import tl, triton

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_HEAD_DIM = 256
PRODUCTS = ("_attend_block",)
LOG2_E = 1.4426950408889634  # exp(x) = 2 ** (x * LOG2_E), and 2 ** x is what a GPU has


def flash_attention(
    query_BTHD: Float[Tensor, "B T H D"],
    key_BSKD: Float[Tensor, "B S K D"],
    value_BSKD: Float[Tensor, "B S K Dv"],
    *,
    scale: float | None = None,
    window: int | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    impl: str | None = None,
) -> Float[Tensor, "B T H Dv"]:
    """Causal attention of T new tokens over S entries, the last T of which are their own.

    Args:
        query_BTHD: queries of the new tokens.
        key_BSKD, value_BSKD: old and new entries, any strides; the value's head dim may
            differ.
        scale: factor on the scores; 1 / sqrt(D) if None.
        window: a token sees the last `window` entries up to and with itself; all if None.
        lengths: valid entries of each row of the batch, its new tokens with them; S if
            None. What lies beyond is never read. A query before position 0 gives zeros.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Returns the output in the query's dtype; sums are in fp32.
    Raises ValueError naming the argument, its shape and what was expected.
    """
    sizes = arguments.match(query=("B T H D", query_BTHD), key=("B S K D", key_BSKD),
                            value=("B S K Dv", value_BSKD))
    arguments.group_size(sizes["H"], sizes["K"])
    arguments.none_or_at_least_1(window=window)
    lengths_B = arguments.entry_counts(lengths, sizes["B"], sizes["S"], query_BTHD.device)
    if lengths is None and sizes["T"] > sizes["S"]:
        raise ValueError(f"query has {sizes['T']} tokens and key {sizes['S']} entries; the new "
                         "tokens' own entries must be among them (T <= S)")
    scale = 1 / math.sqrt(sizes["D"]) if scale is None else arguments.number(scale=scale)
    tensors = {"query": query_BTHD, "key": key_BSKD, "value": value_BSKD}
    if not backend.use_triton(impl, DTYPES, **tensors):
        return twin(query_BTHD, key_BSKD, value_BSKD, scale, window, lengths_B)
    arguments.head_dims(LARGEST_HEAD_DIM, query=sizes["D"], value=sizes["Dv"])
    arguments.in_32_bits(1, **tensors)
    return _launch(query_BTHD, key_BSKD, value_BSKD, scale, window, lengths_B, sizes)


def twin(query_BTHD, key_BSKD, value_BSKD, scale, window=None, lengths_B=None):
    """The same in plain torch with the whole table of scores, in fp32 or wider."""
    B, T = query_BTHD.shape[:2]
    S, K = key_BSKD.shape[1:3]
    wide = torch.promote_types(query_BTHD.dtype, torch.float32)
    query_BTKGD = query_BTHD.unflatten(2, (K, -1)).to(wide)
    entry_S = torch.arange(S, device=query_BTHD.device)
    length_B = entry_S.new_full((B,), S) if lengths_B is None else lengths_B
    position_BT1 = (length_B[:, None] - T + torch.arange(T, device=entry_S.device))[:, :, None]
    visible_BTS = entry_S <= position_BT1
    if window is not None:
        visible_BTS = visible_BTS & (entry_S > position_BT1 - window)
    # Beyond the length may stand anything, NaN included: 0 * NaN would be NaN.
    valid_BS11 = (entry_S < length_B[:, None])[:, :, None, None]
    key_BSKD = torch.where(valid_BS11, key_BSKD.to(wide), 0)
    value_BSKD = torch.where(valid_BS11, value_BSKD.to(wide), 0)
    score_BTKGS = torch.einsum("btkgd,bskd->btkgs", query_BTKGD, key_BSKD) * scale
    visible_BT11S = visible_BTS[:, :, None, None]
    weight_BTKGS = torch.softmax(score_BTKGS.masked_fill(~visible_BT11S, -torch.inf), dim=-1)
    weight_BTKGS = torch.where(visible_BT11S.any(-1, keepdim=True), weight_BTKGS, 0)
    output_BTKGD = torch.einsum("btkgs,bskd->btkgd", weight_BTKGS, value_BSKD)
    return output_BTKGD.flatten(2, 3).to(query_BTHD.dtype)


@triton.jit
def _attend_block(
    query, key, value, lengths, output,
    scale_log2, tokens, entries, window,
    query_b, query_t, query_h, query_d, key_b, key_s, key_k, key_d,
    value_b, value_s, value_k, value_d, output_b, output_t, output_h,
    HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """One program: a block of queries of one head, over all keys they may see."""
    # Batch and head on grid axis 0 too: axes 1 and 2 end at 65,535. The last block of
    # queries sees most and comes first, so that no long program is left for the end.
    program = tl.program_id(0)
    blocks = tl.cdiv(tokens, BLOCK_T)
    block = blocks - 1 - program % blocks
    row = program // blocks
    batch = (row // HEADS).to(tl.int64)  # 64 bits: offsets in a large cache pass 2**31
    head = (row % HEADS).to(tl.int64)
    token = block * BLOCK_T + tl.arange(0, BLOCK_T)
    dim = tl.arange(0, BLOCK_D)
    value_dim = tl.arange(0, BLOCK_V)

    length = entries
    if lengths is not None:
        length = tl.minimum(tl.load(lengths + batch), entries)
    position_T = length - tokens + token
    first_position = length - tokens + block * BLOCK_T
    last_position = tl.minimum(first_position + BLOCK_T, length) - 1
    begin = tl.maximum(first_position - window + 1, 0)
    end = last_position + 1

    token_at = token.to(tl.int64)[:, None]
    query_mask = (token[:, None] < tokens) & (dim[None, :] < DIM)
    query_TD = tl.load(query + batch * query_b + token_at * query_t + head * query_h
                       + dim[None, :] * query_d, mask=query_mask, other=0.0)
    key_head = key + batch * key_b + (head // GROUP) * key_k
    value_head = value + batch * value_b + (head // GROUP) * value_k

    highest_T = tl.full([BLOCK_T], -float("inf"), tl.float32)
    total_T = tl.zeros([BLOCK_T], tl.float32)
    output_TV = tl.zeros([BLOCK_T, BLOCK_V], tl.float32)
    for start in range(begin, end, BLOCK_S):
        entry = start + tl.arange(0, BLOCK_S)
        there = (entry < end)[:, None]
        entry_at = entry.to(tl.int64)[:, None]
        key_SD = tl.load(key_head + entry_at * key_s + dim[None, :] * key_d,
                         mask=there & (dim[None, :] < DIM), other=0.0)
        score_TS = tl.dot(query_TD, tl.trans(key_SD), input_precision="ieee") * scale_log2
        back_TS = position_T[:, None] - entry[None, :]  # how far the key lies behind
        score_TS = tl.where((back_TS >= 0) & (back_TS < window), score_TS, -float("inf"))
        higher_T = tl.maximum(highest_T, tl.max(score_TS, 1))
        # A query may see nothing yet: -inf minus -inf is NaN, so such a maximum counts as 0.
        base_T = tl.where(higher_T == -float("inf"), 0.0, higher_T)
        shrink_T = tl.exp2(highest_T - base_T)
        weight_TS = tl.exp2(score_TS - base_T[:, None])
        total_T = total_T * shrink_T + tl.sum(weight_TS, 1)
        # The mask keeps NaN out of unused slots: a weight of 0 times NaN is NaN.
        value_SV = tl.load(value_head + entry_at * value_s + value_dim[None, :] * value_d,
                           mask=there & (value_dim[None, :] < VALUE_DIM), other=0.0)
        output_TV = output_TV * shrink_T[:, None] + tl.dot(
            weight_TS.to(value_SV.dtype), value_SV, input_precision="ieee")
        highest_T = higher_T

    output_TV = output_TV / tl.where(total_T > 0, total_T, 1.0)[:, None]
    tl.store(output + batch * output_b + token_at * output_t + head * output_h
             + value_dim[None, :], output_TV.to(output.dtype.element_ty),
             mask=(token[:, None] < tokens) & (value_dim[None, :] < VALUE_DIM))


def _launch(query_BTHD, key_BSKD, value_BSKD, scale, window, lengths_B, sizes):
    B, T, S, H, D, Dv = (sizes[letter] for letter in ("B", "T", "S", "H", "D", "Dv"))
    blocks = _blocks(T, S, D, Dv, query_BTHD.dtype)
    output = query_BTHD.new_empty(B, T, H, Dv)
    programs = B * H * -(-T // blocks["BLOCK_T"])
    _attend_block[(programs,)](
        query_BTHD, key_BSKD, value_BSKD, lengths_B, output,
        scale * LOG2_E, T, S, S if window is None else min(window, S),
        *query_BTHD.stride(), *key_BSKD.stride(), *value_BSKD.stride(), *output.stride()[:3],
        HEADS=H, GROUP=H // sizes["K"], DIM=D, VALUE_DIM=Dv, **blocks)
    return output


def _blocks(tokens, entries, dim, value_dim, dtype):
    """Block sizes: few large ones in the interpreter, where each operation costs alike."""
    block_d, block_v = arguments.power_of_two(dim, 16), arguments.power_of_two(value_dim, 16)
    widest = max(block_d, block_v)
    if backend.current().name == "interpret":
        return dict(BLOCK_T=min(arguments.power_of_two(tokens, 16), 128),
                    BLOCK_S=min(arguments.power_of_two(entries, 16), 512),
                    BLOCK_D=block_d, BLOCK_V=block_v)
    # Sizes that `python -m kernels compile` shows to fit all targets without a spill. fp32
    # has no matrix instruction of full precision, so its products need many registers.
    block_t, block_s, warps, stages = (128, 64, 8, 2) if widest <= 128 else (64, 32, 8, 2)
    if widest <= 128 and (dim < block_d or value_dim < block_v):
        # Masks along the head dim take registers as well.
        block_s = 64 if backend.vendor() == "hip" else 32
    if dtype == torch.float32:
        block_t, block_s, warps, stages = 32, 16, 8, 1
    return dict(BLOCK_T=block_t, BLOCK_S=block_s, BLOCK_D=block_d, BLOCK_V=block_v,
                num_warps=warps, num_stages=stages)


def traffic(*, batch=1, tokens, entries, heads, kv_heads, head_dim, value_dim=None, window=None,
            lengths=None, block=128, itemsize=2) -> dict[str, int]:
    """Bytes the kernel loads and stores, and the FLOPs of the two products.

    A key or value is read once by each query head and each block of `block` queries that
    sees it (caches on the chip may answer some of these reads). FLOPs count visible
    pairs only. `lengths` is a list of ints or None; `itemsize` is bytes per number.
    """
    value_dim = head_dim if value_dim is None else value_dim
    window = entries if window is None else min(window, entries)
    visited = pairs = 0
    for length in [entries] * batch if lengths is None else lengths:
        for first in range(0, tokens, block):
            last = min(first + block, tokens)
            end = max(0, length - tokens + last)
            visited += max(0, end - max(0, length - tokens + first - window + 1))
        for position in range(max(0, length - tokens), length):
            pairs += min(position + 1, window)
    programs = batch * heads * -(-tokens // block)
    read = (visited * heads * (head_dim + value_dim) + batch * tokens * heads * head_dim) * itemsize
    return {
        "bytes_read": read + (0 if lengths is None else 4 * programs),
        "bytes_written": batch * tokens * heads * value_dim * itemsize,
        "flops": 2 * pairs * heads * (head_dim + value_dim),
    }


flash_attention.traffic = traffic  # type: ignore[attr-defined]


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the blocks that would be chosen here."""
    blocks = _blocks(shape.tokens, shape.entries, shape.head_dim,
                     shape.value_dim or shape.head_dim, shape.dtype)
    return traffic(tokens=shape.tokens, **shape.sizes(), block=blocks["BLOCK_T"])


SMALL = (
    Shape("whole prompt", 2, 127, 127, 3, 3, 40),
    Shape("chunk at an offset", 1, 33, 161, 6, 2, 96),
    Shape("window, rows of other lengths", 3, 129, 200, 6, 3, 24, window=37,
          lengths=(200, 129, 50)),
    Shape("value narrower than key", 1, 64, 130, 4, 4, 192, value_dim=128),
    Shape("one token, one entry", 2, 1, 1, 3, 1, 8),
    Shape("bf16", 1, 100, 300, 4, 2, 64, dtype=torch.bfloat16),
)

REAL = (
    Shape("deepseek-67b 4K", 1, 4_096, 4_096, 64, 8, 128, dtype=torch.bfloat16),
    Shape("llama-3.1-8b chunk at 32K", 1, 2_048, 32_768, 32, 8, 128, dtype=torch.bfloat16),
    Shape("gemma-3-27b window", 1, 8_192, 8_192, 32, 16, 128, window=1024, dtype=torch.bfloat16),
    Shape("head dim 256, lengths", 2, 2_048, 4_096, 8, 4, 256, lengths=(4_096, 3_000),
          dtype=torch.bfloat16),
    Shape("deepseek-v2 192/128", 1, 4_096, 4_096, 128, 128, 192, value_dim=128,
          dtype=torch.bfloat16),
    Shape("head dim 96 fp16", 1, 2_048, 2_048, 32, 32, 96, dtype=torch.float16),
    Shape("one token, one entry", 1, 1, 1, 1, 1, 64, dtype=torch.bfloat16),
    Shape("fp32", 2, 1_000, 1_000, 6, 2, 128),
    Shape("fp32 head dim 256", 1, 1_000, 1_000, 6, 2, 256),
)
