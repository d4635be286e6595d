"""A learner's notebook, read tolerantly, and the plan of what to run of it.

The course's cells set the order. Exercise cells come from the learner, matched by the
`exercise_id` in their metadata (JupyterLab copies metadata when a cell is split, so cells
of one exercise are joined in order). Checks come from the course: edited, moved, copied or
deleted ones change nothing. All other code cells of the learner's are helpers and count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grading.course_notebook import CourseCell

_HINT = re.compile(r"(\d\d\.\d+), hint (\d+) of \d+:")


@dataclass(frozen=True)
class LearnerCell:
    kind: str
    source: str
    cell_id: str = ""
    exercise_id: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Submission:
    cells: tuple[LearnerCell, ...]
    hints: dict[str, int] = field(default_factory=dict)

    def exercise_ids(self) -> set[str]:
        return {cell.exercise_id for cell in self.cells if cell.exercise_id}


@dataclass(frozen=True)
class Step:
    """One thing to run. `kind`: given, helper, exercise or check."""

    kind: str
    source: str
    exercise_id: str | None = None


def read_submission(path: Path) -> Submission:
    """Raises ValueError, in one sentence, where the file is not a notebook."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} is not a notebook: its JSON is broken ({error})") from error
    if isinstance(raw, dict) and isinstance(raw.get("worksheets"), list):
        raise ValueError(f"{path.name} is in a format from before 2015; save it in JupyterLab")
    if not isinstance(raw, dict) or not isinstance(raw.get("cells"), list):
        raise ValueError(f"{path.name} is not a notebook: it has no list of cells")
    cells = [cell for cell in raw["cells"] if isinstance(cell, dict)]
    return Submission(tuple(_cell(cell) for cell in cells), _hints(cells))


def _cell(raw: dict[str, Any]) -> LearnerCell:
    metadata = raw.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    tags = metadata.get("tags")
    exercise_id = metadata.get("exercise_id")
    return LearnerCell(
        kind=str(raw.get("cell_type", "")),
        source=_joined(raw.get("source")),
        cell_id=str(raw.get("id", "")),
        exercise_id=exercise_id if isinstance(exercise_id, str) else None,
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else (),
    )


def _joined(text: Any) -> str:
    """One text; the half of a character (a JSON escape cut in two) is a `?`, as it ends a cell."""
    whole = "".join(map(str, text)) if isinstance(text, list) else str(text or "")
    return whole.encode("utf-8", "replace").decode("utf-8")


def _hints(cells: Iterable[dict[str, Any]]) -> dict[str, int]:
    """How far down the hints of each exercise the learner went: the outputs show it."""
    found: dict[str, int] = {}
    for cell in cells:
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            for id, step in _HINT.findall(json.dumps(output)):
                found[id] = max(found.get(id, 0), int(step))
    return found


def make_plan(
    course: Sequence[CourseCell], submission: Submission
) -> tuple[tuple[Step, ...], dict[str, str]]:
    """-> (steps in order, notes by exercise id: what was odd about its cell)."""
    own, helpers = _sorted_out(course, submission)
    steps = [Step("helper", source) for source in helpers.get(None, ())]
    notes: dict[str, str] = {}
    for cell in course:
        if cell.role == "exercise":
            mine = own.get(cell.exercise_id, [])
            source = "\n".join(part.source for part in mine)
            notes[cell.exercise_id] = _note(mine)
            steps.append(Step("exercise", source, cell.exercise_id))
        else:
            steps.append(Step(cell.role, cell.text, cell.exercise_id))
        steps.extend(Step("helper", source) for source in helpers.get(cell.cell_id, ()))
    return tuple(steps), {id: note for id, note in notes.items() if note}


def _sorted_out(
    course: Sequence[CourseCell], submission: Submission
) -> tuple[dict[str | None, list[LearnerCell]], dict[str | None, list[str]]]:
    """The exercise cells by id, and helpers by the course cell that they stand behind."""
    by_id = {cell.cell_id: cell for cell in course}
    by_text = {cell.text.strip(): cell for cell in course if cell.role == "given"}
    exercise_cell = {c.exercise_id: c.cell_id for c in course if c.role == "exercise"}
    check_cell = {c.exercise_id: c.cell_id for c in course if c.role == "check"}
    own: dict[str | None, list[LearnerCell]] = {}
    helpers: dict[str | None, list[str]] = {}
    behind: str | None = None
    for cell in submission.cells:
        if "check" in cell.tags:
            behind = check_cell.get(cell.exercise_id, behind)
        elif cell.exercise_id in exercise_cell:
            own.setdefault(cell.exercise_id, []).append(cell)
            behind = exercise_cell[cell.exercise_id]
        elif cell.kind == "code" and cell.source.strip():
            match = by_text.get(cell.source.strip()) or by_id.get(cell.cell_id)
            if match is not None and match.role != "exercise":
                behind = match.cell_id
            if match is None or (match.role != "check" and match.text != cell.source):
                helpers.setdefault(behind, []).append(cell.source)
    return own, helpers


def _note(mine: Sequence[LearnerCell]) -> str:
    if not mine:
        return "the exercise's cell is missing from the notebook"
    if not any(cell.source.strip() for cell in mine):
        return "the exercise's cell is empty"
    if any(cell.kind != "code" for cell in mine):
        return "the cell was turned into text; it was graded as code"
    if len(mine) > 1:
        return f"{len(mine)} cells belong to this exercise; they were joined in order"
    return ""
