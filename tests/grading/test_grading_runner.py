"""Notebooks that misbehave, in one table: what a learner did -> status, points, message."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from grading.course_notebook import ROOT
from grading.runner import grade_notebook, which_notebook
from tests.grading import tiny_checks
from tests.grading.conftest import code_cell

RIGHT = "    return 2 * number"

# What stands in the body of double_N -> the status it must get, and words of the message.
IN_THE_FUNCTION = {
    "a loop without end": ("    while True: pass", "timeout", "never ends"),
    "a loop that swallows interrupts": (
        "    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass",
        "timeout", "no answer after",
    ),
    "right": (RIGHT, "passed", ""),
    "a named mistake": ("    return number ** 2", "wrong", "This is the square."),
    "os._exit": ("    import os; os._exit(3)", "died", "exit code 3"),
    "a segfault": ("    import ctypes; ctypes.string_at(0)", "died", "SIGSEGV"),
    "sys.exit": ("    import sys; sys.exit(1)", "error", "SystemExit"),
    "an exception": ("    return number / 0", "error", "ZeroDivisionError"),
    "12 GB": ("    return len(bytearray(12 * 2**30))", "error", "MemoryError"),
    "a flood of output": ("    print('x' * 30_000_000)\n" + RIGHT, "passed", ""),
    "input()": ("    return input()", "error", "StdinNotImplementedError"),
    "an object that equals everything": (
        "    class Yes:\n        def __eq__(self, other): return True\n    return Yes()",
        "wrong", "type Yes came back",
    ),
    "a faked reply": (
        "    print('{\"token\": \"x\", \"results\": {}}', 'passed')\n    return 0",
        "wrong", "is expected",
    ),
    "a child left behind": (
        "    import os, time\n    if os.fork() == 0:\n        time.sleep(600); os._exit(0)\n"
        + RIGHT, "passed", "",
    ),
    "a thread left behind": (
        "    import threading, time\n"
        "    threading.Thread(target=time.sleep, args=(600,), daemon=False).start()\n" + RIGHT,
        "passed", "",
    ),
}  # fmt: skip

# What stands in the exercise's cell in place of the function.
IN_THE_CELL = {
    "a loop in the cell": ("while True: pass", "timeout", "did not run to its end"),
    "an exit from the cell": ("import os; os._exit(1)", "died", "did not run to its end"),
    "a syntax error": ("def double_{n}(number) return 2", "error", "SyntaxError"),
    "an error below a right function": (
        "def double_{n}(number):\n" + RIGHT + "\nassert False", "passed", "",
    ),
}  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="signals and fork are POSIX")
def test_misbehaving_answers(notebook, tiny_course):
    """All of them in one notebook: none spoils another's result."""
    answers, wanted = {}, {}
    others = iter(n for n in range(1, tiny_checks.COUNT) if n not in tiny_checks.ENDLESS)
    loops = iter(tiny_checks.ENDLESS)
    for name, (body, status, words) in IN_THE_FUNCTION.items():
        n = next(loops if status == "timeout" else others)
        answers[n], wanted[n] = f"def double_{n}(number):\n{body}", (name, status, words)
    for name, (source, status, words) in IN_THE_CELL.items():
        n = next(others)
        answers[n], wanted[n] = source.replace("{n}", str(n)), (name, status, words)
    before = _processes()
    path = notebook(answers)[1]()

    rows = grade_notebook(path, tiny_course, cell_seconds=8)

    seen = {int(row.id.split(".")[1]): row for row in rows}
    for n, (name, status, words) in wanted.items():
        assert seen[n].status == status, f"{name}: {seen[n]}"
        assert words in seen[n].message, f"{name}: {seen[n].message}"
        assert seen[n].earned == (1 if status == "passed" else 0), name
    assert seen[2].misconception == "squared"
    assert seen[tiny_checks.COUNT].status == "not_attempted"
    assert _gone(before), "a process of the learner's is still running"


def _processes():
    """Ids of all processes; where there is no /proc (macOS), none."""
    if not os.path.isdir("/proc"):
        return set()
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _gone(before):
    """No boxed kernel, and no child of one, is left from this test."""
    return _eventually(lambda: not any(map(_is_boxed, _processes() - before)), 30)


