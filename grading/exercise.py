"""What an exercise is: its cases, its reference, its hints, its named wrong answers.

An exercise knows how to run *any* answer on a case and what the right one would give.
A named mistake is nothing but another answer, run the same way; so a check can say
"this is what you would get without the 1/sqrt(d)" because it has computed just that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grading.draw import Draw

AXIS_NAMES = {  # letter of a shape suffix: (the axis, one place on it)
    "B": ("batch", "batch"), "T": ("new tokens", "token"), "S": ("cached tokens", "token"),
    "H": ("heads", "head"), "K": ("kv heads", "head"), "D": ("head dim", "dim"),
    "V": ("vocabulary", "word"), "N": ("rows", "row"), "L": ("layers", "layer"),
    "X": ("width", "number"), "E": ("experts", "expert"), "F": ("units", "unit"),
    "k": ("choices", "choice"), "I": ("index heads", "index head"),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A piece of an exercise that earns its own points."""

    name: str
    points: float


@dataclass(frozen=True)
class Case:
    """One set of inputs. `says` describes it to the learner: sizes, what is special."""

    part: str
    says: str
    inputs: Mapping[str, Any]


@dataclass(frozen=True)
class Expected:
    """What one output must be.

    value: float64 array (or a whole number) from the independent reference.
    axes: one letter an axis, as in the shape suffixes; names the axis in messages.
    kind: "float", "integer" (indices, bytes: equal exactly) or "cost" (at most `value`).
    part: where it counts, if not in the case's own part (costs often have their own).
    """

    value: np.ndarray
    axes: str = ""
    kind: str = "float"
    rtol: float = 1e-4
    atol: float = 1e-5
    part: str | None = None
    too_much: str = ""  # for a cost: the sentence said when it is exceeded


@dataclass(frozen=True)
class Misconception:
    """A wrong answer with a name: `answer` is what a learner who makes it would pass in."""

    name: str
    message: str
    answer: Any = field(repr=False)


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    cases(draw): the cases for one seed, sizes drawn too.
    run(answer, inputs): calls the answer; returns named raw outputs (and counted costs).
    expected(inputs): the same names, from the reference.
    placeholder: the bare `...` may stand anywhere in the code (there is code around it).
    unavailable(): why it cannot be done on this machine, in a sentence; "" where it can.
    """

    id: str
    title: str
    notebook: str
    parts: tuple[Part, ...]
    cases: Callable[[Draw], tuple[Case, ...]]
    run: Callable[[Any, Mapping[str, Any]], dict[str, Any]]
    expected: Callable[[Mapping[str, Any]], dict[str, Expected]]
    hints: tuple[str, ...]
    misconceptions: tuple[Misconception, ...]
    optional: bool = False
    placeholder: bool = False
    unavailable: Callable[[], str] = lambda: ""
    seconds: float = 20.0  # wide: a check takes well under one second

    @property
    def points(self) -> float:
        return sum(part.points for part in self.parts)


def call(*names: str, output: str = "output") -> Callable[[Any, Mapping[str, Any]], dict]:
    """The usual way to run an answer: a function of the named inputs with one output."""

    def run(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {output: answer(*[inputs[name] for name in names])}

    return run
