"""Attention to groups alone, small enough to see what each token can reach.

A text of random tokens, one layer, and a rule: how many groups may the query at position t read?
Change one token, and see which outputs change. If one before it does, the rule leaks.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Rule = Callable[[int, int], int]


def started(t: int, m: int) -> int:
    """Groups whose first token is there."""
    return t // m + 1


def complete(t: int, m: int) -> int:
    """Groups whose last token is there (V4)."""
    return (t + 1) // m


def before(t: int, m: int) -> int:
    """Groups that were complete before this token came."""
    return t // m


RULES: dict[str, Rule] = {"started": started, "complete": complete, "before": before}


def pool(
    value_SD: Float[Tensor, "S D"], gate_SD: Float[Tensor, "S D"], m: int
) -> Float[Tensor, "G D"]:
    """Every m tokens to one entry: a softmax over the group, channel by channel.

    The last group may have fewer than m tokens.
    """
    groups = zip(value_SD.split(m), gate_SD.split(m), strict=True)
    return torch.stack([(gate.softmax(0) * value).sum(0) for value, gate in groups])


def outputs(x_SD: Float[Tensor, "S D"], m: int, rule: Rule) -> Float[Tensor, "S D"]:
    """What each position takes from the groups that it may read; zeros from none."""
    D, draw = x_SD.shape[1], torch.Generator().manual_seed(8)
    value_DD, gate_DD = torch.randn(2, D, D, generator=draw, dtype=x_SD.dtype)
    entry_GD = pool(x_SD @ value_DD, x_SD @ gate_DD, m)
    taken = []
    for t, x_D in enumerate(x_SD):
        read_GD = entry_GD[: rule(t, m)]
        taken.append((read_GD @ x_D / D).softmax(0) @ read_GD)
    return torch.stack(taken)


def changes(tokens: int, m: int, rule: Rule, seed: int = 0) -> Float[Tensor, "S T"]:
    """Row s: how far each output moves when token s becomes another one.

    Errors: ValueError for fewer than one token, or groups of less than one.
    """
    if tokens < 1 or m < 1:
        raise ValueError(f"{tokens} tokens in groups of {m}: both must be at least 1")
    draw = torch.Generator().manual_seed(seed)
    x_SD, other_SD = torch.randn(2, tokens, 6, generator=draw, dtype=torch.float64)
    was_TD, rows = outputs(x_SD, m, rule), []
    for s in range(tokens):
        now_SD = x_SD.clone()
        now_SD[s] = other_SD[s]
        rows.append((outputs(now_SD, m, rule) - was_TD).norm(dim=1))
    return torch.stack(rows)


def leaks(moved_ST: Float[Tensor, "S T"]) -> Bool[Tensor, "S T"]:
    """Where an output before the changed token moved."""
    return (moved_ST > 1e-9).tril(-1)