def _is_boxed(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"boxed_kernel" in command and str(os.getpid()).encode() in file.read()
    except OSError:
        return False


def test_cells_that_were_moved_about(notebook, tiny_course):
    cells, save = notebook(solved=True)

    def of(n, role="exercise"):
        return next(
            i for i, c in enumerate(cells)
            if c["metadata"].get("exercise_id") == f"90.{n}" and role in c["metadata"]["tags"]
        )  # fmt: skip

    split = cells[of(1)]  # JupyterLab copies the metadata to both halves
    head, tail = split["source"].split("    return")
    split["source"] = head + "    number = number + number\n"
    cells.insert(of(1) + 1, code_cell("    return number", "exercise", "90.1", "half"))
    cells[of(2)]["cell_type"] = "markdown"
    del cells[of(3, "check")]
    cells[of(4, "check")]["source"] = "print('passed')"
    cells[of(4)]["source"] = "def double_4(number):\n    return 0"
    cells[of(5)]["source"] = "def double_5(number):\n    return times(number, 2)"
    cells.insert(of(5), code_cell("def times(a, b):\n    return a * b"))  # a helper of theirs
    cells[of(6)]["metadata"] = {}
    cells.insert(of(7) + 1, code_cell("def double_7(number):\n    return 2 * number", "exercise",
                                      "90.7", "copy"))  # fmt: skip
    cells[of(7)]["source"] = "def double_7(number):\n    return 7"
    del cells[of(8)]
    cells[of(9)]["source"] += "\ncheck('90.9', double_9)"  # merged with the check below it
    cells[0]["source"] += "\nimport math"  # an import added to the setup cell
    cells[of(10)]["source"] = "def double_10(number):\n    return math.floor(number) * 2"
    del cells[of(11)], cells[of(11, "check")]

    rows = {int(row.id.split(".")[1]): row for row in grade_notebook(save(), tiny_course)}

    passed = {1, 2, 3, 5, 6, 7, 9, 10} | set(range(12, tiny_checks.COUNT + 1))
    assert {n for n, row in rows.items() if row.status == "passed"} == passed
    assert rows[4].status == "wrong"
    assert rows[8].status == rows[11].status == "not_attempted"
    assert "joined in order" in rows[1].message and "turned into text" in rows[2].message
    assert "missing" in rows[8].message


def test_a_patched_library_and_a_lying_check(notebook, tiny_course):
    answers = {
        1: "import numpy\nnumpy.abs = lambda x: x * 0\ndef double_1(number):\n    return 99",
        2: "import grading.verdict\n"
        "grading.verdict.check = lambda *a: None\ncheck = lambda *a: 'passed'\n"
        "def double_2(number):\n    return 98",
        3: "import json\njson.dumps = lambda *a, **k: 'passed'\n"
        "def double_3(number):\n    return 97",
    }
    rows = {row.id: row for row in grade_notebook(notebook(answers)[1](), tiny_course)}
    assert all(rows[f"90.{n}"].status != "passed" for n in (1, 2, 3))
    assert all(rows[f"90.{n}"].earned == 0 for n in (1, 2, 3))


def test_learner_code_sees_neither_environment_nor_home(notebook, tiny_course, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_GRADER", "42")
    body = """
        import os
        os.environ["COURSE_PROGRESS"]
        assert "A_SECRET_OF_THE_GRADER" not in os.environ
        assert "course-box" in os.path.expanduser("~") and "course-box" in os.getcwd()
        return 2 * number
    """
    answers = {1: "def double_1(number):\n" + textwrap.indent(textwrap.dedent(body), "    ")}
    row = grade_notebook(notebook(answers)[1](), tiny_course)[0]
    assert row.status == "passed", row.message


def test_students_are_graded_on_seeds_of_their_own(notebook, tiny_course):
    """An answer that knows check()'s inputs by heart passes check(), and no grading."""
    body = "def double_1(number):\n    assert number in (1, 12), number\n    return 2 * number"
    path = notebook({1: body})[1]()
    saw = {
        grade_notebook(path, tiny_course, student=name)[0].message for name in ("ann", "ben", "ann")
    }
    assert len(saw) == 2 and all("AssertionError" in message for message in saw)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', '{"nbformat": 3}'])
def test_a_file_that_is_no_notebook(tmp_path, tiny_course, text):
    path = tmp_path / "90__tiny.ipynb"
    path.write_text(text)
    rows = grade_notebook(path, tiny_course)
    assert len(rows) == tiny_checks.COUNT
    assert {row.status for row in rows} == {"error"}
    assert all("not a notebook" in row.message for row in rows)


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
    grader = subprocess.Popen(command, cwd=ROOT)
    try:
        assert _eventually(lambda: _children(grader.pid)), "no kernel was started"
        kernel = _children(grader.pid)[0]
        time.sleep(3)
    finally:
        grader.kill()
        grader.wait()
    assert _eventually(lambda: not Path(f"/proc/{kernel}").exists()), "the kernel lives on"


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
