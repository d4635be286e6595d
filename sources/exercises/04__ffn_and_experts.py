# %% [markdown]
# # Exercises 04: FFN and experts
#
# The half of a layer that looks at nobody. You write what happens inside it, the router
# that chooses experts, the rule that keeps them equally busy, and the sum that says how
# many of the parameters a token really meets.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("04.1")` gives a hint, and again the next one.
#
# Letters of the axes: B batch, T tokens, X the width of the stream, F the width inside
# the feed-forward network, E experts, k the experts a token is sent to.

# %%
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 04.1 SwiGLU, with clamps
#
# difficulty 2/5, importance 4/5, about 15 minutes
#
# Inside the network every unit makes two numbers of the token: a *gate* and an *up*.
# The unit says `silu(gate) * up`, where silu(g) = g × sigmoid(g): close to 0 for a
# negative gate, close to g for a positive one.
#
# Two numbers multiplied can become very large, and one such product spoils everything
# that is computed in few bits. So V4 sets a limit. It acts *before* silu and product:
#
# - the gate is cut from above only: a very negative gate is harmless, silu makes it 0,
# - the up is cut on both sides, at `limit` and at `-limit`.


# %% exercise_id="04.1" points=3 tags=["exercise"]
def swiglu(
    gate_BTF: Float[Tensor, "B T F"],
    up_BTF: Float[Tensor, "B T F"],
    limit: float | None = None,
) -> Float[Tensor, "B T F"]:
    """What every unit says: silu(gate) * up, after the clamps if there is a limit.

    With `limit` None nothing is clamped. The inputs stay as they are.
    """
    ### BEGIN SOLUTION
    if limit is not None:
        gate_BTF = gate_BTF.clamp(max=limit)
        up_BTF = up_BTF.clamp(min=-limit, max=limit)
    return F.silu(gate_BTF) * up_BTF
    ### END SOLUTION


# %% exercise_id="04.1" tags=["check"]
check("04.1", swiglu)

# %% [markdown]
# ## 04.2 Router
#
# difficulty 3/5, importance 5/5, about 25 minutes
#
# The router of V4. For each token and each expert a *logit*: the dot product of the
# token with the expert's row of `gate_EX`. Its *score* is the square root of the
# softplus of the logit, where softplus(z) = log(1 + e^z).
#
# 1. Choose: the k experts whose score **plus bias** is highest, best first. Of equal
#    ones the lowest index wins. (`torch.topk` does not promise that. A sort does, if it
#    is stable.)
# 2. Weigh: the scores of the chosen ones **without the bias**, divided by their sum,
#    times `scale`.
#
# Logits can be very negative. Then e^z is so small that 1 + e^z is exactly 1, and its
# logarithm 0; `F.softplus` knows better.


# %% exercise_id="04.2" points=4 tags=["exercise"]
def route(
    x_BTX: Float[Tensor, "B T X"],
    gate_EX: Float[Tensor, "E X"],
    bias_E: Float[Tensor, "E"],
    top_k: int,
    scale: float,
) -> tuple[Int[Tensor, "B T k"], Float[Tensor, "B T k"]]:
    """A pair: the experts of each token, best first, and the weights of what they say.

    score = sqrt(softplus(x . gate)); chosen by score + bias, weighed by score alone.
    """
    ### BEGIN SOLUTION
    score_BTE = F.softplus(x_BTX @ gate_EX.T).sqrt()
    ranked_BTE = (score_BTE + bias_E).argsort(dim=-1, descending=True, stable=True)
    experts_BTk = ranked_BTE[..., :top_k]
    weight_BTk = score_BTE.gather(-1, experts_BTk)
    return experts_BTk, scale * weight_BTk / weight_BTk.sum(-1, keepdim=True)
    ### END SOLUTION


# %% exercise_id="04.2" tags=["check"]
check("04.2", route)

# %% [markdown]
# ## 04.3 Balancing update
#
# difficulty 2/5, importance 4/5, about 15 minutes
#
# Left alone, a router sends most tokens to a few experts. The cure of V3 needs no
# gradient and no extra loss. After each step of training, count how many choices fell
# on every expert. Who got less than the mean is made a little more attractive, who got
# more a little less:
#
# - load below the mean: bias + gamma,
# - load above the mean: bias - gamma,
# - load exactly the mean: the bias stays.


# %% exercise_id="04.3" points=3 tags=["exercise"]
def update_bias(
    bias_E: Float[Tensor, "E"], experts_BTk: Int[Tensor, "B T k"], gamma: float
) -> Float[Tensor, "E"]:
    """The bias after one step, from the experts that were chosen in it.

    The mean is over all E experts, those that nobody chose among them. The old bias
    stays as it is; the new one is returned.
    """
    ### BEGIN SOLUTION
    load_E = torch.bincount(experts_BTk.flatten(), minlength=len(bias_E)).float()
    return bias_E + gamma * (load_E.mean() - load_E).sign()
    ### END SOLUTION


# %% exercise_id="04.3" tags=["check"]
check("04.3", update_bias)

# %% [markdown]
# ## 04.4 Active parameters of V4.1
#
# difficulty 2/5, importance 4/5, about 15 minutes
#
# A layer with experts has, beside its attention:
#
# - `experts` routed experts and `shared` ones that every token meets; each of them
#   is a network with three matrices (gate, up, down) between `width` and
#   `expert_width`,
# - the router: for each routed expert a row of `width` numbers and one number of bias.
#   To choose, a token must meet all of it.
#
# Count what there is, and what one token meets.


# %% exercise_id="04.4" points=2 tags=["exercise"]
def feed_forward_parameters(
    layers: int, width: int, expert_width: int, experts: int, shared: int, top_k: int
) -> tuple[int, int]:
    """A pair: parameters of all feed-forward layers, and those that a token meets."""
    ### BEGIN SOLUTION
    expert = 3 * width * expert_width
    router = experts * (width + 1)
    total = layers * ((experts + shared) * expert + router)
    active = layers * ((top_k + shared) * expert + router)
    return total, active
    ### END SOLUTION


# %% exercise_id="04.4" tags=["check"]
check("04.4", feed_forward_parameters)

# %% [markdown]
# Try it on V4.1-Flash: 40 layers, width 5,120, expert width 2,304, 384 experts and 1
# shared, 6 chosen: `feed_forward_parameters(40, 5120, 2304, 384, 1, 6)`. It should say
# 545 billion in all, and 10 billion for one token. With attention and the output head
# the model comes to 552 and 16. And a *prompt* runs through the lower 20 layers only
# (chapter 09): put in 20 instead of 40, and you see why its prefill is counted as 8.
