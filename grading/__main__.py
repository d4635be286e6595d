"""python -m grading run NOTEBOOK ... | batch DIR | report DIR | points | audit | status

Exit codes: 0 all passed, 1 a check failed, 2 usage (one sentence on stderr).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grading.audit import Audit

COMMANDS = ("run", "batch", "report", "points", "audit", "status")


class UsageError(Exception):
    """One sentence for stderr; exit code 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UsageError(f"{message}; see python -m grading --help")


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="python -m grading", description="Grade exercise notebooks.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="grade notebooks (bare paths do the same)")
    run.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    run.add_argument("--json", type=Path, metavar="F", help="write the results as JSON to F")
    run.add_argument("--student", default="", help="whose seeds to grade on")
    run.add_argument("--cell-seconds", type=float, default=30.0, help="time limit of a cell")
    batch = commands.add_parser("batch", help="grade a folder that has one folder a student")
    batch.add_argument("folder", type=Path, metavar="DIR")
    batch.add_argument("--jobs", type=int, default=1, metavar="N", help="notebooks at a time")
    batch.add_argument("--json", type=Path, metavar="F", help="every exercise of every student")
    batch.add_argument("--csv", type=Path, metavar="F", help="one line a student")
    batch.add_argument("--html", type=Path, metavar="F", help="the report on the class")
    batch.add_argument("--cell-seconds", type=float, default=30.0, help="time limit of a cell")
    again = commands.add_parser("report", help="the report on a graded class; grades nothing")
    again.add_argument("source", type=Path, metavar="DIR|JSON",
                       help="the folder that batch graded, or what its --json wrote")  # fmt: skip
    again.add_argument("--html", type=Path, metavar="F", help="the report on the class")
    again.add_argument("--csv", type=Path, metavar="F", help="one line a student")
    commands.add_parser("points", help="points and minutes of every exercise, as a table")
    audit = commands.add_parser("audit", help="put the checks themselves to the proof")
    audit.add_argument("--full", action="store_true", help="with mutants of the solutions")
    commands.add_parser("status", help="one line an exercise: where you stand")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
        arguments.insert(0, "run")
    try:
        if not arguments:
            raise UsageError("say what to grade, such as exercises/01__attention.ipynb")
        options = parser().parse_args(arguments)
        commands = {"run": _run, "batch": _batch, "report": _report, "points": _points,
                    "audit": _audit, "status": _status}  # fmt: skip
        return commands[options.command](options)
    except UsageError as error:
        print(f"grading: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("grading: stopped", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    from grading import report
    from grading.runner import grade_notebook

    _can_write(options.json)
    for path in options.notebooks:
        if problem := _no_exercises(path):
            raise UsageError(problem)
    rows = []
    for path in options.notebooks:
        try:
            rows += grade_notebook(path, student=options.student, cell_seconds=options.cell_seconds)
        except ValueError as error:
            raise UsageError(str(error)) from error
    report.print_table(rows)
    if options.json:
        report.write_json(rows, options.json)
    return 0 if report.all_passed(rows) else 1


def _no_exercises(path: Path) -> str:
    """Why a path cannot be graded, where it is easily mistaken; "" where it may be."""
    from grading.course_notebook import ROOT, Course

    if path.is_dir():
        return f"{path} is a folder: name a notebook in it, or grade a class with `batch {path}`"
    meant = next((stem for stem in Course().stems() if stem.startswith(path.stem)), None)
    if not path.is_file():
        more = f"; did you mean exercises/{meant}.ipynb?" if meant else ""
        return f"there is no notebook {path}{more}"
    if meant and path.resolve().parent == ROOT / "notebooks":
        return f"{path} is the lesson; its exercises are in exercises/{meant}.ipynb"
    return ""


def _batch(options: argparse.Namespace) -> int:
    from grading import batch, report
    from grading.course_notebook import Course

    if not options.folder.is_dir():
        raise UsageError(f"there is no folder {options.folder}")
    if options.jobs < 1:
        raise UsageError(f"--jobs is {options.jobs}; it must be 1 or more")
    for path in (options.json, options.csv, options.html):
        _can_write(path)
    todo, strange = batch.tasks(options.folder, Course())
    if not todo:
        more = f" ({strange[0]})" if strange else ""
        raise UsageError(f"{options.folder} has no student folders with exercise notebooks{more}")
    for sentence in strange:
        print(sentence, file=sys.stderr)

    def tell(task: batch.Task, rows: Sequence[report.Row]) -> None:
        earned, points, extra = report.total(rows)
        print(f"{task.student}  {task.path.name}  {earned:g}/{points:g} + {extra:g}", flush=True)

    try:
        graded = batch.grade_folder(
            options.folder, jobs=options.jobs, cell_seconds=options.cell_seconds, tell=tell
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    if options.json:
        report.write_whole(options.json, batch.as_json(graded))
    _write_class(options, graded, options.folder.resolve().name, strange)
    students = len({student for student, _ in graded})
    print(f"{students} students, {len(todo)} notebooks")
    return 0 if report.all_passed([row for _, row in graded]) else 1


def _report(options: argparse.Namespace) -> int:
    from grading import batch, report
    from grading.course_notebook import Course

    for path in (options.csv, options.html):
        _can_write(path)
    notes: list[str] = []
    if options.source.is_dir():
        graded, left = batch.already_graded(options.source, Course())
        notes = [f"{task.student}: {task.path.name} is not graded yet" for task in left]
        notes += batch.tasks(options.source, Course())[1]
    else:
        try:
            graded = batch.from_json(options.source)
        except ValueError as error:
            raise UsageError(str(error)) from error
    if not graded:
        raise UsageError(f"{options.source} has nothing graded; python -m grading batch does it")
    _write_class(options, graded, options.source.resolve().stem, notes)
    for student, mine in batch.counted(graded).items():
        earned, points, extra = report.total(list(mine.values()))
        print(f"{student}  {earned:g}/{points:g} + {extra:g}")
    for note in notes:
        print(note, file=sys.stderr)
    return 0


def _write_class(
    options: argparse.Namespace, graded: Sequence, title: str, notes: Sequence[str]
) -> None:
    """The CSV and the HTML that were asked for."""
    from datetime import date

    from grading import batch, class_report, report
    from grading.plan_of_points import planned

    if options.csv:
        report.write_whole(options.csv, batch.as_csv(graded))
    if options.html:
        room = class_report.make_class(graded, planned(), notes)
        page = class_report.as_html(room, f"KV cache course: {title}", date.today().isoformat())
        report.write_whole(options.html, page)


def _points(options: argparse.Namespace) -> int:
    from grading.plan_of_points import planned, table

    print(table(planned()), end="")
    return 0


def _audit(options: argparse.Namespace) -> int:
    from grading.audit import BUDGET_S, audit

    bad, every, begin = 0, [], time.monotonic()
    for found in audit(full=options.full):
        every.append(found)
        bad += bool(found.problems)
        print("\n".join(_audit_lines(found)), flush=True)
    killed, mutants = sum(a.killed for a in every), sum(a.mutants for a in every)
    named, known = sum(a.mistakes for a in every), sum(a.recognised for a in every)
    total = f"in all: {known} of {named} named mistakes"
    print(total + (f", {killed} of {mutants} mutants rejected" if mutants else ""))
    if options.full:
        seconds = time.monotonic() - begin
        over = " OVER BUDGET" if seconds > BUDGET_S else ""
        print(f"{seconds:.0f} s of a budget of {BUDGET_S} s{over}")
    print("all checks hold" if not bad else f"{bad} exercises have checks that do not hold")
    return 1 if bad else 0


def _audit_lines(found: Audit) -> list[str]:
    """The rates of one exercise, then what is wrong with it and which mutants survive."""
    if found.unavailable:
        return [f"{found.id}  unavailable: {found.unavailable}"]
    line = f"{found.id}  {found.recognised} of {found.mistakes} named mistakes under their own name"
    if found.mutants:
        rate = 100 * found.kill_rate
        line += f", {rate:.0f} % of mutants rejected ({found.killed} of {found.mutants})"
    return [
        line + ("  FAILED" if found.problems else ""),
        *(f"      {text}" for text in found.problems),
        *(f"      survives: {text}" for text in found.survivors),
        *(f"      no mistake: {text}" for text in found.equivalent),
    ]


def _can_write(path: Path | None) -> None:
    """Say so before an hour of grading, not after it."""
    if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
        raise UsageError(f"cannot write {path}: give a file name in a folder that exists")


def _status(options: argparse.Namespace) -> int:
    from grading.status import status_lines

    print("\n".join(status_lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
