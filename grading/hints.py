"""Hints in steps, each of which may be tied to what went wrong.

An exercise's hints are a ladder: read in order they lead to the answer. A hint that is
`tied` to a mistake, a part or a stage of the check is offered first where just that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Hint(str):
    """A hint's text; `about` names mistakes, parts or stages that it helps with."""

    about: tuple[str, ...] = ()


def tied(text: str, *about: str) -> Hint:
    """A hint for what fails as one of `about`: a misconception's name, a part, or a stage of
    the check (returns, shape, dtype, finite, inputs, value, cost)."""
    hint = Hint(text)
    hint.about = about
    return hint


def hint_for(hints: Sequence[str], failed_as: Iterable[str]) -> int | None:
    """The step, from 1, of the first hint tied to what failed; the mistake's name counts most."""
    for name in reversed(list(failed_as)):  # parts come first in it, the mistake last
        for step, hint in enumerate(hints, 1):
            if name in getattr(hint, "about", ()):
                return step
    return None


def next_step(hints: Sequence[str], opened: Iterable[int], failed_as: Iterable[str]) -> int:
    """What `hint(id)` shows: the tied one if it is new, else the first new one, else the last."""
    opened = set(opened)
    wanted = hint_for(hints, failed_as)
    if wanted is not None and wanted not in opened:
        return wanted
    fresh = (step for step in range(1, len(hints) + 1) if step not in opened)
    return next(fresh, len(hints))
