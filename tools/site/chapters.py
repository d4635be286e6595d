"""The fourteen chapters as the front page lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat

# The order of the course, with the name of a chapter whose lesson is not there yet.
STEMS = {
    "00__start_here": "Start here",
    "01__attention": "Attention and the cache",
    "02__layers": "Layers",
    "03__residual_stream": "The residual stream",
    "04__ffn_and_experts": "FFN and experts",
    "05__the_bill": "The bill",
    "06__mla": "MLA",
    "07__sparse_attention": "Sparse attention",
    "08__groups": "Groups",
    "09__ced": "CED",
    "10__csa2": "CSA2",
    "11__fp4": "FP4",
    "12__serving": "Serving",
    "13__capstone": "Capstone",
}

# What a reader needs before a chapter; what a chapter's first paragraph points back to is among it.
STANDS_ON = {
    "00": (),
    "01": ("00",),
    "02": ("01",),
    "03": ("01", "02"),
    "04": ("01", "02"),
    "05": ("01", "04"),
    "06": ("05",),
    "07": ("06",),
    "08": ("03", "07"),
    "09": ("08",),
    "10": ("08", "09"),
    "11": ("10",),
    "12": ("09", "11"),
    "13": ("05", "11", "12"),
}


@dataclass(frozen=True)
class Chapter:
    """time: as its lesson states it ("60 minutes"). number: markdown of what the chapter is
    about. Both are empty where there is no lesson yet."""

    stem: str
    title: str
    time: str = ""
    number: str = ""
    notebook: nbformat.NotebookNode | None = None
    exercises: nbformat.NotebookNode | None = None

    @property
    def digits(self) -> str:
        return self.stem[:2]

    @property
    def lesson_page(self) -> str:
        return f"notebooks/{self.stem}.html"

    @property
    def exercise_page(self) -> str:
        return f"exercises/{self.stem}.html"


def chapters(root: Path) -> list[Chapter]:
    """All chapters in order, with the notebooks that stand under `root`.

    Raises ValueError for a lesson that does not begin as lessons do, and for a chapter of which
    STANDS_ON says nothing.
    """
    for stem in STEMS:
        if stem[:2] not in STANDS_ON:
            raise ValueError(f"tools/site/chapters.py: STANDS_ON misses {stem[:2]}, of {stem}")
    found = []
    for stem, title in STEMS.items():
        lesson, exercises = (
            nbformat.read(path, 4) if path.is_file() else None
            for path in (root / "notebooks" / f"{stem}.ipynb", root / "exercises" / f"{stem}.ipynb")
        )
        if lesson is None:
            found.append(Chapter(stem, title, exercises=exercises))
        else:
            head = lesson.cells[0].source
            found.append(Chapter(stem, *_heading(stem, head), _number(head), lesson, exercises))
    return found


def _heading(stem: str, head: str) -> tuple[str, str]:
    """Title and time of a lesson, from its first cell."""
    title = re.match(r"# \d\d · (.+)", head)
    time = re.search(r"^\*([^*]*(?:minute|hour)[^*]*)\*", head, re.M)
    if not title or not time:
        raise ValueError(
            f"notebooks/{stem}.ipynb: its first cell should begin with '# {stem[:2]} · title' and"
            " a line '*60 minutes.*'"
        )
    return title[1].strip(), " ".join(time[1].split()).rstrip(".")


def _number(head: str) -> str:
    """The quoted lines of a lesson's first cell, as one line of markdown."""
    lines = [line.lstrip("> ").strip() for line in head.splitlines() if line.startswith(">")]
    return " ".join(line for line in lines if line)
