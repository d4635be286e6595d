"""The lightning indexer (V3.2): a cheap score of every earlier token, and the best k of them.

    I(t, s) = sum over heads h of  w_t,h  ReLU(q_t,h . k_s)

One key of a few numbers a token, shared by all indexer heads. ReLU and a plain sum replace the
softmax: the score only has to order tokens, not to mix them.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..config import Candidates
from ..step import Step
from . import by_kernel
from .seen import chosen, complete_groups

BLOCK = 2**18  # scores of all heads that are worked on at a time


def index_scores(
    query_BTID: Float[Tensor, "B T I D"],
    weight_BTI: Float[Tensor, "B T I"],
    key_BSD: Float[Tensor, "B S D"],
) -> Float[Tensor, "B T S"]:
    """Every query's score of every key, nothing masked."""
    match_BMS = query_BTID.flatten(1, 2) @ key_BSD.mT
    match_BTIS = match_BMS.view(*query_BTID.shape[:3], key_BSD.shape[1]).relu()
    return (weight_BTI.unsqueeze(2) @ match_BTIS).squeeze(2)


def top_k(
    score_BTS: Float[Tensor, "*B T S"], visible_TS: Bool[Tensor, "*B T S"], k: int
) -> Int[Tensor, "*B T k"]:
    """The k best visible entries of each query, in position order; -1 where fewer are visible.

    Of equal scores the lowest index wins. The width is min(k, S).
    """
    S = score_BTS.shape[-1]
    score_BTS = score_BTS.masked_fill(~visible_TS, -torch.inf)
    best_BTk = best(score_BTS, min(k, S))
    reachable_BTk = visible_TS.expand(score_BTS.shape).gather(-1, best_BTk)
    in_order_BTk = best_BTk.masked_fill(~reachable_BTk, S).sort(dim=-1).values
    return in_order_BTk.masked_fill(in_order_BTk == S, -1)


def best(score_BTS: Float[Tensor, "*B S"], k: int) -> Int[Tensor, "*B k"]:
    """Indices of the k largest, in any order; of equal ones the lowest index wins.

    torch.topk is several times faster than sorting, and leaves open which of equal scores it
    takes. That matters in rows where the k-th and the next are equal: these are sorted.
    """
    S = score_BTS.shape[-1]
    if S <= 2 * k or score_BTS.is_cuda:  # counting would wait for the GPU
        return score_BTS.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    largest = score_BTS.topk(k)
    cut_BT1 = largest.values[..., -1:]
    tied_BT = (score_BTS >= cut_BT1).sum(-1) > k
    tied_BT &= cut_BT1.squeeze(-1) > -torch.inf
    if tied_BT.any():
        ordered = score_BTS[tied_BT].sort(dim=-1, descending=True, stable=True)
        largest.indices[tied_BT] = ordered.indices[..., :k]
    return largest.indices


