"""The same choices and the same attention through the course's kernels.

Rows are listed instead of gathered: a kernel turns an index into an address and reads the row
where it lies. The best k are found without sorting, and of candidates the blocks are kept, not a
mask over all entries.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..config import Candidates
from ..step import Step


class Listed(NamedTuple):
    """Rows, and which of them each query reads; -1 is none. Without an index they are a window:
    the last rows are the new tokens' own, and each token sees `reach` rows back from its own.
    Rows of uint8 are V4.1's as they lie in the cache."""

    rows_BSD: Tensor
    index_BTk: Int[Tensor, "B T k"] | None = None
    reach: int | None = None


class Blocks(NamedTuple):
    """Candidates of each query: so many entries a block; -1 is none."""

    index_BTJ: Int[Tensor, "B T J"]
    block: int


def look(
    query_BTHD: Float[Tensor, "B T H D"],
    *listed: Listed,
    sink_H: Float[Tensor, "H"] | None = None,
    scale: float | None = None,
    value_dim: int | None = None,
) -> Float[Tensor, "B T H V"]:
    """One softmax over everything that is listed: at most one window and one choice."""
    from kernels import sparse_attention, sparse_attention_fp4

    window = next((one for one in listed if one.index_BTk is None), None)
    far = next((one for one in listed if one.index_BTk is not None), None)
    chosen = (None, None) if far is None else far[:2]
    rows = None if window is None else window.rows_BSD
    how: dict[str, Any] = dict(
        reach=None if window is None else window.reach, sink_H=sink_H, scale=scale, impl="triton"
    )
    if listed[0].rows_BSD.dtype == torch.uint8:
        return sparse_attention_fp4(query_BTHD, *chosen, window_BWZ=rows, **how)
    return sparse_attention(query_BTHD, *chosen, window_BWD=rows, value_dim=value_dim, **how)


def every_group(step: Step, entries: int, ratio: int) -> Int[Tensor, "B T S"]:
    """Each query's list of all groups whose last token is there."""
    groups_S = torch.arange(entries, device=step.tokens_BT.device)
    complete_T1 = ((step.positions_T + 1) // ratio)[:, None]
    index_TS = torch.where(groups_S < complete_T1, groups_S, -1).int()
    return index_TS.expand(len(step.tokens_BT), -1, -1)


def choose(
    asked, step: Step, ratio: int, k: int, pool: Blocks | None, sieve: Candidates | None
) -> tuple[Int[Tensor, "B T k"], Blocks | None]:
    """The best k complete groups of each query, and the candidates for later choices.

    asked: an `indexer.Asked`. pool: choose inside it. sieve: make such a pool.
    """
    from kernels import candidate_blocks, indexer_scores, select_topk

    seen: dict[str, Any] = dict(ratio=ratio, start=step.start, impl="triton")
    score_BTS = indexer_scores(*asked, **seen)
    inside = {} if pool is None else dict(blocks_BTJ=pool.index_BTJ, block=pool.block)
    choice_BTk = select_topk(score_BTS, k, **inside, **seen)
    if sieve is None:
        return choice_BTk.long(), None
    kept_BTJ = candidate_blocks(score_BTS, keep=sieve.keep, block=sieve.block, **seen)
    return choice_BTk.long(), Blocks(kept_BTJ, sieve.block)
