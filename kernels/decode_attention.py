"""Decode: one new token looks at everything in the cache.

For each query head h with key and value head k = h // (H / K):

    score_s = scale * query_h . key_s,k        for the cached entries s the token may see
    output_h = sum_s softmax(score)_s * value_s,k

The arithmetic is small and the reading is not: every key and value of the cache is
needed, for one token. So the kernel is built around reading each of them once.

- All query heads of a group share a kv head. One program takes the whole group, and a
  block of keys that has been read serves all of its heads.
- A sequence has one new token, so there are only B * K groups, fewer programs than a GPU
  has processors. The entries are therefore cut into splits that are worked on at the
  same time, each with its own maximum and sum; a second kernel merges them
  (`kernels.split_kv`).
- A server does not know how long a text will get, so it does not keep one long piece of
  memory for it. Entries lie in pages of P rows, anywhere in a pool, and a block table says
  where: entry s of text b is row s % P of page table[b, s // P] (`kernels.pages`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import AttentionShape as Shape
from kernels.backend import tl, triton
from kernels.pages import PagedShape, check_table, laid_out
from kernels.split_kv import LARGEST_MERGE, _merge_splits, default_splits

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_HEAD_DIM = 256
PRODUCTS = ("_attend_split",)


def decode_attention(
    query_BTHD: Float[Tensor, "B 1 H D"],
    key_BSKD: Float[Tensor, "B S K D"],
    value_BSKD: Float[Tensor, "B S K Dv"],
    *,
    scale: float | None = None,
    window: int | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    block_table: Int[Tensor, "B J"] | None = None,
    splits: int | None = None,
    impl: str | None = None,
) -> Float[Tensor, "B 1 H Dv"]:
    """Attention of one new token over a cache that already holds its key and value.

    Args:
        query_BTHD: the new token's queries; T is 1.
        key_BSKD, value_BSKD: the cache, any strides. The value's head dim may differ.
        scale: factor on the scores; 1 / sqrt(D) if None.
        window: see only the last `window` valid entries.
        lengths: valid entries of each row of the batch; S if None. What lies beyond is
            never read. A row of length 0 gives zeros.
        block_table: the pages of each row, in order; key and value are then a pool of pages
            [N, P, K, D], and S is J * P. Places that no visible entry needs may hold anything.
        splits: how many parts the entries are cut into; chosen from the shapes if None.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Returns the output in the query's dtype; sums are in fp32.
    Raises ValueError naming the argument, its shape and what was expected.
    """
    lead = "B S" if block_table is None else "N P"
    sizes = arguments.match(query=("B T H D", query_BTHD), key=(f"{lead} K D", key_BSKD),
                            value=(f"{lead} K Dv", value_BSKD))
    if sizes["T"] != 1:
        raise ValueError(f"query has shape {tuple(query_BTHD.shape)}: T is {sizes['T']}, expected "
                         "1 new token; flash_attention takes several")
    arguments.group_size(sizes["H"], sizes["K"])
    arguments.none_or_at_least_1(window=window, splits=splits)
    if block_table is not None:
        check_table(block_table, sizes, lengths, window, query_BTHD.device)
        sizes["S"] = block_table.shape[1] * sizes["P"]
    lengths_B = arguments.entry_counts(lengths, sizes["B"], sizes["S"], query_BTHD.device)
    scale = 1 / math.sqrt(sizes["D"]) if scale is None else arguments.number(scale=scale)
    tensors = {"query": query_BTHD, "key": key_BSKD, "value": value_BSKD}
    if not backend.use_triton(impl, DTYPES, **tensors):
        if block_table is not None:
            key_BSKD, value_BSKD = (laid_out(x, block_table) for x in (key_BSKD, value_BSKD))
        return twin(query_BTHD, key_BSKD, value_BSKD, scale, window, lengths_B)
    arguments.head_dims(LARGEST_HEAD_DIM, query=sizes["D"], value=sizes["Dv"])
    arguments.in_32_bits(1, **tensors)
    most = LARGEST_MERGE // arguments.power_of_two(sizes["Dv"], 16)
    if splits is not None and splits > most:
        raise ValueError(f"splits is {splits}; one program merges at most {most} of them at a "
                         f"value head dim of {sizes['Dv']}")
    return _launch(query_BTHD, key_BSKD, value_BSKD, scale, window, lengths_B, block_table,
                   splits, sizes)


def twin(query_BTHD, key_BSKD, value_BSKD, scale, window=None, lengths_B=None):
    """The same in plain torch, one einsum a line, in fp32 or wider."""
    B, S, K, _ = key_BSKD.shape
    wide = torch.promote_types(query_BTHD.dtype, torch.float32)
    query_BKGD = query_BTHD[:, 0].unflatten(1, (K, -1)).to(wide)
    position_S = torch.arange(S, device=query_BTHD.device)
    length_B1 = (torch.full((B, 1), S, device=query_BTHD.device) if lengths_B is None
                 else lengths_B[:, None])
    visible_BS = position_S < length_B1
    if window is not None:
        visible_BS = visible_BS & (position_S >= length_B1 - window)
    # What is not visible may be anything, NaN included: 0 * NaN would be NaN.
    seen_BS11 = visible_BS[:, :, None, None]
    key_BSKD = torch.where(seen_BS11, key_BSKD.to(wide), 0)
    value_BSKD = torch.where(seen_BS11, value_BSKD.to(wide), 0)
    score_BKGS = torch.einsum("bkgd,bskd->bkgs", query_BKGD, key_BSKD) * scale
    score_BKGS = score_BKGS.masked_fill(~visible_BS[:, None, None, :], -torch.inf)
    any_B111 = visible_BS.any(1)[:, None, None, None]
    weight_BKGS = torch.where(any_B111, torch.softmax(score_BKGS, dim=-1), 0)
    output_BKGD = torch.einsum("bkgs,bskd->bkgd", weight_BKGS, value_BSKD)
    return output_BKGD.flatten(1, 2)[:, None].to(query_BTHD.dtype)


@triton.jit
def _attend_split(
    query, key, value, lengths, table, partial, partial_lse,
    scale, entries, splits, window, page, table_b, table_j,
    query_b, query_h, query_d, key_b, key_s, key_k, key_d, value_b, value_s, value_k, value_d,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """One program: all query heads of one group, over one split of the entries."""
    program = tl.program_id(0)  # ((b * K) + k) * splits + split
    split = program % splits
    row = program // splits
    batch = (row // KV_HEADS).to(tl.int64)  # 64 bits: offsets in a large cache pass 2**31
    head = (row % KV_HEADS).to(tl.int64)
    group = tl.arange(0, BLOCK_G)
    dim = tl.arange(0, BLOCK_D)
    value_dim = tl.arange(0, BLOCK_V)

    # This program's share of the visible entries: whole blocks, so only the last is ragged.
    length = entries
    if lengths is not None:
        length = tl.minimum(tl.load(lengths + batch), entries)
    first = tl.maximum(length - window, 0)
    share = tl.cdiv(tl.cdiv(length - first, splits), BLOCK_S) * BLOCK_S
    begin = first + split * share
    end = tl.minimum(begin + share, length)

    query_at = (batch * query_b + (head * GROUP + group[:, None]) * query_h
                + dim[None, :] * query_d)
    query_mask = (group[:, None] < GROUP) & (dim[None, :] < DIM)
    query_GD = tl.load(query + query_at, mask=query_mask, other=0.0)

    highest_G = tl.full([BLOCK_G], -float("inf"), tl.float32)
    total_G = tl.zeros([BLOCK_G], tl.float32)
    output_GV = tl.zeros([BLOCK_G, BLOCK_V], tl.float32)
    for start in range(begin, end, BLOCK_S):
        entry = start + tl.arange(0, BLOCK_S)
        there = entry < end
        row_S, entry_S = tl.zeros_like(entry) + batch, entry.to(tl.int64)
        if table is not None:  # the row is a page, and the entry a row of it
            row_S = tl.load(table + batch * table_b + entry // page * table_j, mask=there,
                            other=0).to(tl.int64)
            entry_S = entry_S % page
        key_S = key + row_S * key_b + head * key_k + entry_S * key_s
        key_SD = tl.load(key_S[:, None] + dim[None, :] * key_d,
                         mask=there[:, None] & (dim[None, :] < DIM), other=0.0)
        score_GS = tl.dot(query_GD, tl.trans(key_SD), input_precision="ieee") * scale
        score_GS = tl.where(there[None, :], score_GS, -float("inf"))
        # A block has at least one entry, so the new maximum is finite.
        higher_G = tl.maximum(highest_G, tl.max(score_GS, 1))
        shrink_G = tl.exp(highest_G - higher_G)
        weight_GS = tl.exp(score_GS - higher_G[:, None])
        total_G = total_G * shrink_G + tl.sum(weight_GS, 1)
        # The mask keeps NaN out of unused slots: a weight of 0 times NaN is NaN.
        value_S = value + row_S * value_b + head * value_k + entry_S * value_s
        value_SV = tl.load(value_S[:, None] + value_dim[None, :] * value_d,
                           mask=there[:, None] & (value_dim[None, :] < VALUE_DIM), other=0.0)
        output_GV = output_GV * shrink_G[:, None] + tl.dot(
            weight_GS.to(value_SV.dtype), value_SV, input_precision="ieee")
        highest_G = higher_G

    # An empty split has a total of 0: its output is 0 and its log-sum-exp -inf.
    some_G = total_G > 0
    output_GV = output_GV / tl.where(some_G, total_G, 1.0)[:, None]
    lse_G = tl.where(some_G, highest_G + tl.log(tl.where(some_G, total_G, 1.0)), -float("inf"))
    partial_at = (program.to(tl.int64) * GROUP + group[:, None]) * VALUE_DIM + value_dim[None, :]
    tl.store(partial + partial_at, output_GV,
             mask=(group[:, None] < GROUP) & (value_dim[None, :] < VALUE_DIM))
    tl.store(partial_lse + program.to(tl.int64) * GROUP + group, lse_G, mask=group < GROUP)


def _launch(query_BTHD, key_BSKD, value_BSKD, scale, window, lengths_B, table_BJ, splits, sizes):
    B, S, H, K, D, Dv = (sizes[letter] for letter in ("B", "S", "H", "K", "D", "Dv"))
    blocks = _blocks(S, H // K, D, Dv, query_BTHD.dtype)
    if splits is None:
        splits = default_splits(B, S, K, blocks, query_BTHD.device)
    options = dict(KV_HEADS=K, GROUP=H // K, DIM=D, VALUE_DIM=Dv, **blocks)
    partial = query_BTHD.new_empty(B * K * splits, H // K, Dv, dtype=torch.float32)
    partial_lse = query_BTHD.new_empty(B * K * splits, H // K, dtype=torch.float32)
    output = query_BTHD.new_empty(B, 1, H, Dv)
    query_strides = [query_BTHD.stride(axis) for axis in (0, 2, 3)]
    _attend_split[(B * K * splits,)](
        query_BTHD, key_BSKD, value_BSKD, lengths_B, table_BJ, partial, partial_lse,
        scale, S, splits, S if window is None else min(window, S), sizes.get("P", 1),
        *((0, 0) if table_BJ is None else table_BJ.stride()),
        *query_strides, *key_BSKD.stride(), *value_BSKD.stride(), **options)
    _merge_splits[(B * H,)](partial, partial_lse, output, splits, GROUP=H // K, VALUE_DIM=Dv,
                            BLOCK_N=arguments.power_of_two(splits), BLOCK_V=blocks["BLOCK_V"])
    return output


def _blocks(entries, group, dim, value_dim, dtype):
    """Block sizes: few large ones in the interpreter, where each operation costs alike."""
    block_d, block_v = arguments.power_of_two(dim, 16), arguments.power_of_two(value_dim, 16)
    widest = max(block_d, block_v)
    if backend.current().name == "interpret":
        block_s = min(arguments.power_of_two(entries, 16), 65536 // widest)
        return dict(BLOCK_G=arguments.power_of_two(group), BLOCK_S=block_s,
                    BLOCK_D=block_d, BLOCK_V=block_v)
    # Sizes that `python -m kernels compile` shows to fit all targets without a spill. fp32
    # has no matrix instruction of full precision, so its products need many registers.
    block_s, warps, stages = (64, 4, 3) if widest <= 128 else (32, 4, 3)
    if dtype == torch.float32:
        block_s, warps, stages = 16, 8, 2
    return dict(BLOCK_G=arguments.power_of_two(group, 16), BLOCK_S=block_s, BLOCK_D=block_d,
                BLOCK_V=block_v, num_warps=warps, num_stages=stages)


def traffic(*, batch=1, entries, heads, kv_heads, head_dim, value_dim=None, window=None,
            lengths=None, splits=1, itemsize=2, table_itemsize=0) -> dict[str, int]:
    """Bytes that the two kernels load and store, and the FLOPs of the two products.

    Each visible key and value is read once. `lengths` is a list of ints or None;
    `itemsize` is bytes per number of query, key and value. The partial outputs between
    the kernels are fp32 and counted both ways. With pages, `table_itemsize` is the bytes of
    a page's number, which is looked up for each entry and kv head.
    """
    value_dim = head_dim if value_dim is None else value_dim
    visible = 0
    for length in [entries] * batch if lengths is None else lengths:
        visible += min(length, window or entries)
    programs = batch * kv_heads * splits
    partial = 4 * batch * heads * splits * (value_dim + 1)
    read_once = visible * kv_heads * (head_dim + value_dim) * itemsize
    queries = batch * heads * splits * head_dim * itemsize
    return {
        "bytes_read": read_once + queries + partial + visible * kv_heads * table_itemsize
                      + (0 if lengths is None else 4 * programs),
        "bytes_written": partial + batch * heads * value_dim * itemsize,
        "flops": 2 * visible * heads * (head_dim + value_dim),
    }


decode_attention.traffic = traffic  # type: ignore[attr-defined]


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the splits that would be chosen here."""
    value_dim = shape.value_dim or shape.head_dim
    blocks = _blocks(shape.entries, shape.heads // shape.kv_heads, shape.head_dim, value_dim,
                     shape.dtype)
    splits = default_splits(shape.batch, shape.entries, shape.kv_heads, blocks, None)
    return traffic(**shape.sizes(), splits=splits)


