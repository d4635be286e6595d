# %% [markdown]
# # Exercises 05: the bill
#
# What a memory costs on a real card. You compute attention with shared heads without
# making the copies that sharing should save, read the bytes off a released
# configuration, count the requests that fit, and find a token in its page.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("05.1")` gives a hint, and again the next one.
#
# Letters of the axes: B batch, T new tokens, S cached tokens, H query heads, K kv
# heads, G query heads that share one kv head (H = K × G), D head dim, N pages of the
# pool, P rows of a page, J pages of a text.

# %%
import torch
from jaxtyping import Float, Int
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 05.1 Grouped heads without copying
#
# difficulty 3/5, importance 5/5, about 25 minutes
#
# H query heads share K kv heads: query head h reads kv head h // G. The easy way
# repeats every key and value G times. Then the cache is small, and the copies are as
# large as if nothing had been shared.
#
# Do it without. Do not bring the keys to the heads; let the heads of a group come to
# their key. Split the axis of the query heads into two, K and G, and keep both in the
# scores: [B, K, G, T, S].
#
# The T queries are the newest of the S positions: query t stands at position S - T + t
# and sees everything up to and with itself. Scores are divided by the root of D.
#
# The check looks at the values, and then at the largest tensor that was made on the
# way. Nothing needs to be larger than the scores, the keys or the output. (Beware of
# `@` between shapes that do not match: where torch must stretch an axis, it makes the
# copies for you, unseen. `torch.einsum` does not.)


