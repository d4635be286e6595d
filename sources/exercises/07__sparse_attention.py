# %% [markdown]
# # Exercises 07: Sparse attention
#
# A query reads a few rows, and a cheap scorer says which. You write the score, the
# choice with all its corners, and the sum that says what is saved and what is not. Then
# the trick of the kernel: the k-th largest of many numbers without sorting them.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("07.1")` gives a hint, and again the next one.
#
# Letters of the axes: B batch, T new tokens, S kept rows, I heads of the indexer, D
# numbers of a key, k chosen rows.

# %%
import torch
from jaxtyping import Bool, Float, Int
from kernels.backend import tl, triton
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 07.1 Indexer score
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# The cheap mark of every row. Each head i of the indexer has a query; all heads share
# one key a row. A head says ReLU(q · k), that is q · k or 0 if it is negative. The
# score is what the heads say, each times its weight, added up:
#
# score(t, s) = sum over i of weight(t, i) × ReLU(q(t, i) · k(s))
#
# Nothing is masked here, and no other scale is needed.


# %% exercise_id="07.1" points=3 tags=["exercise"]
def index_scores(
    query_BTID: Float[Tensor, "B T I D"],
    weight_BTI: Float[Tensor, "B T I"],
    key_BSD: Float[Tensor, "B S D"],
) -> Float[Tensor, "B T S"]:
    """Every query's score of every row."""
    ### BEGIN SOLUTION
    said_BTIS = torch.einsum("btid,bsd->btis", query_BTID, key_BSD).relu()
    return (weight_BTI[..., None] * said_BTIS).sum(2)
    ### END SOLUTION


# %% exercise_id="07.1" tags=["check"]
check("07.1", index_scores)

# %% [markdown]
# ## 07.2 Top-k with ties and -1
#
# difficulty 4/5, importance 5/5, about 30 minutes
#
# For each query the k rows with the highest scores, among those it may see:
#
# - what is not visible is never chosen, however good its score;
# - of equal scores the lowest index wins, so that everybody chooses alike;
# - the list is in the order of positions, not of scores;
# - where fewer than k rows are visible, the places left over are -1, at the end;
# - the list is min(k, S) wide.


# %% exercise_id="07.2" points=4 tags=["exercise"]
def select(
    score_BTS: Float[Tensor, "B T S"], visible_TS: Bool[Tensor, "T S"], k: int
) -> Int[Tensor, "B T k"]:
    """Positions of the chosen rows; visible_TS is True where a query may look."""
    ### BEGIN SOLUTION
    S = score_BTS.shape[-1]
    hidden_BTS = score_BTS.masked_fill(~visible_TS, -float("inf"))
    order_BTS = hidden_BTS.sort(dim=-1, descending=True, stable=True).indices
    best_BTk = order_BTS[..., : min(k, S)]
    reached_BTk = visible_TS.expand(score_BTS.shape).gather(-1, best_BTk)
    rising_BTk = best_BTk.masked_fill(~reached_BTk, S).sort(dim=-1).values
    return rising_BTk.masked_fill(rising_BTk == S, -1)
    ### END SOLUTION


# %% exercise_id="07.2" tags=["check"]
check("07.2", select)

# %% [markdown]
# Passed? Then `my_parts()` puts it into the tiny V3.2, and section "Your own choice" of
# the lesson lets it find needles.

# %% [markdown]
# ## 07.3 Reads against bytes
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# What does a choice save? Each of `layers` layers keeps, of every token, a latent, a
# rope key and an index key. All numbers take 2 bytes. A new token that stands behind
# `context` others reads, in each layer, the index key of every one of them, and the
# latent and rope key of the chosen ones: k, or all if there are fewer.


# %% exercise_id="07.3" points=3 tags=["exercise"]
def reads(
    layers: int, latent: int, rope: int, index: int, k: int, context: int
) -> tuple[int, int]:
    """A pair: bytes kept of a token, bytes read for one new token."""
    ### BEGIN SOLUTION
    kept = layers * 2 * (latent + rope + index)
    read = layers * 2 * (context * index + min(k, context) * (latent + rope))
    return kept, read
    ### END SOLUTION


# %% exercise_id="07.3" tags=["check"]
check("07.3", reads)

