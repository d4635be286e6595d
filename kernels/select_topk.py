"""The k best of many scores, in position order: what an indexer hands to the attention.

For each query, the set of the k entries with the highest scores among those it may see.
Sorting would answer it, but a sort moves every score many times, and only a threshold is
needed: the k-th highest score. It is found like a number in a guessing game.

- The bits of a float, read as a whole number, keep the order of the floats once negative
  ones are turned around. So a score becomes a 32-bit number, its *key*.
- The threshold is the largest number that at least k keys reach. Its bits are settled
  from the highest down, two at a time: count the keys that reach each of three
  candidates, keep the largest candidate that k of them reach. 16 rounds settle 32 bits.
- Above the threshold fewer than k keys lie, and all are chosen. Of the keys equal to it as
  many as are missing are chosen, lowest index first. (Scores behind a ReLU tie: exact
  zeros are common.)
- A running count of what was chosen so far is the place to write to. Thus the indices come
  out in position order; places left over become -1.

With a list of candidate blocks (see `kernels.candidate_blocks`) only the entries inside them
are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.score_keys import keys_of
from kernels.visibility import VisibleShape, check_start, counts_of, seen_by, visible_counts

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROUNDS = 16  # of two bits each, on the way to 32


def select_topk(
    score_BTS: Float[Tensor, "B T S"],
    k: int,
    *,
    ratio: int = 1,
    start: int | Int[Tensor, " B"] | None = None,
    blocks_BTJ: Int[Tensor, "B T J"] | None = None,
    block: int = 8,
    impl: str | None = None,
) -> Int[Tensor, "B T k"]:
    """The k best visible entries of each query in position order; -1 where fewer are visible.

    Args:
        score_BTS: scores, any strides. What a query may not see is never read.
        k: how many to choose. The width of the result is min(k, S).
        ratio: tokens an entry stands for; see `kernels.visibility`.
        start: position of the first new token, one for all or one a row of the batch; if
            None, the last new token completes the last entry.
        blocks_BTJ: choose inside these blocks of `block` entries only: rising indices of
            int32, each block at most once, -1 for none, as `candidate_blocks` gives them.
        block: entries of a block.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Of equal scores the lowest index wins; NaN counts as the highest. Returns int32.
    Raises ValueError naming the argument, its shape and what was expected.
    """
    sizes = arguments.match(score=("B T S", score_BTS))
    B, T, S = sizes["B"], sizes["T"], sizes["S"]
    arguments.at_least_1(k=k, block=block)
    first, starts_B = check_start(start, B, T, S, ratio, score_BTS.device)
    if blocks_BTJ is not None:
        arguments.block_list(blocks_BTJ, score_BTS, block)
    if not backend.use_triton(impl, DTYPES, score=score_BTS):
        seen_BT = visible_counts(first, starts_B, B, T, S, ratio, score_BTS.device)
        return twin(score_BTS, k, seen_BT, blocks_BTJ, block)
    return _launch(score_BTS, k, first, starts_B, ratio, blocks_BTJ, block)


def twin(score_BTS, k, seen_BT, blocks_BTJ=None, block=8):
    """The same by sorting: by score, then, keeping that order, what is visible first."""
    B, T, S = score_BTS.shape
    seen_BT1 = seen_BT[:, :, None]
    visible_BTS = torch.arange(S, device=score_BTS.device) < seen_BT1
    if blocks_BTJ is not None:
        count = -(-S // block)
        place_BTJ = blocks_BTJ.long().masked_fill(blocks_BTJ < 0, count)
        kept_BTb = visible_BTS.new_zeros(B, T, count + 1).scatter(2, place_BTJ, True)
        visible_BTS = visible_BTS & kept_BTb.repeat_interleave(block, dim=2)[:, :, :S]
    # No 0 * NaN here, but a NaN that nobody may see would be sorted first.
    order_BTS = score_BTS.masked_fill(~visible_BTS, 0).sort(dim=2, descending=True, stable=True)[1]
    first_BTS = visible_BTS.gather(2, order_BTS).int().sort(dim=2, descending=True, stable=True)
    best_BTk = order_BTS.gather(2, first_BTS.indices)[:, :, :k]
    best_BTk = best_BTk.masked_fill(first_BTS.values[:, :, :k] == 0, S).sort(dim=2).values
    return best_BTk.masked_fill(best_BTk == S, -1).int()


@triton.jit
def _entries(blocks, slot_S, wanted_T1, seen_T1, slots, BLOCK: tl.constexpr):
    """Which entry stands at a place, and whether a wanted query sees it. Without a list of
    blocks, place s is entry s."""
    if blocks is None:
        entry_TS = slot_S[None, :] + tl.zeros_like(seen_T1)
        visible_TS = wanted_T1 & (entry_TS < seen_T1)
    else:
        listed_TS = wanted_T1 & (slot_S < slots)[None, :]
        block_TS = tl.load(blocks + (slot_S // BLOCK)[None, :], mask=listed_TS, other=-1)
        entry_TS = block_TS * BLOCK + (slot_S % BLOCK)[None, :]
        visible_TS = (block_TS >= 0) & (entry_TS < seen_T1)
    return entry_TS, visible_TS


@triton.jit
def _select(
    score, starts, blocks, index, start, tokens, entries, slots, k, width,
    score_b, score_t, score_s,
    ROUNDS: tl.constexpr, RATIO: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):
    """One program: BLOCK_T queries of one row of the batch (one query on a GPU)."""
    program = tl.program_id(0)
    batch = (program // tl.cdiv(tokens, BLOCK_T)).to(tl.int64)
    token_T1 = (program % tl.cdiv(tokens, BLOCK_T)) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]
    # Here an entry may itself be a block of UNIT entries, seen if its first one is.
    seen_T1 = tl.cdiv(seen_by(starts, start, batch, token_T1, tokens, entries, RATIO), UNIT)
    score += batch * score_b + token_T1.to(tl.int64) * score_t
    index += (batch * tokens + token_T1) * width
    reach_T1 = seen_T1  # how many there are to choose from
    last = tl.max(seen_T1)
    if blocks is not None:
        blocks += (batch * tokens + token_T1) * (slots // BLOCK)
        reach_T1 = tl.zeros_like(seen_T1)
        for begin in range(0, slots // BLOCK, BLOCK_S):
            listed_S = begin + tl.arange(0, BLOCK_S)
            block_TS = tl.load(blocks + listed_S[None, :], other=-1,
                               mask=(token_T1 < tokens) & (listed_S < slots // BLOCK)[None, :])
            inside_TS = tl.minimum(tl.maximum(seen_T1 - block_TS * BLOCK, 0), BLOCK)
            reach_T1 += tl.sum(tl.where(block_TS >= 0, inside_TS, 0), 1)[:, None]
        last = tl.where(last > 0, slots, 0)

    # A threshold is sought only where there is more than k. Its bits are those of the key
    # with the sign turned, so that they rise from 0; BOTTOM turns it back.
    BOTTOM: tl.constexpr = -0x80000000
    seek_T1 = reach_T1 > k
    threshold_T1 = tl.zeros_like(seen_T1)
    above_T1 = tl.zeros_like(seen_T1)  # keys that reach threshold + the step just settled
    rounds = tl.where(tl.max(seek_T1.to(tl.int32)) > 0, ROUNDS, 0)
    for settled in range(0, rounds):
        digit_T1 = tl.full([BLOCK_T, 1], 1, tl.int32) << (30 - 2 * settled)
        low_T1 = threshold_T1 | digit_T1
        middle_T1 = threshold_T1 | (digit_T1 << 1)
        high_T1 = low_T1 | middle_T1
        reach_low_TS = tl.zeros([BLOCK_T, BLOCK_S], tl.int32)
        reach_middle_TS = tl.zeros([BLOCK_T, BLOCK_S], tl.int32)
        reach_high_TS = tl.zeros([BLOCK_T, BLOCK_S], tl.int32)
        for begin in range(0, last, BLOCK_S):
            entry_TS, visible_TS = _entries(blocks, begin + tl.arange(0, BLOCK_S), seek_T1,
                                            seen_T1, slots, BLOCK)
            key_TS = keys_of(score, entry_TS, visible_TS, score_s)
            reach_low_TS += (key_TS >= (low_T1 ^ BOTTOM)).to(tl.int32)
            reach_middle_TS += (key_TS >= (middle_T1 ^ BOTTOM)).to(tl.int32)
            reach_high_TS += (key_TS >= (high_T1 ^ BOTTOM)).to(tl.int32)
        low_count_T1 = tl.sum(reach_low_TS, 1)[:, None]
        middle_count_T1 = tl.sum(reach_middle_TS, 1)[:, None]
        high_count_T1 = tl.sum(reach_high_TS, 1)[:, None]
        above_T1 = tl.where(high_count_T1 >= k, above_T1,
                            tl.where(middle_count_T1 >= k, high_count_T1,
                                     tl.where(low_count_T1 >= k, middle_count_T1, low_count_T1)))
        threshold_T1 = tl.where(high_count_T1 >= k, high_T1,
                                tl.where(middle_count_T1 >= k, middle_T1,
                                         tl.where(low_count_T1 >= k, low_T1, threshold_T1)))

    ties_T1 = tl.where(seek_T1, k - above_T1, 0)  # how many of the equal ones are still needed
    limit_T1 = threshold_T1 ^ BOTTOM
    met_T1 = tl.zeros_like(seen_T1)  # equal ones met so far
    done_T1 = tl.zeros_like(seen_T1)  # indices written so far
    for begin in range(0, last, BLOCK_S):
        entry_TS, visible_TS = _entries(blocks, begin + tl.arange(0, BLOCK_S), seen_T1 > 0,
                                        seen_T1, slots, BLOCK)
        key_TS = keys_of(score, entry_TS, visible_TS & seek_T1, score_s)
        equal_TS = (seek_T1 & (key_TS == limit_T1)).to(tl.int32)
        earlier_TS = met_T1 + tl.cumsum(equal_TS, 1) - equal_TS
        chosen_TS = (key_TS > limit_T1) | ((equal_TS > 0) & (earlier_TS < ties_T1))
        chosen_TS = visible_TS & (chosen_TS | (reach_T1 <= k))
        number_TS = chosen_TS.to(tl.int32)
        place_TS = done_T1 + tl.cumsum(number_TS, 1) - number_TS
        tl.store(index + place_TS, entry_TS, mask=chosen_TS)
        met_T1 += tl.sum(equal_TS, 1)[:, None]
        done_T1 += tl.sum(number_TS, 1)[:, None]
    for begin in range(0, width, BLOCK_S):
        place_1S = begin + tl.arange(0, BLOCK_S)[None, :]
        nothing_TS = place_1S * 0 + tl.full([BLOCK_T, 1], -1, tl.int32)
        tl.store(index + place_1S, nothing_TS,
                 mask=(token_T1 < tokens) & (place_1S >= done_T1) & (place_1S < width))


def _launch(score_BTS, k, first, starts_B, ratio, blocks_BTJ, block, entries=None, unit=1):
    B, T, S = score_BTS.shape
    slots = S if blocks_BTJ is None else blocks_BTJ.shape[2] * block
    blocks_BTJ = None if blocks_BTJ is None else blocks_BTJ.contiguous()
    width = min(k, S)
    index_BTk = score_BTS.new_empty(B, T, width, dtype=torch.int32)
    sizes = _blocks(T, slots)
    _select[(B * -(-T // sizes["BLOCK_T"]),)](
        score_BTS, starts_B, blocks_BTJ, index_BTk, first, T, entries or S, slots, k, width,
        *score_BTS.stride(), ROUNDS=ROUNDS, RATIO=ratio, UNIT=unit, BLOCK=block, **sizes)
    return index_BTk


def _blocks(tokens, slots):
    """Block sizes: many queries at once in the interpreter, one query a program on a GPU."""
    if backend.current().name == "interpret":
        block_t = min(arguments.power_of_two(tokens), 64)
        return dict(BLOCK_T=block_t,
                    BLOCK_S=min(arguments.power_of_two(slots, 16), 65536 // block_t))
    # With 2,048 scores at once some chips' registers do not hold the three counts.
    return dict(BLOCK_T=1, BLOCK_S=min(arguments.power_of_two(slots, 256), 1024), num_warps=8)


def traffic(*, batch=1, tokens, entries, k, ratio=1, start=None, keep=None, block=8,
            itemsize=4) -> dict[str, int]:
    """Bytes the kernel loads and stores. It only compares: FLOPs are 0.

    A query that sees more than k entries reads them in each of 16 rounds and once more to
    choose; one that sees fewer reads none. With `keep`, the entries are those of the blocks
    that `candidate_blocks` kept, and each pass reads the list's entry for each score.
    `start` is None, an int, or a list of one int a row; `itemsize` is bytes per score.
    """
    read, rows = 0, counts_of(batch=batch, tokens=tokens, entries=entries, ratio=ratio,
                              start=start)
    listed = 0 if keep is None else min(keep, -(-entries // block))
    for seen in (count for row in rows for count in row):
        reach = seen
        if keep is not None and -(-seen // block) > listed:
            reach = (listed - 1) * block + (seen - 1) % block + 1
        passes = (ROUNDS + 1) if reach > k else 0
        read += passes * reach * itemsize
        if keep is not None:
            read += 4 * listed + 4 * listed * block * (max(passes, 1) if seen else 0)
    read += 0 if start is None or isinstance(start, int) else 4 * _programs(batch, tokens)
    return {"bytes_read": read, "bytes_written": 4 * batch * tokens * min(k, entries),
            "flops": 0}


select_topk.traffic = traffic  # type: ignore[attr-defined]


def _programs(batch, tokens) -> int:
    return batch * -(-tokens // _blocks(tokens, 1)["BLOCK_T"])


@dataclass(frozen=True)
class Shape(VisibleShape):
    """Choose k entries of each query; with `keep`, inside its best blocks."""

    k: int
    keep: int | None = None
    block: int = 8

    def arguments(self, device="cpu", seed=0) -> dict:
        score_BTS = drawing(self.dtype, device, seed)(self.batch, self.tokens, self.entries)
        call = dict(score_BTS=score_BTS, k=self.k, **self.seeing(device))
        if self.keep is None:
            return call
        listed = min(self.keep, -(-self.entries // self.block))
        if backend.current().name == "offline":
            blocks = torch.empty(self.batch, self.tokens, listed, dtype=torch.int32)
        else:
            from kernels import candidate_blocks  # which is built on this file

            blocks = candidate_blocks(score_BTS, keep=self.keep, block=self.block, impl="torch",
                                      **self.seeing(device))
        return dict(**call, blocks_BTJ=blocks, block=self.block)


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape."""
    return traffic(**shape.sizes(), k=shape.k, keep=shape.keep, block=shape.block,
                   itemsize=shape.dtype.itemsize)


SMALL = (
    Shape("causal", 2, 37, 37, k=9),
    Shape("groups of 4, rows of other lengths", 3, 19, 45, k=7, ratio=4, start=(160, 0, 77)),
    Shape("one token", 3, 1, 1_003, k=131),
    Shape("inside the blocks", 2, 21, 203, k=11, keep=5),
    Shape("bf16", 1, 5, 300, k=64, dtype=torch.bfloat16),
)

REAL = (
    Shape("deepseek-v3.2 128K", 1, 1, 131_072, k=2048),
    Shape("deepseek-v3.2 chunk", 1, 256, 131_072, k=2048),
    Shape("v4-flash 1M", 1, 1, 262_144, k=512, ratio=4),
    Shape("v4-pro 128K x 4", 4, 1, 32_768, k=1024, ratio=4,
          start=(131_071, 9_000, 3, 70_000)),
    Shape("v4.1-flash encoder 1M", 1, 1, 524_288, k=512, ratio=2),
    Shape("v4.1-flash inside the blocks", 1, 1, 1_048_576, k=512, keep=2048),
    Shape("one entry", 1, 1, 1, k=512),
)
