# %% [markdown]
# # Exercises 12: Serving
#
# The memory between requests: how much of a prompt is there already, how a window comes
# back, who has to go when the memory is full, and what it all costs.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("12.1")` gives a hint, and again the next one.
#
# Letters of the axes: P tokens of a prefix, T tokens that are run, X numbers of a
# stream, C of a row, W the window.

# %%
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 12.1 The longest usable prefix
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# A prompt comes in, and the rows of one other text are stored. How many tokens of the
# prompt need not be read again?
#
# - Both texts must be the same from the first token on.
# - Groups and pieces are not cut: the length is a multiple of every ratio in `ratios`
#   and of `piece`.
# - One token of the prompt at least is left to run.


# %% exercise_id="12.1" points=3 tags=["exercise"]
def longest_prefix(
    prompt: Sequence[int], stored: Sequence[int], ratios: Sequence[int], piece: int
) -> int:
    """Tokens of the prompt whose stored rows can be used; 0 if there are none.

    prompt, stored: ids of tokens. ratios: tokens of a group, one number for each kind
    of layer. piece: tokens of a piece. The answer is a multiple of all of these, and at
    most len(prompt) - 1.
    """
    ### BEGIN SOLUTION
    same = 0
    for mine, theirs in zip(prompt[:-1], stored):
        if mine != theirs:
            break
        same += 1
    step = math.lcm(*ratios, piece)
    return same // step * step
    ### END SOLUTION


# %% exercise_id="12.1" tags=["check"]
check("12.1", longest_prefix)

# %% [markdown]
# ## 12.2 Rebuild the window
#
# difficulty 3/5, importance 4/5, about 25 minutes
#
# After a hit the far rows are there, and every layer's window is empty. Run the last W
# tokens of the prefix again (all, if there are fewer), through one layer after the
# other, and collect the window rows that each layer makes on the way.
#
# `layer(x_TX, visible_TT)` gives a pair: the window rows of these tokens, and the
# stream as it leaves the layer. `visible_TT[t, s]` says whether token t sees the row of
# token s: every token of the replay sees itself and those before it *in the replay*.
# What came before has no rows any more. (Can one of these tokens see too far back?)


# %% exercise_id="12.2" points=4 tags=["exercise"]
def rebuild_windows(
    x_PX: Float[Tensor, "P X"], layers: Sequence[Callable], window: int
) -> list[Float[Tensor, "T C"]]:
    """Window rows of each layer, the first layer's first, in each the oldest row first.

    x_PX: what enters the first layer, for every token of the prefix. layers: each is
    called as layer(x_TX, visible_TT), visible_TT of dtype bool, and gives (rows_TC, the
    stream that leaves). window: W. T is W, or P if the prefix is shorter.
    """
    ### BEGIN SOLUTION
    x_TX = x_PX[max(0, len(x_PX) - window) :]
    visible_TT = torch.ones(len(x_TX), len(x_TX), dtype=torch.bool).tril()
    windows = []
    for layer in layers:
        rows_TC, x_TX = layer(x_TX, visible_TT)
        windows.append(rows_TC)
    return windows
    ### END SOLUTION


# %% exercise_id="12.2" tags=["check"]
check("12.2", rebuild_windows)

# %% [markdown]
# ## 12.3 LRU with a TTL
#
# difficulty 3/5, importance 4/5, about 25 minutes
#
# A memory for `budget` bytes. Time is a number that is passed in, and never falls.
#
# - `get(name, now)`: whether it is there. An entry that is found counts as used now.
# - `put(name, size, now)`: keep it, used now. If the same name is there, it is replaced.
#   While it does not fit, the entry that was not used for the longest goes. What is
#   larger than the budget is not kept; then nobody goes, an older entry of that name
#   stays too, and the answer is False. Else it is True.
# - Both begin by letting go of all that was not used for `ttl` seconds **or more**.
# - `used`: the bytes that are held.


