"""python -m grading run NOTEBOOK ... | status

Exit codes: 0 all passed, 1 a check failed, 2 usage (one sentence on stderr).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

COMMANDS = ("run", "audit", "status", "batch")


class UsageError(Exception):
    """One sentence for stderr; exit code 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UsageError(f"{message}; see python -m grading --help")


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="python -m grading", description="Grade exercise notebooks.")
    commands = top.add_subparsers(dest="command", required=True, metavar="run | status")
    run = commands.add_parser("run", help="grade notebooks (bare paths do the same)")
    run.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    run.add_argument("--json", type=Path, metavar="F", help="write the results as JSON to F")
    run.add_argument("--student", default="", help="whose seeds to grade on")
    run.add_argument("--cell-seconds", type=float, default=30.0, help="time limit of a cell")
    commands.add_parser("status", help="one line an exercise: where you stand")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
        arguments.insert(0, "run")
    try:
        options = parser().parse_args(arguments)
        return {"run": _run, "status": _status}[options.command](options)
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
        if not path.is_file():
            raise UsageError(f"there is no notebook {path}")
    rows = []
    for path in options.notebooks:
        try:
            rows += grade_notebook(
                path, student=options.student, cell_seconds=options.cell_seconds
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
    report.print_table(rows)
    if options.json:
        report.write_json(rows, options.json)
    return 0 if report.all_passed(rows) else 1


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
