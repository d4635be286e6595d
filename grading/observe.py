"""Run one answer on one case and write down what came back, as plain data.

Everything later (comparing, explaining) works on this record and never touches the
learner's objects again, so an object whose `__eq__` is always true proves nothing.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grading.exercise import Exercise

# Bound here, before any code of the learner's runs.
_process_id, _end_process = os.getpid, os._exit
_NUMBERS = (int, float, np.integer, np.floating)


@dataclass(frozen=True)
class Output:
    """One returned value. `values` is a float64 copy, None where it is not numeric."""

    type_name: str
    dtype: str = ""
    values: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.values is None else self.values.shape


@dataclass(frozen=True)
class Raised:
    """An exception out of the learner's code, and the line of theirs it came from."""

    kind: str
    text: str
    line: str

    def __str__(self) -> str:
        text = f"{self.kind}: {self.text}" if self.text else self.kind
        return f"{text}{f' in the line `{self.line}`' if self.line else ''}"


@dataclass(frozen=True)
class Observation:
    outputs: Mapping[str, Output]
    mutated: tuple[str, ...] = ()
    raised: Raised | None = None


def observe(exercise: Exercise, answer: Any, inputs: Mapping[str, Any]) -> Observation:
    """Run `answer` on a copy of `inputs`. Exceptions are recorded; interrupts pass through."""
    given = {name: _copy(value) for name, value in inputs.items()}
    original = _process_id()
    try:
        with np.errstate(all="ignore"):  # NaN and infinity are judged, not warned of
            raw = exercise.run(answer, given)
        outputs = {name: record(value) for name, value in raw.items()}
    except (Exception, SystemExit) as error:
        return Observation({}, (), _raised(error))
    finally:
        if _process_id() != original:  # a fork of the answer's that came back: one is enough
            _end_process(0)
    mutated = tuple(name for name, value in inputs.items() if _changed(value, given[name]))
    return Observation(outputs, mutated)


def record(value: Any) -> Output:
    """A plain-data copy of a tensor, an array or a number; anything else keeps its type."""
    torch = sys.modules.get("torch")  # if nobody imported torch, it cannot be a tensor
    if torch is not None and isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        plain = torch.Tensor.detach(value).to("cpu", torch.float64)
        return Output("Tensor", dtype, plain.numpy().copy())
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return Output("ndarray", str(value.dtype), np.array(value, dtype=np.float64))
    if isinstance(value, _NUMBERS) and not isinstance(value, bool):
        kind = "int" if isinstance(value, int | np.integer) else "float"
        return Output(kind, kind, np.array(float(value)))
    if isinstance(value, tuple):
        return Output(f"tuple of {tuple.__len__(value)}")
    return Output(type(value).__name__)


def _copy(value: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple | list):
        return type(value)(_copy(item) for item in value)
    return value


def _changed(before: Any, after: Any) -> bool:
    """Whether the answer wrote into `after`, a copy of `before`; lists with all they hold."""
    if isinstance(before, tuple | list):
        return len(before) != len(after) or any(map(_changed, before, after))
    was = record(before).values
    return was is not None and not _equal(was, record(after).values)


def _equal(left: np.ndarray | None, right: np.ndarray | None) -> bool:
    if left is None or right is None or left.shape != right.shape:
        return left is right
    return bool(((left == right) | ((left != left) & (right != right))).all())


def _raised(error: BaseException) -> Raised:
    """The innermost line outside the course and its libraries: the learner's own."""
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if _is_learners(frame.filename):
            line = (frame.line or "").strip()
    text = " ".join(str(error).split())
    return Raised(type(error).__name__, text[:300], line)


def _is_learners(filename: str) -> bool:
    others = (str(Path(__file__).parent), sysconfig.get_path("stdlib"), "<frozen")
    return "site-packages" not in filename and not filename.startswith(others)
