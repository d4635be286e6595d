# %% [markdown]
# # Exercises 00: how an exercise works
#
# One exercise for practice, no points. It shows what you will meet in every chapter: a
# function to fill in, a check that says what it saw, and hints when you want them.

# %%
import torch
from jaxtyping import Float, Int
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 00.1 From logits to the next token
#
# difficulty 1/5, importance 1/5, about 5 minutes
#
# A model gives each word of its vocabulary a number, its *logit*: the larger, the
# likelier that the word comes next. Softmax turns logits into probabilities, positive
# numbers that sum to 1. The *temperature* divides the logits first: below 1 it sharpens
# the choice, above 1 it evens it out.
#
# The first lines say what goes in and what comes out: `Float[Tensor, "B V"]` is a tensor
# of fractional numbers with two axes, B prompts and V words; `Int[Tensor, "B"]` holds
# one whole number a prompt. You need not write such types yourself.
#
# Two lines are missing. Put them in place of the `...`, run the cell, then run the
# check.

# %% exercise_id="00.1" points=0 tags=["exercise"]
def next_token(
    logits_BV: Float[Tensor, "B V"], temperature: float
) -> tuple[Float[Tensor, "B V"], Int[Tensor, "B"]]:
    """Probabilities of the next token, and the likeliest one, for each of B prompts.

    Returns a pair: softmax(logits / temperature) over the vocabulary V, and the place
    of the largest probability in each row.
    """
    ### BEGIN SOLUTION
    probabilities_BV = torch.softmax(logits_BV / temperature, dim=-1)
    return probabilities_BV, probabilities_BV.argmax(dim=-1)
    ### END SOLUTION


# %% exercise_id="00.1" tags=["check"]
check("00.1", next_token)

# %% [markdown]
# The check ran your function on inputs of its own and compared it with an answer
# computed in another way. Each line of its message has a purpose:
#
# - *passed*, *partly*, *wrong*, *not attempted* or *error* (your code stopped) is where
#   you stand.
# - If your answer is exactly what a known mistake gives, the check names the mistake.
#   Try it: leave the temperature out, or use `dim=0`, and run both cells again.
# - The last line says where your answer first differs, and how.
#
# Stuck? Type `hint("00.1")` into a cell. Each call gives one hint more; a number shows
# a given hint again, as here:

# %%
hint("00.1", 1)
