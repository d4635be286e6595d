# %% [markdown]
# # Exercises 03: the residual stream
#
# You write one layer around its stream, move one piece of a run into another, and then,
# on the second path, build what V4 and V4.1 do with several copies of the stream.
#
# Replace each `...` with your code and run the cell, then run the check below it. A
# check says what it saw and what it expected, and often which mistake gives just your
# answer. `hint("03.1")` gives a hint, and again the next one.
#
# Names end in the letters of their axes: `x_BTX` has the axes B, batch; T, tokens; X,
# the numbers of the stream. N counts copies of the stream.

# %%
import torch
from jaxtyping import Float
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 03.1 A pre-norm block
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# One layer: attention, then the FFN. Each of them reads the stream through a norm of
# its own, and adds what it found to the stream. The FFN reads a stream to which
# attention has already added.
#
# The norm is RMSNorm. For each token alone:
#
# > norm(x) = weight × x / √(mean of x² + eps)
#
# The stream that comes in still belongs to the caller: do not change it in place.

# %% exercise_id="03.1" points=3 tags=["exercise"]
def pre_norm_block(
    x_BTX: Float[Tensor, "B T X"],
    attention,
    ffn,
    attention_weight_X: Float[Tensor, "X"],
    ffn_weight_X: Float[Tensor, "X"],
    eps: float,
) -> Float[Tensor, "B T X"]:
    """The stream after one layer.

    `attention` and `ffn` are functions: stream in, what they found out, same shape.
    Each has the weight of its own norm; `eps` is the same in both.
    """
    ### BEGIN SOLUTION
    def norm(x_BTX, weight_X):
        mean_BT1 = x_BTX.square().mean(-1, keepdim=True)
        return weight_X * x_BTX / (mean_BT1 + eps).sqrt()

    x_BTX = x_BTX + attention(norm(x_BTX, attention_weight_X))
    return x_BTX + ffn(norm(x_BTX, ffn_weight_X))
    ### END SOLUTION


# %% exercise_id="03.1" tags=["check"]
check("03.1", pre_norm_block)

# %% [markdown]
# ## 03.2 Patching
#
# difficulty 3/5, importance 5/5, about 20 minutes
#
# Two texts, two streams. `sublayers` is a list of functions. Each takes the whole
# stream and returns what it *adds* to it:
#
#     stream = stream + sublayer(stream)
#
# Run the second stream, `other_BTX`, as far as you need it, and keep what sublayer
# number `which` adds there. Then run `x_BTX`; but at token `position` let sublayer
# `which` add what it added in the other run. At all other tokens, and in all other
# sublayers, everything is as always: later sublayers see what you did.
#
# The check counts calls: no sublayer needs to run for nothing.

# %% exercise_id="03.2" points=3 tags=["exercise"]
def patched_run(
    sublayers: list,
    x_BTX: Float[Tensor, "B T X"],
    other_BTX: Float[Tensor, "B T X"],
    which: int,
    position: int,
) -> Float[Tensor, "B T X"]:
    """The stream of x_BTX after the last sublayer, one addition from the other run.

    `which` counts sublayers from 0, `position` tokens from 0.
    """
    ### BEGIN SOLUTION
    for sublayer in sublayers[:which]:
        other_BTX = other_BTX + sublayer(other_BTX)
    taken_BX = sublayers[which](other_BTX)[:, position]
    for number, sublayer in enumerate(sublayers):
        found_BTX = sublayer(x_BTX)
        if number == which:
            found_BTX = found_BTX.clone()
            found_BTX[:, position] = taken_BX
        x_BTX = x_BTX + found_BTX
    return x_BTX
    ### END SOLUTION


# %% exercise_id="03.2" tags=["check"]
check("03.2", patched_run)

# %% [markdown]
# ## 03.3 Sinkhorn's turns
#
# difficulty 3/5, importance 3/5, about 15 minutes
#
# From any matrix to one whose rows and columns add up to 1. As V4 does it, in this
# order:
#
# 1. softmax of each row, then add `eps` to every entry;
# 2. the first turn: divide each column by (its sum + eps);
# 3. each further turn: the same with each row, by (its sum + eps), and then again with
#    each column.
#
# So `iterations` turns have the columns done `iterations` times and the rows once less.
# In `logits_BTNN` the last axis runs along a row: entry [i, j] stands in row i.

