"""A tiny course on disk, learners' notebooks made from it, and a progress folder of one's own."""

import json

import pytest

from grading.course_notebook import ROOT, Course
from tests.grading import tiny_checks
from tests.grading.editing import code_cell


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    """No test ever writes into the learner's progress."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress"))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    return tmp_path / "progress"


@pytest.fixture(scope="session")
def tiny_course(tmp_path_factory):
    """Exercises 90.1 ... 90.20, each `double_N(number)`, with a setup cell."""
    sources = tmp_path_factory.mktemp("sources")
    text = "# %% [markdown]\n# # Tiny\n\n# %%\nfrom grading import check\n\n"
    for number in range(1, tiny_checks.COUNT + 1):
        text += (
            f'# %% exercise_id="90.{number}" points=1 tags=["exercise"]\n'
            f'def double_{number}(number):\n    """Twice the number."""\n'
            "    ### BEGIN SOLUTION\n    return 2 * number\n    ### END SOLUTION\n\n"
            f'# %% exercise_id="90.{number}" tags=["check"]\n'
            f'check("90.{number}", double_{number})\n\n'
        )
    (sources / f"{tiny_checks.NOTEBOOK}.py").write_text(text)
    return Course(sources, "tests.grading.tiny_checks", (ROOT,))


@pytest.fixture
def notebook(tmp_path, tiny_course):
    """notebook({1: code, ...}) -> (cells, save): a learner's notebook of the tiny course."""

    def make(answers=None, solved=False):
        cells = []
        for cell in tiny_course.cells(tiny_checks.NOTEBOOK):
            source = cell.solution if solved else cell.text
            if cell.role == "exercise" and answers:
                source = answers.get(int(cell.exercise_id.split(".")[1]), source)
            cells.append(code_cell(source, cell.role, cell.exercise_id, cell.cell_id))

        def save(name=f"{tiny_checks.NOTEBOOK}.ipynb"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}))
            return path

        return cells, save

    return make
