"""Bring edits made in JupyterLab back into the percent source.

The cells of the notebook become the cells of the source, in the notebook's order. A cell that was
not edited keeps its source text to the byte. An exercise notebook has no solutions: they stay
where the source has them, as long as each exercise cell still holds its `...` line.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tools import percent, solutions
from tools.build import EXERCISES, FOLDERS, SOLUTIONS, Target, write
from tools.percent import KNOWN_METADATA, Cell
from tools.stale import load


def back(root: Path, notebook: Path) -> str:
    """Write the edits of one notebook into its source; returns a sentence about what was done.

    Raises ValueError, and writes nothing, where an edit cannot be placed.
    """
    target = target_of(root, notebook)
    source = percent.read(target.source)
    edited = [known(node) for node in load(target.path).cells if node.source.strip()]
    if target.folder == EXERCISES:
        edited = with_solutions(target, source, edited)
    contents = [cell.content for cell in edited]
    if contents == [cell.content for cell in source.cells]:
        return f"{target.name}: nothing to bring back"
    text = source.head + "".join(merged(source, edited)).rstrip("\n") + "\n"
    again = percent.parse(text, target.source)  # must read as what was meant
    solutions.check_regions(again)
    if [cell.content for cell in again.cells] != contents:
        raise ValueError(f"{target.name}: its cells cannot be written as percent text")
    write(target.source, text)
    return f"{target.name}: brought back to {FOLDERS[target.folder]}/{target.source.name}"


def target_of(root: Path, notebook: Path) -> Target:
    """The target that a notebook's path names. Raises ValueError where it names none."""
    path = notebook.resolve()
    target = Target(path.parent.parent, path.parent.name, path.stem)
    if target.folder == SOLUTIONS:
        raise ValueError(
            f"{notebook}: solution notebooks have no way back; edit the exercise notebook's text, "
            f"or the solution in {target.source}"
        )
    if target.root != root.resolve() or target.folder not in FOLDERS or path.suffix != ".ipynb":
        raise ValueError(f"{notebook}: give a notebook in notebooks/ or exercises/")
    for needed in (path, target.source):
        if not needed.exists():
            raise ValueError(f"{notebook}: there is no {needed}")
    return target


def known(node) -> Cell:
    """A notebook cell as a source cell: JupyterLab's own metadata is left behind."""
    if node.cell_type not in ("code", "markdown"):
        raise ValueError(f"a {node.cell_type} cell has no place in a source; make it text or code")
    metadata = {key: node.metadata[key] for key in KNOWN_METADATA if key in node.metadata}
    if not metadata.get("tags", True):
        del metadata["tags"]
    if "check" in metadata.get("tags", ()):
        metadata |= {"editable": False, "deletable": False}
    return Cell(node.cell_type, node.source.rstrip("\n"), metadata)


def with_solutions(target: Target, source: percent.Source, edited: list[Cell]) -> list[Cell]:
    """The edited cells with each exercise's solution put back."""
    wanted = {cell.metadata["exercise_id"]: cell for cell in source.cells if is_exercise(cell)}
    found = [cell.metadata.get("exercise_id") for cell in edited if is_exercise(cell)]
    for exercise in sorted(set(wanted) | set(found), key=str):
        count = found.count(exercise)
        if exercise not in wanted:
            raise ValueError(
                f"{target.name}: exercise {exercise} is new; write it, with its solution, in "
                f"{target.source.name}"
            )
        if count != 1:
            raise ValueError(
                f"{target.name}: {count} cells are exercise {exercise}; there must be one "
                "(was it split, copied or deleted?)"
            )
    checks = [cell.metadata.get("exercise_id") for cell in edited if "check" in cell.tags]
    if missing := sorted(set(wanted) - set(checks)):
        raise ValueError(f"{target.name}: the check of exercise {missing[0]} is gone")
    return [
        restored(target, wanted[cell.metadata["exercise_id"]], cell) if is_exercise(cell) else cell
        for cell in edited
    ]


def restored(target: Target, original: Cell, cell: Cell) -> Cell:
    """One exercise cell with its solution, or ValueError where its place is not clear."""
    text = solutions.restore(original, cell.text)
    if text is None:
        raise ValueError(
            f"{target.name}: exercise {cell.metadata['exercise_id']} has no '...' line where its "
            f"solution was (is it filled in?); put '...' back, or edit {target.source.name}"
        )
    return replace(cell, text=text)


def is_exercise(cell: Cell) -> bool:
    """True for the cell that the learner fills in."""
    return "exercise" in cell.tags


def merged(source: percent.Source, edited: list[Cell]) -> list[str]:
    """Percent text a cell: the source's own where the cell is the same, else newly written."""
    own: dict[tuple, list[str]] = {}
    for cell in source.cells:
        own.setdefault(cell.content, []).append(cell.raw)
    last = source.cells[-1].raw
    chunks = []
    for cell in edited:
        kept = own.get(cell.content)
        raw = kept.pop(0) if kept else percent.write_cell(cell)
        chunks.append(raw.rstrip("\n") + "\n\n" if raw == last else raw)
    return chunks
