"""Grade a folder of students: one folder each, named by the student, notebooks in it.

Each finished notebook goes into a journal at once, under a key made of the notebook's
bytes. Stopped half-way and started again, the batch goes on where it was: what is in the
journal is not graded again, unless the notebook or the course has changed. A second batch
on the same folder is refused while the first one runs.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from grading.beside import files_beside, taken_names
from grading.course_notebook import Course
from grading.report import total
from grading.runner import CELL_SECONDS, Row, grade_notebook, plain, warm_for, which_notebook
from grading.warm import Warm

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

JOURNAL = ".grading-journal.jsonl"


@dataclass(frozen=True)
class Task:
    student: str
    path: Path
    key: str


def tasks(folder: Path, course: Course) -> tuple[list[Task], list[str]]:
    """-> (what to grade, sentences about files that are no notebooks of this course)."""
    found: list[Task] = []
    strange = [f"{path}: not in the folder of a student" for path in sorted(folder.glob("*.ipynb"))]
    version, taken = _course_version(course), taken_names(course.python_path)
    for student in sorted(path for path in folder.iterdir() if path.is_dir()):
        if student.name.startswith("."):
            continue
        before = len(found), len(strange)
        for path in sorted(student.rglob("*.ipynb")):
            if path.is_dir() or any(
                part.startswith(".") for part in path.relative_to(folder).parts
            ):
                continue
            if which_notebook(path, course) is None:
                strange.append(f"{path}: not an exercise notebook of this course")
                continue
            digest = _digest(path, taken)
            place = plain(path.relative_to(folder).as_posix())
            found.append(Task(plain(student.name), path, f"{version}/{digest}/{place}"))
        if (len(found), len(strange)) == before:
            strange.append(f"{student}: no notebook was handed in")
    return found, strange


def _digest(path: Path, taken: Callable[[str], bool]) -> str:
    """Of the notebook's bytes, and of those of the files beside it that it may import or read."""
    try:
        digest = hashlib.sha256(path.read_bytes())
        for file in files_beside(path, taken):
            digest.update(b"\0" + file.name.encode("utf-8", "replace") + b"\0" + file.read_bytes())
        return digest.hexdigest()[:20]
    except OSError as error:  # it is graded as unreadable, again when that has changed
        return f"unreadable-{error.errno}"


def grade_folder(
    folder: Path,
    course: Course | None = None,
    jobs: int = 1,
    cell_seconds: float = CELL_SECONDS,
    tell: Callable[[Task, Sequence[Row]], None] = lambda task, rows: None,
) -> list[tuple[str, Row]]:
    """-> (student, row) in the order of folders and files; resumes from the journal.

    Raises ValueError where the journal cannot be written or another batch holds it.
    """
    course = course or Course()
    todo, _ = tasks(folder, course)
    with _held(folder / JOURNAL) as journal:
        done = _read_journal(folder / JOURNAL)
        left = [task for task in todo if task.key not in done]
        for task, rows in _in_parallel(left, course, jobs, cell_seconds):
            done[task.key] = rows
            _write_journal(journal, task, rows)
            tell(task, rows)
    return [(task.student, row) for task in todo for row in done[task.key]]


def already_graded(folder: Path, course: Course) -> tuple[list[tuple[str, Row]], list[Task]]:
    """-> (what the journal has, what is not graded yet); grades nothing."""
    todo, _ = tasks(folder, course)
    done = _read_journal(folder / JOURNAL)
    rows = [(task.student, row) for task in todo for row in done.get(task.key, ())]
    return rows, [task for task in todo if task.key not in done]


