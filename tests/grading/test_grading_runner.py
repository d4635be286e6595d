"""Notebooks that misbehave: the table in misbehaviour.py made true, and what it leaves out."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from grading.course_notebook import ROOT
from grading.runner import grade_notebook, warm_for, which_notebook
from tests.grading import tiny_checks
from tests.grading.editing import code_cell, place
from tests.grading.misbehaviour import FIXTURES, OF_THE_FILE, RIGHT
from tests.grading.test_grading_commands import write_notebook


@pytest.fixture(scope="module")
def warm(tiny_course):
    with warm_for(tiny_course) as process:
        yield process


def numbers():
    """-> {fixture: its exercise's number}; loops get one of those whose time is short."""
    short = iter(tiny_checks.ENDLESS)
    wide = iter(n for n in range(1, tiny_checks.COUNT) if n not in tiny_checks.ENDLESS)
    return {
        fixture: next(short if fixture.status == "timeout" and fixture.body else wide)
        for fixture in FIXTURES
    }


@pytest.mark.skipif(sys.platform != "linux", reason="signals, fork and limits as Linux has them")
def test_what_learners_do_and_what_it_gives(notebook, tiny_course, warm):
    """The whole table in one notebook: none spoils another's result."""
    cells, save = notebook(solved=True)
    for fixture, n in numbers().items():
        cell = cells[place(cells, n)]
        if fixture.body:
            cell["source"] = f"def double_{n}(number):\n{fixture.body}"
        elif fixture.cell:
            cell["source"] = fixture.cell.replace("{n}", str(n))
    for fixture, n in numbers().items():
        if fixture.edit:
            fixture.edit(cells, n)
    before = _processes()

    rows = grade_notebook(save(), tiny_course, cell_seconds=8, warm=warm)

    seen = {int(row.id.split(".")[1]): row for row in rows}
    wrong = [
        f"{fixture.name}: {seen[n].status}, {seen[n].earned:g} points, {seen[n].message}"
        for fixture, n in numbers().items()
        if (seen[n].status, seen[n].earned) != (fixture.status, fixture.points)
        or fixture.words not in seen[n].message
        or len(seen[n].message) > 2000
    ]
    assert not wrong, "\n".join(wrong)
    mistake = next(f for f in FIXTURES if "mistake" in f.name)
    assert seen[numbers()[mistake]].misconception == "squared"
    untouched = set(seen) - set(numbers().values())
    assert {seen[n].status for n in untouched} == {"passed"}, "a right answer was spoilt"
    assert _gone(before), "a process of the learner's is still running"


def test_the_table_in_the_readme_is_the_table_of_the_tests():
    text = (ROOT / "grading" / "README.md").read_text()
    for fixture in FIXTURES:
        assert f"| {fixture.name} | {fixture.status} | {fixture.points} |" in text, fixture.name
    for name, status, points in OF_THE_FILE:
        assert f"| {name} | {status} | {points} |" in text, name
    assert len(FIXTURES) == len({fixture.name for fixture in FIXTURES})


def _processes():
    """Ids of all processes; where there is no /proc (macOS), none."""
    if not os.path.isdir("/proc"):
        return set()
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _gone(before):
    """Nothing that came out of this test's boxes is left."""
    return _eventually(lambda: not any(map(_is_boxed, _processes() - before)), 30)


def _is_boxed(pid):
    """A fork keeps the grading process's environment and command line, whoever its parent is."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
        with open(f"/proc/{pid}/cwd") as _:
            return False
    except IsADirectoryError:
        return b"warm_process" in command and "course-box-" in os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False


def test_learner_code_sees_neither_environment_nor_home(notebook, tiny_course, warm, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_GRADER", "42")
    body = """
        import os
        os.environ["COURSE_PROGRESS"]
        assert "A_SECRET_OF_THE_GRADER" not in os.environ
        assert "course-box" in os.path.expanduser("~") and "course-box" in os.getcwd()
        return 2 * number
    """
    answers = {1: "def double_1(number):\n" + textwrap.indent(textwrap.dedent(body), "    ")}
    row = grade_notebook(notebook(answers)[1](), tiny_course, warm=warm)[0]
    assert row.status == "passed", row.message


def test_students_are_graded_on_seeds_of_their_own(notebook, tiny_course, warm):
    """An answer that knows check()'s inputs by heart passes check(), and no grading."""
    body = "def double_1(number):\n    assert number in (1, 12), number\n    return 2 * number"
    path = notebook({1: body})[1]()
    saw = {
        grade_notebook(path, tiny_course, student=name, warm=warm)[0].message
        for name in ("ann", "ben", "ann")
    }
    assert len(saw) == 2 and all("AssertionError" in message for message in saw)


def test_an_older_version_of_the_course(notebook, tiny_course, warm):
    """Another setup cell, no ids, an exercise that came later, one that is no more."""
    cells, save = notebook(solved=True)
    cells[0]["source"] = "from grading import check, hint, predict\nimport math"
    for cell in cells:
        del cell["id"]
    for role in ("exercise", "check"):
        del cells[place(cells, 3, role)]
    cells.append(code_cell("def old(x):\n    return x", "exercise", "90.99"))
    cells.append(code_cell("check('90.99', old)", "check", "90.99"))
    rows = grade_notebook(save(), tiny_course, warm=warm)
    assert {row.id for row in rows if row.status != "passed"} == {"90.3"}
    assert len(rows) == tiny_checks.COUNT
    assert rows[2].status == "not_attempted" and "missing" in rows[2].message


def test_a_notebook_without_any_metadata(notebook, tiny_course, warm):
    cells, save = notebook(solved=True)
    for cell in cells:
        cell["metadata"] = {}
        cell.pop("id")
    path = save("my homework.ipynb")
    assert which_notebook(path, tiny_course) == "90__tiny"
    assert {row.status for row in grade_notebook(path, tiny_course, warm=warm)} == {"passed"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: whole["cells"][1].update(outputs=7, source={"a": 1}, metadata=[]),
        lambda whole: whole["cells"][1].update(outputs=[None, 3], source=["x = 1\n", 2]),
        lambda whole: whole["cells"][1]["metadata"].update(exercise_id=["90.1"], tags="exercise"),
        lambda whole: whole["cells"].insert(1, None),
        lambda whole: whole.update(metadata=None, nbformat="four"),
    ],
)
def test_a_notebook_with_odd_parts_is_graded_for_the_rest(notebook, tiny_course, warm, spoil):
    path = notebook(solved=True)[1]()
    whole = json.loads(path.read_text())
    spoil(whole)
    path.write_text(json.dumps(whole), encoding="utf-8-sig")
    rows = grade_notebook(path, tiny_course, warm=warm)
    assert {row.status for row in rows[1:]} == {"passed"}
    assert len(rows) == tiny_checks.COUNT


