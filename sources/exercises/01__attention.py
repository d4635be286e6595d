# %% [markdown]
# # Exercises 01: attention and the cache
#
# You write the memory of a language model: first the attention that reads it, then the
# cache that holds it, then the loop that uses it, then the sum that says what it costs.
#
# Replace each `...` with your code and run the cell, then run the check below it. A check
# says what it saw and what it expected, and often which mistake gives just your answer.
# `hint("01.1")` gives a hint, and again the next one.
#
# Names end in the letters of their axes: `query_BTHD` has the axes B, batch (several
# texts side by side); T, the new tokens; H, heads; D, the numbers in one head. S counts
# all tokens that are kept, old and new.

# %%
import torch
from jaxtyping import Float
from torch import Tensor

from grading import check, hint, predict

# %% [markdown]
# ## 01.1 Causal attention that works on a chunk
#
# difficulty 3/5, importance 5/5, about 20 minutes
#
# Each token asks a question (its query). Each token it may look at has a label (its key)
# and something to hand over (its value). The better query and key fit, the more of that
# value flows into the answer.
#
# For one head: the score of a pair is the dot product of query and key, divided by
# $\sqrt{D}$. The scores of one query go through a softmax: now they are weights that sum
# to 1. The answer is the sum of the values, each times its weight.
#
# Causal: a token may look at itself and at what came before, never at what comes later.
# T new tokens may arrive when others are there already: they are the *last* T of all S.

# %% exercise_id="01.1" points=3 tags=["exercise"]
def causal_attention(
    query_BTHD: Float[Tensor, "B T H D"],
    key_BSHD: Float[Tensor, "B S H D"],
    value_BSHD: Float[Tensor, "B S H D"],
) -> Float[Tensor, "B T H D"]:
    """Attention of the T newest tokens over all S tokens, T <= S.

    New token t stands at position S - T + t. It reads the positions from 0 to its own.
    Scores are divided by the square root of D; each head works alone.
    """
    ### BEGIN SOLUTION
    T, S, D = query_BTHD.shape[1], key_BSHD.shape[1], query_BTHD.shape[-1]
    query_BHTD, key_BHSD, value_BHSD = (
        x.transpose(1, 2) for x in (query_BTHD, key_BSHD, value_BSHD)
    )
    score_BHTS = query_BHTD @ key_BHSD.transpose(-2, -1) / D**0.5
    position_T1 = torch.arange(S - T, S)[:, None]
    later_TS = torch.arange(S) > position_T1
    weight_BHTS = score_BHTS.masked_fill(later_TS, float("-inf")).softmax(-1)
    return (weight_BHTS @ value_BHSD).transpose(1, 2)
    ### END SOLUTION


# %% exercise_id="01.1" tags=["check"]
check("01.1", causal_attention)
