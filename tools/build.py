"""Which notebooks a source makes, whether they are stale, and how they are built."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from tools import percent, solutions
from tools.execute import execute, normalise

LESSONS, EXERCISES, SOLUTIONS = "notebooks", "exercises", "solutions"
FOLDERS = {
    LESSONS: "sources/lessons",
    EXERCISES: "sources/exercises",
    SOLUTIONS: "sources/exercises",
}
CPU_BUDGET = {LESSONS: 30.0, SOLUTIONS: 20.0}  # seconds of the kernel


@dataclass(frozen=True)
class Target:
    """One notebook to build: `folder` says of which kind."""

    root: Path
    folder: str
    stem: str

    @property
    def source(self) -> Path:
        return self.root / FOLDERS[self.folder] / f"{self.stem}.py"

    @property
    def path(self) -> Path:
        return self.root / self.folder / f"{self.stem}.ipynb"

    @property
    def name(self) -> str:
        return f"{self.folder}/{self.stem}.ipynb"

    @property
    def executed(self) -> bool:
        return self.folder != EXERCISES


def targets(root: Path, stems: tuple[str, ...] = ()) -> list[Target]:
    """The notebooks that the sources make, all or those of `stems`, in reading order.

    Raises ValueError for a stem that has no source.
    """
    found = [
        Target(root, folder, path.stem)
        for folder, sources in FOLDERS.items()
        for path in (root / sources).glob("*.py")
    ]
    known = {target.stem for target in found}
    for stem in stems:
        if stem not in known:
            raise ValueError(f"no source for {stem!r}; there are: {', '.join(sorted(known))}")
    order = list(FOLDERS)
    chosen = [target for target in found if not stems or target.stem in stems]
    return sorted(chosen, key=lambda target: (target.stem, order.index(target.folder)))


def expected_cells(target: Target) -> tuple[percent.Cell, ...]:
    """The cells that the built notebook must have. Raises ValueError on a bad source."""
    source = percent.read(target.source)
    solutions.check_regions(source)
    change = {EXERCISES: solutions.cut, SOLUTIONS: solutions.solved}.get(target.folder)
    return tuple(change(cell) for cell in source.cells) if change else source.cells


def unexecuted(target: Target) -> nbformat.NotebookNode:
    """The notebook of a target without outputs."""
    cells = expected_cells(target)
    nodes = []
    for cell, cell_id in zip(cells, percent.cell_ids(cells)):
        make = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
        nodes.append(make(cell.text, id=cell_id, metadata=dict(cell.metadata)))
    notebook = nbformat.v4.new_notebook(cells=nodes)
    normalise(notebook)
    return notebook


def build(target: Target) -> float:
    """Build one notebook and return its kernel's CPU seconds (0 for an exercise notebook).

    An exercise notebook that is about to be replaced is kept in backups/, for it may hold answers.
    Nothing is written where a cell fails.
    """
    notebook = unexecuted(target)
    target.path.parent.mkdir(parents=True, exist_ok=True)
    seconds = execute(notebook, target.path.parent) if target.executed else 0.0
    text = serialise(notebook)
    if target.path.exists() and target.path.read_text(encoding="utf-8") == text:
        return seconds
    if not target.executed:
        back_up(target)
    write(target.path, text)
    return seconds


def serialise(notebook: nbformat.NotebookNode) -> str:
    """The notebook's bytes as text: validated, sorted keys, one newline at the end."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def back_up(target: Target) -> Path | None:
    """Keep a dated copy of the notebook in backups/; returns its path, None without a notebook."""
    if not target.path.exists():
        return None
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S-%f")
    copy = target.root / "backups" / f"{target.folder}-{target.stem}-{stamp}.ipynb"
    copy.parent.mkdir(exist_ok=True)
    write(copy, target.path.read_text(encoding="utf-8"))
    return copy


def over_budget(target: Target, seconds: float) -> str:
    """A sentence where the kernel took more CPU seconds than its kind may; "" where not."""
    budget = CPU_BUDGET.get(target.folder)
    if budget is None or not seconds > budget:
        return ""
    return f"{target.name} took {seconds:.1f} CPU seconds; the budget is {budget:.0f}"


def built(root: Path) -> Iterator[Path]:
    """All notebooks that stand in the three folders."""
    for folder in FOLDERS:
        yield from sorted((root / folder).glob("*.ipynb"))