@pytest.mark.skipif(os.name != "posix", reason="interrupts are POSIX")
def test_where_no_process_can_be_forked(notebook, tiny_course, monkeypatch):
    """macOS and Windows: kernels start cold, and the process that stands ready judges."""
    monkeypatch.setenv("COURSE_COLD", "1")
    answers = {1: f"def double_1(number):\n{RIGHT}", 2: "def double_2(n):\n    return n * n",
               3: "import os; os._exit(3)", 4: f"def double_4(number):\n{RIGHT}"}  # fmt: skip
    rows = grade_notebook(notebook(answers)[1](), tiny_course)
    assert [row.status for row in rows[:5]] == [
        "passed", "wrong", "died", "passed", "not_attempted"
    ]  # fmt: skip
    assert rows[1].misconception == "squared"


PATCHES = """
import torch, tinymodels.parts, kernels
torch.allclose = torch.equal = lambda *a, **k: True
torch.testing.assert_close = lambda *a, **k: None
torch.Tensor.isclose = lambda self, *a, **k: self == self
tinymodels.parts.reference_attention = lambda query, *a, **k: query
torch.manual_seed(0)
"""


@pytest.mark.parametrize("solved", [True, False])
def test_patched_torch_and_tinymodels_change_no_verdict(tmp_path, solved):
    part = "solution" if solved else "text"
    path = Path(write_notebook(tmp_path / "01__attention.ipynb", part))
    whole = json.loads(path.read_text())
    for cell in whole["cells"]:
        if not solved and cell["metadata"].get("exercise_id") in ("01.1", "01.4"):
            cell["source"] = cell["source"].replace("...", "return torch.zeros(1)")
    equal = "" if solved else "torch.Tensor.__eq__ = lambda self, other: True\n"
    whole["cells"].insert(1, code_cell(PATCHES + equal))
    path.write_text(json.dumps(whole))
    rows = {row.id: row for row in grade_notebook(path)}
    if solved:
        assert {row.status for row in rows.values()} <= {"passed", "unavailable"}
    else:
        assert (rows["01.1"].status, rows["01.1"].earned) == ("wrong", 0), rows["01.1"]
        assert (rows["01.4"].status, rows["01.4"].earned) == ("wrong", 0), rows["01.4"]
        assert rows["01.2"].status == "not_attempted"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', '{"nbformat": 3}'])
