"""The lightning indexer (V3.2): a cheap score of every earlier token, and the best k of them.

    I(t, s) = sum over heads h of  w_t,h  ReLU(q_t,h . k_s)

One key of a few numbers a token, shared by all indexer heads. ReLU and a plain sum replace the
softmax: the score only has to order tokens, not to mix them.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def index_scores(
    query_BTID: Float[Tensor, "B T I D"],
    weight_BTI: Float[Tensor, "B T I"],
    key_BSD: Float[Tensor, "B S D"],
) -> Float[Tensor, "B T S"]:
    """Every query's score of every key, nothing masked."""
    match_BTIS = torch.einsum("btid,bsd->btis", query_BTID, key_BSD).relu()
    return torch.einsum("btis,bti->bts", match_BTIS, weight_BTI)


def top_k(
    score_BTS: Float[Tensor, "*B T S"], visible_TS: Bool[Tensor, "*B T S"], k: int
) -> Int[Tensor, "*B T k"]:
    """The k best visible entries of each query, in position order; -1 where fewer are visible.

    Of equal scores the lowest index wins. The width is min(k, S).
    """
    S = score_BTS.shape[-1]
    score_BTS = score_BTS.masked_fill(~visible_TS, -torch.inf)
    best_BTk = score_BTS.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    reachable_BTk = visible_TS.expand(score_BTS.shape).gather(-1, best_BTk)
    in_order_BTk = best_BTk.masked_fill(~reachable_BTk, S).sort(dim=-1).values
    return in_order_BTk.masked_fill(in_order_BTk == S, -1)


def chosen(index_BTk: Int[Tensor, "*B T k"], entries: int) -> Bool[Tensor, "*B T S"]:
    """The same choice as a mask over `entries` rows; -1 chooses nothing."""
    shape = (*index_BTk.shape[:-1], entries + 1)
    mask = torch.zeros(shape, dtype=torch.bool, device=index_BTk.device)
    place = index_BTk.masked_fill(index_BTk < 0, entries)
    return mask.scatter(-1, place, True)[..., :entries]


def hadamard(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Turn x by the orthogonal Hadamard matrix of size D, a power of two.

    Dot products stay the same, and an outlier in one place is spread over all, so that a
    coarse number format loses less. Errors: ValueError for another D.
    """
    D = x.shape[-1]
    if D & (D - 1):
        raise ValueError(f"hadamard: the last dimension is {D}; it must be a power of two")
    half = 1
    while half < D:
        pairs = x.unflatten(-1, (-1, 2, half))
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack([a + b, a - b], dim=-2).flatten(-3)
        half *= 2
    return x * D**-0.5


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


def divergence(
    score_BTS: Float[Tensor, "B T S"],
    share_BTS: Float[Tensor, "B T S"],
    visible_TS: Bool[Tensor, "*B T S"],
) -> Float[Tensor, ""]:
    """How far the softmax of the scores is from `share`, made to add up to 1 (KL, mean of all
    queries). A query that sees no entry counts as 0."""
    finite = torch.finfo(score_BTS.dtype)
    target_BTS = share_BTS / share_BTS.sum(-1, keepdim=True).clamp(min=finite.tiny)
    log_BTS = score_BTS.masked_fill(~visible_TS, finite.min).log_softmax(-1)
    log_BTS = log_BTS.masked_fill(~visible_TS, 0.0)
    return (torch.special.entr(target_BTS).neg() - target_BTS * log_BTS).sum(-1).mean()
