# %% [markdown]
# # Exercises 06: MLA
#
# One small row for all heads, in place of a key and a value for each. You fill the
# latent cache, give it positions, read it without ever making a key, and work out when
# the famous 93.3 % holds.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("06.1")` gives a hint, and again the next one.
#
# Letters of the axes: B batch, T new tokens, S kept tokens, H heads, D numbers of a
# key or value, C of the latent, R of the rope key, X the width of the stream.

# %%
import torch
from jaxtyping import Bool, Float, Int
from kernels.backend import tl, triton
from tinymodels.attention.rope import rotate
from tinymodels.config import Rope
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 06.1 Latent cache
#
# difficulty 2/5, importance 5/5, about 20 minutes
#
# Two halves. What is **kept** of a token is its latent: the token times `down_CX`,
# brought to one length by an RMS norm with the weights `norm_C`:
#
# norm(c) = c / sqrt(mean(c²) + eps) × norm_C
#
# The new latents go behind the old ones, which are normed already. What is **made** of
# all of them, when it is needed, is a key and a value for each head: head h's key is
# `up_k_HDC[h] @ latent`, its value `up_v_HDC[h] @ latent`.


# %% exercise_id="06.1" points=4 tags=["exercise"]
def latent_cache(
    x_BTX: Float[Tensor, "B T X"],
    past_BPC: Float[Tensor, "B P C"],
    down_CX: Float[Tensor, "C X"],
    norm_C: Float[Tensor, "C"],
    up_k_HDC: Float[Tensor, "H D C"],
    up_v_HDC: Float[Tensor, "H D C"],
    eps: float,
) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B S H D"], Float[Tensor, "B S H D"]]:
    """Three tensors: the latents to keep (old, then new), their keys, their values.

    P latents are there (maybe none), T are added: S = P + T. `past_BPC` stays as it is.
    """
    ### BEGIN SOLUTION
    latent_BTC = x_BTX @ down_CX.T
    length_BT1 = (latent_BTC.square().mean(-1, keepdim=True) + eps).sqrt()
    latent_BSC = torch.cat([past_BPC, latent_BTC / length_BT1 * norm_C], dim=1)
    key_BSHD = torch.einsum("bsc,hdc->bshd", latent_BSC, up_k_HDC)
    value_BSHD = torch.einsum("bsc,hdc->bshd", latent_BSC, up_v_HDC)
    return latent_BSC, key_BSHD, value_BSHD
    ### END SOLUTION


# %% exercise_id="06.1" tags=["check"]
check("06.1", latent_cache)

# %% [markdown]
# ## 06.2 Decoupled RoPE
#
# difficulty 3/5, importance 4/5, about 20 minutes
#
# A query of head h has two pieces. The *nope* piece (no position) meets the head's own
# key, and neither is turned. The *rope* piece meets one rope key that all heads share,
# and both are turned by their positions. The score is the sum of the two products, over
# the square root of the length of both pieces together, D + R.
#
# The T queries are the newest of the S tokens: the last query stands at position
# S - 1. `rotate(x, Rope(R), positions)` turns x of shape [B, T, R] or [B, T, H, R],
# given T positions.


# %% exercise_id="06.2" points=3 tags=["exercise"]
def decoupled_scores(
    nope_BTHD: Float[Tensor, "B T H D"],
    rope_BTHR: Float[Tensor, "B T H R"],
    key_BSHD: Float[Tensor, "B S H D"],
    rope_key_BSR: Float[Tensor, "B S R"],
) -> Float[Tensor, "B H T S"]:
    """Scores of the newest T tokens for all S tokens; nothing is masked.

    The rope pieces come unturned, those of the kept rows too.
    """
    ### BEGIN SOLUTION
    (T, _, D), (S, R) = nope_BTHD.shape[1:], rope_key_BSR.shape[1:]
    position_S = torch.arange(S)
    rope_BTHR = rotate(rope_BTHR, Rope(R), position_S[S - T :])
    rope_key_BSR = rotate(rope_key_BSR, Rope(R), position_S)
    score_BHTS = torch.einsum("bthd,bshd->bhts", nope_BTHD, key_BSHD)
    score_BHTS = score_BHTS + torch.einsum("bthr,bsr->bhts", rope_BTHR, rope_key_BSR)
    return score_BHTS / (D + R) ** 0.5
    ### END SOLUTION


# %% exercise_id="06.2" tags=["check"]
check("06.2", decoupled_scores)

# %% [markdown]
# ## 06.3 Absorption
#
# difficulty 4/5, importance 5/5, about 30 minutes
#
# The whole attention to a latent cache, and no key or value is ever made. Of the score,
# q · (W c) is the same as (Wᵀ q) · c: move `up_k_HDC` to the query. Of the output, a
# sum of values W c is W times the sum of the c: move `up_v_HDC` behind the sum.
#
# The rope pieces are turned already. Multiply the sum of both products by `scale`,
# leave out what is not visible, take the softmax.
#
# One point is for the cost: no tensor may be larger than the cache or the weights, as
# the keys or values of all heads would be.


