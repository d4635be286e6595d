"""The files a learner has beside a notebook: a module to import, some data to read."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

FEW, SMALL = 50, 2**20  # files, and bytes of one: more is no helper of an exercise


def files_beside(notebook: Path, taken: Callable[[str], bool]) -> list[Path]:
    """Small files in the notebook's folder that go with it, by name.

    No notebooks, nothing hidden, no links (they may lead out of the folder), and no module
    that would stand in for one of Python's, of the course or of what is installed.
    """
    found = []
    try:
        for path in sorted(notebook.absolute().parent.iterdir()):
            if path.suffix == ".ipynb" or path.name.startswith(".") or path.is_symlink():
                continue
            if not path.is_file() or path.stat().st_size > SMALL:
                continue
            if path.suffix == ".py" and taken(path.stem):
                continue
            found.append(path)
    except OSError:
        return []
    return found if len(found) <= FEW else [p for p in found if p.suffix == ".py"][:FEW]


def taken_names(python_path: Sequence[Path]) -> Callable[[str], bool]:
    """-> whether a module's name is in use already."""
    places = [*map(str, python_path), sysconfig.get_path("purelib")]
    known: dict[str, bool] = {}

    def taken(name: str) -> bool:
        if name not in known:
            known[name] = name in sys.stdlib_module_names or bool(
                PathFinder.find_spec(name, places)
            )
        return known[name]

    return taken
