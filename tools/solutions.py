"""Solution regions: cut them for the exercise notebook, keep them for the solution notebook."""

from __future__ import annotations

import re
from dataclasses import replace

from tools.percent import Cell, Source

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = "..."
_REGION = re.compile(
    rf"^(?P<indent>[ \t]*){BEGIN}[^\n]*\n(?P<body>.*?)^[ \t]*{END}[^\n]*(?:\n|\Z)", re.S | re.M
)


def check_regions(source: Source) -> None:
    """Raise ValueError, with file and line, where markers and `exercise` tags do not fit."""
    for cell in source.cells:
        where = f"{source.path}:{cell.line}"
        begins, ends = cell.text.count(BEGIN), cell.text.count(END)
        whole = sum(1 for match in _REGION.finditer(cell.text) if BEGIN not in match["body"])
        if not begins == ends == whole:
            raise ValueError(f"{where}: each '{BEGIN}' needs one '{END}' below it")
        if "exercise" in cell.tags:
            if cell.kind != "code" or not begins:
                raise ValueError(f"{where}: an exercise cell is code with a '{BEGIN}' region")
            if not {"exercise_id", "points"} <= set(cell.metadata):
                raise ValueError(f"{where}: an exercise cell needs exercise_id and points")
        elif begins:
            raise ValueError(f"{where}: a solution may stand only in a cell tagged 'exercise'")
        if "check" in cell.tags and "exercise_id" not in cell.metadata:
            raise ValueError(f"{where}: a check cell needs an exercise_id")


def cut(cell: Cell) -> Cell:
    """The cell as the learner gets it: each region is one line `...`."""
    text = _REGION.sub(lambda match: f"{match['indent']}{STUB}\n", cell.text)
    return replace(cell, text=text.rstrip("\n"))


def solved(cell: Cell) -> Cell:
    """The cell with its solution, without the marker lines."""
    return replace(cell, text=_REGION.sub(lambda match: match["body"], cell.text).rstrip("\n"))


def regions(cell: Cell) -> list[str]:
    """The bodies of the solution regions of a cell, without the marker lines."""
    return [match["body"] for match in _REGION.finditer(cell.text)]


def restore(cell: Cell, edited: str) -> str | None:
    """Put the solution regions of `cell` back into `edited`, the learner's text of the cell.

    The edited text must still hold one `...` line for each region (and as many other `...` lines as
    before). Returns None where it does not: then nobody can say where the solution belongs.
    """
    is_stub = re.compile(rf"^(?P<indent>[ \t]*){re.escape(STUB)}[ \t]*$", re.M)
    marked = _REGION.sub(lambda match: f"{match['indent']}{STUB}  # region\n", cell.text)
    regions = [match.group(0) for match in _REGION.finditer(cell.text)]
    slots = [
        bool(found[1])
        for found in re.finditer(rf"^[ \t]*{re.escape(STUB)}(  # region)?[ \t]*$", marked, re.M)
    ]
    found = list(is_stub.finditer(edited))
    if len(found) != len(slots):
        return None
    pieces, at = [], 0
    for match, is_region in zip(found, slots):
        pieces.append(edited[at : match.start()])
        at = match.end()
        if is_region:
            pieces.append(_indented(regions.pop(0), match["indent"]).rstrip("\n"))
        else:
            pieces.append(match.group(0))
    return "".join(pieces) + edited[at:]


def _indented(region: str, indent: str) -> str:
    """The region moved so that its BEGIN line stands at `indent`."""
    old = region[: len(region) - len(region.lstrip(" \t"))]
    lines = [line.removeprefix(old) for line in region.splitlines()]
    return "\n".join(indent + line if line else line for line in lines) + "\n"
