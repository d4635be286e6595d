"""The course's own side of a notebook: its cells from sources/, its exercises from checks/."""

from __future__ import annotations

import functools
import importlib
import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grading.exercise import Exercise

# What reads the sources would bring a package that builds a grammar of web addresses when it
# is imported, for 1.4 seconds, and does as well without it.
_GRAMMAR = "rfc3987_syntax"
_left_out = _GRAMMAR not in sys.modules and sys.modules.setdefault(_GRAMMAR, None) is None
try:
    from tools.percent import Source, cell_ids, read
    from tools.solutions import BEGIN, END, cut, solved
finally:
    if _left_out:
        del sys.modules[_GRAMMAR]

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class CourseCell:
    """A code cell of the course. `role`: given (no exercise), exercise or check."""

    role: str
    cell_id: str
    text: str  # as the learner gets it
    solution: str  # as it is solved
    exercise_id: str | None = None
    solution_lines: frozenset[int] = frozenset()  # which lines of `solution` are the solution


@dataclass(frozen=True)
class Course:
    """Where the sources lie, and the importable module that holds EXERCISES."""

    sources: Path = ROOT / "sources" / "exercises"
    checks: str = "grading.checks"
    python_path: tuple[Path, ...] = (ROOT,)

    def exercises(self, notebook: str | None = None) -> tuple[Exercise, ...]:
        every = importlib.import_module(self.checks).EXERCISES
        return tuple(e for e in every if notebook in (None, e.notebook))

    def notebooks(self) -> tuple[str, ...]:
        """Stems of the notebooks that have exercises, in the course's order."""
        return tuple(dict.fromkeys(e.notebook for e in self.exercises()))

    def stems(self) -> tuple[str, ...]:
        """Stems of the exercise notebooks that have a source; imports no check."""
        return tuple(sorted(path.stem for path in self.sources.glob("*.py")))

    def exercise_ids(self, notebook: str) -> set[str]:
        """The exercises that a notebook's source has."""
        return _exercise_ids(self.sources / f"{notebook}.py")

    def cells(self, notebook: str) -> tuple[CourseCell, ...]:
        """The code cells of one exercise notebook. FileNotFoundError if it has no source."""
        source: Source = read(self.sources / f"{notebook}.py")
        learner_cells = tuple(cut(cell) for cell in source.cells)
        ids = cell_ids(learner_cells)
        return tuple(
            CourseCell(
                _role(cell.tags), id, shown.text, solved(cell).text,
                cell.metadata.get("exercise_id"), _solution_lines(cell.text),
            )
            for cell, shown, id in zip(source.cells, learner_cells, ids, strict=True)
            if cell.kind == "code"
        )  # fmt: skip


@functools.cache
def _exercise_ids(path: Path) -> set[str]:
    return {id for cell in read(path).cells if (id := cell.metadata.get("exercise_id"))}


def _role(tags: tuple[str, ...]) -> str:
    return next((role for role in ("exercise", "check") if role in tags), "given")


def _solution_lines(text: str) -> frozenset[int]:
    """Line numbers, from 1, that stand between the markers once the markers are gone."""
    inside, number, found = False, 0, set()
    for line in text.splitlines():
        if line.strip().startswith((BEGIN, END)):
            inside = line.strip().startswith(BEGIN)
            continue
        number += 1
        if inside:
            found.add(number)
    return frozenset(found)


def answers(course: Course, notebook: str, part: str = "solution") -> dict[str, Any]:
    """What the course's own cells pass to each check; `part` is "solution" or "text" (the stub).

    Runs the cells in this process: for the course's own sources, never for a learner's.
    """
    given: dict[str, Any] = {}
    namespace: dict[str, Any] = {"__name__": f"course_{notebook}_{part}"}
    for number, cell in enumerate(course.cells(notebook)):
        if cell.role == "check":
            namespace["check"] = lambda id, answer=...: given.__setitem__(id, answer)
        execute(getattr(cell, part), f"<{notebook} {part} {number}>", namespace)
    return given


def execute(source: str, filename: str, namespace: dict[str, Any]) -> None:
    """exec, with the text kept where inspect finds it (triton reads a kernel's source)."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), namespace)
