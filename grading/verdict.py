"""From an answer to a Result: the steps of one check, in order. Pure but for running it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from grading.attempt import not_attempted
from grading.deadline import TooLate, deadline
from grading.draw import Draw
from grading.exercise import Case, Exercise, Part
from grading.explain import mistake_among_others, named_mistake
from grading.hints import hint_for
from grading.judge import Failure, failures
from grading.observe import Observation, observe
from grading.result import Result


@dataclass(frozen=True)
class Evidence:
    """What an answer has shown: all that is needed to judge it, as plain data.

    status: "seen" where the answer was run on the cases; else how far it came
    (unavailable, not_attempted, wrong, timeout, error) and, as message, why.
    """

    status: str
    message: str = ""
    seen: tuple[Observation, ...] = ()


def assess(exercise: Exercise, answer: Any, seeds: Iterable[int]) -> Result:
    """Check `answer`. Whatever the answer does, a Result comes back."""
    seeds, begin = tuple(seeds), time.perf_counter()
    evidence = collect(exercise, answer, seeds)
    return conclude(exercise, evidence, seeds, begin)


def collect(exercise: Exercise, answer: Any, seeds: Iterable[int]) -> Evidence:
    """Run `answer` on every case and note what happens. Never raises."""
    try:
        with deadline(exercise.seconds):
            return _collect(exercise, answer, seeds)
    except TooLate:
        text = f"no answer after {exercise.seconds:g} seconds: is there a loop that never ends?"
        return Evidence("timeout", text)
    except KeyboardInterrupt:
        return Evidence("timeout", "stopped by an interrupt before it had answered")
    except BaseException as error:  # a check never raises, even where it is at fault itself
        return Evidence("error", _at_fault(error))


def conclude(
    exercise: Exercise, evidence: Evidence, seeds: Iterable[int], begin: float | None = None
) -> Result:
    """Judge what was seen. Runs none of the answer's code, so it may happen elsewhere."""
    status, message, mistake, earned = evidence.status, evidence.message, None, 0.0
    failed: tuple[str, ...] = ()
    try:
        if status == "seen":
            with deadline(exercise.seconds):
                status, message, mistake, earned, failed = _conclude(exercise, evidence, seeds)
    except TooLate:
        status, message = "error", "the answer came, but judging it took too long"
    except KeyboardInterrupt:
        status, message = "timeout", "stopped by an interrupt before it was judged"
    except BaseException as error:
        status, message = "error", _at_fault(error)
    seconds = 0.0 if begin is None else round(time.perf_counter() - begin, 3)
    return Result(
        exercise.id, exercise.title, status, exercise.points, earned, message, mistake, seconds,
        failed,
    )  # fmt: skip


def _at_fault(error: BaseException) -> str:
    return f"the check could not be carried out: {type(error).__name__}: {error}"


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


def _collect(exercise: Exercise, answer: Any, seeds: Iterable[int]) -> Evidence:
    if reason := exercise.unavailable():
        return Evidence("unavailable", reason)
    if not_attempted(answer, exercise.placeholder):
        return Evidence("not_attempted", _invitation(exercise))
    if answer_problem := _wrong_kind(answer, exercise):
        return Evidence("wrong", answer_problem)
    cases = _cases(exercise, seeds)
    return Evidence("seen", "", tuple(observe(exercise, answer, c.inputs) for c in cases))


def _cases(exercise: Exercise, seeds: Iterable[int]) -> list[Case]:
    return [case for seed in seeds for case in exercise.cases(Draw(seed, exercise.id))]


def _conclude(
    exercise: Exercise, evidence: Evidence, seeds: Iterable[int]
) -> tuple[str, str, str | None, float, tuple[str, ...]]:
    cases = _cases(exercise, seeds)
    if len(cases) != len(evidence.seen):
        raise ValueError(f"{len(evidence.seen)} of {len(cases)} cases were seen")
    found = failures(exercise, cases, evidence.seen)
    if not found:
        return "passed", "", None, exercise.points, ()
    return _explain(exercise, cases, evidence.seen, found)


def _explain(
    exercise: Exercise,
    cases: Sequence[Case],
    seen: Sequence[Observation],
    found: Sequence[Failure],
) -> tuple[str, str, str | None, float, tuple[str, ...]]:
    failed = {failure.part for failure in found}
    earned = sum(part.points for part in exercise.parts if part.name not in failed)
    right = [part.name for part in exercise.parts if part.name not in failed]
    raised = all(observation.raised for observation in seen)
    status = "partly" if right else "error" if raised else "wrong"
    mistake = named_mistake(exercise, cases, seen)
    lines, about = ([mistake.message], [mistake.name]) if mistake else ([], [])
    first = found[0]
    among = None
    if mistake is None:
        among = mistake_among_others(exercise, cases, seen, [failure.case for failure in found])
    if among is not None:
        other, alike, wrong = among
        lines, about = [f"{other.message} {_explains(alike, wrong)}"], [other.name]
    lines.append(f"{first.case.says}: {first.text}.")
    if right:
        lines += _credit(exercise, failed)
    name = mistake.name if mistake else None
    # What a hint can be tied to. Where all parts fail, it says nothing that this one does.
    parts = tuple(failure.part for failure in found) if right else ()
    failed_as = (*parts, first.stage, *about)
    lines.append(_way_on(exercise, failed_as))
    return status, "\n".join(lines), name, earned, tuple(dict.fromkeys(failed_as))


def _explains(alike: int, wrong: int) -> str:
    return f"(That explains {alike} of the {wrong} cases that fail; something else is wrong too.)"


def _credit(exercise: Exercise, failed: Set[str]) -> list[str]:
    """Why there are points, and what the others are for."""

    def told(parts: Iterable[Part]) -> str:
        return ", ".join(
            f"{part.name} ({part.points:g} {'point' if part.points == 1 else 'points'})"
            if exercise.points else part.name
            for part in parts
        )  # fmt: skip

    right = told(part for part in exercise.parts if part.name not in failed)
    missing = told(part for part in exercise.parts if part.name in failed)
    return [f"Right already: {right}.", f"Still missing: {missing}."]


def _way_on(exercise: Exercise, failed_as: Sequence[str]) -> str:
    step = hint_for(exercise.hints, failed_as)
    if step is None:
        return f'hint("{exercise.id}") gives a hint.'
    return f'hint("{exercise.id}", {step}) is about this.'


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