SMALL = (
    Shape("one kv head a query head", 2, 1, 130, 3, 3, 40),
    Shape("groups, window, a row of 0", 3, 1, 129, 6, 2, 96, window=17, lengths=(1, 0, 129)),
    Shape("value narrower than key", 1, 1, 127, 6, 1, 192, value_dim=128),
    Shape("one entry", 2, 1, 1, 4, 2, 64, lengths=(1, 1)),
    Shape("bf16", 1, 1, 513, 8, 2, 64, dtype=torch.bfloat16),
    Shape("several splits", 1, 1, 5000, 4, 2, 128),
    PagedShape("pages of 5", 3, 1, 65, 6, 2, 40, window=29, lengths=(61, 0, 7), page=5),
)

REAL = (
    Shape("deepseek-67b 16K", 1, 1, 16_384, 64, 8, 128, dtype=torch.bfloat16),
    Shape("llama-3.1-8b 128K", 1, 1, 131_072, 32, 8, 128, dtype=torch.bfloat16),
    Shape("llama-3.1-8b 8K x 16", 16, 1, 8_192, 32, 8, 128, lengths=(8_192,) * 16,
          dtype=torch.bfloat16),
    PagedShape("llama-3.1-8b 8K x 16, pages of 16", 16, 1, 8_192, 32, 8, 128,
               lengths=(8_192,) * 16, dtype=torch.bfloat16, page=16),
    PagedShape("deepseek-67b 16K, pages of 64", 1, 1, 16_384, 64, 8, 128, dtype=torch.bfloat16,
               page=64),
    Shape("gemma-3-27b window", 4, 1, 8_192, 32, 16, 128, window=1024, dtype=torch.bfloat16),
    Shape("head dim 256", 1, 1, 16_384, 8, 4, 256, dtype=torch.bfloat16),
    Shape("head dim 192/128, MHA", 1, 1, 8_192, 16, 16, 192, value_dim=128, dtype=torch.bfloat16),
    Shape("head dim 96 fp16", 1, 1, 4_096, 32, 32, 96, dtype=torch.float16),
    Shape("one entry", 1, 1, 1, 1, 1, 64, dtype=torch.bfloat16),
    Shape("fp32", 2, 1, 4_096, 6, 2, 128),
    Shape("fp32 head dim 256", 2, 1, 4_096, 6, 2, 256),
)
