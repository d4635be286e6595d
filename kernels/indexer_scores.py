"""The lightning indexer's scores: a cheap mark for every entry, to choose the best by.

    I(t, s) = sum over indexer heads h of  w_t,h * ReLU(q_t,h . k_s)      (V3.2, section 2.1)

One key a cached entry serves all heads. There is no softmax and no value, so nothing has
to be carried from block to block: one program makes one tile of the table of scores. It
holds a block of keys, walks over the heads, and adds up what each says.

- In prefill the rows of a product are the queries of one head: the heads come one after
  another, and the block of keys is read once for all of them.
- In decode there is one query, and a product of one row would waste the matrix unit. Then
  the rows are its heads, and the sum over them is taken inside the product's result.

An entry may stand for a group of `ratio` tokens and is visible once all of them are
written: query t sees the entries j < floor((t + 1) / ratio). What is not visible is not
read; its score is written as 0, and `select_topk`, given the same ratio and start, does
not look at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.visibility import VisibleShape, check_start, counts_of, seen_by, visible_counts

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_DIM = 256
PRODUCTS = ("_score_tile",)


def indexer_scores(
    query_BTID: Float[Tensor, "B T I D"],
    weight_BTI: Float[Tensor, "B T I"],
    key_BSD: Float[Tensor, "B S D"],
    *,
    ratio: int = 1,
    start: int | Int[Tensor, " B"] | None = None,
    impl: str | None = None,
) -> Float[Tensor, "B T S"]:
    """Every query's score of every entry it may see, and 0 for the others.

    Args:
        query_BTID, weight_BTI: the new tokens' index queries and the weights of the heads,
            any scale already in the weights.
        key_BSD: the cached index keys, any strides.
        ratio: tokens an entry stands for; see `kernels.visibility`.
        start: position of the first new token, one for all or one a row of the batch; if
            None, the last new token completes the last entry.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Returns fp32, as the sums are: 16 bits would make ties of different scores.
    Raises ValueError naming the argument, its shape and what was expected.
    """
    sizes = arguments.match(query=("B T I D", query_BTID), weight=("B T I", weight_BTI),
                            key=("B S D", key_BSD))
    B, T, S = sizes["B"], sizes["T"], sizes["S"]
    first, starts_B = check_start(start, B, T, S, ratio, query_BTID.device)
    tensors = {"query": query_BTID, "weight": weight_BTI, "key": key_BSD}
    if not backend.use_triton(impl, DTYPES, **tensors):
        seen_BT = visible_counts(first, starts_B, B, T, S, ratio, query_BTID.device)
        return twin(query_BTID, weight_BTI, key_BSD, seen_BT)
    arguments.head_dims(LARGEST_DIM, query=sizes["D"])
    arguments.in_32_bits(2, query=query_BTID)
    arguments.in_32_bits(1, weight=weight_BTI, key=key_BSD)
    return _launch(query_BTID, weight_BTI, key_BSD, first, starts_B, ratio, sizes)


def twin(query_BTID, weight_BTI, key_BSD, seen_BT):
    """The same in plain torch with a score a head, in fp32 or wider."""
    wide = torch.promote_types(query_BTID.dtype, torch.float32)
    match_BTIS = torch.einsum("btid,bsd->btis", query_BTID.to(wide), key_BSD.to(wide)).relu()
    score_BTS = torch.einsum("btis,bti->bts", match_BTIS, weight_BTI.to(wide))
    hidden_BTS = torch.arange(key_BSD.shape[1], device=key_BSD.device) >= seen_BT[:, :, None]
    return score_BTS.masked_fill(hidden_BTS, 0)


@triton.jit
def _score_tile(
    query, weight, key, starts, score, start, tokens, entries,
    query_b, query_t, query_i, query_d, weight_b, weight_t, weight_i, key_b, key_s, key_d,
    RATIO: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """One program: BLOCK_T queries against BLOCK_S keys, BLOCK_I heads at a time."""
    program = tl.program_id(0)
    parts, queries = tl.cdiv(entries, BLOCK_S), tl.cdiv(tokens, BLOCK_T)
    entry_S = (program % parts) * BLOCK_S + tl.arange(0, BLOCK_S)
    begin = (program // parts) % queries * BLOCK_T
    batch = (program // parts // queries).to(tl.int64)
    token_T = begin + tl.arange(0, BLOCK_T)
    seen_T = seen_by(starts, start, batch, token_T, tokens, entries, RATIO)
    longest = tl.max(seen_T, 0)

    dim = tl.arange(0, BLOCK_D)
    key_DS = tl.load(key + batch * key_b + entry_S.to(tl.int64)[None, :] * key_s
                     + dim[:, None] * key_d,
                     mask=(entry_S[None, :] < longest) & (dim[:, None] < DIM), other=0.0)
    # A row of the product is one head of one query.
    row = tl.arange(0, BLOCK_T * BLOCK_I)
    token_R = begin + row // BLOCK_I
    nobody = (program % parts) * BLOCK_S >= longest  # then no query is read either
    something_R = token_R < tl.where(nobody, 0, tokens)
    query += batch * query_b + token_R.to(tl.int64) * query_t
    weight += batch * weight_b + token_R.to(tl.int64) * weight_t
    score_TS = tl.zeros([BLOCK_T, BLOCK_S], tl.float32)
    for head in range(0, HEADS, BLOCK_I):
        head_R = head + row % BLOCK_I
        there_R = something_R & (head_R < HEADS)
        query_RD = tl.load(query[:, None] + head_R[:, None] * query_i + dim[None, :] * query_d,
                           mask=there_R[:, None] & (dim[None, :] < DIM), other=0.0)
        weight_R = tl.load(weight + head_R * weight_i, mask=there_R, other=0.0)
        match_RS = tl.dot(query_RD, key_DS, input_precision="ieee")
        said_RS = tl.maximum(match_RS, 0.0) * weight_R.to(tl.float32)[:, None]
        if BLOCK_I == 1:
            score_TS += said_RS
        else:
            score_TS += tl.sum(tl.reshape(said_RS, [BLOCK_T, BLOCK_I, BLOCK_S]), 1)

    score_TS = tl.where(entry_S[None, :] < seen_T[:, None], score_TS, 0.0)
    tl.store(score + (batch * tokens + token_T[:, None]) * entries + entry_S[None, :], score_TS,
             mask=(token_T[:, None] < tokens) & (entry_S[None, :] < entries))


def _launch(query_BTID, weight_BTI, key_BSD, first, starts_B, ratio, sizes):
    B, T, S, heads, D = (sizes[letter] for letter in ("B", "T", "S", "I", "D"))
    blocks = _blocks(T, S, heads, D, query_BTID.dtype)
    score_BTS = query_BTID.new_empty(B, T, S, dtype=torch.float32)
    programs = B * -(-T // blocks["BLOCK_T"]) * -(-S // blocks["BLOCK_S"])
    _score_tile[(programs,)](
        query_BTID, weight_BTI, key_BSD, starts_B, score_BTS, first, T, S,
        *query_BTID.stride(), *weight_BTI.stride(), *key_BSD.stride(),
        RATIO=ratio, HEADS=heads, DIM=D, **blocks)
    return score_BTS


def _blocks(tokens, entries, heads, dim, dtype):
    """Block sizes: few large ones in the interpreter, where each operation costs alike."""
    block_d, most_heads = arguments.power_of_two(dim, 16), arguments.power_of_two(heads)
    if backend.current().name == "interpret":
        block_t = min(arguments.power_of_two(tokens), 64)
        block_i = min(most_heads, 64 // block_t * 4)
        block_s = min(arguments.power_of_two(entries, 16), 2**18 // (block_t * block_i))
        return dict(BLOCK_T=block_t, BLOCK_I=block_i, BLOCK_S=block_s, BLOCK_D=block_d)
    # Sizes that `python -m kernels compile` shows to fit all targets without a spill. fp32
    # has no matrix instruction of full precision, so its products need many registers.
    block_t, block_i = (1, max(16, min(most_heads, 64))) if tokens == 1 else (64, 1)
    block_s, warps = (64, 4) if block_d <= 128 else (32, 4)
    if dtype == torch.float32:
        block_t, block_i, block_s, warps = (1, 16, 32, 4) if tokens == 1 else (32, 1, 32, 4)
    return dict(BLOCK_T=block_t, BLOCK_I=block_i, BLOCK_S=block_s, BLOCK_D=block_d,
                num_warps=warps, num_stages=2)


def traffic(*, batch=1, tokens, entries, heads, dim, ratio=1, start=None, blocks=(64, 64),
            itemsize=2) -> dict[str, int]:
    """Bytes the kernel loads and stores, and the FLOPs of the visible products.

    `blocks` are the queries and keys of a tile: a key is read once by each block of queries
    that sees it, a query and its weights once by each block of keys that it or a neighbour
    sees. `start` is None, an int, or a list of one int a row; `itemsize` is bytes per
    number of query, weight and key.
    """
    block_t, block_s = blocks
    rows = counts_of(batch=batch, tokens=tokens, entries=entries, ratio=ratio, start=start)
    keys = queries = 0
    for seen in rows:
        for begin in range(0, tokens, block_t):
            part = seen[begin:begin + block_t]
            keys += max(part)
            queries += len(part) * -(-max(part) // block_s)
    starts = 0
    if start is not None and not isinstance(start, int):
        starts = 4 * batch * -(-tokens // block_t) * -(-entries // block_s)
    return {
        "bytes_read": (keys * dim + queries * heads * (dim + 1)) * itemsize + starts,
        "bytes_written": 4 * batch * tokens * entries,
        "flops": 2 * sum(map(sum, rows)) * heads * (dim + 1),
    }


indexer_scores.traffic = traffic  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape(VisibleShape):
    """I indexer heads and keys of D numbers."""

    heads: int
    dim: int = 128

    def arguments(self, device="cpu", seed=0) -> dict:
        draw = drawing(self.dtype, device, seed)
        weight_BTI = draw(self.batch, self.tokens, self.heads)
        if backend.current().name != "offline":
            weight_BTI *= (self.heads * self.dim) ** -0.5
        return dict(query_BTID=draw(self.batch, self.tokens, self.heads, self.dim),
                    weight_BTI=weight_BTI, key_BSD=draw(self.batch, self.entries, self.dim),
                    **self.seeing(device))


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the blocks that would be chosen here."""
    blocks = _blocks(shape.tokens, shape.entries, shape.heads, shape.dim, shape.dtype)
    return traffic(**shape.sizes(), heads=shape.heads, dim=shape.dim,
                   blocks=(blocks["BLOCK_T"], blocks["BLOCK_S"]), itemsize=shape.dtype.itemsize)


