"""Each rule for exercises finds its fault; and every rule of all has such a test."""

from pathlib import Path

import nbformat
import pytest
from lint_pages import STEM, found

from tools import lint
from tools.build import unexecuted
from tools.page import Page
from tools.rules import exercises


def exercise_page(course, change=lambda nb: None):
    (target,) = (t for t in lint.targets(course) if t.folder == "exercises")
    notebook = unexecuted(target)
    change(notebook)
    source = lint.percent.read(target.source)
    return Page(target.path, nbformat.writes(notebook) + "\n", notebook, source)


def set_source(cell, words):
    return lambda notebook: notebook.cells[cell].update(source=words)


def test_a_cut_exercise_passes(course):
    assert list(lint.lint(exercise_page(course))) == []


@pytest.mark.parametrize("cell, words", [
    (1, "denominator_of_half = 2"),
    (1, "#   denominator_of_half=2"),
    (3, "def halve(n):\n    return Fraction( number,denominator_of_half )"),
    (4, "check(1)\nreturn Fraction(number, denominator_of_half)"),
])  # fmt: skip
def test_no_solutions(course, cell, words):
    page = exercise_page(course, set_source(cell, words))
    assert found(page, exercises.no_solutions) == ["holds lines of a solution"]


def test_a_short_solution_is_found_as_a_whole(course):
    path = course / "sources/exercises" / f"{STEM}.py"
    lines = path.read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if "denominator_of_half" not in line)
    path.write_text(text.replace("### BEGIN SOLUTION\n", "### BEGIN SOLUTION\n    return x / 2\n"))
    assert found(exercise_page(course), exercises.no_solutions) == []
    page = exercise_page(course, set_source(3, "def halve(x):\n    return x / 2"))
    assert len(found(page, exercises.no_solutions)) == 1


def test_solutions_may_be_hinted_at_in_text(course):
    text = "97.1 difficulty 1/5 importance 1/5 5 min\n<details>denominator_of_half = 2</details>"
    assert found(exercise_page(course, set_source(2, text)), exercises.no_solutions) == []


def test_exercises_are_clean(course):
    def run(notebook):
        notebook.cells[1].execution_count = 1
        notebook.cells[3].source += "\n### END SOLUTION"

    assert len(found(exercise_page(course, run), exercises.exercises_are_clean)) == 2


@pytest.mark.parametrize("change, words", [
    (set_source(2, "Halves"), "no text above names"),
    (set_source(2, "97.1 importance 1/5, 5 min"), "difficulty"),
    (set_source(2, "97.1 difficulty 6/5, importance 1/5, 5 min"), "difficulty"),
    (set_source(2, "97.1 difficulty 1/5, 5 min"), "importance"),
    (set_source(2, "97.1 difficulty 1/5, importance 1/5"), "minutes"),
    (lambda nb: nb.cells.pop(4), "not followed by its check"),
    (lambda nb: nb.cells[4].metadata.update(exercise_id="97.2"), "not followed"),
])  # fmt: skip
def test_exercises_are_whole(course, change, words):
    (message,) = found(exercise_page(course, change), exercises.exercises_are_whole)
    assert words in message


def test_an_exercise_stands_once(course):
    def copy(notebook):
        cells = [nbformat.from_dict(dict(cell)) for cell in notebook.cells[3:5]]
        cells[0]["id"], cells[1]["id"] = "a", "b"
        notebook.cells += cells

    messages = found(exercise_page(course, copy), exercises.exercises_are_whole)
    assert messages == ["is a second exercise 97.1"]


def test_every_rule_has_a_test_that_fails_it():
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_lint_*.py"))
    for rule in lint.RULES:
        module = rule.__module__.rpartition(".")[2]
        assert f"{module}.{rule.__name__}" in tests


def test_check_reports_a_broken_source(built):
    (built / "sources/lessons" / f"{STEM}.py").write_text("x = 1\n")
    problems = {problem.rule for problem in lint.check(built)}
    assert problems == {"source"}
