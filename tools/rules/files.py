"""Rules for the notebook as a file: what else would change its bytes from build to build."""

from __future__ import annotations

from collections.abc import Iterator

from tools.execute import KERNELSPEC, LANGUAGE
from tools.page import Page

Finding = tuple[int | None, str]


def unique_ids(page: Page) -> Iterator[Finding]:
    """Every cell has an id, and no two have the same."""
    seen: set[str] = set()
    for number, cell in enumerate(page.notebook.cells):
        cell_id = cell.get("id")
        if not cell_id:
            yield number, "has no cell id"
        elif cell_id in seen:
            yield number, f"has the cell id {cell_id} of an earlier cell"
        seen.add(cell_id)


def plain_metadata(page: Page) -> Iterator[Finding]:
    """The kernelspec and the language are the fixed ones; nothing else, and no timing."""
    metadata = page.notebook.metadata
    if dict(metadata.get("kernelspec", {})) != KERNELSPEC:
        yield None, f"its kernelspec is not {KERNELSPEC['name']!r} as built"
    if dict(metadata.get("language_info", {})) != LANGUAGE:
        yield None, "its language_info names a version"
    extra = sorted(set(metadata) - {"kernelspec", "language_info", "widgets"})
    if extra:
        yield None, f"has more metadata than a build writes: {', '.join(extra)}"
    for number, cell in enumerate(page.notebook.cells):
        if "execution" in cell.metadata:
            yield number, "holds the times of its last run"


def ends_in_newline(page: Page) -> Iterator[Finding]:
    """The file ends in exactly one newline."""
    if not page.text.endswith("\n") or page.text.endswith("\n\n"):
        yield None, "does not end in one newline"


RULES = (unique_ids, plain_metadata, ends_in_newline)