def hadamard(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Turn x by the orthogonal Hadamard matrix of size D, a power of two.

    Dot products stay the same, and an outlier in one place is spread over all, so that a
    coarse number format loses less. Errors: ValueError for another D.
    """
    D = x.shape[-1]
    if D & (D - 1):
        raise ValueError(f"hadamard: the last dimension is {D}; it must be a power of two")
    return x @ _hadamard(D, x.dtype, x.device)


@lru_cache(maxsize=64)
def _hadamard(D: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "D D"]:
    """H_2n = [[H_n, H_n], [H_n, -H_n]], divided by sqrt(D)."""
    with torch.inference_mode(False):  # kept for later calls, which may want gradients
        matrix = torch.ones(1, 1, dtype=torch.float64)
        while len(matrix) < D:
            matrix = torch.kron(torch.tensor([[1, 1], [1, -1]]), matrix)
        return (matrix * D**-0.5).to(device=device, dtype=dtype)


def candidate_blocks(
    score_BTS: Float[Tensor, "B T S"], visible_TS: Bool[Tensor, "T S"], block: int, keep: int
) -> Bool[Tensor, "B T S"]:
    """V4.1's first sieve: the visible entries in each query's `keep` best blocks of `block`.

    A block is as good as its best visible entry; the one with the newest visible entry always
    stays, as one of the `keep`. Later layers score only what is kept. Of equal blocks the first
    wins.
    """
    S = score_BTS.shape[-1]
    blocks = -(-S // block)
    score_BTS = score_BTS.masked_fill(~visible_TS, -torch.inf)
    padded = F.pad(score_BTS, (0, blocks * block - S), value=-torch.inf)
    best_BTb = padded.unflatten(-1, (blocks, block)).amax(-1)
    count_T1 = visible_TS.sum(-1, keepdim=True)
    blocks_b = torch.arange(blocks, device=score_BTS.device)
    newest_Tb = (count_T1 > 0) & (blocks_b == (count_T1 - 1) // block)
    best_BTb = best_BTb.masked_fill(newest_Tb, torch.inf)
    visible_Tb = blocks_b * block < count_T1
    kept_BTb = chosen(top_k(best_BTb, visible_Tb, keep), blocks)
    return kept_BTb.repeat_interleave(block, dim=-1)[..., :S] & visible_TS


class Asked(NamedTuple):
    """What scores are made of: index queries, the weights of their heads, and all keys."""

    query_BTID: Float[Tensor, "B T I D"]
    weight_BTI: Float[Tensor, "B T I"]
    key_BSD: Float[Tensor, "B S D"]


class Found(NamedTuple):
    """The choice of each query, the lesson's loss, and the candidates for later choices; the last
    two are None where they were not asked for."""

    choice_BTk: Int[Tensor, "B T k"]
    loss: Float[Tensor, ""] | None
    pool_BTS: Bool[Tensor, "B T S"] | by_kernel.Blocks | None


def search(
    asked: Asked,
    step: Step,
    ratio: int,
    k: int,
    share: Callable[[slice, int], Tensor] | None = None,
    pool_BTS: Bool[Tensor, "B T S"] | by_kernel.Blocks | None = None,
    sieve: Candidates | None = None,
    sift: Callable | None = None,
    select: Callable | None = None,
) -> Found:
    """Score all complete groups and choose the best k, for all queries of a step.

    A long text has T x S scores a head. They are made for a block of queries at a time, which
    stays in the processor's own memory, and without the entries that none of the block can see.

    share: if the indexer is to learn, how much attention really takes from the first so many
    entries, for a slice of queries. pool_BTS: choose inside it. sieve: make such a pool; sift:
    with this function in place of `candidate_blocks`, which no kernel knows. select: the same in
    place of `top_k`.
    """
    (B, T, heads, _), S = asked.query_BTID.shape, asked.key_BSD.shape[1]
    by_mask = (sift or select) is not None or isinstance(pool_BTS, Tensor)
    if S and not by_mask and step.impl(*asked) == "triton":
        choice_BTk, pool = by_kernel.choose(asked, step, ratio, k, pool_BTS, sieve)
        return Found(choice_BTk, None, pool)
    visible_TS, size = step.once(complete_groups, S, ratio), max(1, BLOCK // (B * heads * S + 1))
    choices, losses, pools, k = [], [], [], min(k, S)
    for first in range(0, T, size):
        block = slice(first, min(first + size, T))
        entries = min(S, (step.start + block.stop) // ratio)
        key_BSD = asked.key_BSD[:, :entries]
        score_BTS = index_scores(asked.query_BTID[:, block], asked.weight_BTI[:, block], key_BSD)
        visible = visible_TS[block, :entries]
        if share is not None:
            losses.append(divergence(score_BTS, share(block, entries), visible).sum())
        score_BTS = score_BTS.detach()
        if sieve is not None:
            kept_BTS = (sift or candidate_blocks)(score_BTS, visible, sieve.block, sieve.keep)
            pools.append(F.pad(kept_BTS, (0, S - entries)))
        if pool_BTS is not None:
            inside: Any = pool_BTS  # a mask here: Blocks are the kernels'
            visible = visible & inside[:, block, :entries]
        choice_BTk = (select or top_k)(score_BTS, visible, k)
        choices.append(F.pad(choice_BTk, (0, k - choice_BTk.shape[-1]), value=-1))
    return Found(
        torch.cat(choices, dim=1),
        sum(losses) / (B * T) if losses else None,
        torch.cat(pools, dim=1) if pools else None,
    )


def divergence(
    score_BTS: Float[Tensor, "B T S"],
    share_BTS: Float[Tensor, "B T S"],
    visible_TS: Bool[Tensor, "*B T S"],
) -> Float[Tensor, "B T"]:
    """How far the softmax of the scores is from `share`, made to add up to 1 (KL), for each
    query. For one that sees no entry it is 0."""
    finite = torch.finfo(score_BTS.dtype)
    target_BTS = share_BTS / share_BTS.sum(-1, keepdim=True).clamp(min=finite.tiny)
    log_BTS = score_BTS.masked_fill(~visible_TS, finite.min / 2).log_softmax(-1)
    return (torch.special.entr(target_BTS).neg() - target_BTS * log_BTS).sum(-1)