# %% exercise_id="05.1" points=3 tags=["exercise"]
def grouped_attention(
    query_BTHD: Float[Tensor, "B T H D"],
    key_BSKD: Float[Tensor, "B S K D"],
    value_BSKD: Float[Tensor, "B S K D"],
) -> Float[Tensor, "B T H D"]:
    """Causal attention of the newest T tokens; query head h reads kv head h // G."""
    ### BEGIN SOLUTION
    B, T, H, D = query_BTHD.shape
    S, K = key_BSKD.shape[1:3]
    query_BTKGD = query_BTHD.unflatten(2, (K, H // K))
    score_BKGTS = torch.einsum("btkgd,bskd->bkgts", query_BTKGD, key_BSKD) / D**0.5
    seen_TS = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    weight_BKGTS = score_BKGTS.masked_fill(~seen_TS, -torch.inf).softmax(-1)
    output_BTKGD = torch.einsum("bkgts,bskd->btkgd", weight_BKGTS, value_BSKD)
    return output_BTKGD.flatten(2, 3)
    ### END SOLUTION


# %% exercise_id="05.1" tags=["check"]
check("05.1", grouped_attention)

# %% [markdown]
# ## 05.2 The bytes of a given config.json
#
# difficulty 3/5, importance 5/5, about 20 minutes
#
# Every released model comes with a `config.json`. Here it is a dictionary. These fields
# decide the cache:
#
# | field | meaning | if missing or None |
# |---|---|---|
# | `num_hidden_layers` | layers | never |
# | `num_attention_heads` | query heads | never |
# | `hidden_size` | width of the stream | never |
# | `num_key_value_heads` | kv heads | as many as query heads |
# | `head_dim` | numbers of a key; a value has as many | see below |
# | `sliding_window` | W, the tokens a windowed layer keeps | no layer has a window |
# | `layer_types` | a list, one entry a layer | every layer is windowed |
# | `num_kv_shared_layers` | so many of the *last* layers keep nothing | 0 |
# | `torch_dtype` | format of a number | `"bfloat16"` |
#
# - Without `head_dim` it is `hidden_size // num_attention_heads`.
# - A windowed layer keeps the newest W tokens, or all if there are fewer. In
#   `layer_types` it is called `"sliding_attention"`; the others are `"full_attention"`.
# - The last layers, where they keep nothing, read what an earlier layer has kept.
# - `"bfloat16"` and `"float16"` take 2 bytes a number, `"float32"` 4.


# %% exercise_id="05.2" points=4 tags=["exercise"]
def cache_bytes(config: dict, tokens: int) -> int:
    """Bytes of the cache of one text with `tokens` tokens."""
    ### BEGIN SOLUTION
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    window = config.get("sliding_window")
    kinds = config.get("layer_types") or ["sliding_attention"] * layers
    kept = kinds[: layers - (config.get("num_kv_shared_layers") or 0)]
    rows = 0
    for kind in kept:
        windowed = window is not None and kind == "sliding_attention"
        rows += min(tokens, window) if windowed else tokens
    size = 4 if config.get("torch_dtype") == "float32" else 2
    return 2 * rows * kv_heads * head_dim * size
    ### END SOLUTION


# %% exercise_id="05.2" tags=["check"]
check("05.2", cache_bytes)

# %% [markdown]
# Try it on a model you know: its `config.json` can be seen on the page where it is
# released. `python -m tinymodels bytes config.json` gives the course's own answer.

# %% [markdown]
# ## 05.3 How many requests fit
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# A model lies on `cards` cards of `card_bytes` each. Their memory counts as one.
#
# 1. `reserve_percent` percent of all memory are set aside, for intermediate results.
# 2. The weights lie there once.
# 3. What is left holds caches. Each request gets whole pages of `page` tokens, as many
#    as `context` tokens need. A token takes `bytes_per_token`.
#
# Everything is a whole number, and should stay one: for numbers this large, a division
# with `/` loses the last digits.


# %% exercise_id="05.3" points=3 tags=["exercise"]
def requests_that_fit(
    cards: int,
    card_bytes: int,
    reserve_percent: int,
    weight_bytes: int,
    bytes_per_token: int,
    context: int,
    page: int,
) -> int:
    """Requests of `context` tokens that fit at once; 0 if the weights do not fit."""
    ### BEGIN SOLUTION
    memory = cards * card_bytes
    free = memory - memory * reserve_percent // 100 - weight_bytes
    pages = -(-context // page)
    return max(0, free // (pages * page * bytes_per_token))
    ### END SOLUTION


# %% exercise_id="05.3" tags=["check"]
check("05.3", requests_that_fit)

# %% [markdown]
# Try V1 on eight cards of 80 GB, with a tenth set aside: `requests_that_fit(8, 80 *
# 10**9, 10, 134_850_002_944, 389_120, 4096, 16)`. Then with V4.1-Flash's 890 bytes a
# token, and guess before you look.

# %% [markdown]
# ## 05.4 Page table lookup
#
# difficulty 3/5, importance 4/5, about 15 minutes
#
# All texts keep their rows in one pool of N pages, P rows each. Row b of the table
# lists the pages of text b, in order: its token s lies in page `table_BJ[b, s // P]`,
# there in row s % P. Pages that a text does not have yet are -1 in the table; nobody
# asks for their tokens.
#
# Fetch the rows of the given positions. Indexing with tensors does it for all of them
# at once: `pool_NPD[page_BT, row_BT]` picks one row for each pair of numbers. Fetch
# only what is asked for; the pool is far too large to be laid out in order first.


# %% exercise_id="05.4" points=3 tags=["exercise"]
def rows_of(
    pool_NPD: Float[Tensor, "N P D"],
    table_BJ: Int[Tensor, "B J"],
    position_BT: Int[Tensor, "B T"],
) -> Float[Tensor, "B T D"]:
    """Row `position_BT[b, t]` of each text b, found through its table."""
    ### BEGIN SOLUTION
    P = pool_NPD.shape[1]
    page_BT = table_BJ.gather(1, position_BT // P)
    return pool_NPD[page_BT, position_BT % P]
    ### END SOLUTION


# %% exercise_id="05.4" tags=["check"]
check("05.4", rows_of)

# %% [markdown]
# Vector for vector, this is what the kernel does for every key and value it reads
# (`kernels/decode_attention.py`, where it says `table`).
