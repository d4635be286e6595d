"""Rules for exercises: whole, clean, and without their solutions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.page import Page, tags
from tools.solutions import BEGIN, END, regions

Finding = tuple[int | None, str]
SHORTEST_LINE, SHORTEST_REGION = 20, 8  # characters that count as a solution, spaces left out


def exercises_are_clean(page: Page) -> Iterator[Finding]:
    """An exercise notebook holds no outputs and no solution markers."""
    if not page.is_exercise:
        return
    for number, cell in enumerate(page.notebook.cells):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            yield number, "holds outputs; an exercise notebook is shipped without"
        if BEGIN in cell.source or END in cell.source:
            yield number, "holds a solution marker"


def no_solutions(page: Page) -> Iterator[Finding]:
    """No code cell of an exercise notebook holds a line of a solution, commented out or not."""
    if not page.is_exercise or page.source is None:
        return
    bodies = [body for cell in page.source.cells for body in regions(cell)]
    lines = {bare(line) for body in bodies for line in body.splitlines()}
    lines = {line for line in lines if len(line) >= SHORTEST_LINE}
    wholes = {whole for whole in map(bare, bodies) if len(whole) >= SHORTEST_REGION}
    for number, cell in page.code():
        here = {bare(line) for line in cell.source.splitlines()}
        whole = bare(cell.source)
        if any(line in text for line in lines for text in here) or any(w in whole for w in wholes):
            yield number, "holds lines of a solution"


def bare(code: str) -> str:
    """Code without spaces and comment signs."""
    return re.sub(r"[\s#]", "", code)


def exercises_are_whole(page: Page) -> Iterator[Finding]:
    """Each exercise has its header before it and its check after it, and its id once."""
    if page.is_lesson:
        return
    cells = page.notebook.cells
    seen: set[str] = set()
    for number, cell in enumerate(cells):
        if "exercise" not in tags(cell):
            continue
        exercise = str(cell.metadata.get("exercise_id"))
        if exercise in seen:
            yield number, f"is a second exercise {exercise}"
        seen.add(exercise)
        before = [c.source for c in cells[:number] if c.cell_type == "markdown"]
        header = next((text for text in reversed(before) if exercise in text), "")
        yield from ((number, sentence) for sentence in header_gaps(exercise, header))
        after = [c.metadata.get("exercise_id") for c in cells[number + 1 :] if "check" in tags(c)]
        if exercise not in after[:1]:
            yield number, f"exercise {exercise} is not followed by its check"


def header_gaps(exercise: str, header: str) -> Iterator[str]:
    """What the text above an exercise fails to say."""
    if not header:
        yield f"no text above names exercise {exercise}"
        return
    wanted = {
        "difficulty n/5": r"difficulty\W+[1-5]\s*/\s*5",
        "importance n/5": r"importance\W+[1-5]\s*/\s*5",
        "minutes": r"\d+\s*min",
    }
    for what, pattern in wanted.items():
        if not re.search(pattern, header, re.I):
            yield f"the text above exercise {exercise} does not say its {what}"


RULES = (exercises_are_clean, no_solutions, exercises_are_whole)
