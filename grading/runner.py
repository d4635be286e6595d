"""Grade one notebook: run the plan in a box, cell by cell, and write down each exercise."""

from __future__ import annotations

import ast
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grading.box import Box, BoxFailed, Ran
from grading.course_notebook import Course
from grading.draw import student_seeds
from grading.exercise import Exercise
from grading.submission import Step, Submission, make_plan, read_submission

CELL_SECONDS = 30.0
GIVEN_SECONDS = 120.0  # the course's own cells: importing torch on a busy machine
CHECK_SLACK = 5.0  # a check keeps its own time limit; this much later it is interrupted


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
    """The stem of the course's notebook that `path` is: by the exercises in it, else by name."""
    try:
        ids = read_submission(path).exercise_ids()
    except ValueError:
        ids = set()
    counts = {
        stem: sum(exercise.id in ids for exercise in course.exercises(stem))
        for stem in course.notebooks()
    }
    best = max(counts, key=counts.__getitem__, default=None)
    if best and counts[best]:
        return best
    return next((stem for stem in counts if path.stem.startswith(stem)), None)


def grade_notebook(
    path: Path,
    course: Course | None = None,
    student: str = "",
    cell_seconds: float = CELL_SECONDS,
) -> list[Row]:
    """One row an exercise. Raises ValueError if the file is no notebook of this course."""
    course = course or Course()
    stem = which_notebook(path, course)
    if stem is None:
        known = ", ".join(course.notebooks())
        raise ValueError(f"{path} is not an exercise notebook of this course; there are {known}")
    exercises = course.exercises(stem)
    try:
        submission = read_submission(path)
    except ValueError as error:
        return [_row(path, e, "error", message=str(error)) for e in exercises]
    grading = _Grading(path, course, exercises, submission, student, cell_seconds)
    try:
        return grading.rows(make_plan(course.cells(stem), submission))
    except BoxFailed as error:
        return [_row(path, e, "error", message=str(error)) for e in exercises]


def _row(path: Path, exercise: Exercise, status: str, **facts: Any) -> Row:
    blank = {"earned": 0.0, "misconception": None, "message": "", "hint_used": 0, "seconds": 0.0}
    return Row(
        notebook=str(path), id=exercise.id, title=exercise.title, points=exercise.points,
        status=status, optional=exercise.optional, **(blank | facts),
    )  # fmt: skip


class _Grading:
    """The state of one grading: the box, what has run well in it, what went wrong."""

    def __init__(
        self,
        path: Path,
        course: Course,
        exercises: Sequence[Exercise],
        submission: Submission,
        student: str,
        cell_seconds: float,
    ) -> None:
        self.path, self.course, self.submission = path, course, submission
        self.exercises = {exercise.id: exercise for exercise in exercises}
        self.seeds = student_seeds(student or path.stem)
        self.cell_seconds = cell_seconds
        self.ran_well: list[Step] = []
        self.trouble: dict[str, Ran] = {}  # by exercise: its own cell did not run to its end

    def rows(self, plan: tuple[Sequence[Step], dict[str, str]]) -> list[Row]:
        steps, notes = plan
        rows: dict[str, Row] = {}
        with Box(self.course.python_path) as self.box:
            self._load_checks()
            for step in steps:
                if step.kind == "check":
                    if step.exercise_id in self.exercises:
                        note = notes.get(step.exercise_id, "")
                        rows[step.exercise_id] = self._check(step, note)
                elif step.source.strip():
                    self._run(step)
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
        """Run the course's check cell. Only a fresh token that comes back proves it ran."""
        exercise = self.exercises[step.exercise_id]
        token, begin = secrets.token_hex(16), time.monotonic()
        self.box.run(
            "from grading.graded import GradedCheck as check; "
            f"check = check({self.course.checks!r}, {self.seeds!r})",
            GIVEN_SECONDS,
        )
        ran = self.box.run(step.source, exercise.seconds + CHECK_SLACK, f"check.reply({token!r})")
        row = self._outcome(exercise, ran, token, note)
        if ran.status in ("died", "timeout"):
            self._replay()
        return _row(
            self.path, exercise, row.pop("status"), **row,
            hint_used=self.submission.hints.get(exercise.id, 0),
            seconds=round(time.monotonic() - begin, 3),
        )  # fmt: skip

    def _outcome(self, exercise: Exercise, ran: Ran, token: str, note: str) -> dict[str, Any]:
        result = _result(ran, token, exercise.id)
        if result is not None:
            facts = {key: result[key] for key in ("status", "earned", "misconception")}
            lines = [note, result["message"]]
        else:
            facts, lines = {"status": ran.status}, [note, ran.detail]
            if ran.status == "ok":
                facts, lines = {"status": "error"}, [note, "the check did not run to its end"]
        own = self.trouble.get(exercise.id)
        if own and facts["status"] not in ("passed", "partly"):
            # Its own cell is the cause; what the check saw is a consequence.
            facts = {"status": own.status}
            lines = [note, f"the exercise's cell did not run to its end: {own.detail}"]
        elif facts["status"] == "error" and note and ran.detail.startswith("NameError"):
            facts, lines = {"status": "not_attempted"}, [note]
        return facts | {"message": "\n".join(line for line in lines if line)}


def _result(ran: Ran, token: str, id: str) -> dict[str, Any] | None:
    """What the check said, if it really was the check that said it."""
    if ran.status != "ok" or not ran.answer:
        return None
    try:
        reply = json.loads(ast.literal_eval(ran.answer))
    except (ValueError, SyntaxError):
        return None
    if not isinstance(reply, dict) or reply.get("token") != token:
        return None
    return reply["results"].get(id)
