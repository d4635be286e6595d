"""Grade one notebook: run the plan in a box, cell by cell, and write down each exercise."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grading.beside import files_beside, taken_names
from grading.box import Box, Ran
from grading.course_notebook import Course
from grading.draw import student_seeds
from grading.submission import Step, Submission, make_plan, read_submission
from grading.warm import BoxFailed, Outline, Warm

CELL_SECONDS = 30.0
GIVEN_SECONDS = 120.0  # the course's own cells: importing torch on a busy machine
CHECK_SLACK = 5.0  # a check keeps its own time limit; this much later it is interrupted
_CHECKS = re.compile(r"""\bcheck\(\s*["'](\d\d\.\d+)["']""")


@dataclass(frozen=True)
class Row:
    """The outcome of one exercise of one notebook; the JSON has these fields."""

    notebook: str
    id: str
    title: str
    points: float
    earned: float
    status: str
    misconception: str | None
    message: str
    hint_used: int  # how many steps of its hints were opened
    seconds: float
    optional: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def which_notebook(path: Path, course: Course) -> str | None:
    """The stem of the course's notebook that `path` is.

    By the exercises in it; where their metadata is gone, by the checks it calls; else by name.
    """
    stems = course.stems()
    try:
        submission = read_submission(path)
    except ValueError:
        return _by_name(path, stems)
    called = set(_CHECKS.findall("\n".join(cell.source for cell in submission.cells)))
    for ids in (submission.exercise_ids(), called):
        counts = {stem: len(ids & course.exercise_ids(stem)) for stem in stems}
        best = max(counts, key=counts.__getitem__, default=None)
        if best and counts[best]:
            return best
    return _by_name(path, stems)


def _by_name(path: Path, stems: Sequence[str]) -> str | None:
    return next((stem for stem in stems if stem in path.stem), None)


def warm_for(course: Course, threads: int = 0) -> Warm:
    closed = (course.sources.parent, *(root / "solutions" for root in course.python_path))
    return Warm(course.checks, course.python_path, closed, threads)


def grade_notebook(
    path: Path,
    course: Course | None = None,
    student: str = "",
    cell_seconds: float = CELL_SECONDS,
    warm: Warm | None = None,
) -> list[Row]:
    """One row an exercise. Raises ValueError if the file is no notebook of this course.

    `warm` is the process that kernels are forked from; without it one is started and ended.
    """
    course = course or Course()
    stem = which_notebook(path, course)
    if stem is None:
        known = ", ".join(course.stems())
        raise ValueError(f"{path} is not an exercise notebook of this course; there are {known}")
    if warm is None:
        with warm_for(course) as warm:
            return _graded(path, course, stem, student, cell_seconds, warm)
    return _graded(path, course, stem, student, cell_seconds, warm)


def _graded(
    path: Path, course: Course, stem: str, student: str, cell_seconds: float, warm: Warm
) -> list[Row]:
    exercises = warm.outlines(stem)
    try:
        submission = read_submission(path)
    except ValueError as error:
        return [_row(path, e, "error", message=str(error)) for e in exercises]
    grading = _Grading(path, course, exercises, submission, student, cell_seconds, warm)
    try:
        return grading.rows(make_plan(course.cells(stem), submission))
    except BoxFailed as error:
        return [_row(path, e, "error", message=str(error)) for e in exercises]


def _row(path: Path, exercise: Outline, status: str, **facts: Any) -> Row:
    blank: dict[str, Any] = {
        "earned": 0.0, "misconception": None, "message": "", "hint_used": 0, "seconds": 0.0,
    }
    facts = blank | facts
    facts["message"] = plain(facts["message"])
    return Row(
        notebook=plain(str(path)), id=exercise.id, title=exercise.title, points=exercise.points,
        status=status, optional=exercise.optional, **facts,
    )  # fmt: skip


def plain(text: str) -> str:
    """Text that any file and terminal takes: no control characters, no halves of characters."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c in "\n\t" or c.isprintable() else " " for c in text)


class _Grading:
    """The state of one grading: the box, what has run well in it, what went wrong."""

    def __init__(
        self,
        path: Path,
        course: Course,
        exercises: Sequence[Outline],
        submission: Submission,
        student: str,
        cell_seconds: float,
        warm: Warm,
    ) -> None:
        self.path, self.course, self.submission = path, course, submission
        self.warm = warm
        self.exercises = {exercise.id: exercise for exercise in exercises}
        self.seeds = student_seeds(student or path.stem)
        self.cell_seconds = cell_seconds
        self.ran_well: list[Step] = []
        self.trouble: dict[str, Ran] = {}  # by exercise: its own cell did not run to its end
        self.empty: set[str] = set()  # exercises whose cell is missing or has nothing in it

    def rows(self, plan: tuple[Sequence[Step], dict[str, str]]) -> list[Row]:
        steps, notes = plan
        rows: dict[str, Row] = {}
        taken = taken_names(self.course.python_path)
        with Box(self.warm, files_beside(self.path, taken)) as self.box:
            self._load_checks()
            for step in steps:
                if step.kind == "check":
                    if step.exercise_id in self.exercises:
                        note = notes.get(step.exercise_id, "")
                        rows[step.exercise_id] = self._check(step, note)
                elif step.source.strip():
                    self._run(step)
                elif step.kind == "exercise":
                    self.empty.add(step.exercise_id)
        missing = "the course's notebook has no check for this exercise"
        return [
            rows.get(id) or _row(self.path, exercise, "error", message=missing)
            for id, exercise in self.exercises.items()
        ]

    def _load_checks(self) -> None:
        """Before any code of the learner's, which may patch what the checks are made of."""
        self.box.run(f"import grading.graded, {self.course.checks}", GIVEN_SECONDS)

    def _run(self, step: Step) -> None:
        ran = self.box.run(step.source, self._seconds(step))
        if step.kind == "exercise" and ran.status != "ok":
            self.trouble[step.exercise_id] = ran
        if ran.status in ("died", "timeout"):
            self._replay()
        else:
            self.ran_well.append(step)  # an error half-way leaves what stands above it

    def _seconds(self, step: Step) -> float:
        return GIVEN_SECONDS if step.kind == "given" else self.cell_seconds

    def _replay(self) -> None:
        """A fresh process with everything that ran well before; the bad cell stays out."""
        while True:
            self.box.restart()
            self._load_checks()
            for step in self.ran_well:
                if self.box.run(step.source, self._seconds(step)).status in ("died", "timeout"):
                    self.ran_well.remove(step)  # it ran before and does not now: leave it out
                    break
            else:
                return

    def _check(self, step: Step, note: str) -> Row:
        """Run the course's check cell, then have what it has seen judged elsewhere.

        Only evidence that carries a fresh token is looked at: it proves that the check ran.
        """
        exercise = self.exercises[step.exercise_id]
        token, begin = secrets.token_hex(16), time.monotonic()
        evidence = str(self.box.folder / f"seen-{token[:8]}.json")
        graded = "__import__('grading.graded').graded.GradedCheck"
        ran = self.box.run(
            f"check = {graded}({self.course.checks!r}, {self.seeds!r})\n{step.source}",
            exercise.seconds + CHECK_SLACK,
            f"check.write({exercise.id!r}, {token!r}, {evidence!r})",
        )
        row = self._outcome(exercise, ran, evidence, token, note)
        if ran.status in ("died", "timeout"):
            self._replay()
        return _row(
            self.path, exercise, row.pop("status"), **row,
            hint_used=self.submission.hints.get(exercise.id, 0),
            seconds=round(time.monotonic() - begin, 3),
        )  # fmt: skip

    def _outcome(
        self, exercise: Outline, ran: Ran, evidence: str, token: str, note: str
    ) -> dict[str, Any]:
        facts: dict[str, Any] = {"status": ran.status, "message": ran.detail}
        if ran.status == "ok":
            facts = self._judged(exercise, evidence, token)
        own = self.trouble.get(exercise.id)
        if own and facts["status"] not in ("passed", "partly", "unavailable"):
            # Its own cell is the cause; what the check saw is a consequence.
            detail = f"the exercise's cell did not run to its end: {own.detail}"
            facts = {"status": own.status, "message": detail}
        elif exercise.id in self.empty and ran.detail.startswith("NameError"):
            facts = {"status": "not_attempted", "message": ""}
        lines = (note, facts["message"])
        return facts | {"message": "\n".join(line for line in lines if line)}

    def _judged(self, exercise: Outline, evidence: str, token: str) -> dict[str, Any]:
        try:
            return self.warm.ask(
                "judge", id=exercise.id, seeds=list(self.seeds), evidence=evidence, token=token
            )
        except BoxFailed as error:
            return {"status": "error", "message": f"the answer could not be judged: {error}"}
