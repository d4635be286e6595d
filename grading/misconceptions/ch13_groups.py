"""Named mistakes in exercise 13.6: when a group closes, of what, and which tokens wait."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def groups(append: Callable) -> type:
    """13.6 with `append` open: (cache, waiting and new tokens [B, S, D])."""

    class Groups:
        def __init__(self, size):
            self.size, self.entries, self.waiting_BTD = size, [], None

        def append(self, x_BTD):
            old = x_BTD[:, :0] if self.waiting_BTD is None else self.waiting_BTD
            append(self, old, x_BTD)

        def read(self):
            return torch.stack(self.entries, dim=1)

    return Groups


def closing(
    full: Callable = lambda count, size: count >= size,
    pool: Callable = lambda group, size: group.mean(1),
    rest: Callable = lambda x, size: x[:, size:],
    end: Callable = lambda cache, x: setattr(cache, "waiting_BTD", x),
    start: Callable = lambda old, new: torch.cat([old, new], 1),
) -> type:
    """The right append with every choice open."""

    def append(cache, old, new):
        x = start(old, new)
        while x.shape[1] and full(x.shape[1], cache.size):
            cache.entries.append(pool(x[:, : cache.size], cache.size))
            x = rest(x, cache.size)
        end(cache, x)

    return groups(append)


def _nothing_waits(cache, x) -> None:
    cache.waiting_BTD = None


def _left_over_only(cache, x) -> None:
    if x.shape[1]:
        cache.waiting_BTD = x


def _one_group(cache, old, new) -> None:
    x = torch.cat([old, new], 1)
    if x.shape[1] >= cache.size:
        cache.entries.append(x[:, : cache.size].mean(1))
        x = x[:, cache.size :]
    cache.waiting_BTD = x


def _never_emptied(cache, old, new) -> None:
    x = torch.cat([old, new], 1)
    while x.shape[1] >= cache.size:
        cache.entries.append(x[:, : cache.size].mean(1))
        x = x[:, cache.size :]
    cache.waiting_BTD = torch.cat([old, x], 1)[:, : cache.size - 1]


def _newest(cache, old, new) -> None:
    x = torch.cat([old, new], 1)
    count = x.shape[1] // cache.size
    begin = x.shape[1] - count * cache.size
    for g in range(count):
        cache.entries.append(x[:, begin + g * cache.size :][:, : cache.size].mean(1))
    cache.waiting_BTD = x[:, :begin]


GROUP = (
    Misconception(
        "as_it_was",
        "This is still the fault: whatever is left of a chunk closes as a group of its own. Its "
        "tokens have to wait for those that are missing.",
        closing(full=lambda count, size: True, end=_nothing_waits),
    ),
    Misconception(
        "closes_too_early_and_goes_on",
        "One token is missing when the group closes: it needs `size` tokens.",
        closing(
            full=lambda count, size: count >= size - 1,
            pool=lambda group, size: group[:, : size - 1].mean(1),
            rest=lambda x, size: x[:, size - 1 :],
        ),
    ),
    Misconception(
        "closes_too_late",
        "A group closes when the next one begins. It is complete with its last token.",
        closing(full=lambda count, size: count > size),
    ),
    Misconception(
        "rest_is_lost",
        "Tokens that do not fill a group are thrown away at the end of a chunk.",
        closing(end=_nothing_waits),
    ),
    Misconception(
        "waits_for_ever",
        "Tokens that waited are used, and go on waiting: the next chunk begins with them again.",
        groups(_never_emptied),
    ),
    Misconception(
        "waits_again",
        "Where nothing is left over, the tokens that waited are still there and are counted again.",
        closing(end=_left_over_only),
    ),
    Misconception(
        "waiting_behind",
        "Tokens that waited are put behind the new ones. They are older: they come first.",
        closing(start=lambda old, new: torch.cat([new, old], 1)),
    ),
    Misconception(
        "sum",
        "An entry is the sum of its tokens, not their mean.",
        closing(pool=lambda group, size: group.sum(1)),
    ),
    Misconception(
        "last_token",
        "An entry is the last token of its group, not the mean of all.",
        closing(pool=lambda group, size: group[:, -1]),
    ),
    Misconception(
        "first_token",
        "An entry is the first token of its group, not the mean of all.",
        closing(pool=lambda group, size: group[:, 0]),
    ),
    Misconception(
        "one_group_an_append",
        "At most one group closes in an append. A chunk may hold several.",
        groups(_one_group),
    ),
    Misconception(
        "groups_from_the_end",
        "Groups are counted back from the newest token. They begin with the oldest that waits.",
        groups(_newest),
    ),
    Misconception(
        "sliding",
        "Groups overlap: after one closes, all but its first token stay. Each token belongs to one "
        "group.",
        closing(rest=lambda x, size: x[:, 1:]),
    ),
)