# %% [markdown]
# Try it: `reads(61, 512, 64, 128, 2048, 131_072)`, and then with half the context.

# %% [markdown]
# ## 07.4 A threshold instead of sorting
#
# difficulty 3/5, importance 3/5, about 20 minutes
#
# To choose the k best one need not know their order, only where to cut. `key_N` are
# whole numbers of `bits` bits. Find the **threshold**: the largest number that at least
# k of the keys reach (are at least as large as). That is the k-th largest key.
#
# Settle its bits from the highest down: set the next bit on trial, count the keys that
# reach the number so far; if it is at least k, the bit stays.
#
# One point is for doing it without a sorting function.


# %% exercise_id="07.4" points=3 tags=["exercise"]
def threshold(key_N: Int[Tensor, "N"], k: int, bits: int) -> int:
    """The k-th largest of N keys from 0 to 2 ** bits - 1; equal keys all count."""
    ### BEGIN SOLUTION
    found = 0
    for bit in range(bits - 1, -1, -1):
        candidate = found | (1 << bit)
        if int((key_N >= candidate).sum()) >= k:
            found = candidate
    return found
    ### END SOLUTION


# %% exercise_id="07.4" tags=["check"]
check("07.4", threshold)

# %% [markdown]
# ## 07.5 Two lines of the gather kernel (optional)
#
# difficulty 4/5, importance 3/5, about 20 minutes
#
# Attention of one new token over the rows on its list. A row (the kernel says `entry`)
# is key and value at once. The rows lie anywhere; the kernel need not copy them
# together first, because an index becomes an address. Two lines are missing: the list's
# next places (`other=-1` behind its end), and the entries that stand there.
#
# Where there is no Triton (macOS, Windows) the check says `unavailable`, and it counts
# neither for nor against you.

# %% exercise_id="07.5" points=2 tags=["exercise"]
@triton.jit
def gather_decode(
    query_ptr, entry_ptr, index_ptr, output_ptr, S, K, scale,
    H: tl.constexpr, D: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """query [B, H, D], entry [B, S, D]; index [B, K], -1 where a place is empty."""
    b = tl.program_id(0)
    h = tl.arange(0, BLOCK_H)[:, None]
    d = tl.arange(0, BLOCK_D)[None, :]
    query_at = (b * H + h) * D + d
    query_HD = tl.load(query_ptr + query_at, mask=(h < H) & (d < D), other=0.0)
    maximum_H = tl.full([BLOCK_H], -float("inf"), tl.float32)
    denominator_H = tl.zeros([BLOCK_H], tl.float32)
    sum_HD = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    for start in range(0, K, BLOCK_K):
        place_K = start + tl.arange(0, BLOCK_K)
        # First line: row_K = ..., the list's entries at these places
        ### BEGIN SOLUTION
        row_K = tl.load(index_ptr + b * K + place_K, mask=place_K < K, other=-1)
        ### END SOLUTION
        there_K = row_K >= 0
        # Second line: entry_KD = ..., 0 where there is none
        ### BEGIN SOLUTION
        entry_at = (b * S + row_K)[:, None] * D + d
        entry_KD = tl.load(
            entry_ptr + entry_at, mask=there_K[:, None] & (d < D), other=0.0
        )
        ### END SOLUTION
        score_HK = tl.dot(query_HD, tl.trans(entry_KD), input_precision="ieee") * scale
        score_HK = tl.where(there_K[None, :], score_HK, -float("inf"))
        new_maximum_H = tl.maximum(maximum_H, tl.max(score_HK, axis=1))
        weight_HK = tl.exp(score_HK - new_maximum_H[:, None])
        rescale_H = tl.exp(maximum_H - new_maximum_H)
        denominator_H = denominator_H * rescale_H + tl.sum(weight_HK, axis=1)
        block_HD = tl.dot(weight_HK, entry_KD, input_precision="ieee")
        sum_HD = sum_HD * rescale_H[:, None] + block_HD
        maximum_H = new_maximum_H
    output_HD = sum_HD / denominator_H[:, None]
    tl.store(output_ptr + query_at, output_HD, mask=(h < H) & (d < D))


# %% exercise_id="07.5" tags=["check"]
check("07.5", gather_decode)
