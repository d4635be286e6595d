"""The course's own notebooks: built from today's sources, clean, convertible, in budget.

Nothing is executed here but in the slow test of the budgets; nbval compares the outputs.
"""

import json
import logging
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

from tools import lint
from tools.build import (
    CPU_BUDGET,
    EXERCISES,
    Target,
    build,
    built,
    over_budget,
    targets,
    unexecuted,
)
from tools.execute import execute
from tools.page import tags
from tools.stale import load, orphans, stale

ROOT = Path(__file__).resolve().parents[1]
TARGETS = targets(ROOT)
EXECUTED = [target for target in TARGETS if target.executed]


def name(target: Target) -> str:
    return target.name


def holds_answers(target: Target) -> bool:
    """True where a reader has worked in this exercise notebook since it was committed."""
    if target.folder != EXERCISES or os.environ.get("CI") or not target.path.exists():
        return False
    status = ["git", "-C", str(target.root), "status", "--porcelain", "--", target.name]
    try:
        changed = subprocess.run(status, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    if not changed.stdout.strip().startswith("M"):
        return False
    cells = [cell.source for cell in load(target.path).cells if "exercise" in tags(cell)]
    stubs = [cell.source for cell in unexecuted(target).cells if "exercise" in tags(cell)]
    return cells != stubs


@pytest.mark.parametrize("target", TARGETS, ids=name)
def test_notebook_is_fresh_and_clean(target):
    if holds_answers(target):
        pytest.skip(f"{target.name} holds your answers; it is checked as shipped, in CI")
    assert [str(problem) for problem in stale(target)] == []
    assert [str(problem) for problem in lint.lint(lint.page(target.path))] == []


def test_every_notebook_has_a_source():
    assert [str(problem) for problem in orphans(ROOT)] == []


@pytest.mark.parametrize("target", [t for t in TARGETS if not t.executed], ids=name)
def test_exercises_are_as_built(target, tmp_path):
    """Built anew somewhere else, an exercise notebook has the same bytes."""
    if holds_answers(target):
        pytest.skip(f"{target.name} holds your answers; it is compared as shipped, in CI")
    copy = Target(tmp_path, target.folder, target.stem)
    copy.source.parent.mkdir(parents=True)
    shutil.copy(target.source, copy.source)
    build(copy)
    assert copy.path.read_bytes() == target.path.read_bytes()


def to_html(notebooks: list[Path], folder: Path) -> list[str]:
    """Convert as `nbconvert --to html` does, without its start; returns what it complains about."""
    from nbconvert import HTMLExporter

    exporter, said = HTMLExporter(), []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: said.append(record.getMessage())
    exporter.log.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            for path in notebooks:
                text, _ = exporter.from_filename(path)
                (folder / f"{path.stem}.html").write_text(text, encoding="utf-8")
    finally:
        exporter.log.removeHandler(listener)
    return said + [str(one.message) for one in raised]


@pytest.mark.skipif(not list(built(ROOT)), reason="no notebook is built yet")
def test_html_without_a_warning(tmp_path):
    notebooks = list(built(ROOT))
    for folder in {path.parent.name for path in notebooks}:
        chosen = [path for path in notebooks if path.parent.name == folder]
        out = tmp_path / folder
        out.mkdir()
        assert to_html(chosen, out) == []
        assert len(list(out.glob("*.html"))) == len(chosen)


def test_a_picture_without_alt_text_is_a_warning(tmp_path):
    """The test above can fail: nbconvert warns of a bare picture, metadata or not."""
    bare = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
        "cells": [
            {
                "cell_type": "code",
                "id": "bare",
                "metadata": {},
                "source": "",
                "execution_count": 1,
                "outputs": [
                    {
                        "output_type": "display_data",
                        "data": {"image/png": "iVBORw0KGgo="},
                        "metadata": {"image/png": {"alt": "never looked at"}},
                    }
                ],
            }
        ],
    }
    path = tmp_path / "bare.ipynb"
    path.write_text(json.dumps(bare))
    assert any("Alternative text is missing" in line for line in to_html([path], tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("target", EXECUTED, ids=name)
def test_budget_of_cpu_seconds(target):
    seconds = execute(unexecuted(target), target.path.parent)
    assert over_budget(target, seconds) == ""
    assert seconds > 0 or target.folder not in CPU_BUDGET
