"""Compare what was seen with what was expected, and say the first difference in words.

The order is fixed: returns, shape, dtype, finite, inputs not changed, value, cost. Each
step presumes the ones before it, so the message is about the cause, not a consequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grading.exercise import AXIS_NAMES, Case, Exercise, Expected
from grading.observe import Observation, Output

# Bound here, before any code of the learner's runs: to patch numpy later changes nothing.
_absolute, _is_finite, _is_nan, _where = np.abs, np.isfinite, np.isnan, np.argwhere

STAGES = ("returns", "shape", "dtype", "finite", "inputs", "value", "cost")


@dataclass(frozen=True)
class Failure:
    """Where an answer first differs in one case."""

    part: str
    stage: str
    text: str
    case: Case


def failures(
    exercise: Exercise, cases: Sequence[Case], seen: Sequence[Observation]
) -> list[Failure]:
    """At most one failure of each part in each case, in the order of the cases."""
    found: list[Failure] = []
    for case, observation in zip(cases, seen, strict=True):
        found.extend(_case_failures(case, exercise.expected(case.inputs), observation))
    return found


def _case_failures(
    case: Case, expected: Mapping[str, Expected], seen: Observation
) -> list[Failure]:
    if seen.raised is not None:
        parts = {want.part or case.part for want in expected.values()}
        text = f"your code stopped with {seen.raised}"
        return [Failure(part, "returns", text, case) for part in sorted(parts)]
    by_part: dict[str, Failure] = {}
    strange = next((name for name in seen.outputs if name not in expected), None)
    if strange is not None and not seen.outputs.keys() & expected.keys():
        text = _strange(strange, seen.outputs[strange])
        parts = {want.part or case.part for want in expected.values()}
        return [Failure(part, "returns", text, case) for part in sorted(parts)]
    for stage in STAGES:
        for name, want in expected.items():
            part = want.part or case.part
            if part in by_part:
                continue
            output = seen.outputs.get(name, Output("nothing"))
            if text := _stage_failure(stage, name, want, output, seen):
                by_part[part] = Failure(part, stage, text, case)
    if case.part not in by_part:
        return list(by_part.values())
    # A cheap wrong answer earns nothing: costs count only where the values are right.
    reason = by_part[case.part]
    parts = {want.part or case.part for want in expected.values()}
    return [
        by_part.get(part, Failure(part, reason.stage, reason.text, case))
        for part in sorted(parts, key=lambda part: part != case.part)
    ]


def _stage_failure(stage: str, name: str, want: Expected, output: Output, seen: Observation) -> str:
    if want.kind == "cost":
        return _cost(name, want, output) if stage == "cost" else ""
    match stage:
        case "returns":
            return _returns(name, want, output)
        case "shape":
            return _shape(name, want, output)
        case "dtype":
            return _dtype(name, want, output)
        case "finite":
            return _finite(name, want, output)
        case "inputs":
            return _inputs(seen)
        case "value":
            return _value(name, want, output)
    return ""


def _returns(name: str, want: Expected, output: Output) -> str:
    wanted = "a torch tensor" if want.axes else "one number"
    right_kind = output.type_name == "Tensor" if want.axes else output.values is not None
    if right_kind:
        return ""
    nothing = output.type_name == "NoneType"
    got = "nothing (None)" if nothing else f"a value of type {output.type_name}"
    return f"{name} should be {wanted}, and {got} came back"


def _strange(name: str, output: Output) -> str:
    """Not the outputs asked for, but something as a whole: `the answer (a pair: a, b)`."""
    what, _, wanted = name.partition(" (")
    got = f"a value of type {output.type_name}"
    if output.type_name == "NoneType":
        got = "nothing (None)"
    elif output.values is not None and output.shape:
        got = f"one {output.type_name} of shape {list(output.shape)}"
    return f"{what} should be {wanted.removesuffix(')')}, and {got} came back"


def _shape(name: str, want: Expected, output: Output) -> str:
    if output.shape == want.value.shape:
        return ""
    wanted = _named_shape(want)
    if len(output.shape) != len(want.value.shape):
        return (
            f"{name} has shape {list(output.shape)}, {len(output.shape)} axes; "
            f"it should have {len(want.value.shape)}: {wanted}"
        )
    axis = next(i for i, (a, b) in enumerate(zip(output.shape, want.value.shape)) if a != b)
    return (
        f"{name} has shape {list(output.shape)} and should have {wanted}: "
        f"axis {axis} ({_axis(want.axes, axis)[0]}) is {output.shape[axis]} "
        f"instead of {want.value.shape[axis]}"
    )


def _dtype(name: str, want: Expected, output: Output) -> str:
    if not want.axes:  # a plain number may come as 389120 or 389120.0: its value decides
        return ""
    if want.kind == "integer":
        if "int" in output.dtype:
            return ""
        return f"{name} has dtype {output.dtype}; whole numbers (int64) are expected"
    if output.dtype in ("float32", "float64"):  # half precision rounds, double is no mistake
        return ""
    return f"{name} has dtype {output.dtype}; float32, as the inputs have, is expected"


def _finite(name: str, want: Expected, output: Output) -> str:
    bad = ~_is_finite(output.values)
    if want.kind != "float" or not bad.any():
        return ""
    index = tuple(int(i) for i in _where(bad)[0])
    what = "NaN (not a number)" if _is_nan(output.values[index]) else "infinite"
    return (
        f"{name} is {what} at {place(want.axes, index)}, and in {int(bad.sum())} of "
        f"{bad.size} places in all"
    )


def _inputs(seen: Observation) -> str:
    if not seen.mutated:
        return ""
    names = ", ".join(f"`{name}`" for name in seen.mutated)
    return f"the answer changed its input {names}; work on a copy, the caller still needs it"


def _value(name: str, want: Expected, output: Output) -> str:
    limit = 0.0 if want.kind == "integer" else want.atol + want.rtol * _absolute(want.value)
    wrong = _absolute(output.values - want.value) > limit
    if not wrong.any():
        return ""
    index = tuple(int(i) for i in _where(wrong)[0])
    got, right = output.values[index], want.value[index]
    if not want.axes:
        return f"{name}: you answered {_number(got)}; {_number(right)} is expected"
    return (
        f"{name} first differs at {place(want.axes, index)}: yours {_number(got)}, "
        f"expected {_number(right)} ({int(wrong.sum())} of {wrong.size} values differ)"
    )


def _cost(name: str, want: Expected, output: Output) -> str:
    if output.values is None or float(output.values) <= float(want.value):
        return ""
    counted = f"{name}: {_number(output.values)} counted, {_number(want.value)} would do"
    return f"{want.too_much} ({counted})" if want.too_much else counted


def place(axes: str, index: Sequence[int]) -> str:
    """`batch 1, token 0, head 2, dim 0`: an index with its axes named."""
    return ", ".join(f"{_axis(axes, i)[1]} {value}" for i, value in enumerate(index))


def _axis(axes: str, axis: int) -> tuple[str, str]:
    letter = axes[axis]
    return AXIS_NAMES.get(letter, (letter, letter))


def _named_shape(want: Expected) -> str:
    if not want.axes:
        return "a single number"
    pairs = (f"{letter}={size}" for letter, size in zip(want.axes, want.value.shape))
    return f"[{', '.join(pairs)}]"


def _number(value: float | np.ndarray) -> str:
    value = float(value)
    return f"{int(value):,}" if value.is_integer() and abs(value) < 1e15 else f"{value:.5g}"
