"""Rules for what a reader reads: how a lesson opens, its cells, its links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tools.page import Page, output_text
from tools.stale import load

Finding = tuple[int | None, str]
MOST_LINES, LONG_CELLS, MOST_COLUMNS, CODE_IN_A_ROW, MOST_OBJECTIVES = 25, 2, 88, 3, 6
DURATION = re.compile(r"\b\d+(?:\s*(?:-|–|to)\s*\d+)?\s*(?:min|minutes|h|hours?)\b")
ABSOLUTE = re.compile(
    r"(?<![\w.:/~-])/(?:home|root|tmp|work|Users|usr|var|opt|mnt|private|data)/[\w.]|\b[A-Z]:\\\w"
)
LINK = re.compile(
    r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|\b(?:href|src)=\"([^\"]+)\""
)


def lesson_opens(page: Page) -> Iterator[Finding]:
    """A lesson names its title, its time and at most six objectives before its first code."""
    if not page.is_lesson:
        return
    first = page.notebook.cells[0] if page.notebook.cells else None
    if first is None or first.cell_type != "markdown" or not first.source.startswith("# "):
        yield 0, "a lesson begins with a text cell '# title'"
    end = page.code()[0][0] if page.code() else len(page.notebook.cells)
    opening = "\n\n".join(cell.source for number, cell in page.words() if number < end)
    if not DURATION.search(opening):
        yield 0, "the opening does not say how long the lesson takes (minutes or hours)"
    after = re.split(r"objectives", opening, maxsplit=1, flags=re.I)
    if len(after) < 2:
        yield 0, "the opening has no heading or line that says 'objectives'"
        return
    section = re.split(r"^#", after[1], maxsplit=1, flags=re.M)[0]
    items = re.findall(r"^\s*(?:[-*+]|\d+\.)\s", section, re.M)
    if not 1 <= len(items) <= MOST_OBJECTIVES:
        yield 0, f"lists {len(items)} objectives; 1 to {MOST_OBJECTIVES} list items"


def cells_are_short(page: Page) -> Iterator[Finding]:
    """Code lines hold 88 columns; lesson cells 25 lines, with two exceptions a notebook."""
    long = []
    for number, cell in page.code():
        lines = cell.source.splitlines()
        widest = max(len(line) for line in lines)
        if widest > MOST_COLUMNS:
            yield number, f"has a line of {widest} columns; {MOST_COLUMNS} fit beside the margin"
        if len(lines) > MOST_LINES:
            long.append((number, len(lines)))
    if page.is_lesson and len(long) > LONG_CELLS:
        for number, count in long:
            yield number, (
                f"has {count} lines; more than {LONG_CELLS} cells here exceed {MOST_LINES}"
            )


def words_between_code(page: Page) -> Iterator[Finding]:
    """In a lesson at most three code cells follow each other without a word of text."""
    if not page.is_lesson:
        return
    run = 0
    for number, cell in enumerate(page.notebook.cells):
        run = run + 1 if cell.cell_type == "code" else 0
        if run == CODE_IN_A_ROW + 1:
            yield number, f"is the {run}th code cell in a row without text between"


def no_absolute_paths(page: Page) -> Iterator[Finding]:
    """No path of one machine, neither written nor printed."""
    for number, cell in enumerate(page.notebook.cells):
        texts = [cell.source, *(output_text(output) for output in cell.get("outputs", ()))]
        if found := ABSOLUTE.search("\n".join(texts)):
            yield number, f"names an absolute path ({found[0]}...)"


def links_resolve(page: Page) -> Iterator[Finding]:
    """Every link to a file or a heading of the course leads somewhere."""
    for number, cell in page.words():
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", cell.source, flags=re.S | re.M)
        for pair in LINK.findall(prose):
            link = unquote("".join(pair))
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
                continue
            place, _, fragment = link.partition("#")
            target = (page.path.parent / place).resolve() if place else page.path
            if place and not target.exists():
                yield number, f"links to {link}, which does not exist"
            elif fragment and fragment not in headings(target, page):
                yield number, f"links to {link}, but there is no such heading"


def headings(path: Path, page: Page) -> set[str]:
    """The ids that JupyterLab and nbconvert give to the headings of a notebook or text file."""
    if path == page.path:
        texts = [cell.source for _, cell in page.words()]
    elif path.suffix == ".ipynb":
        texts = [cell.source for cell in load(path).cells if cell.cell_type == "markdown"]
    else:
        texts = [path.read_text(encoding="utf-8")]
    found = re.findall(r"^#{1,6}\s+(.+?)\s*#*$", "\n".join(texts), re.M)
    plain = [re.sub(r"[*`]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in found]
    named = re.findall(r"\b(?:id|name)=\"([^\"]+)\"", "\n".join(texts))
    return {heading.strip().replace(" ", "-") for heading in plain} | set(named)


RULES = (lesson_opens, cells_are_short, words_between_code, no_absolute_paths, links_resolve)
