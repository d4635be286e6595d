"""Solutions: cut, kept, put back, and refused where they are not whole."""

import ast

import pytest

from tools import percent, solutions

TWO = """\
def power(x, n):
    \"\"\"x to the n.\"\"\"
    ### BEGIN SOLUTION
    result = 1
    ### END SOLUTION
    for _ in range(n):
        ### BEGIN SOLUTION
        if n:
            result *= x
        ### END SOLUTION
    return result"""


def exercise(text):
    return percent.Cell("code", text, {"exercise_id": "97.1", "points": 3, "tags": ["exercise"]})


def source(tmp_path, text, header='# %% exercise_id="97.1" points=3 tags=["exercise"]'):
    return percent.parse(f"{header}\n{text}\n", tmp_path / "probe.py")


def test_each_region_becomes_one_stub_at_its_indentation():
    lines = solutions.cut(exercise(TWO)).text.splitlines()
    assert lines[2] == "    ..." and lines[4] == "        ..."
    assert lines == [
        "def power(x, n):",
        '    """x to the n."""',
        "    ...",
        "    for _ in range(n):",
        "        ...",
        "    return result",
    ]


def test_a_cut_function_is_its_docstring_and_a_stub(course):
    cell = percent.read(course / "sources/exercises/97__halves.py").cells[3]
    (function,) = ast.parse(solutions.cut(cell).text).body
    assert len(function.body) == 2
    assert ast.unparse(function.body[1]) == "..."


def test_the_solution_runs_and_has_no_markers():
    text = solutions.solved(exercise(TWO)).text
    space = {}
    exec(text, space)
    assert space["power"](3, 5) == 243
    assert "SOLUTION" not in text


def test_regions_give_the_bodies():
    assert solutions.regions(exercise(TWO)) == [
        "    result = 1\n",
        "        if n:\n            result *= x\n",
    ]


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("def f():\n    ...", "code with a"),
        ("def f():\n    ### BEGIN SOLUTION\n    return 1", "needs one"),
        ("def f():\n    return 1\n    ### END SOLUTION", "needs one"),
        (
            "### BEGIN SOLUTION\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n### END SOLUTION",
            "needs one",
        ),
        ("### END SOLUTION\nx = 1\n### BEGIN SOLUTION", "needs one"),
    ],
)
def test_broken_markers_are_named(tmp_path, text, complaint):
    with pytest.raises(ValueError, match=complaint) as error:
        solutions.check_regions(source(tmp_path, text))
    assert "probe.py:1" in str(error.value)


@pytest.mark.parametrize(
    "header, complaint",
    [
        ("# %%", "only in a cell tagged"),
        ('# %% tags=["exercise"]', "exercise_id and points"),
        ('# %% exercise_id="97.1" tags=["exercise"]', "exercise_id and points"),
    ],
)
def test_regions_stand_in_exercise_cells_only(tmp_path, header, complaint):
    with pytest.raises(ValueError, match=complaint):
        solutions.check_regions(source(tmp_path, TWO, header))


def test_a_check_needs_its_exercise(tmp_path):
    bad = source(tmp_path, "check(f)", '# %% tags=["check"]')
    with pytest.raises(ValueError, match="exercise_id"):
        solutions.check_regions(bad)


def test_solutions_go_back_into_edited_text():
    def edit(text):
        return text.replace("x to the n.", "The power.").replace("return res", "return 1 * res")

    edited = edit(solutions.cut(exercise(TWO)).text)
    assert edited != solutions.cut(exercise(TWO)).text
    assert solutions.restore(exercise(TWO), edited) == edit(TWO)


def test_solutions_follow_a_new_indentation():
    edited = "class Box:\n    def one(self):\n        ..."
    cell = exercise("def one():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION")
    assert solutions.restore(cell, edited) == (
        "class Box:\n    def one(self):\n"
        "        ### BEGIN SOLUTION\n        return 1\n        ### END SOLUTION"
    )


def test_other_stub_lines_stay():
    text = "class P:\n    ...\n\ndef f():\n    ### BEGIN SOLUTION\n    x\n    ### END SOLUTION"
    cell = exercise(text)
    assert solutions.restore(cell, solutions.cut(cell).text) == text


@pytest.mark.parametrize("edited", ["def f():\n    return 7", "def f():\n    ...\n ...\n ..."])
def test_no_place_for_a_solution_gives_none(edited):
    assert solutions.restore(exercise(TWO), edited) is None