SMALL = (
    Shape("prefill", 2, 37, 37, 3, 24),
    Shape("groups of 4, rows of other lengths", 3, 19, 45, 5, 40, ratio=4, start=(160, 0, 77)),
    Shape("one token", 3, 1, 1_003, 6, 96),
    Shape("one entry", 2, 1, 1, 1, 8),
    Shape("bf16", 1, 5, 300, 4, 64, dtype=torch.bfloat16),
)

REAL = (
    Shape("deepseek-v3.2 128K", 1, 1, 131_072, 64, dtype=torch.bfloat16),
    Shape("deepseek-v3.2 chunk", 1, 256, 131_072, 64, dtype=torch.bfloat16),
    Shape("v4 1M, groups of 4", 4, 1, 262_144, 64, ratio=4, start=(1_048_575, 9_000, 3, 70_000),
          dtype=torch.bfloat16),
    Shape("v4.1-flash 1M", 1, 1, 1_048_576, 32, dtype=torch.bfloat16),
    Shape("v4.1-flash chunk, groups of 2", 1, 256, 65_536, 32, ratio=2, dtype=torch.bfloat16),
    Shape("one entry", 1, 1, 1, 3, 24, dtype=torch.float16),
    Shape("fp32", 1, 1, 4_096, 64),
    Shape("fp32 chunk", 1, 300, 4_096, 5, 96),
)