def test_a_file_that_is_no_notebook(tmp_path, tiny_course, text):
    path = tmp_path / "90__tiny.ipynb"
    path.write_text(text)
    rows = grade_notebook(path, tiny_course)
    assert len(rows) == tiny_checks.COUNT
    assert {row.status for row in rows} == {"error"}
    assert all("not a notebook" in row.message for row in rows)


def test_a_notebook_of_an_old_format_says_what_to_do(tmp_path, tiny_course, warm):
    path = tmp_path / "90__tiny.ipynb"
    path.write_text('{"nbformat": 3, "worksheets": [{"cells": []}]}')
    rows = grade_notebook(path, tiny_course, warm=warm)
    assert {row.status for row in rows} == {"error"} and "save it in JupyterLab" in rows[0].message


def test_what_lies_beside_a_notebook_goes_with_it(notebook, tiny_course, warm, tmp_path):
    """A module and data; but nothing that is large, hidden, linked, or takes a module's place."""
    answers = {
        1: "from my_own import twice\ndef double_1(number):\n    return twice(number)",
        2: "def double_2(number):\n    return int(open('factor.txt').read()) * number",
        3: "import os\nhere = ' '.join(sorted(os.listdir()))\n"
           "def double_3(number):\n    raise ValueError(here)",
        4: "import os\nos._exit(1)",
        5: "import my_own\ndef double_5(number):\n    return my_own.twice(number)",
    }  # fmt: skip
    path = notebook(answers)[1]("class/ann/90__tiny.ipynb")
    (path.parent / "my_own.py").write_text("def twice(number):\n    return 2 * number")
    (path.parent / "factor.txt").write_text("2")
    (path.parent / "large.txt").write_text("x" * 2_000_000)
    (path.parent / "folder").mkdir()
    (path.parent / "link.txt").symlink_to(tmp_path / "class")
    for name in (".hidden", "json.py", "grading.py", "numpy.py", "other.ipynb"):
        (path.parent / name).write_text("x = 1")
    rows = grade_notebook(path, tiny_course, warm=warm)
    assert [row.status for row in rows[:2]] == ["passed", "passed"], rows[0].message
    assert "ValueError: __pycache__ factor.txt my_own.py in" in rows[2].message
    assert rows[3].status == "died" and rows[4].status == "passed"
    (path.parent / "my_own.py").write_text("def twice(number):\n    return number")
    assert grade_notebook(path, tiny_course, warm=warm)[0].status == "wrong"


def test_a_renamed_notebook_is_known_by_its_exercises(notebook, tiny_course, tmp_path):
    path = notebook()[1]("homework (final) 2.ipynb")
    assert which_notebook(path, tiny_course) == "90__tiny"
    other = tmp_path / "other.ipynb"
    other.write_text(json.dumps({"cells": [code_cell("1 + 1")]}))
    assert which_notebook(other, tiny_course) is None
    with pytest.raises(ValueError, match="not an exercise notebook"):
        grade_notebook(other, tiny_course)


def test_hints_that_were_opened_are_reported(notebook, tiny_course):
    cells, save = notebook()
    cells[1]["outputs"] = [
        {"output_type": "execute_result", "data": {"text/plain": ["90.1, hint 2 of 2: number"]}}
    ]
    rows = grade_notebook(save(), tiny_course)
    assert [row.hint_used for row in rows[:2]] == [2, 0]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
def test_a_killed_grader_takes_its_kernel_with_it(notebook, tiny_course):
    path = notebook({1: "while True: pass"})[1]()
    code = (
        "import sys; from pathlib import Path; from grading.course_notebook import Course;"
        "from grading.runner import grade_notebook;"
        "grade_notebook(Path(sys.argv[1]), Course(Path(sys.argv[2]),"
        "'tests.grading.tiny_checks'), cell_seconds=600)"
    )
    command = [sys.executable, "-c", code, str(path), str(tiny_course.sources)]
    before = _processes()
    grader = subprocess.Popen(command, cwd=ROOT)
    try:
        assert _eventually(lambda: _children(grader.pid)), "no kernel was started"
        kernel = _children(grader.pid)[0]
        time.sleep(3)
    finally:
        grader.kill()
        grader.wait()
    assert _eventually(lambda: not Path(f"/proc/{kernel}").exists()), "the kernel lives on"
    assert _gone(before), "a kernel lives on"


def _children(parent):
    found = []
    for pid in _processes():
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        if f"PPid:\t{parent}\n" in status:
            found.append(pid)
    return found


def _eventually(happens, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if happens():
            return True
        time.sleep(0.2)
    return False
