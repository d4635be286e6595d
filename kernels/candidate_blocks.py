"""Candidate blocks: a first, coarse choice, so that later layers need not look at everything.

V4.1's indexer is a hierarchy. One layer scores all entries and keeps, for each query, the best
`keep` blocks of `block` entries; a block is as good as its best visible entry, and the block
with the newest visible entry always stays. Later layers choose inside these blocks only
(`select_topk` with `blocks_BTJ`), and score only what lies in them (arXiv 2609.19969).

Two kernels: the best score of each block, then the selection of `select_topk` over blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.select_topk import DTYPES, ROUNDS, _blocks, _launch, _programs
from kernels.select_topk import twin as best_k
from kernels.visibility import VisibleShape, check_start, counts_of, seen_by, visible_counts

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor


def candidate_blocks(
    score_BTS: Float[Tensor, "B T S"],
    *,
    keep: int,
    block: int = 8,
    ratio: int = 1,
    start: int | Int[Tensor, " B"] | None = None,
    impl: str | None = None,
) -> Int[Tensor, "B T J"]:
    """The `keep` best blocks of each query, the newest visible one always among them.

    Args:
        score_BTS: scores, any strides. What a query may not see is never read.
        keep: how many blocks to keep. J is min(keep, number of blocks).
        block: entries of a block.
        ratio, start: which entries a query sees; see `kernels.visibility`.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Rising block indices, -1 where there are fewer blocks; of equal ones the lowest index wins.
    Returns int32. Raises ValueError naming the argument, its shape and what was expected.
    """
    sizes = arguments.match(score=("B T S", score_BTS))
    B, T, S = sizes["B"], sizes["T"], sizes["S"]
    arguments.at_least_1(keep=keep, block=block)
    first, starts_B = check_start(start, B, T, S, ratio, score_BTS.device)
    if not backend.use_triton(impl, DTYPES, score=score_BTS):
        seen_BT = visible_counts(first, starts_B, B, T, S, ratio, score_BTS.device)
        return twin(score_BTS, keep, seen_BT, block)
    best_BTb = score_BTS.new_empty(B, T, -(-S // block), dtype=torch.float32)
    blocks = _blocks(T, S)
    lanes = arguments.power_of_two(block)
    at_once = max(1, blocks["BLOCK_S"] // lanes)
    programs = B * -(-T // blocks["BLOCK_T"]) * -(-best_BTb.shape[2] // at_once)
    _best_of_blocks[(programs,)](
        score_BTS, starts_B, best_BTb, first, T, S, best_BTb.shape[2], *score_BTS.stride(),
        RATIO=ratio, BLOCK=block, LANES=lanes, BLOCK_T=blocks["BLOCK_T"], BLOCK_J=at_once)
    return _launch(best_BTb, keep, first, starts_B, ratio, None, 1, entries=S, unit=block)


def twin(score_BTS, keep, seen_BT, block):
    """The best score of each block, +inf for the newest visible one, and the `keep` best."""
    S = score_BTS.shape[2]
    seen_BT1 = seen_BT[:, :, None]
    hidden_BTS = torch.arange(S, device=score_BTS.device) >= seen_BT1
    padded = F.pad(score_BTS.masked_fill(hidden_BTS, -torch.inf), (0, -S % block),
                   value=-torch.inf)
    best_BTb = padded.unflatten(2, (-1, block)).amax(3)
    newest_BT1 = (seen_BT1 - 1).div(block, rounding_mode="floor")
    number_b = torch.arange(best_BTb.shape[2], device=score_BTS.device)
    best_BTb = best_BTb.masked_fill(number_b == newest_BT1, torch.inf)
    return best_k(best_BTb, keep, (seen_BT + block - 1) // block)


@triton.jit
def _best_of_blocks(
    score, starts, best, start, tokens, entries, blocks, score_b, score_t, score_s,
    RATIO: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_J: tl.constexpr,
):
    """One program: the best visible score of BLOCK_J blocks, for BLOCK_T queries."""
    program = tl.program_id(0)
    parts = tl.cdiv(blocks, BLOCK_J)
    block_J = (program % parts) * BLOCK_J + tl.arange(0, BLOCK_J)
    row = program // parts
    batch = (row // tl.cdiv(tokens, BLOCK_T)).to(tl.int64)
    token_T = (row % tl.cdiv(tokens, BLOCK_T)) * BLOCK_T + tl.arange(0, BLOCK_T)
    seen_T = seen_by(starts, start, batch, token_T, tokens, entries, RATIO)
    lane = tl.arange(0, LANES)
    entry_JL = block_J[:, None] * BLOCK + lane[None, :]
    visible_TJL = ((lane < BLOCK)[None, None, :] & (entry_JL[None, :, :] < seen_T[:, None, None]))
    at_T = batch * score_b + token_T.to(tl.int64) * score_t
    score_TJL = tl.load(score + at_T[:, None, None]
                        + entry_JL[None, :, :].to(tl.int64) * score_s,
                        mask=visible_TJL, other=-float("inf")).to(tl.float32)
    # NaN is the highest here as in the selection, and a maximum may lose it.
    best_TJ = tl.max(tl.where(score_TJL == score_TJL, score_TJL, -float("inf")), 2)
    odd_TJ = tl.max((score_TJL != score_TJL).to(tl.int32), 2)
    best_TJ = tl.where(odd_TJ > 0, float("nan"), best_TJ)
    newest_TJ = (seen_T[:, None] > 0) & (block_J[None, :] == (seen_T[:, None] - 1) // BLOCK)
    best_TJ = tl.where(newest_TJ, float("inf"), best_TJ)
    tl.store(best + (batch * tokens + token_T[:, None]) * blocks + block_J[None, :], best_TJ,
             mask=(token_T[:, None] < tokens) & (block_J[None, :] < blocks))


def traffic(*, batch=1, tokens, entries, keep, block=8, ratio=1, start=None,
            itemsize=4) -> dict[str, int]:
    """Bytes the two kernels load and store: each visible score once, then a selection of blocks.

    `start` is None, an int, or a list of one int a row; `itemsize` is bytes per score.
    """
    rows = counts_of(batch=batch, tokens=tokens, entries=entries, ratio=ratio, start=start)
    number = -(-entries // block)
    read, written = 0, 4 * batch * tokens * (number + min(keep, number))
    for seen in (count for row in rows for count in row):
        read += seen * itemsize
        blocks = -(-seen // block)
        read += 4 * (ROUNDS + 1) * blocks if blocks > keep else 0
    if start is not None and not isinstance(start, int):
        at_once = max(1, _blocks(tokens, entries)["BLOCK_S"] // arguments.power_of_two(block))
        read += 4 * _programs(batch, tokens) * (1 + -(-number // at_once))
    return {"bytes_read": read, "bytes_written": written, "flops": 0}


candidate_blocks.traffic = traffic  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape(VisibleShape):
    """Keep so many of each query's blocks."""

    keep: int
    block: int = 8

    def arguments(self, device="cpu", seed=0) -> dict:
        score_BTS = drawing(self.dtype, device, seed)(self.batch, self.tokens, self.entries)
        return dict(score_BTS=score_BTS, keep=self.keep, block=self.block, **self.seeing(device))


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape."""
    return traffic(**shape.sizes(), keep=shape.keep, block=shape.block,
                   itemsize=shape.dtype.itemsize)


SMALL = (
    Shape("candidate blocks", 2, 21, 203, keep=5),
    Shape("blocks of 3, rows of other lengths", 3, 19, 45, keep=4, block=3, ratio=4,
          start=(160, 0, 77)),
    Shape("bf16", 1, 5, 300, keep=7, dtype=torch.bfloat16),
)

REAL = (
    Shape("v4.1-flash candidate source 1M", 1, 1, 1_048_576, keep=2048),
    Shape("v4.1-flash chunk", 1, 256, 65_536, keep=2048),
    Shape("one entry", 1, 1, 1, keep=5),
)
