# %% [markdown]
# # Exercises 01: attention and the cache
#
# You write the memory of a language model: first the attention that reads it, then the
# cache that holds it, then the loop that uses it, then the sum that says what it costs.
#
# Replace each `...` with your code and run the cell, then run the check below it. A
# check says what it saw and what it expected, and often which mistake gives just your
# answer. `hint("01.1")` gives a hint, and again the next one.
#
# Names end in the letters of their axes: `query_BTHD` has the axes B, batch (several
# texts side by side); T, the new tokens; H, heads; D, the numbers in one head. S counts
# all tokens that are kept, old and new.

# %%
import torch
from jaxtyping import Float, Int
from kernels.backend import tl, triton
from tinymodels.parts import reference_attention
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 01.1 Causal attention that works on a chunk
#
# difficulty 3/5, importance 5/5, about 20 minutes
#
# Each token asks a question (its query). Each token it may look at has a label (its
# key) and something to hand over (its value). The better query and key fit, the more of
# that value flows into the answer.
#
# For one head: the score of a pair is the dot product of query and key, divided by
# $\sqrt{D}$. The scores of one query go through a softmax: now they are weights that
# sum to 1. The answer is the sum of the values, each times its weight.
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

# %% [markdown]
# ## 01.2 Append and attend
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# Keys and values of a token never change once they are made: what comes later cannot
# reach back. So they are made once and kept. That is the whole idea of the cache.
#
# A new token brings its query, key and value. The key and the value go behind those
# that are kept; the query reads them all and is thrown away.
#
# Use your `causal_attention` from 01.1. If it is not finished yet,
# `reference_attention(query, key, value)` is the course's own.

# %% exercise_id="01.2" points=3 tags=["exercise"]
Cache = tuple[Float[Tensor, "B S H D"], Float[Tensor, "B S H D"]]


def append_and_attend(
    cache: Cache | None,
    query_BTHD: Float[Tensor, "B T H D"],
    key_BTHD: Float[Tensor, "B T H D"],
    value_BTHD: Float[Tensor, "B T H D"],
) -> tuple[Float[Tensor, "B T H D"], Cache]:
    """Store T new keys and values, then let the T queries read all that is stored.

    `cache` is a pair (keys, values) with the S tokens so far, None at the very start.
    Returns a pair: the output, and the new cache (keys, values) with S + T tokens, the
    new ones behind the old ones. T may be 1 or more.
    """
    ### BEGIN SOLUTION
    if cache is not None:
        key_BTHD = torch.cat([cache[0], key_BTHD], dim=1)
        value_BTHD = torch.cat([cache[1], value_BTHD], dim=1)
    return causal_attention(query_BTHD, key_BTHD, value_BTHD), (key_BTHD, value_BTHD)
    ### END SOLUTION


# %% exercise_id="01.2" tags=["check"]
check("01.2", append_and_attend)

# %% [markdown]
# ## 01.3 A decode loop that runs each token once
#
# difficulty 3/5, importance 5/5, about 20 minutes
#
# Now the cache goes to work. A model is given; it has two calls:
#
# - `cache = model.new_cache(batch, capacity)` makes an empty cache for `capacity`
#   tokens of each text.
# - `logits_BTV = model(tokens_BT, cache)` runs T new tokens that stand behind those in
#   the cache, and puts them into it. It returns one row of logits, V numbers, a token:
#   how likely each word is to come next.
#
# Write `count` tokens, each time the likeliest one. The check counts how many tokens
# the model had to run: each one once is enough.

# %% exercise_id="01.3" points=3 tags=["exercise"]
def generate(model, prompt_BT: Int[Tensor, "B T"], count: int) -> Int[Tensor, "B N"]:
    """The `count` tokens (N, at least 1) after the prompt; the prompt is not included.

    The prompt runs in one call, each new token in a call of its own, all with the same
    cache. The last new token is written and never run: nobody asks what follows it.
    """
    ### BEGIN SOLUTION
    batch, length = prompt_BT.shape
    cache = model.new_cache(batch, length + count - 1)
    logits_BTV = model(prompt_BT, cache)
    tokens = [logits_BTV[:, -1].argmax(-1, keepdim=True)]
    while len(tokens) < count:
        logits_BTV = model(tokens[-1], cache)
        tokens.append(logits_BTV[:, -1].argmax(-1, keepdim=True))
    return torch.cat(tokens, dim=1)
    ### END SOLUTION


# %% exercise_id="01.3" tags=["check"]
check("01.3", generate)

# %% [markdown]
# ## 01.4 Bytes per token
#
# difficulty 1/5, importance 5/5, about 10 minutes
#
# What does one token leave in the cache? Every layer keeps a key and a value for each
# kv head. (Several query heads may share one kv head; queries themselves are not kept.)
#
# Not every argument is needed.

