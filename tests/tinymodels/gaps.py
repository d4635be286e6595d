"""How close a forward pass came to choosing otherwise.

In float32 two ways to compute the same score differ in their last bits, and where the k-th and the
next score are that close, two right computations may choose differently. Such a case says nothing
about a fault, so comparisons in float32 leave it out; how many remain is counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from tinymodels import moe
from tinymodels.attention import indexer


def cut_gap(score: Tensor, k: int) -> float:
    """The smallest distance between a k-th and a (k+1)-th best score, over all rows.

    Two zeros are no close call: ReLU makes them, exactly, on every path.
    """
    if score.shape[-1] <= k or not score.numel():
        return float("inf")
    ordered = score.sort(dim=-1, descending=True).values
    last, next_ = ordered[..., k - 1], ordered[..., k]
    gap = (last - next_).nan_to_num(nan=torch.inf)
    return gap.masked_fill((last == 0) & (next_ == 0), torch.inf).min().item()


@contextmanager
def closest_calls() -> Iterator[list[float]]:
    """While open, collect the gap of every choice: of index entries, experts and their groups."""
    seen: list[float] = []
    top_k, best = indexer.top_k, moe.best

    def watched_top_k(score_BTS, visible_TS, k):
        seen.append(cut_gap(score_BTS.masked_fill(~visible_TS, -torch.inf), k))
        return top_k(score_BTS, visible_TS, k)

    def watched_best(scores_BTE, k):
        seen.append(cut_gap(scores_BTE, k))
        return best(scores_BTE, k)

    indexer.top_k = watched_top_k
    moe.best = watched_best
    try:
        yield seen
    finally:
        indexer.top_k = top_k
        moe.best = best
