"""Percent sources: read into cells, and write a cell back as percent text.

jupytext knows the format; what it does not promise is kept here: cell ids that come from the
source, a short list of known metadata, the line each cell starts on, and the untouched text of
each cell (so that `python -m tools back` changes only the cells that were edited).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupytext
import nbformat

KNOWN_METADATA = ("exercise_id", "points", "tags", "editable", "deletable")
ROLES = ("exercise", "check", "predict")
_FORMAT = {"extension": ".py", "format_name": "percent"}
_HEADER = re.compile(r"^# %%(?!\S)", re.M)
_FRONT_MATTER = re.compile(r"\A# ---\n(?:#.*\n)*?# ---\n")


@dataclass(frozen=True)
class Cell:
    """One cell of a source: `kind` is "code" or "markdown"; `raw` is its percent text."""

    kind: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    line: int = 0
    raw: str = ""

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("tags", ()))

    @property
    def content(self) -> tuple[str, str, str]:
        """What must be equal in the source and in the built notebook."""
        known = {key: self.metadata[key] for key in KNOWN_METADATA if key in self.metadata}
        return self.kind, self.text, repr(sorted(known.items()))


@dataclass(frozen=True)
class Source:
    """A percent file: the front matter (may be empty) and the cells, in order."""

    path: Path
    head: str
    cells: tuple[Cell, ...]


def read(path: Path) -> Source:
    """Read a percent source. Raises ValueError, with file and line, where it is not one."""
    return parse(path.read_text(encoding="utf-8"), path)


def parse(text: str, path: Path) -> Source:
    """The cells of a percent text; `path` is what errors name."""
    front = _FRONT_MATTER.match(text)
    head = front.group(0) if front else ""
    starts = [match.start() for match in _HEADER.finditer(text)]
    between = text[len(head) : starts[0] if starts else len(text)]
    if not starts or between.strip():
        raise ValueError(f"{path}: the first cell must begin with a line '# %%'")
    head = text[: starts[0]]
    chunks = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)])]
    lines = [text.count("\n", 0, start) + 1 for start in starts]
    parsed = jupytext.reads(text[len(head) :], fmt=_FORMAT).cells
    if len(parsed) != len(chunks):
        raise ValueError(
            f"{path}: {len(chunks)} lines begin with '# %%' but there are {len(parsed)} cells; "
            "is such a line inside a string?"
        )
    cells = []
    for node, chunk, line in zip(parsed, chunks, lines):
        metadata = _known(dict(node.metadata), f"{path}:{line}")
        cells.append(Cell(node.cell_type, node.source.rstrip("\n"), metadata, line, chunk))
    return Source(path, head, tuple(cells))


def _known(metadata: dict[str, Any], where: str) -> dict[str, Any]:
    """The cell's metadata with check cells locked; unknown keys are an error."""
    metadata = {k: v for k, v in metadata.items() if not k.startswith("lines_to_")}
    unknown = sorted(set(metadata) - set(KNOWN_METADATA))
    if unknown:
        raise ValueError(
            f"{where}: unknown cell metadata {', '.join(unknown)}; known are "
            f"{', '.join(KNOWN_METADATA)}"
        )
    if "check" in metadata.get("tags", ()):
        metadata |= {"editable": False, "deletable": False}
    return metadata


def write_cell(cell: Cell) -> str:
    """Percent text of one cell, with its header line and one blank line at the end."""
    make = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
    metadata = {key: cell.metadata[key] for key in KNOWN_METADATA if key in cell.metadata}
    if "check" in cell.tags:  # the build locks it again
        metadata.pop("editable", None)
        metadata.pop("deletable", None)
    notebook = nbformat.v4.new_notebook(cells=[make(cell.text, metadata=metadata)])
    notebook.metadata["jupytext"] = {
        "notebook_metadata_filter": "-all",
        "cell_metadata_filter": ",".join(KNOWN_METADATA) + ",-all",
    }
    text = jupytext.writes(notebook, fmt=_FORMAT)
    return text[_HEADER.search(text).start() :].rstrip("\n") + "\n\n"


def cell_ids(cells: tuple[Cell, ...]) -> list[str]:
    """One id a cell, from the cell alone: stable when another cell changes.

    Exercise, check and predict cells are named by their exercise (`exercise-01-1`); all others by a
    hash of kind and text. A second equal cell gets the suffix `-2`.
    """
    seen: dict[str, int] = {}
    ids = []
    for cell in cells:
        role = next((r for r in ROLES if r in cell.tags), None)
        exercise = cell.metadata.get("exercise_id")
        if role and exercise:
            name = re.sub(r"[^A-Za-z0-9-]", "-", f"{role}-{exercise}")
        else:
            name = hashlib.sha256(f"{cell.kind}\n{cell.text}".encode()).hexdigest()[:12]
        seen[name] = seen.get(name, 0) + 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids
