"""Named mistakes in exercise 13.7: tests that overlook a fault, or blame a right cache."""

from __future__ import annotations

import torch

from grading.exercise import Misconception

EVERYTHING = ("sizes", "chunks", "reset", "select", "loud")


def tester(*asks: str, exact: bool = False, order=(1, 2, 0)):
    """A test that asks only what is named; the right one asks EVERYTHING."""

    def is_broken(make):
        x = torch.randn(3, 11, 6, generator=torch.Generator().manual_seed(1))
        if "loud" in asks:
            x[:, 1::2] *= 1000

        def new():
            return make(batch=3, dim=6, window=4, group=3)

        def differ(ours, theirs):
            if ours.shape != theirs.shape:
                return "sizes" in asks or ours.shape[1] < 1
            allowed = 0 if exact else 0.03 * theirs.abs().amax(-1, keepdim=True)
            return bool(((ours - theirs).abs() > allowed).any())

        cache = new()
        right = cache.append(x)
        found = "sizes" in asks and (right[0].shape[1] != 4 or right[1].shape[1] != 3)
        if "chunks" in asks:
            by_token = new()
            for token in x.split(1, 1):
                ours = by_token.append(token)
            found |= any(map(differ, ours, right))
        if "reset" in asks:
            used = new()
            used.append(x.flip(1)[:, :4])
            used.reset()
            found |= any(map(differ, used.append(x), right))
        if "select" in asks:
            moved, at = new(), torch.tensor(order)
            moved.append(x[:, :10])
            moved.select(at)
            found |= any(differ(a, b[at]) for a, b in zip(moved.append(x[at, 10:]), right))
        return found

    return is_broken


def without(*left_out: str, **how):
    return tester(*(ask for ask in EVERYTHING if ask not in left_out), **how)


def _window_only(make):
    """Window rows against one by one; the entries are never looked at."""
    x = torch.randn(3, 11, 6, generator=torch.Generator().manual_seed(2))
    whole, pieces = (make(batch=3, dim=6, window=4, group=3) for _ in range(2))
    ours = [pieces.append(token)[0] for token in x.split(1, 1)][-1]
    theirs = whole.append(x)[0]
    return bool(((ours - theirs).abs() > 0.03 * theirs.abs().amax(-1, keepdim=True)).any())


TESTS = (
    Misconception(
        "blames_all",
        "This blames every cache, the right ones too. Somebody's right cache was sent back, so "
        "nothing counts.",
        lambda make: True,
    ),
    Misconception(
        "blames_none",
        "This blames no cache at all, so it finds nothing.",
        lambda make: False,
    ),
    Misconception(
        "to_the_last_digit",
        "This wants numbers to agree to the last digit. A cache may keep rows in 8 bits, so allow "
        "1 % of the largest number of a row from each side.",
        without(exact=True),
    ),
    Misconception(
        "never_resets",
        "This never asks a used cache to begin another text, so a reset that forgets to clear "
        "something passes.",
        without("reset"),
    ),
    Misconception(
        "one_text_only",
        "This compares chunks and counts rows, but neither resets a cache nor exchanges texts.",
        tester("sizes", "chunks", "loud"),
    ),
    Misconception(
        "never_selects",
        "This never calls select, or only with an order that leaves every text where it is. Choose "
        "one in which a text is overwritten before it is copied.",
        without("select"),
    ),
    Misconception(
        "never_counts",
        "This never counts the rows that come back: nobody notices a window of one row more.",
        without("sizes"),
    ),
    Misconception(
        "all_alike",
        "A scale on the wrong axis goes free. There a small token is lost beside a large one of "
        "the same append: multiply every second token by 1,000, and compare with a cache that "
        "gets them one by one.",
        without("loud"),
    ),
    Misconception(
        "only_at_once",
        "This always appends the whole text at once. Token by token, positions that start again "
        "and groups that close too early come to light.",
        tester("sizes", "reset", "loud"),
    ),
    Misconception(
        "looks_at_rows_only",
        "This compares the newest rows and never the entries.",
        _window_only,
    ),
)
