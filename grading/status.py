"""Where the learner stands: one line an exercise, from the journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grading import progress
from grading.checks import EXERCISES
from grading.exercise import Exercise

_ORDER = ("passed", "partly")


def status_lines() -> list[str]:
    """The best outcome of each exercise so far, tries and hints used."""
    lines = []
    width = max(len(_name(exercise)) for exercise in EXERCISES)
    for exercise in EXERCISES:
        checks = list(progress.events("check", exercise.id))
        best = _best([str(event.get("status") or "") for event in checks])
        earned = _largest(checks, "earned")
        tries = sum(event.get("status") != "not_attempted" for event in checks)
        hints = _largest(progress.events("hint", exercise.id), "step")
        facts = [f"{earned:g}/{exercise.points:g} points"] if exercise.points else []
        facts += [f"{tries} {'try' if tries == 1 else 'tries'}"] if tries else []
        facts += [f"{hints} {'hint' if hints == 1 else 'hints'}"] if hints else []
        name = _name(exercise).ljust(width)
        lines.append(f"{exercise.id}  {best:13}  {name}  {', '.join(facts)}".rstrip())
    return lines


def _largest(events: Iterable[dict[str, Any]], fact: str) -> float:
    """0 where there is none; what is no number (a journal mended by hand) does not count."""
    values = [event.get(fact) for event in events]
    return max((value for value in values if isinstance(value, int | float)), default=0)


def _name(exercise: Exercise) -> str:
    return f"{exercise.title}{' (optional)' if exercise.optional else ''}"


def _best(statuses: list[str]) -> str:
    for status in _ORDER:
        if status in statuses:
            return status
    return (statuses[-1] if statuses else "not_attempted").replace("_", " ")
