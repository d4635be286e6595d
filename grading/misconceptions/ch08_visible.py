"""Named mistakes in exercise 08.1: which groups are visible."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def answer(count: Callable = lambda at, m: (at + 1) // m, first: Callable = lambda s: s):
    """Visibility with every choice open; the defaults make it right."""

    def visible_groups(start, new, groups, m):
        position_T = first(start) + torch.arange(new)
        return torch.arange(groups) < count(position_T, m)[:, None]

    return visible_groups


VISIBLE = (
    Misconception(
        "started",
        "Groups are read as soon as their first token is there. Their other tokens are still to "
        "come: this tells of the future.",
        answer(lambda at, m: at // m + 1),
    ),
    Misconception(
        "one_late",
        "The group whose last token has just come is missing. At position t there are t + 1 "
        "tokens.",
        answer(lambda at, m: at // m),
    ),
    Misconception(
        "one_early",
        "A group is read one token before its last is there: position t is the token itself, "
        "there is no other yet.",
        answer(lambda at, m: (at + 2) // m),
    ),
    Misconception(
        "from_zero",
        "The new tokens are taken to stand at 0, 1, ...; the first of them stands at `start`.",
        answer(first=lambda s: 0),
    ),
    Misconception(
        "start_for_all",
        "Every new token sees what the first one sees. Each has a position of its own.",
        lambda start, new, groups, m: (
            (torch.arange(groups) < (start + 1) // m).expand(new, groups).clone()
        ),
    ),
    Misconception(
        "last_for_all",
        "Every new token sees what the last one sees: earlier ones read the future.",
        lambda start, new, groups, m: (
            (torch.arange(groups) < (start + new) // m).expand(new, groups).clone()
        ),
    ),
    Misconception(
        "upside_down",
        "The mask is upside down: True is what a token may read.",
        lambda start, new, groups, m: ~answer()(start, new, groups, m),
    ),
    Misconception(
        "up_to_and_with",
        "One group too many: with n complete groups, those numbered 0 to n - 1 may be read.",
        lambda start, new, groups, m: (
            torch.arange(groups) <= ((start + torch.arange(new) + 1) // m)[:, None]
        ),
    ),
    Misconception(
        "newest_only",
        "Only the newest complete group may be read here; all complete groups may.",
        lambda start, new, groups, m: (
            torch.arange(groups) == ((start + torch.arange(new) + 1) // m - 1)[:, None]
        ),
    ),
    Misconception(
        "tokens_for_groups",
        "Positions are compared with numbers of groups. How many groups are complete at t?",
        lambda start, new, groups, m: torch.arange(groups) <= (start + torch.arange(new))[:, None],
    ),
)
