"""Staleness: does a built notebook have the cells of its source? Nothing is executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from tools import percent
from tools.build import EXERCISES, FOLDERS, Target, built, expected_cells


@dataclass(frozen=True)
class Problem:
    """One finding: the notebook, the cell's number (None: the whole file), the rule, a sentence."""

    notebook: str
    cell: int | None
    rule: str
    message: str

    def __str__(self) -> str:
        place = self.notebook if self.cell is None else f"{self.notebook}, cell {self.cell}"
        return f"{place}: {self.message} [{self.rule}]"


def load(path: Path) -> nbformat.NotebookNode:
    """Read a notebook as it is. Raises ValueError, with the path, where it is none.

    (`nbformat.read` would give new ids to cells that share one, and hide the fault.)
    """
    try:
        notebook = nbformat.v4.reads(path.read_text(encoding="utf-8"))
        error = next(nbformat.validator.iter_validate(notebook, version=4), None)
        fault = error.message if error else ""
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        fault = str(error) or type(error).__name__
    if fault:
        raise ValueError(f"{path} is not a notebook of format 4: {fault.splitlines()[0][:120]}")
    return notebook


def cells_of(notebook: nbformat.NotebookNode) -> tuple[percent.Cell, ...]:
    """The cells of a built notebook, to compare with those of a source."""
    return tuple(
        percent.Cell(node.cell_type, node.source, dict(node.metadata)) for node in notebook.cells
    )


def stale(target: Target) -> Iterator[Problem]:
    """What differs between a target's source and what was built, with notebook and cell."""
    if not target.path.exists():
        message = f"not built; run `python -m tools build {target.stem}`"
        yield Problem(target.name, None, "stale", message)
        return
    notebook = load(target.path)
    want, have = expected_cells(target), cells_of(notebook)
    ids = percent.cell_ids(want)
    for number, (expected, found) in enumerate(zip(want, have)):
        if expected.content != found.content:
            what = "type" if expected.kind != found.kind else "metadata"
            what = "text" if expected.text != found.text else what
            yield Problem(
                target.name,
                number,
                "stale",
                f"its {what} differs from {target.source.name}:{expected.line}; {advice(target)}",
            )
            return
        if notebook.cells[number].get("id") != ids[number]:
            message = f"its id should be {ids[number]}; {advice(target)}"
            yield Problem(target.name, number, "stale", message)
            return
    if len(want) != len(have):
        message = f"has {len(have)} cells, its source {len(want)}; {advice(target)}"
        yield Problem(target.name, min(len(want), len(have)), "stale", message)


def advice(target: Target) -> str:
    """What to do about a stale notebook."""
    text = f"run `python -m tools build {target.stem}`"
    if target.folder == EXERCISES:
        return f"{text} (it keeps a copy of this notebook, and any answers in it, in backups/)"
    return f"{text}, or `python -m tools back {target.name}` if you edited the notebook"


def needs_build(target: Target) -> bool:
    """Stale, or executed in part only."""
    if next(stale(target), None):
        return True
    cells = load(target.path).cells
    return target.executed and any(
        cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None
        for cell in cells
    )


def orphans(root: Path) -> Iterator[Problem]:
    """Notebooks without a source."""
    for path in built(root):
        folder = path.parent.name
        if not (root / FOLDERS[folder] / f"{path.stem}.py").exists():
            message = f"has no source {FOLDERS[folder]}/{path.stem}.py"
            yield Problem(f"{folder}/{path.name}", None, "stale", message)
