"""Notebooks for Colab: `python -m tools colab --repository URL --out DIR`.

Colab opens one notebook without the files around it, so a copy for Colab begins with a cell that
fetches and installs the course. The cell stands in the copies alone: the notebooks here stay
as they are, and nobody who runs them at home is asked to install anything.
"""

from __future__ import annotations

from pathlib import Path

import nbformat

from tools.build import EXERCISES, LESSONS, serialise, write

FIRST = """\
# Only on Colab: fetch the course, install what Colab lacks, and work inside it (a minute or two).
import os
import subprocess
import sys

if not os.path.isdir("/content/course"):
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", "{repository}", "/content/course"], check=True
    )
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "-e", "/content/course"], check=True
    )
sys.path.insert(0, "/content/course")
os.chdir("/content/course/{folder}")"""


def with_first_cell(
    notebook: nbformat.NotebookNode, repository: str, folder: str
) -> nbformat.NotebookNode:
    """A copy of a notebook, without outputs, that begins with the cell for Colab."""
    text = FIRST.format(repository=repository, folder=folder)
    copy = nbformat.from_dict(notebook)
    for cell in copy.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    copy.cells.insert(0, nbformat.v4.new_code_cell(text, id="colab-first"))
    return copy


def write_copies(root: Path, repository: str, out: Path) -> list[Path]:
    """Write the copies of all lessons and exercises. Raises ValueError for a URL that is none."""
    if not repository.startswith("https://") or '"' in repository or " " in repository:
        raise ValueError(f"{repository!r} is no address of a repository: https://...")
    made = []
    for folder in (LESSONS, EXERCISES):
        for path in sorted((root / folder).glob("*.ipynb")):
            target = out / folder / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            notebook = nbformat.read(path, 4)
            write(target, serialise(with_first_cell(notebook, repository, folder)))
            made.append(target)
    return made