# %% exercise_id="06.3" points=4 tags=["exercise"]
def absorbed_attention(
    nope_BTHD: Float[Tensor, "B T H D"],
    rope_BTHR: Float[Tensor, "B T H R"],
    latent_BSC: Float[Tensor, "B S C"],
    rope_key_BSR: Float[Tensor, "B S R"],
    up_k_HDC: Float[Tensor, "H D C"],
    up_v_HVC: Float[Tensor, "H V C"],
    scale: float,
    visible_TS: Bool[Tensor, "T S"],
) -> Float[Tensor, "B T H V"]:
    """What each head says; V is the length of a value, which need not be D.

    Every query sees at least one row.
    """
    ### BEGIN SOLUTION
    absorbed_BTHC = torch.einsum("bthd,hdc->bthc", nope_BTHD, up_k_HDC)
    score_BHTS = torch.einsum("bthc,bsc->bhts", absorbed_BTHC, latent_BSC)
    score_BHTS = score_BHTS + torch.einsum("bthr,bsr->bhts", rope_BTHR, rope_key_BSR)
    hidden_BHTS = (score_BHTS * scale).masked_fill(~visible_TS, -float("inf"))
    weight_BHTS = hidden_BHTS.softmax(-1)
    mixed_BTHC = torch.einsum("bhts,bsc->bthc", weight_BHTS, latent_BSC)
    return torch.einsum("bthc,hvc->bthv", mixed_BTHC, up_v_HVC)
    ### END SOLUTION


# %% exercise_id="06.3" tags=["check"]
check("06.3", absorbed_attention)

# %% [markdown]
# Passed? Then `my_parts()` puts it into the tiny V2 and V3, and section "Your own
# absorption" of the lesson runs it inside a V3 that was written elsewhere.

# %% [markdown]
# ## 06.4 The 93.3 %
#
# difficulty 2/5, importance 4/5, about 15 minutes
#
# V2's report says that its cache is 93.3 % smaller than that of the model before it.
# Write the sum, and find the width of a number for which it comes out.
#
# - The model before keeps, in each of `old_layers` layers, a key and a value of
#   `old_dim` numbers for each of `old_kv_heads` heads, in 16 bits each.
# - The new one keeps, in each of `layers` layers, one latent and one rope key, in
#   `bits` bits a number.


# %% exercise_id="06.4" points=2 tags=["exercise"]
def saving(
    old_layers: int,
    old_kv_heads: int,
    old_dim: int,
    layers: int,
    latent: int,
    rope: int,
    bits: int,
) -> tuple[float, float]:
    """A pair: bytes a token of the new model, and by how many percent that is less."""
    ### BEGIN SOLUTION
    old = old_layers * 2 * old_kv_heads * old_dim * 2
    new = layers * (latent + rope) * bits / 8
    return new, 100 * (1 - new / old)
    ### END SOLUTION


# %% exercise_id="06.4" tags=["check"]
check("06.4", saving)

# %% [markdown]
# Try it: `saving(95, 8, 128, 60, 512, 64, bits)` with 16, 8 and 6 bits.

# %% [markdown]
# ## 06.5 Two lines of the absorbed decode kernel (optional)
#
# difficulty 4/5, importance 3/5, about 20 minutes
#
# The kernel of this chapter, for one new token: one program for each text, all heads in
# one matrix. A block of latents is loaded once and used twice. Two lines are missing:
# the scores of the block, and the mended sum of latents. `tl.dot(a, b)` multiplies two
# matrices; say `input_precision="ieee"` in it, so that a GPU does not round.
#
# Where there is no Triton (macOS, Windows) the check says `unavailable`, and it counts
# neither for nor against you.

# %% exercise_id="06.5" points=2 tags=["exercise"]
@triton.jit
def latent_decode(
    query_ptr, rope_query_ptr, latent_ptr, rope_ptr, output_ptr, S, scale,
    H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """query [B, H, C], rope_query [B, H, R]; latent [B, S, C], rope [B, S, R]."""
    b = tl.program_id(0)
    h = tl.arange(0, BLOCK_H)[:, None]
    c = tl.arange(0, BLOCK_C)[None, :]
    r = tl.arange(0, BLOCK_R)[None, :]
    query_at, rope_query_at = (b * H + h) * C + c, (b * H + h) * R + r
    query_HC = tl.load(query_ptr + query_at, mask=(h < H) & (c < C), other=0.0)
    rope_query_HR = tl.load(
        rope_query_ptr + rope_query_at, mask=(h < H) & (r < R), other=0.0
    )
    maximum_H = tl.full([BLOCK_H], -float("inf"), tl.float32)
    denominator_H = tl.zeros([BLOCK_H], tl.float32)
    sum_HC = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for start in range(0, S, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)[:, None]
        row = b * S + s
        latent_SC = tl.load(latent_ptr + row * C + c, mask=(s < S) & (c < C), other=0.0)
        rope_SR = tl.load(rope_ptr + row * R + r, mask=(s < S) & (r < R), other=0.0)
        # First line: score_HS = ..., before `scale`
        ### BEGIN SOLUTION
        score_HS = tl.dot(query_HC, tl.trans(latent_SC), input_precision="ieee")
        score_HS += tl.dot(rope_query_HR, tl.trans(rope_SR), input_precision="ieee")
        ### END SOLUTION
        score_HS = tl.where(tl.trans(s) < S, score_HS * scale, -float("inf"))
        new_maximum_H = tl.maximum(maximum_H, tl.max(score_HS, axis=1))
        weight_HS = tl.exp(score_HS - new_maximum_H[:, None])
        rescale_H = tl.exp(maximum_H - new_maximum_H)
        denominator_H = denominator_H * rescale_H + tl.sum(weight_HS, axis=1)
        # Second line: sum_HC = ..., from what it was, rescaled, and this block
        ### BEGIN SOLUTION
        block_HC = tl.dot(weight_HS, latent_SC, input_precision="ieee")
        sum_HC = sum_HC * rescale_H[:, None] + block_HC
        ### END SOLUTION
        maximum_H = new_maximum_H
    output_HC = sum_HC / denominator_H[:, None]
    tl.store(output_ptr + query_at, output_HC, mask=(h < H) & (c < C))


# %% exercise_id="06.5" tags=["check"]
check("06.5", latent_decode)
