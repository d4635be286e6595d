"""Grade a folder of students: one folder each, named by the student, notebooks in it.

Each finished notebook goes into a journal at once, under a key made of the notebook's
bytes. Stopped half-way and started again, the batch goes on where it was: what is in the
journal is not graded again, unless the notebook or the course has changed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grading.course_notebook import Course
from grading.report import total
from grading.runner import CELL_SECONDS, Row, grade_notebook, which_notebook

JOURNAL = ".grading-journal.jsonl"


@dataclass(frozen=True)
class Task:
    student: str
    path: Path
    key: str


def tasks(folder: Path, course: Course) -> tuple[list[Task], list[str]]:
    """-> (what to grade, sentences about files that are no notebooks of this course)."""
    found, strange = [], []
    version = _course_version(course)
    for student in sorted(path for path in folder.iterdir() if path.is_dir()):
        if student.name.startswith("."):
            continue
        for path in sorted(student.rglob("*.ipynb")):
            if any(part.startswith(".") for part in path.relative_to(folder).parts):
                continue
            if which_notebook(path, course) is None:
                strange.append(f"{path}: not an exercise notebook of this course")
                continue
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:20]
            place = path.relative_to(folder).as_posix()
            found.append(Task(student.name, path, f"{version}/{digest}/{place}"))
    return found, strange


def grade_folder(
    folder: Path,
    course: Course | None = None,
    jobs: int = 1,
    cell_seconds: float = CELL_SECONDS,
    tell: Callable[[Task, Sequence[Row]], None] = lambda task, rows: None,
) -> list[tuple[str, Row]]:
    """-> (student, row) in the order of folders and files; resumes from the journal."""
    course = course or Course()
    todo, _ = tasks(folder, course)
    done = _read_journal(folder / JOURNAL)
    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        running = {
            pool.submit(_grade, task, course, cell_seconds): task
            for task in todo
            if task.key not in done
        }
        for future in as_completed(running):
            task = running[future]
            done[task.key] = future.result()
            _write_journal(folder / JOURNAL, task, done[task.key])
            tell(task, done[task.key])
    finally:  # stopped by hand: what waits is dropped, what runs is not started again
        pool.shutdown(cancel_futures=True)
    return [(task.student, row) for task in todo for row in done[task.key]]


def _grade(task: Task, course: Course, cell_seconds: float) -> list[Row]:
    """One notebook; whatever goes wrong with it stays with it."""
    try:
        return grade_notebook(task.path, course, task.student, cell_seconds)
    except Exception as error:
        message = f"could not be graded: {type(error).__name__}: {error}"
        stem = which_notebook(task.path, course)
        return [
            Row(str(task.path), e.id, e.title, e.points, 0.0, "error", None, message, 0, 0.0,
                e.optional)
            for e in course.exercises(stem)
        ]  # fmt: skip


def _course_version(course: Course) -> str:
    """Changes when a source of the course's exercises or a check changes."""
    digest = hashlib.sha256()
    files = sorted(course.sources.glob("*.py")) + sorted(Path(__file__).parent.rglob("*.py"))
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _read_journal(path: Path) -> dict[str, list[Row]]:
    done: dict[str, list[Row]] = {}
    if not path.exists():
        return done
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
            done[entry["key"]] = [Row(**row) for row in entry["rows"]]
        except (json.JSONDecodeError, KeyError, TypeError):
            continue  # a line cut short by the kill: that notebook is graded again
    return done


def _write_journal(path: Path, task: Task, rows: Sequence[Row]) -> None:
    entry: dict[str, Any] = {"key": task.key, "rows": [row.as_dict() for row in rows]}
    with open(path, "a", encoding="utf-8") as file:
        # The newline in front ends a line that a kill has cut short.
        file.write("\n" + json.dumps(entry, ensure_ascii=False) + "\n")


def as_json(graded: Sequence[tuple[str, Row]]) -> str:
    rows = [{"student": student} | row.as_dict() for student, row in graded]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def as_csv(graded: Sequence[tuple[str, Row]]) -> str:
    """One line a student: points by exercise, then the sums: earned, of how many, extra.

    Optional exercises are extra; what was unavailable or not handed in stays empty.
    """
    ids = sorted({row.id for _, row in graded})
    students = dict.fromkeys(student for student, _ in graded)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", *ids, "earned", "points", "extra"])
    for student in students:
        mine = {row.id: row for name, row in graded if name == student}
        sums = [f"{number:g}" for number in total(list(mine.values()))]
        writer.writerow([student, *_cells(mine, ids), *sums])
    return text.getvalue()


def _cells(mine: dict[str, Row], ids: Sequence[str]) -> Iterator[str]:
    for id in ids:
        row = mine.get(id)
        yield "" if row is None or row.status == "unavailable" else f"{row.earned:g}"
