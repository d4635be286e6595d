"""Points, minutes, difficulty and importance of every exercise, read from the sources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grading.course_notebook import Course
from tools.percent import read

_HEADER = re.compile(r"^## (\d\d\.\d+) (.+)$", re.MULTILINE)
_FACTS = re.compile(r"difficulty (\d)/5, importance (\d)/5, about (\d+) minutes")


@dataclass(frozen=True)
class Planned:
    """One exercise as its header and metadata announce it."""

    id: str
    notebook: str
    title: str
    points: float
    minutes: int
    difficulty: int
    importance: int
    optional: bool


def planned(course: Course | None = None) -> tuple[Planned, ...]:
    """Raises ValueError, naming the exercise, where a header does not say what it should."""
    course = course or Course()
    return tuple(one for stem in course.stems() for one in _of_notebook(course, stem))


def _of_notebook(course: Course, stem: str) -> list[Planned]:
    points: dict[str, float] = {}
    headers: dict[str, tuple[str, str]] = {}
    for cell in read(course.sources / f"{stem}.py").cells:
        if "exercise" in cell.tags:
            points[cell.metadata["exercise_id"]] = cell.metadata.get("points", 0)
        elif match := _HEADER.search(cell.text):
            headers[match[1]] = match[2], cell.text
    return [_planned(id, stem, value, *headers.get(id, ("", ""))) for id, value in points.items()]


def _planned(id: str, stem: str, points: float, title: str, text: str) -> Planned:
    facts = _FACTS.search(text)
    if facts is None:
        raise ValueError(f"the header of {id} in {stem} does not say its difficulty and minutes")
    difficulty, importance, minutes = map(int, facts.groups())
    optional = title.endswith("(optional)")
    title = title.removesuffix("(optional)").strip()
    return Planned(id, stem, title, points, minutes, difficulty, importance, optional)


def table(exercises: Sequence[Planned]) -> str:
    """A Markdown table with the sums of each notebook; optional exercises stand beside them."""
    lines = [
        "| exercise | title | points | minutes | difficulty | importance |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for stem in dict.fromkeys(one.notebook for one in exercises):
        mine = [one for one in exercises if one.notebook == stem]
        lines += [_line(one) for one in mine]
        lines.append(_sum(f"**{stem}**", mine))
    lines.append(_sum("**in all**", exercises))
    return "\n".join(lines) + "\n"


def _line(one: Planned) -> str:
    title = f"{one.title} (optional)" if one.optional else one.title
    return (
        f"| {one.id} | {title} | {one.points:g} | {one.minutes} | "
        f"{one.difficulty}/5 | {one.importance}/5 |"
    )


def _sum(name: str, mine: Sequence[Planned]) -> str:
    points, more_points = _split(mine, "points")
    minutes, more_minutes = _split(mine, "minutes")
    return f"| {name} | | {points:g} + {more_points:g} | {minutes} + {more_minutes} | | |"


def _split(mine: Sequence[Planned], field: str) -> tuple[float, float]:
    """-> (of what is asked, of what is optional)."""
    return tuple(
        sum(getattr(one, field) for one in mine if one.optional is wanted)
        for wanted in (False, True)
    )
