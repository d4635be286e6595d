"""The four things a learner calls. None of them raises on a learner's mistake."""

from __future__ import annotations

import os
from typing import Any

from grading import progress
from grading.draw import CHECK_SEEDS
from grading.guess import predict
from grading.hints import next_step
from grading.result import Advice, Result, Text

__all__ = ["check", "hint", "my_parts", "predict"]


def check(id: str, answer: Any = ...) -> Result:
    """Check an answer to exercise `id`, such as `check("01.1", causal_attention)`.

    `answer` is the object itself: a function, a kernel, a class or a number, as the exercise
    says; `...` is "not attempted". Never raises: whatever happens, a Result says it.
    """
    from grading.verdict import assess

    exercise, sentence = _find(id)
    if exercise is None:
        return Result(str(id), "", "error", 0, 0, sentence)
    result = assess(exercise, answer, CHECK_SEEDS)
    _keep(result, answer)
    return result


def hint(id: str, step: int | None = None) -> Text:
    """The next hint for an exercise: after a failed check one that is about what failed.

    `hint("01.1", 1)` shows a given step again.
    """
    exercise, sentence = _find(id)
    if exercise is None:
        return Text(sentence)
    total = len(exercise.hints)
    if step is None:
        opened = [event.get("step") for event in progress.events("hint", id)]
        opened = [number for number in opened if isinstance(number, int)]
        step = next_step(exercise.hints, opened, _failed_last(id))
    if step not in range(1, total + 1):
        return Text(f"Exercise {id} has hints 1 to {total}; step is {step!r}.")
    progress.write_event("hint", id, step=step)
    more = "" if step < total else " That was the last one."
    return Advice(f"{id}, hint {step} of {total}: {exercise.hints[step - 1]}{more}")


def _failed_last(id: str) -> tuple[str, ...]:
    """What failed in the last check of the exercise; nothing where it passed."""
    failed: Any = ()
    for event in progress.events("check", id):
        failed = event.get("failed") or ()
    return tuple(map(str, failed)) if isinstance(failed, list | tuple) else ()


def my_parts() -> Any:
    """tinymodels' Parts with the learner's own passed functions; the reference for the rest."""
    from grading.own_parts import own_parts

    return own_parts()


def _find(id: Any) -> tuple[Any, str]:
    """-> (exercise, "") or (None, a sentence that names the valid ids)."""
    from grading.checks import EXERCISES

    for exercise in EXERCISES:
        if exercise.id == id:
            return exercise, ""
    valid = ", ".join(exercise.id for exercise in EXERCISES)
    return None, f"There is no exercise {id!r}; there are {valid}."


def _keep(result: Result, answer: Any) -> None:
    """Note the outcome, and keep the source of a passed exercise for later chapters."""
    if _reads_a_solution():
        return
    progress.write_event(
        "check", result.id, status=result.status, earned=result.earned,
        points=result.points, misconception=result.misconception, failed=result.failed,
    )  # fmt: skip
    if result.status != "passed" or not callable(answer):
        return
    from grading.gather import NotGathered, gather

    try:
        source, name = gather(answer)
    except NotGathered as reason:
        progress.write_event("not_kept", result.id, reason=str(reason))
        return
    progress.keep_source(result.id, f"# name: {name}\n{source}")


def _reads_a_solution() -> bool:
    """JupyterLab says which notebook this is; the course's solutions are no one's progress."""
    name = os.environ.get("JPY_SESSION_NAME", "").replace("\\", "/")
    return "solutions/" in name
