# %% [markdown]
# # Exercises 08: groups
#
# Several tokens, one entry. You write the rule of who may read it, pool with and
# without overlap, weigh near and far with a sink, turn the output back, and count
# V4-Flash to the byte.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("08.1")` gives a hint, and again the next one.
#
# Letters of the axes: B batch, T new tokens, S tokens or rows, G groups, H heads, D
# numbers of an entry, C numbers of a token's value (2 D where groups overlap).

# %%
import torch
from jaxtyping import Bool, Float
from tinymodels.attention.rope import rotate
from tinymodels.config import Rope
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 08.1 Visible groups
#
# difficulty 2/5, importance 5/5, about 10 minutes
#
# T new tokens stand at the positions `start`, `start + 1`, and so on. Group j holds the
# tokens from j × m up to, but without, (j + 1) × m. Which of the first `groups` groups
# may each of the new tokens read? Those whose **last** token is there. A token itself
# is there.


# %% exercise_id="08.1" points=2 tags=["exercise"]
def visible_groups(start: int, new: int, groups: int, m: int) -> Bool[Tensor, "T G"]:
    """True where a new token may read a group; `new` is T, `groups` is G."""
    ### BEGIN SOLUTION
    position_T = start + torch.arange(new)
    return torch.arange(groups) < ((position_T + 1) // m)[:, None]
    ### END SOLUTION


# %% exercise_id="08.1" tags=["check"]
check("08.1", visible_groups)

# %% [markdown]
# ## 08.2 Plain pooling
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# As in HCA: every m tokens to one entry. The gates get a learned bias, by the token's
# place in its group. Their softmax runs over the tokens of the group, for each channel
# by itself; the entry is the sum of the values, each times its weight.
#
# The first token stands at position 0. Tokens of a group that is not complete have no
# entry yet.


# %% exercise_id="08.2" points=3 tags=["exercise"]
def pool_groups(
    value_BSD: Float[Tensor, "B S D"],
    gate_BSD: Float[Tensor, "B S D"],
    bias_MD: Float[Tensor, "M D"],
) -> Float[Tensor, "B G D"]:
    """One entry for each complete group of M tokens."""
    ### BEGIN SOLUTION
    m = bias_MD.shape[0]
    G = value_BSD.shape[1] // m
    value_BGMD = value_BSD[:, : G * m].unflatten(1, (G, m))
    gate_BGMD = gate_BSD[:, : G * m].unflatten(1, (G, m)) + bias_MD
    return (gate_BGMD.softmax(2) * value_BGMD).sum(2)
    ### END SOLUTION


# %% exercise_id="08.2" tags=["check"]
check("08.2", pool_groups)

# %% [markdown]
# ## 08.3 The overlapping compressor
#
# difficulty 4/5, importance 4/5, about 30 minutes
#
# As in CSA: entry j pools 2 m rows. Values, gates and biases have C = 2 D numbers.
#
# - Of the m tokens of group j − 1 it takes the **first** D numbers,
# - of its own m tokens the **last** D.
#
# The first token stands at position 0. One softmax over all 2 m rows. Group 0 has no
# group before it: there are only its own m rows. Tokens of a group that is not complete
# have no entry yet. The bias is that of a token's place in its own group, added to all of its C
# numbers.


# %% exercise_id="08.3" points=4 tags=["exercise"]
def pool_overlapping(
    value_BSC: Float[Tensor, "B S C"],
    gate_BSC: Float[Tensor, "B S C"],
    bias_MC: Float[Tensor, "M C"],
) -> Float[Tensor, "B G D"]:
    """One entry for each complete group of M tokens, pooled of the group before too."""
    ### BEGIN SOLUTION
    (m, C), S = bias_MC.shape, value_BSC.shape[1]
    D, entries = C // 2, []
    place_S = torch.arange(S) % m
    gate_BSC = gate_BSC + bias_MC[place_S]
    for first in range(0, S - m + 1, m):
        early, own = slice(max(0, first - m), first), slice(first, first + m)
        value = torch.cat([value_BSC[:, early, :D], value_BSC[:, own, D:]], dim=1)
        gate = torch.cat([gate_BSC[:, early, :D], gate_BSC[:, own, D:]], dim=1)
        entries.append((gate.softmax(1) * value).sum(1))
    return torch.stack(entries, dim=1)
    ### END SOLUTION


# %% exercise_id="08.3" tags=["check"]
check("08.3", pool_overlapping)

# %% [markdown]
# ## 08.4 A softmax with a sink
#
# difficulty 3/5, importance 4/5, about 20 minutes
#
# Rows near and far, all together: S of them, each key *and* value of every head. The
# score of a row is query · row / √D. Rows that are not visible weigh nothing. In the
# softmax each head has one more score, its sink, with no value: what goes there is
# lost.
#
# A query with no visible row at all gives exact zeros. Scores may be as large as 100.


# %% exercise_id="08.4" points=3 tags=["exercise"]
def attend_with_sink(
    query_BTHD: Float[Tensor, "B T H D"],
    row_BSD: Float[Tensor, "B S D"],
    visible_TS: Bool[Tensor, "T S"],
    sink_H: Float[Tensor, "H"],
) -> Float[Tensor, "B T H D"]:
    """What each head takes from the rows it sees."""
    ### BEGIN SOLUTION
    B, T, H, D = query_BTHD.shape
    score_BTHS = torch.einsum("bthd,bsd->bths", query_BTHD, row_BSD) / D**0.5
    score_BTHS = score_BTHS.masked_fill(~visible_TS[:, None, :], -torch.inf)
    sink_BTH1 = sink_H[:, None].expand(B, T, H, 1)
    weight_BTHS = torch.cat([score_BTHS, sink_BTH1], dim=-1).softmax(-1)[..., :-1]
    return torch.einsum("bths,bsd->bthd", weight_BTHS, row_BSD)
    ### END SOLUTION


# %% exercise_id="08.4" tags=["check"]
check("08.4", attend_with_sink)

# %% [markdown]
# Passed? Then `my_parts()` puts your pooling and your softmax into the tiny V4 (and
# V4.1, whose groups do not overlap). The section "Your own pieces" of the chapter runs
# them in a trained model.

# %% [markdown]
# ## 08.5 The turn back
#
# difficulty 3/5, importance 4/5, about 20 minutes
#
# One head, K = V. The last R numbers of queries and rows say where they stand: they are
# turned by their positions, the others are left. Row s stands at `row_at_S[s]` (groups
# stand at their first token), query t at `query_at_T[t]`. The softmax is there already
# as `attend(query, row)`, and it takes *turned* queries and rows.
#
# What it gives is a sum of turned rows. Turn it back, so that it depends on distances
# alone.
#
# `rotate(x, Rope(R), positions)` turns x of shape [B, T, R]; with `back=True` the other
# way.


# %% exercise_id="08.5" points=3 tags=["exercise"]
def attend_and_turn_back(
    query_BTD: Float[Tensor, "B T D"],
    row_BSD: Float[Tensor, "B S D"],
    query_at_T: Tensor,
    row_at_S: Tensor,
    R: int,
    attend,
) -> Float[Tensor, "B T D"]:
    """The output of one head; queries and rows come unturned."""
    ### BEGIN SOLUTION
    def turned(x, at, back=False):
        tail = rotate(x[..., -R:], Rope(R), at, back=back)
        return torch.cat([x[..., :-R], tail], dim=-1)

    out_BTD = attend(turned(query_BTD, query_at_T), turned(row_BSD, row_at_S))
    return turned(out_BTD, query_at_T, back=True)
    ### END SOLUTION


# %% exercise_id="08.5" tags=["check"]
check("08.5", attend_and_turn_back)

# %% [markdown]
# ## 08.6 V4-Flash at n tokens
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# A model is given by the ratio of each layer: 0 keeps a window only, 4 is CSA, anything
# larger is HCA. How many bytes does it hold after n tokens?
#
# - An entry takes `entry` bytes. A complete group leaves one, and in CSA layers an
#   index key of `key` bytes beside it.
# - The window keeps the newest `window` tokens (fewer, as long as there are fewer), a
#   row of `entry` bytes each, in **every** layer.


# %% exercise_id="08.6" points=3 tags=["exercise"]
def bytes_held(
    n: int, ratios: list[int], entry: int, key: int, window: int
) -> tuple[int, int]:
    """A pair: bytes of all complete groups, and bytes of all windows."""
    ### BEGIN SOLUTION
    groups = 0
    for m in ratios:
        if m:
            groups += n // m * (entry + (key if m == 4 else 0))
    return groups, len(ratios) * min(n, window) * entry
    ### END SOLUTION


# %% exercise_id="08.6" tags=["check"]
check("08.6", bytes_held)

# %% [markdown]
# Try it: `bytes_held(n, [0, 0] + [4, 128] * 20 + [4], 584, 68, 128)` with n = 3, 4, 127
# and 128. And the rate of V4-Pro: n = 128, `[128, 128] + [4, 128] * 29 + [4]`, divided
# by 128.
