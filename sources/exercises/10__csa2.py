# %% [markdown]
# # Exercises 10: CSA2
#
# Few layers own, the others borrow. You write the three modes, the first sieve that
# keeps later layers from looking at everything, and the two sums of this chapter: what
# sharing is worth in bytes, and what a written token costs when the text is long.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("10.1")` gives a hint, and again the next one.
#
# Letters of the axes: B batch, L layers, T queries, S entries, D numbers of an index
# key.

# %%
import torch
from jaxtyping import Bool, Float, Int
from tinymodels.attention.indexer import top_k
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 10.1 The three modes
#
# difficulty 3/5, importance 5/5, about 25 minutes
#
# Walk up the layers, from layer 0. Each has a mode:
#
# | mode | whose entries and keys it reads | what it chooses |
# |---|---|---|
# | `"window"` | none | nothing |
# | `"full"` | its own | the best k by its own query |
# | `"reindex"` | those of the nearest full layer below it | the best k by its own query |
# | `"reuse"` | those of the nearest full layer below it | the nearest choice made below it |
#
# `query_LTD[l]` are the index queries of layer l, `key_LTD[l]` the keys that it would
# make from its own stream. Only those of full layers exist in a real cache; to use any
# other is a mistake.
#
# A score is the plain dot product of query and key. Query t sees the keys 0 to t. With
# them, `top_k(score_TS, visible_TS, k)` gives the choice as the course keeps it: k
# places in order of position, -1 where fewer are visible.


# %% exercise_id="10.1" points=4 tags=["exercise"]
def owners_and_choices(
    modes: tuple[str, ...],
    query_LTD: Float[Tensor, "L T D"],
    key_LTD: Float[Tensor, "L T D"],
    k: int,
) -> tuple[Int[Tensor, "L"], Int[Tensor, "L T k"]]:
    """For each layer, whose entries it reads, and which of them.

    A window layer has the owner -1 and a choice of -1 only. T is at least k.
    """
    ### BEGIN SOLUTION
    T = query_LTD.shape[1]
    visible_TS = torch.ones(T, T, dtype=torch.bool).tril()
    owners, choices = [], []
    for layer, mode in enumerate(modes):
        if mode == "window":
            owners.append(-1)
            choices.append(torch.full((T, k), -1))
            continue
        if mode == "full":
            owner = layer
        if mode != "reuse":
            score_TS = query_LTD[layer] @ key_LTD[owner].T
            nearest_Tk = top_k(score_TS, visible_TS, k)
        owners.append(owner)
        choices.append(nearest_Tk)
    return torch.tensor(owners), torch.stack(choices)
    ### END SOLUTION


# %% exercise_id="10.1" tags=["check"]
check("10.1", owners_and_choices)

# %% [markdown]
# ## 10.2 Candidate blocks
#
# difficulty 3/5, importance 4/5, about 25 minutes
#
# One layer scores everything it sees. For the layers after it, it leaves a smaller
# field: for each query, the `keep` best blocks of `block` entries. Only entries inside
# them will be scored again.
#
# - Entries 0 to block - 1 are block 0, the next ones block 1, and so on. The last block
#   may be shorter.
# - A block is as good as its best **visible** entry.
# - The block that holds the newest visible entry always stays, as one of the `keep`.
# - Of equally good blocks the one with the lowest index wins:
#   `x.sort(dim=-1, descending=True, stable=True)` keeps equal ones in order.
# - What is not visible is never a candidate, whatever block it is in.
#
# In each row of `visible_TS` the first entries are visible and the others are not; in
# some rows none is.


