"""What a lint looks at: one built notebook, with its source where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import nbformat

from tools.build import EXERCISES, LESSONS
from tools.percent import Source

IGNORED = {"nbval-ignore-output", "nbval-skip"}


@dataclass(frozen=True)
class Page:
    """A notebook as the rules see it. `path` lies in notebooks/, exercises/ or solutions/."""

    path: Path
    text: str
    notebook: nbformat.NotebookNode
    source: Source | None = None

    @property
    def folder(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return f"{self.folder}/{self.path.name}"

    @property
    def is_lesson(self) -> bool:
        return self.folder == LESSONS

    @property
    def is_exercise(self) -> bool:
        return self.folder == EXERCISES

    def code(self) -> list[tuple[int, nbformat.NotebookNode]]:
        """(number, cell) of all code cells that are not empty."""
        cells = enumerate(self.notebook.cells)
        return [(n, c) for n, c in cells if c.cell_type == "code" and c.source.strip()]

    def words(self) -> list[tuple[int, nbformat.NotebookNode]]:
        """(number, cell) of all markdown cells."""
        return [(n, c) for n, c in enumerate(self.notebook.cells) if c.cell_type == "markdown"]


def tags(cell: nbformat.NotebookNode) -> set[str]:
    """The tags of a cell."""
    return set(cell.metadata.get("tags", ()))


def compared(cell: nbformat.NotebookNode) -> bool:
    """True where nbval compares the outputs of this cell."""
    return not IGNORED & tags(cell)


def output_text(output: nbformat.NotebookNode) -> str:
    """What an output says in words: a stream, or its text/plain."""
    if output.output_type == "stream":
        return output.text
    return output.get("data", {}).get("text/plain", "")
