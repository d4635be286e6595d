"""`python -m tools build | check | back | ...`; the package's docstring has them all."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tools import build as building
from tools.build import Target
from tools.execute import CellFailed, execute
from tools.stale import needs_build

ROOT = Path(__file__).resolve().parents[1]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(prog="python -m tools", description=__doc__)
    main.add_argument("--root", type=Path, default=ROOT, help="the course's folder")
    commands = main.add_subparsers(dest="command", required=True)
    one = commands.add_parser("build", help="rebuild the notebooks that are stale")
    one.add_argument("stems", nargs="*", metavar="STEM", help="such as 01__attention; all if none")
    one.add_argument(
        "--force", action="store_true", help="rebuild all, also when only package code has changed"
    )
    commands.add_parser("check", help="staleness and lints; nothing is executed")
    one = commands.add_parser("back", help="bring edits made in JupyterLab back to the source")
    one.add_argument("notebooks", nargs="+", metavar="NOTEBOOK", type=Path)
    one = commands.add_parser("site", help="write the course as web pages")
    one.add_argument("--out", type=Path, metavar="DIR", help="the folder of the pages; site/")
    one = commands.add_parser("colab", help="copies of the notebooks that Colab can open")
    one.add_argument("--repository", required=True, metavar="URL", help="where Colab clones it")
    one.add_argument("--out", type=Path, required=True, metavar="DIR")
    one = commands.add_parser("new", help="begin a chapter, an exercise, a tested model")
    kinds = one.add_subparsers(dest="kind", required=True)
    kind = kinds.add_parser("chapter", help="sources of a lesson and of its exercises")
    kind.add_argument("stem", help="such as 14__topic")
    kind.add_argument("title")
    kind = kinds.add_parser("exercise", help="an exercise at the end of its chapter's source")
    kind.add_argument("id", help="such as 05.5")
    kind.add_argument("title")
    kind = kinds.add_parser("model", help="a released config.json among the tested ones")
    kind.add_argument("config", type=Path)
    one = commands.add_parser("time", help="CPU seconds of each notebook against its budget")
    one.add_argument("stems", nargs="*", metavar="STEM")
    return main


def run_build(root: Path, stems: tuple[str, ...], force: bool) -> int:
    """Build what is stale. Returns 1 where a cell failed or a budget was exceeded."""
    failed = False
    for target in building.targets(root, stems):
        if not force and not needs_build(target):
            print(f"{target.name}: up to date")
            continue
        seconds, note = taken(target, building.build)
        failed = failed or seconds is None or bool(note)
        if seconds is not None:
            print(f"{target.name}: built" + (f", {seconds:.1f} CPU s" if target.executed else ""))
        if note:
            print(note, file=sys.stderr)
    return int(failed)


def taken(target: Target, run: Callable[[Target], float]) -> tuple[float | None, str]:
    """CPU seconds of a run, and what there is to say of its budget; None where a cell failed,
    which is said on stderr."""
    try:
        seconds = run(target)
    except CellFailed as error:
        print(f"{target.name}: {error}", file=sys.stderr)
        return None, ""
    return seconds, building.over_budget(target, seconds)


def run_time(root: Path, stems: tuple[str, ...]) -> int:
    """Run each lesson and solution notebook without writing it; 1 where one is over its budget."""
    failed = False
    for target in building.targets(root, stems):
        if not target.executed:
            continue
        seconds, note = taken(target, lambda t: execute(building.unexecuted(t), t.path.parent))
        failed = failed or seconds is None or bool(note)
        if seconds is not None:
            budget = building.CPU_BUDGET[target.folder]
            verdict = ", too slow" if note else ""
            print(f"{target.name}: {seconds:.1f} of {budget:.0f} CPU s{verdict}")
    return int(failed)


def run_check(root: Path) -> int:
    """Print all findings; 1 where there is one."""
    from tools.lint import check

    problems = list(check(root))
    for problem in problems:
        print(problem)
    count = len(list(building.built(root)))
    print(f"{count} notebooks, {len(problems)} problem{'' if len(problems) == 1 else 's'}")
    return int(bool(problems))


def run_back(root: Path, notebooks: list[Path]) -> int:
    """Write the edits of each notebook into its source."""
    from tools.back import back

    for path in notebooks:
        print(back(root, path))
    return 0


def run_site(root: Path, out: Path) -> int:
    """Write the web pages and say where they are."""
    from tools.site.write import write

    pages = write(root, out)
    print(f"{len(pages)} pages: open {out / 'index.html'}")
    return 0


def run_colab(root: Path, repository: str, out: Path) -> int:
    """Write the copies for Colab and say how many."""
    from tools.elsewhere import write_copies

    print(f"{len(write_copies(root, repository, out))} notebooks in {out}")
    return 0


def run_new(root: Path, options: argparse.Namespace) -> int:
    """Begin something and say what comes next."""
    from tools import new

    if options.kind == "chapter":
        print(new.chapter(root, options.stem, options.title))
    elif options.kind == "exercise":
        print(new.exercise(root, options.id, options.title))
    else:
        print(new.model(root, options.config))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 done, 1 a check failed, 2 usage."""
    options = parser().parse_args(arguments)
    root = options.root.resolve()
    try:
        if options.command == "build":
            return run_build(root, tuple(options.stems), options.force)
        if options.command == "time":
            return run_time(root, tuple(options.stems))
        if options.command == "check":
            return run_check(root)
        if options.command == "site":
            return run_site(root, options.out or root / "site")
        if options.command == "colab":
            return run_colab(root, options.repository, options.out)
        if options.command == "new":
            return run_new(root, options)
        return run_back(root, options.notebooks)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