# %% exercise_id="10.2" points=4 tags=["exercise"]
def candidates(
    score_BTS: Float[Tensor, "B T S"],
    visible_TS: Bool[Tensor, "T S"],
    block: int,
    keep: int,
) -> Bool[Tensor, "B T S"]:
    """True for each entry that later layers may choose."""
    ### BEGIN SOLUTION
    S = score_BTS.shape[-1]
    blocks = -(-S // block)
    hidden_BTS = score_BTS.masked_fill(~visible_TS, -torch.inf)
    padding = (0, blocks * block - S)
    padded_BTS = torch.nn.functional.pad(hidden_BTS, padding, value=-torch.inf)
    best_BTJ = padded_BTS.unflatten(-1, (blocks, block)).amax(-1)
    newest_T1 = (visible_TS.sum(-1, keepdim=True) - 1) // block
    pinned_TJ = torch.arange(blocks) == newest_T1
    best_BTJ = best_BTJ.masked_fill(pinned_TJ, torch.inf)
    order_BTJ = best_BTJ.sort(dim=-1, descending=True, stable=True).indices
    kept_BTJ = torch.zeros_like(best_BTJ, dtype=torch.bool)
    kept_BTJ = kept_BTJ.scatter(-1, order_BTJ[..., :keep], True)
    return kept_BTJ.repeat_interleave(block, dim=-1)[..., :S] & visible_TS
    ### END SOLUTION


# %% exercise_id="10.2" tags=["check"]
check("10.2", candidates)

# %% [markdown]
# Passed? Then `my_parts()` puts it into the tiny V4.1, where layer 4 leaves its blocks
# to layer 6. Section "Your own sieve" of the lesson runs it.

# %% [markdown]
# ## 10.3 What sharing is worth
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# A layer with the ratio m keeps one entry and one index key for every m tokens, if it
# owns them. Ratio 0 is a layer with a window only, which keeps nothing that grows.
#
# Write both sums, in bytes per token: as shared, where only the layers in `owners`
# keep; and unshared, where every layer with a ratio keeps its own. Bytes per token are
# an average and need not be whole.


# %% exercise_id="10.3" points=2 tags=["exercise"]
def sharing(
    ratios: tuple[int, ...],
    owners: tuple[int, ...],
    entry_bytes: int,
    key_bytes: int,
) -> tuple[float, float]:
    """A pair: bytes per token as shared, and unshared. `ratios` has one a layer."""
    ### BEGIN SOLUTION
    row = entry_bytes + key_bytes
    shared = sum(row / ratios[layer] for layer in owners)
    unshared = sum(row / ratio for ratio in ratios if ratio)
    return shared, unshared
    ### END SOLUTION


# %% exercise_id="10.3" tags=["check"]
check("10.3", sharing)

# %% [markdown]
# Try it on V4.1-Flash: `ratios = (0, 0) + (2,) * 18 + (1,) * 20`, `owners = (2, 8, 14,
# 20)`. In bf16 an entry has 1,024 bytes and a key 256; in FP4 they have 288 and 68.

# %% [markdown]
# ## 10.4 The work of a written token
#
# difficulty 3/5, importance 4/5, about 25 minutes
#
# Which part of a written token's work grows with the context? Only what looks at the
# cache. Count it, over all layers, at a context of n tokens. One multiplication with
# its addition is 2 FLOPs.
#
# **Attention.** A layer reads the newest `window` tokens (or all n, if there are
# fewer). If its ratio m is not 0 there are n // m far entries (rounded down), and it
# reads `top_k` of them, or all if there are fewer. Each entry read meets each of
# `heads` heads twice, as key and as value, with `dim` numbers each time.
#
# **Scores.** A full layer scores all its n // m entries. A reindex layer scores at most
# `pool` of them, the candidates. A reuse layer scores nothing. Each score is a product
# of `index_dim` numbers, for each of `index_heads` index heads.


# %% exercise_id="10.4" points=3 tags=["exercise"]
def work_at(
    n: int,
    modes: tuple[str, ...],
    ratios: tuple[int, ...],
    window: int,
    top_k: int,
    pool: int,
    heads: int,
    dim: int,
    index_heads: int,
    index_dim: int,
) -> tuple[int, int]:
    """A pair: FLOPs of attention, and FLOPs of index scores, in all layers together."""
    ### BEGIN SOLUTION
    read = scored = 0
    for mode, ratio in zip(modes, ratios):
        read += min(n, window)
        if ratio == 0:
            continue
        entries = n // ratio
        read += min(entries, top_k)
        if mode == "full":
            scored += entries
        if mode == "reindex":
            scored += min(entries, pool)
    return read * heads * 4 * dim, scored * index_heads * 2 * index_dim
    ### END SOLUTION


# %% exercise_id="10.4" tags=["check"]
check("10.4", work_at)
