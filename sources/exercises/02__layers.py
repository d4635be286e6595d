# %% [markdown]
# # Exercises 02: layers
#
# You look into a model between its layers: first with the lens that turns a half-made
# thought into a guess, later with a probe that asks what could be known there. You
# count what the layers cost, and build in one layer what a stack of small ones does by
# folding.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("02.1")` gives a hint, and again the next one.
#
# Names end in the letters of their axes: L layers, B texts side by side, V words, X the
# numbers of the stream, N and M examples, C classes.

# %%
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 02.1 The logit lens
#
# difficulty 3/5, importance 4/5, about 20 minutes
#
# A model ends with two steps: it norms its stream and multiplies it by the head. Out
# come logits, one for each word. Take the same two steps with the stream as it leaves
# *each* layer, and you see the guess grow.
#
# The norm divides a vector by the root of the mean of its squares, and then multiplies
# each of its numbers by a gain that was learned:
#
# $$\text{normed} = \frac{x}{\sqrt{\text{mean}(x^2) + 10^{-6}}} \cdot \text{gain}$$
#
# Two numbers say how good a guess is. The **rank** of the answer: 1 if no word has a
# higher logit, 2 if one has. The **entropy** of the guess in bits: the sum of
# $-p \log_2 p$ over all words, with the probabilities $p$ from the softmax. It is 0 for
# a sure guess, right or wrong.

# %% exercise_id="02.1" points=3 tags=["exercise"]
def logit_lens(
    stream_LBX: Float[Tensor, "L B X"],
    gain_X: Float[Tensor, "X"],
    head_VX: Float[Tensor, "V X"],
    answer_B: Int[Tensor, "B"],
) -> tuple[Int[Tensor, "L B"], Float[Tensor, "L B"]]:
    """The rank of each text's answer, and the entropy of the guess, after every layer.

    `stream_LBX` is the stream at the last token of B texts, as it leaves L layers. Norm
    it, then apply the head: the logit of a word is the dot product with its row.
    `answer_B` holds the number of the right word of each text. Returns (rank, entropy).
    """
    ### BEGIN SOLUTION
    size_LB1 = (stream_LBX.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    logits_LBV = stream_LBX / size_LB1 * gain_X @ head_VX.T
    own_LB1 = logits_LBV.gather(-1, answer_B.expand(len(stream_LBX), -1)[..., None])
    rank_LB = (logits_LBV > own_LB1).sum(-1) + 1
    log_LBV = logits_LBV.log_softmax(-1)
    entropy_LB = -(log_LBV.exp() * log_LBV).sum(-1) / math.log(2)
    return rank_LB, entropy_LB
    ### END SOLUTION


# %% exercise_id="02.1" tags=["check"]
check("02.1", logit_lens)

# %% [markdown]
# ## 02.2 Bytes with layers
#
# difficulty 2/5, importance 5/5, about 10 minutes
#
# Every layer keeps its own keys and values, so the bytes of a cache are a sum over
# layers. In most models all layers are alike. In some they differ, and in some a layer
# borrows: it keeps nothing and reads what an earlier layer has kept.
#
# A key and a value have `head_dim` numbers each, for every kv head of a layer.

# %% exercise_id="02.2" points=2 tags=["exercise"]
def cache_bytes(
    kv_heads: list[int],
    source: list[int],
    head_dim: int,
    tokens: int,
    batch: int,
    bits_per_number: int,
) -> int:
    """Bytes of the whole cache when `batch` texts of `tokens` tokens are held.

    `kv_heads[i]` is the number of kv heads of layer i. Layer i reads the keys and
    values of layer `source[i]`; usually that is i itself. If not, layer i keeps none.
    """
    ### BEGIN SOLUTION
    kept = sum(heads for i, heads in enumerate(kv_heads) if source[i] == i)
    return 2 * kept * head_dim * tokens * batch * bits_per_number // 8
    ### END SOLUTION


# %% exercise_id="02.2" tags=["check"]
check("02.2", cache_bytes)

# %% [markdown]
# Try DeepSeek-V1 67B at one million tokens:
# `cache_bytes([8] * 95, list(range(95)), 128, 1_000_000, 1, 16)`.

# %% [markdown]
# ## 02.3 A linear probe
#
# difficulty 3/5, importance 3/5, about 20 minutes
#
# What could be known from a vector, if one asked it? A probe answers with one matrix.
# Append a 1 to each training vector (so that a class can have a constant): $A$, N rows.
# The targets $Y$ have a row for each vector: 1 for its class, 0 for all the others. The
# weights that come nearest, with large ones held back by the `ridge`, are
#
# $$W = (A^T A + \text{ridge} \cdot I)^{-1} A^T Y$$
#
# A new vector, with its 1, times $W$ gives a score for each class. Its guess would be
# the class with the highest score.

# %% exercise_id="02.3" points=3 tags=["exercise"]
def probe(
    train_NX: Float[Tensor, "N X"],
    label_N: Int[Tensor, "N"],
    new_MX: Float[Tensor, "M X"],
    classes: int,
    ridge: float,
) -> Float[Tensor, "M C"]:
    """Scores of M new vectors for each class, by weights fitted on N labelled ones.

    Labels are 0 to classes - 1. The 1 is appended behind the vector, and its row of W
    is held back like the others. `torch.linalg.solve(P, Q)` gives the W with P @ W = Q.
    """
    ### BEGIN SOLUTION
    train_NX = torch.cat([train_NX, torch.ones(len(train_NX), 1)], dim=1)
    new_MX = torch.cat([new_MX, torch.ones(len(new_MX), 1)], dim=1)
    target_NC = torch.eye(classes)[label_N]
    held_XX = ridge * torch.eye(train_NX.shape[1])
    solve = torch.linalg.solve
    weight_XC = solve(train_NX.T @ train_NX + held_XX, train_NX.T @ target_NC)
    return new_MX @ weight_XC
    ### END SOLUTION


# %% exercise_id="02.3" tags=["check"]
check("02.3", probe)

# %% [markdown]
# ## 02.4 How many ReLU units one layer needs for the folded line
#
# difficulty 3/5, importance 3/5, about 20 minutes
#
# The tent map folds the line from 0 to 1 once: it rises to 1 at the middle and falls
# back to 0. Folded `folds` times it goes up and down in $2^{\text{folds}}$ straight
# pieces, all equally wide, from 0 to 1 or from 1 to 0. A stack of layers needs two
# units a layer. Now do it in *one* layer, with as few units as you can:
#
# $$f(x) = \sum_m \text{turn}_m \cdot \text{relu}(x - \text{start}_m)$$
#
# A unit does nothing up to its start; from there on it changes the slope of the curve
# by its turn. At the left end the curve has the slope 0 until a unit starts.

# %% exercise_id="02.4" points=3 tags=["exercise"]
def one_layer(folds: int) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
    """start_M and turn_M of the units that add up to the tent map, `folds` times.

    The curve must be right for 0 <= x <= 1; folds is 1 or more.
    """
    ### BEGIN SOLUTION
    pieces = 2**folds
    start_M = torch.arange(pieces) / pieces
    turn_M = 2.0 * pieces * (-1.0) ** torch.arange(pieces)
    turn_M[0] = pieces
    return start_M, turn_M
    ### END SOLUTION


# %% exercise_id="02.4" tags=["check"]
check("02.4", one_layer)