def _in_parallel(
    left: Sequence[Task], course: Course, jobs: int, cell_seconds: float
) -> Iterator[tuple[Task, list[Row]]]:
    """Each worker has a warm process of its own, and its share of the machine's cores."""
    if not left:
        return
    jobs = min(jobs, len(left))
    threads = max(1, (os.cpu_count() or 1) // jobs)
    idle: SimpleQueue[Warm] = SimpleQueue()
    every = [warm_for(course, threads) for _ in range(jobs)]
    for warm in every:
        idle.put(warm)

    def work(task: Task) -> list[Row]:
        warm = idle.get()
        try:
            return _grade(task, course, cell_seconds, warm)
        finally:
            idle.put(warm)

    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        running = {pool.submit(work, task): task for task in left}
        for future in as_completed(running):
            yield running[future], future.result()
    finally:  # stopped by hand: what waits is dropped, what runs is not started again
        pool.shutdown(cancel_futures=True)
        for warm in every:
            warm.close()


def _grade(task: Task, course: Course, cell_seconds: float, warm: Warm) -> list[Row]:
    """One notebook; whatever goes wrong with it stays with it."""
    try:
        return grade_notebook(task.path, course, task.student, cell_seconds, warm)
    except Exception as error:
        message = f"could not be graded: {type(error).__name__}: {error}"
        stem = which_notebook(task.path, course)
        return [
            Row(plain(str(task.path)), e.id, e.title, e.points, 0.0, "error", None,
                plain(message), 0, 0.0, e.optional)
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
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            entry = json.loads(line)
            done[entry["key"]] = [Row(**row) for row in entry["rows"]]
        except (json.JSONDecodeError, KeyError, TypeError):
            continue  # a line cut short by the kill: that notebook is graded again
    return done


@contextmanager
def _held(path: Path) -> Iterator[int]:
    """The journal, open for appending and held against another batch on the same folder."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise ValueError(f"the journal {path} cannot be written: {error.strerror}") from error
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(f"another batch is grading {path.parent}; let it end") from error
            except OSError:
                pass  # a file system without locks
        yield handle
    finally:
        os.close(handle)


def _write_journal(journal: int, task: Task, rows: Sequence[Row]) -> None:
    entry: dict[str, Any] = {"key": task.key, "rows": [row.as_dict() for row in rows]}
    # The newline in front ends a line that a kill has cut short.
    os.write(journal, ("\n" + json.dumps(entry) + "\n").encode())
    os.fsync(journal)


def counted(graded: Sequence[tuple[str, Row]]) -> dict[str, dict[str, Row]]:
    """student -> exercise -> the row that counts: the best, where it was handed in twice."""
    found: dict[str, dict[str, Row]] = {}
    for student, row in graded:
        mine = found.setdefault(student, {})
        if row.id not in mine or _worth(row) > _worth(mine[row.id]):
            mine[row.id] = row
    return found


def _worth(row: Row) -> tuple[float, bool]:
    return row.earned, row.status != "not_attempted"


def as_json(graded: Sequence[tuple[str, Row]]) -> str:
    rows = [{"student": student} | row.as_dict() for student, row in graded]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def from_json(path: Path) -> list[tuple[str, Row]]:
    """Read back what `as_json` made. Raises ValueError, in one sentence, for anything else."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [(row["student"], Row(**{k: v for k, v in row.items() if k != "student"}))
                for row in rows]  # fmt: skip
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not what `batch --json` writes") from error


def as_csv(graded: Sequence[tuple[str, Row]]) -> str:
    """One line a student: points by exercise, then the sums: earned, of how many, extra.

    Optional exercises are extra; what was unavailable or not handed in stays empty.
    """
    ids = sorted({row.id for _, row in graded})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", *ids, "earned", "points", "extra"])
    for student, mine in counted(graded).items():
        sums = [f"{number:g}" for number in total(list(mine.values()))]
        writer.writerow([_no_formula(student), *_cells(mine, ids), *sums])
    return text.getvalue()


def _no_formula(name: str) -> str:
    """A spreadsheet would compute a name that begins like a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t")) else name


def _cells(mine: dict[str, Row], ids: Sequence[str]) -> Iterator[str]:
    for id in ids:
        row = mine.get(id)
        yield "" if row is None or row.status == "unavailable" else f"{row.earned:g}"
