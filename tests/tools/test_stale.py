"""Staleness: every kind of difference between source and notebook is named; nothing is executed."""

import nbformat
import pytest

from tools.__main__ import main
from tools.build import Target, targets
from tools.stale import needs_build, orphans, stale

STEM = "97__halves"


def edit(root, folder, change):
    path = root / folder / f"{STEM}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)
    return list(stale(Target(root, folder, STEM)))


def test_fresh_notebooks_are_not_stale(built):
    for target in targets(built):
        assert list(stale(target)) == []
        assert not needs_build(target)


@pytest.mark.parametrize("folder", ["notebooks", "exercises", "solutions"])
def test_an_edited_cell_is_named(built, folder):
    (problem,) = edit(built, folder, lambda nb: nb.cells[3].update(source="print(1)"))
    assert problem.notebook == f"{folder}/{STEM}.ipynb" and problem.cell == 3
    assert "text" in problem.message and f"tools build {STEM}" in problem.message


@pytest.mark.parametrize(
    "change, cell, word",
    [
        (lambda nb: nb.cells.pop(1), 1, "text"),
        (lambda nb: nb.cells.append(nbformat.v4.new_code_cell("")), 5, "6 cells"),
        (lambda nb: nb.cells.pop(), 4, "4 cells"),
        (lambda nb: nb.cells[4].metadata.update(tags=[]), 4, "metadata"),
        (lambda nb: nb.cells[1].update(id="other"), 1, "id"),
    ],
    ids=["removed", "added", "last removed", "tags", "id"],
)
def test_every_difference_counts(built, change, cell, word):
    (problem,) = edit(built, "notebooks", change)
    assert problem.cell == cell and word in problem.message


def test_outputs_and_foreign_metadata_do_not_count(built):
    def run_in_lab(notebook):
        notebook.cells[3].outputs = []
        notebook.cells[3].metadata["collapsed"] = False

    assert edit(built, "notebooks", run_in_lab) == []


def test_a_changed_solution_makes_solutions_stale_and_exercises_not(built):
    path = built / "sources/exercises" / f"{STEM}.py"
    path.write_text(path.read_text().replace("of_half = 2", "of_half = 4 - 2"))
    found = {target.folder: list(stale(target)) for target in targets(built)}
    assert found["notebooks"] == found["exercises"] == []
    assert found["solutions"][0].cell == 3


def test_a_missing_notebook_and_one_without_source(built):
    (built / "notebooks" / f"{STEM}.ipynb").rename(built / "notebooks/98__thirds.ipynb")
    (problem,) = stale(Target(built, "notebooks", STEM))
    assert "not built" in problem.message
    (orphan,) = orphans(built)
    assert orphan.notebook == "notebooks/98__thirds.ipynb" and "no source" in orphan.message


def test_check_exits_with_what_it_found(built, capsys):
    assert main(["--root", str(built), "check"]) == 0
    assert "3 notebooks, 0 problems" in capsys.readouterr().out
    edit(built, "notebooks", lambda nb: nb.cells[3].update(source="print(1)"))
    assert main(["--root", str(built), "check"]) == 1
    assert f"notebooks/{STEM}.ipynb, cell 3" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "[]", "no json", "", "{}", '{"cells": [1]}'])
def test_a_file_that_is_no_notebook_is_named(built, capsys, text):
    (built / "notebooks" / f"{STEM}.ipynb").write_text(text)
    assert main(["--root", str(built), "check"]) == 1
    assert "is not a notebook" in capsys.readouterr().out