# %% exercise_id="12.3" points=4 tags=["exercise"]
class Memory:
    """Names and sizes, within a budget and a time to live. `used`: bytes held now."""

    def __init__(self, budget: int, ttl: float):
        """budget: bytes. ttl: seconds. Nothing is held yet."""
        ### BEGIN SOLUTION
        self.budget, self.ttl, self.used = budget, ttl, 0
        self.held = OrderedDict()  # name: size, time of use; the oldest use first
        ### END SOLUTION

    def get(self, name: str, now: float) -> bool:
        """Whether it is held; if so, it counts as used now."""
        ### BEGIN SOLUTION
        self.expire(now)
        if name not in self.held:
            return False
        size, _ = self.held.pop(name)
        self.held[name] = (size, now)
        return True
        ### END SOLUTION

    def put(self, name: str, size: int, now: float) -> bool:
        """Keep `size` bytes; others may go for it. False if it is above the budget."""
        ### BEGIN SOLUTION
        self.expire(now)
        if size > self.budget:
            return False
        if name in self.held:
            self.used -= self.held.pop(name)[0]
        while self.used + size > self.budget:
            self.used -= self.held.popitem(last=False)[1][0]
        self.held[name] = (size, now)
        self.used += size
        return True

    def expire(self, now: float) -> None:
        for name, (size, since) in list(self.held.items()):
            if now - since >= self.ttl:
                del self.held[name]
                self.used -= size
        ### END SOLUTION


# %% exercise_id="12.3" tags=["check"]
check("12.3", Memory)

# %% [markdown]
# ## 12.4 The bill
#
# difficulty 1/5, importance 4/5, about 10 minutes
#
# A conversation has several turns. Each is `(prompt, found, written)`: tokens of the
# whole prompt, those of them whose rows were found, and tokens of the answer. The three
# prices are dollars for a **million** tokens; for V4.1 whoever calls has to assume the
# price of a miss. What does it cost, and what would it cost if nothing were ever found?


# %% exercise_id="12.4" points=2 tags=["exercise"]
def bill(
    turns: Sequence[tuple[int, int, int]], hit: float, miss: float, output: float
) -> tuple[float, float]:
    """A pair, in dollars: what all turns cost with the prefix cache, and without it.

    turns: (prompt, found, written), in tokens; found is a part of prompt. hit, miss,
    output: dollars for a million tokens that were found, were read, were written.
    """
    ### BEGIN SOLUTION
    prompt = sum(turn[0] for turn in turns)
    found = sum(turn[1] for turn in turns)
    answers = sum(turn[2] for turn in turns) * output
    paid = found * hit + (prompt - found) * miss + answers
    return paid / 1e6, (prompt * miss + answers) / 1e6
    ### END SOLUTION


# %% exercise_id="12.4" tags=["check"]
check("12.4", bill)

# %% [markdown]
# ## 12.5 The disk against the interval
#
# difficulty 2/5, importance 3/5, about 10 minutes
#
# One model keeps `far` bytes a token on the disk, and all its windows, `window` bytes
# together, once every `interval` tokens. Another keeps `other` bytes a token and no
# window. How many times as much does the first one keep? And with which interval would
# that be `wanted` times as much?


# %% exercise_id="12.5" points=2 tags=["exercise"]
def disk_ratio(
    far: float, window: int, other: float, interval: int, wanted: float
) -> tuple[float, float]:
    """A pair: the ratio at `interval`, and the interval at which it is `wanted` (which
    need not be a whole number).

    far, other: bytes a token. window: bytes of all windows together. interval: tokens.
    """
    ### BEGIN SOLUTION
    return (far + window / interval) / other, window / (wanted * other - far)
    ### END SOLUTION


# %% exercise_id="12.5" tags=["check"]
check("12.5", disk_ratio)

# %% [markdown]
# Try it: `disk_ratio(3514.25, 3214336, 890, 128, 8)`, V4-Flash against V4.1.