# %% exercise_id="03.3" points=3 tags=["exercise"]
def sinkhorn(
    logits_BTNN: Float[Tensor, "B T N N"], iterations: int, eps: float
) -> Float[Tensor, "B T N N"]:
    """A nearly doubly stochastic matrix for each token; iterations is 1 or more."""
    ### BEGIN SOLUTION
    comb_BTNN = logits_BTNN.softmax(-1) + eps
    comb_BTNN = comb_BTNN / (comb_BTNN.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb_BTNN = comb_BTNN / (comb_BTNN.sum(-1, keepdim=True) + eps)
        comb_BTNN = comb_BTNN / (comb_BTNN.sum(-2, keepdim=True) + eps)
    return comb_BTNN
    ### END SOLUTION


# %% exercise_id="03.3" tags=["check"]
check("03.3", sinkhorn)

# %% [markdown]
# ## 03.4 The update of the copies
#
# difficulty 3/5, importance 4/5, about 15 minutes
#
# A sublayer has answered F, `found_BTX`. Each token has its own weights, for N copies:
#
# - `post`: new copy j gets post[j] times F,
# - `comb`: and comb[i, j] times *old* copy i, summed over i,
# - `pre`: the next sublayer reads the sum of pre[j] times *new* copy j. (In V4.1 this
#   pre is known before F is, which is the whole trick.)

# %% exercise_id="03.4" points=3 tags=["exercise"]
def update_copies(
    copies_BTNX: Float[Tensor, "B T N X"],
    found_BTX: Float[Tensor, "B T X"],
    pre_BTN: Float[Tensor, "B T N"],
    post_BTN: Float[Tensor, "B T N"],
    comb_BTNN: Float[Tensor, "B T N N"],
) -> tuple[Float[Tensor, "B T N X"], Float[Tensor, "B T X"]]:
    """A pair: the new copies, and what the next sublayer reads."""
    ### BEGIN SOLUTION
    spread_BTNX = post_BTN[..., None] * found_BTX[:, :, None]
    new_BTNX = spread_BTNX + torch.einsum("btij,btix->btjx", comb_BTNN, copies_BTNX)
    return new_BTNX, (pre_BTN[..., None] * new_BTNX).sum(2)
    ### END SOLUTION


# %% exercise_id="03.4" tags=["check"]
check("03.4", update_copies)

# %% [markdown]
# ## 03.5 Count the traffic
#
# difficulty 2/5, importance 4/5, about 15 minutes
#
# What moves between memory and chip for one token, in one pass through the model? Count
# streams: each is `width` numbers. F is a sublayer's answer, "input" what the next
# sublayer reads.
#
# | schedule | pass | reads | writes |
# |---|---|---|---|
# | `"separate"` | mix and add | all copies, F | all copies |
# | | weights of the next read | all copies | - |
# | | input | all copies | input |
# | | norm | input | input |
# | `"fused"` | mix and add, and the weights | all copies, F | all copies |
# | | input and norm | all copies | input |
# | `"single"` | everything | all copies, F | all copies, input |
#
# This happens once for every sublayer, and a layer has two: attention and FFN. A number
# has `bits_per_number` bits.

# %% exercise_id="03.5" points=2 tags=["exercise"]
def stream_traffic(
    layers: int, copies: int, width: int, bits_per_number: int, schedule: str
) -> int:
    """Bytes read and written for one token, over all layers, by a schedule's name."""
    ### BEGIN SOLUTION
    streams = {
        "separate": 4 * copies + 4,
        "fused": 3 * copies + 2,
        "single": 2 * copies + 2,
    }[schedule]
    return 2 * layers * streams * width * bits_per_number // 8
    ### END SOLUTION


# %% exercise_id="03.5" tags=["check"]
check("03.5", stream_traffic)

# %% [markdown]
# Try it on the real one: V4.1-Flash has 40 layers, 4 copies, width 5,120, 16 bits:
# `stream_traffic(40, 4, 5120, 16, "single")`.
#
# Your block and your Sinkhorn can go into the models of later chapters, once they have
# passed: `from grading import my_parts`, then `Transformer(config, my_parts())`.
