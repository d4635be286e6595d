"""From an answer to a Result: the steps of one check, in order. Pure but for running it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from grading.attempt import not_attempted
from grading.deadline import TooLate, deadline
from grading.draw import Draw
from grading.exercise import Case, Exercise
from grading.explain import named_mistake
from grading.judge import Failure, failures
from grading.observe import Observation, observe
from grading.result import Result


def assess(exercise: Exercise, answer: Any, seeds: Iterable[int]) -> Result:
    """Check `answer`. Whatever the answer does, a Result comes back."""
    begin = time.perf_counter()
    try:
        with deadline(exercise.seconds):
            status, message, mistake, earned = _assess(exercise, answer, seeds)
    except TooLate:
        status, mistake, earned = "timeout", None, 0.0
        message = f"no answer after {exercise.seconds:g} seconds: is there a loop that never ends?"
    except KeyboardInterrupt:
        status, mistake, earned = "timeout", None, 0.0
        message = "stopped by an interrupt before it had answered"
    except BaseException as error:  # a check never raises, even where it is at fault itself
        status, mistake, earned = "error", None, 0.0
        message = f"the check could not be carried out: {type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - begin, 3)
    return Result(
        exercise.id, exercise.title, status, exercise.points, earned, message, mistake, seconds
    )


def passes(exercise: Exercise, answer: Any, seeds: Iterable[int]) -> bool:
    """Whether every case comes out right; stops at the first that does not."""
    try:
        with deadline(exercise.seconds):
            for seed in seeds:
                for case in exercise.cases(Draw(seed, exercise.id)):
                    if failures(exercise, [case], [observe(exercise, answer, case.inputs)]):
                        return False
    except TooLate:
        return False
    return True


def _assess(
    exercise: Exercise, answer: Any, seeds: Iterable[int]
) -> tuple[str, str, str | None, float]:
    if reason := exercise.unavailable():
        return "unavailable", reason, None, 0
    if not_attempted(answer, exercise.placeholder):
        return "not_attempted", _invitation(exercise), None, 0
    if answer_problem := _wrong_kind(answer, exercise):
        return "wrong", answer_problem, None, 0
    cases = [case for seed in seeds for case in exercise.cases(Draw(seed, exercise.id))]
    seen = [observe(exercise, answer, case.inputs) for case in cases]
    found = failures(exercise, cases, seen)
    if not found:
        return "passed", "", None, exercise.points
    return _explain(exercise, cases, seen, found)


def _explain(
    exercise: Exercise,
    cases: Sequence[Case],
    seen: Sequence[Observation],
    found: Sequence[Failure],
) -> tuple[str, str, str | None, float]:
    failed = {failure.part for failure in found}
    earned = sum(part.points for part in exercise.parts if part.name not in failed)
    right = [part.name for part in exercise.parts if part.name not in failed]
    raised = all(observation.raised for observation in seen)
    status = "partly" if right else "error" if raised else "wrong"
    mistake = named_mistake(exercise, cases, seen)
    lines = [mistake.message] if mistake else []
    first = found[0]
    lines.append(f"{first.case.says}: {first.text}.")
    if right:
        lines.append(f"Right already: {', '.join(right)}.")
    if not mistake:
        lines.append(f'hint("{exercise.id}") gives a hint.')
    return status, "\n".join(lines), mistake.name if mistake else None, earned


def _invitation(exercise: Exercise) -> str:
    return f'Replace the `...` with your code. hint("{exercise.id}") gives a first step.'


def _wrong_kind(answer: Any, exercise: Exercise) -> str:
    """Passing the called function's result instead of the function itself is common."""
    if callable(answer) or exercise.placeholder:
        return ""
    return (
        f"a value of type {type(answer).__name__} was passed in; pass the function itself, by "
        "its name, without calling it"
    )
