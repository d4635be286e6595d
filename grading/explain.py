"""Which known mistake gives exactly this answer? Found by computing them all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grading.exercise import Case, Exercise, Misconception
from grading.observe import Observation, observe


def named_mistake(
    exercise: Exercise, cases: Sequence[Case], seen: Sequence[Observation]
) -> Misconception | None:
    """The first misconception that gives what was seen, in every case; None if none does.

    Every case must agree: to name a mistake that the learner did not make is worse than
    to name none. An answer without a single finite number proves nothing (many roads lead
    to NaN), so it gets no name.
    """
    if not any(_says_something(observation) for observation in seen):
        return None
    for mistake in exercise.misconceptions:
        pairs = zip(cases, seen, strict=True)
        if all(same(observe(exercise, mistake.answer, case.inputs), was) for case, was in pairs):
            return mistake
    return None


def mistake_among_others(
    exercise: Exercise, cases: Sequence[Case], seen: Sequence[Observation], failing: Sequence[Case]
) -> tuple[Misconception, int, int] | None:
    """A misconception that gives what was seen in most of the failing cases; in how many, of all.

    For an answer with two mistakes in it: no single one explains every case. It must explain
    the first failing case, at least two, and more than half, so that it is there for sure.
    """
    wrong = [
        (case, was) for case, was in zip(cases, seen, strict=True)
        if any(case is other for other in failing)
    ]  # fmt: skip
    if not wrong or wrong[0][1].raised or not _says_something(wrong[0][1]):
        return None
    for mistake in exercise.misconceptions:
        (first, was), *rest = wrong
        if not same(observe(exercise, mistake.answer, first.inputs), was):
            continue
        alike = 1 + sum(same(observe(exercise, mistake.answer, c.inputs), w) for c, w in rest)
        if alike >= 2 and 2 * alike > len(wrong):
            return mistake, alike, len(wrong)
    return None


def _says_something(observation: Observation) -> bool:
    if observation.raised is not None:
        return True
    arrays = [output.values for output in observation.outputs.values()]
    return all(v is None or v.ndim == 0 or np.isfinite(v).any() for v in arrays)


def same(left: Observation, right: Observation) -> bool:
    """Equal outputs (to rounding, NaN equal to NaN), or the same exception."""
    if left.raised or right.raised:
        return (
            left.raised is not None
            and right.raised is not None
            and (left.raised.kind, left.raised.text) == (right.raised.kind, right.raised.text)
        )
    if left.mutated != right.mutated or left.outputs.keys() != right.outputs.keys():
        return False
    return all(_same_output(left.outputs[name], right.outputs[name]) for name in left.outputs)


def _same_output(left, right) -> bool:
    if left.values is None or right.values is None:
        return left.type_name == right.type_name
    if left.shape != right.shape:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(left.values - right.values) <= 1e-5 + 1e-4 * np.abs(right.values)
    nan = np.isnan(left.values) & np.isnan(right.values)
    return bool((close | nan | (left.values == right.values)).all())
