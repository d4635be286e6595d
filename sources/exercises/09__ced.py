# %% [markdown]
# # Exercises 09: CED
#
# The lower half reads, the upper half writes. You make the decoder's far memory, say
# who runs when, run a bounded replay, and work out where it is exact.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("09.1")` gives a hint, and again the next one.
#
# Letters of the axes: L layers, E layers of the decoder, B batch, T tokens, X the width
# of the stream, D numbers of a row, R of them that are turned.

# %%
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from tinymodels.attention.rope import rotate
from tinymodels.config import Rope
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 09.1 The decoder's far memory
#
# difficulty 2/5, importance 5/5, about 20 minutes
#
# You get the stream as it leaves each layer: `stream_LBTX[i]` comes out of layer i. The
# first `encoder` layers are the encoder, 0 to encoder − 1; the others are the decoder.
# Each decoder layer e has a matrix `kv_EDX[e]` and norm weights `norm_ED[e]` of its own
# (sharing comes in chapter 10). Of each token it keeps a row:
#
# 1. the matrix times the stream that leaves the encoder,
# 2. an RMS norm: c / sqrt(mean(c²) + eps) × weights,
# 3. the last `rope` of its D numbers turned by the token's position.
#
# The T tokens stand at positions `start`, `start + 1`, ... `rotate(x, Rope(R),
# positions)` turns x of shape [B, T, R] or [E, T, R], and the like, given T positions
# for its axis 1.


# %% exercise_id="09.1" points=4 tags=["exercise"]
def decoder_rows(
    stream_LBTX: Float[Tensor, "L B T X"],
    encoder: int,
    kv_EDX: Float[Tensor, "E D X"],
    norm_ED: Float[Tensor, "E D"],
    rope: int,
    start: int,
    eps: float,
) -> Float[Tensor, "E B T D"]:
    """The far row of each token for each decoder layer."""
    ### BEGIN SOLUTION
    x_BTX = stream_LBTX[encoder - 1]
    rows = []
    for kv_DX, norm_D in zip(kv_EDX, norm_ED):
        row_BTD = x_BTX @ kv_DX.T
        length_BT1 = (row_BTD.square().mean(-1, keepdim=True) + eps).sqrt()
        row_BTD = row_BTD / length_BT1 * norm_D
        positions = torch.arange(start, start + row_BTD.shape[1])
        turned = rotate(row_BTD[..., -rope:], Rope(rope), positions)
        rows.append(torch.cat([row_BTD[..., :-rope], turned], dim=-1))
    return torch.stack(rows)
    ### END SOLUTION


# %% exercise_id="09.1" tags=["check"]
check("09.1", decoder_rows)

# %% [markdown]
# ## 09.2 Which tokens the decoder runs
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# A prompt of `prompt` tokens is read, then `written` more tokens go through the model,
# one by one. Fill a table: row i is layer i, column t is token t, True where that layer
# runs that token at some time.
#
# The first `encoder` of the `layers` layers are the encoder. The decoder runs the
# prompt's last `window` tokens (all of them, if there are no more) and everything that
# is written.


# %% exercise_id="09.2" points=3 tags=["exercise"]
def who_runs(
    prompt: int, written: int, layers: int, encoder: int, window: int
) -> Bool[Tensor, "L T"]:
    """True where layer i runs token t; T = prompt + written."""
    ### BEGIN SOLUTION
    table_LT = torch.zeros(layers, prompt + written, dtype=torch.bool)
    table_LT[:encoder] = True
    table_LT[encoder:, max(0, prompt - window) :] = True
    return table_LT
    ### END SOLUTION


# %% exercise_id="09.2" tags=["check"]
check("09.2", who_runs)

# %% [markdown]
# Passed? Then `who_runs(1000, 3, 40, 20, 128).sum()` is the number of layer-tokens that
# the tower of the lesson shows for such a prompt.

# %% [markdown]
# ## 09.3 Bounded replay
#
# difficulty 3/5, importance 5/5, about 25 minutes
#
# Run the last `run` tokens of a prompt through the decoder, as if the text began with
# the first of them. (If the prompt is shorter, run all of it.) What lies before them
# goes through no layer; the check counts the tokens that do.
#
# Each of the `layers` is a function: `layer(x_BTX, visible_TT)` gives the stream after
# it. `visible_TT[i, j]` says whether token i may look at token j. A token sees itself
# and the window − 1 tokens before it, as far as they are there.
#
# The layers' far memory is inside the functions; only the windows concern you.


# %% exercise_id="09.3" points=4 tags=["exercise"]
def bounded_replay(
    x_BTX: Float[Tensor, "B T X"],
    layers: list[Callable],
    window: int,
    run: int,
) -> Float[Tensor, "B X"]:
    """The stream of the prompt's last token, as it leaves the last layer.

    x_BTX is the whole prompt as it leaves the encoder; it stays as it is.
    """
    ### BEGIN SOLUTION
    x_BTX = x_BTX[:, -run:]
    position = torch.arange(x_BTX.shape[1])
    back_TT = position[:, None] - position
    visible_TT = (back_TT >= 0) & (back_TT < window)
    for layer in layers:
        x_BTX = layer(x_BTX, visible_TT)
    return x_BTX[:, -1]
    ### END SOLUTION


# %% exercise_id="09.3" tags=["check"]
check("09.3", bounded_replay)

# %% [markdown]
# ## 09.4 What is exact
#
# difficulty 4/5, importance 4/5, about 20 minutes
#
# Three numbers about a decoder of `layers` layers, all with a window of `window` tokens
# (two or more, oneself among them), after a prompt of `prompt` tokens:
#
# - how many of the prompt's last tokens must be run so that the **last** one leaves the
#   decoder just as if all had been run (no more than there are),
# - whether the bounded replay, which runs the last `window` tokens (or all, if there
#   are fewer), is exact for the last token,
# - after a bounded replay: how many tokens must be written until one of them, and all
#   after it, are exact again. 0 if the prompt's last token is exact already.
#
# "Exact" means: for any weights. Draw two layers and a window of three on paper.


# %% exercise_id="09.4" points=3 tags=["exercise"]
def exactness(prompt: int, window: int, layers: int) -> tuple[int, bool, int]:
    """Tokens to run; whether the bounded replay is exact; words until it is."""
    ### BEGIN SOLUTION
    run = min(prompt, layers * (window - 1) + 1)
    exact = run <= window
    return run, exact, 0 if exact else (layers - 1) * (window - 1)
    ### END SOLUTION


# %% exercise_id="09.4" tags=["check"]
check("09.4", exactness)

# %% [markdown]
# Try it with the real decoder: `exactness(100_000, 128, 20)`.