# %% exercise_id="01.4" points=2 tags=["exercise"]
def bytes_per_token(
    layers: int,
    hidden_size: int,
    query_heads: int,
    kv_heads: int,
    head_dim: int,
    bits_per_number: int,
) -> int:
    """Bytes that one token of one text leaves in the cache, over all layers.

    A number has `bits_per_number` bits, such as 16, 8 or 4.
    """
    ### BEGIN SOLUTION
    return 2 * layers * kv_heads * head_dim * bits_per_number // 8
    ### END SOLUTION


# %% exercise_id="01.4" tags=["check"]
check("01.4", bytes_per_token)

# %% [markdown]
# Try it on a real model. DeepSeek-V1 67B has 95 layers, hidden size 8,192, 64 query
# heads, 8 kv heads of 128 numbers, 16 bits each: `bytes_per_token(95, 8192, 64, 8, 128,
# 16)`.

# %% [markdown]
# ## 01.5 Online softmax (optional)
#
# difficulty 4/5, importance 3/5, about 30 minutes
#
# A long cache does not fit into a chip's small, fast memory. It passes through in
# blocks, and each block is seen once. But softmax needs the largest score and the sum
# of all the weights, and these are known only at the end. The way out: keep the largest
# score *so far*, and mend the sums whenever a larger one turns up.
#
# A masked score is $-\infty$. A row may be masked in its first block, or everywhere.

# %% exercise_id="01.5" points=2 tags=["exercise"]
def online_softmax(blocks) -> Float[Tensor, "N D"]:
    """Softmax over all the scores of a row, times the values; each block is seen once.

    `blocks` is walked through once, by one `for`. It gives pairs (score_NM, value_NMD):
    the next M scores of N rows, and the values that belong to them; M may differ from
    block to block. A block is overwritten as soon as the next one is asked for. A row
    in which every score is -inf gives 0.
    """
    ### BEGIN SOLUTION
    maximum_N = denominator_N = accumulator_ND = None
    for score_NM, value_NMD in blocks:
        if maximum_N is None:
            maximum_N = torch.full_like(score_NM[:, 0], float("-inf"))
            denominator_N = torch.zeros_like(score_NM[:, 0])
            accumulator_ND = torch.zeros_like(value_NMD[:, 0])
        new_maximum_N = torch.maximum(maximum_N, score_NM.amax(-1))
        base_N = new_maximum_N.masked_fill(new_maximum_N == float("-inf"), 0.0)
        weight_NM = torch.exp(score_NM - base_N[:, None])
        rescale_N = torch.exp(maximum_N - base_N)
        denominator_N = denominator_N * rescale_N + weight_NM.sum(-1)
        block_ND = (weight_NM[:, :, None] * value_NMD).sum(1)
        accumulator_ND = accumulator_ND * rescale_N[:, None] + block_ND
        maximum_N = new_maximum_N
    return accumulator_ND / denominator_N.masked_fill(denominator_N == 0, 1.0)[:, None]
    ### END SOLUTION


# %% exercise_id="01.5" tags=["check"]
check("01.5", online_softmax)

# %% [markdown]
# ## 01.6 Two lines of a Triton decode kernel (optional)
#
# difficulty 4/5, importance 3/5, about 20 minutes
#
# The same in a kernel: one program for each head of each text, N in all. The keys of a
# block are loaded, the weights made, the sum of the weights mended. Two lines are
# missing: load the block's values, and mend the weighted sum.
#
# Without a GPU the kernel runs in Triton's interpreter, so you may put a `print`
# anywhere. Where there is no Triton (macOS, Windows) the check says `unavailable`, and
# it counts neither for nor against you.

# %% exercise_id="01.6" points=2 tags=["exercise"]
@triton.jit
def decode_kernel(
    query_ptr, key_ptr, value_ptr, output_ptr, S, scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """One query a head over S tokens; query [N, D], key and value [N, S, D]."""
    head = tl.program_id(0)
    dim = tl.arange(0, BLOCK_D)  # a power of two; D itself may be any size
    query = tl.load(query_ptr + head * D + dim, mask=dim < D, other=0.0)
    maximum = -float("inf")
    denominator = 0.0
    accumulator = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, S, BLOCK_S):
        token = start + tl.arange(0, BLOCK_S)
        place = (head * S + token)[:, None] * D + dim[None, :]
        here = (token < S)[:, None] & (dim < D)[None, :]  # the last block may be short
        key = tl.load(key_ptr + place, mask=here, other=0.0)
        score = tl.sum(key * query[None, :], axis=1) * scale
        score = tl.where(token < S, score, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(score, axis=0))
        weight = tl.exp(score - new_maximum)
        rescale = tl.exp(maximum - new_maximum)
        denominator = denominator * rescale + tl.sum(weight, axis=0)
        # Two lines: value = ..., then accumulator = ...
        ### BEGIN SOLUTION
        value = tl.load(value_ptr + place, mask=here, other=0.0)
        accumulator = accumulator * rescale + tl.sum(weight[:, None] * value, axis=0)
        ### END SOLUTION
        maximum = new_maximum
    tl.store(output_ptr + head * D + dim, accumulator / denominator, mask=dim < D)


# %% exercise_id="01.6" tags=["check"]
check("01.6", decode_kernel)
