"""The lints of the notebooks, run by `python -m tools check` and by the tests.

Each rule is a function in tools/rules/; its name, with dashes, stands behind each finding.

**Pictures and their alt text.** A picture output is a bundle of three:

    text/html    <img alt="what it shows" src="data:image/png;base64,...">
    image/png    the same bytes, metadata {"image/png": {"alt": "what it shows"}}
    text/plain   what it shows, in words (nbval compares this one)

The HTML is what counts: JupyterLab and nbconvert's `lab` template (checked in 4.6 and 7.17) write
an <img> without alt for a bare image/png and never look at the metadata, so that a screen reader
says nothing and nbconvert warns. image/png stays beside it for readers that know no HTML. nbval
compares text/html too; tests/nbval_sanitize.cfg takes the picture's bytes out of the comparison.
The figure helper of the widgets makes this bundle; a widget gives it in `_repr_mimebundle_`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools import percent
from tools.build import FOLDERS, built, targets
from tools.page import Page
from tools.rules import exercises, files, outputs, text
from tools.stale import Problem, load, orphans, stale

RULES = (*files.RULES, *outputs.RULES, *text.RULES, *exercises.RULES)


def page(path: Path) -> Page:
    """A built notebook with its source. Raises ValueError where the file is no notebook."""
    notebook = load(path)
    source = path.parents[1] / FOLDERS[path.parent.name] / f"{path.stem}.py"
    read = percent.read(source) if source.exists() else None
    return Page(path, path.read_text(encoding="utf-8"), notebook, read)


def lint(page: Page) -> Iterator[Problem]:
    """What all rules find in one notebook."""
    for rule in RULES:
        name = rule.__name__.replace("_", "-")
        for cell, message in rule(page):
            yield Problem(page.name, cell, name, message)


def check(root: Path) -> Iterator[Problem]:
    """Staleness and lints of all notebooks of the course; executes nothing."""
    for target in targets(root):
        try:
            yield from stale(target)
        except ValueError as error:
            yield Problem(target.name, None, "source", str(error))
    yield from orphans(root)
    for path in built(root):
        try:
            yield from lint(page(path))
        except ValueError as error:
            yield Problem(f"{path.parent.name}/{path.name}", None, "source", str(error))
