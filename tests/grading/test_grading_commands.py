"""python -m grading: exit codes, what is printed where, JSON and CSV; batches that go on."""

import csv
import json

import pytest

from grading import batch, report
from grading.__main__ import main
from grading.checks import EXERCISES
from grading.course_notebook import Course
from grading.runner import Row
from tests.grading import tiny_checks

STEM = "01__attention"
KEYS = {
    "notebook", "id", "title", "points", "earned", "status", "misconception", "message",
    "hint_used", "seconds",
}  # fmt: skip


def write_notebook(path, part, change=lambda source: source):
    """The course's exercise notebook as shipped (part "text") or solved."""
    cells = []
    for cell in Course().cells(STEM):
        metadata = {"exercise_id": cell.exercise_id, "tags": [cell.role]}
        source = change(getattr(cell, part))
        cells.append({"cell_type": "code", "id": cell.cell_id, "source": source, "outputs": [],
                      "metadata": metadata if cell.exercise_id else {}})  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}))
    return str(path)


def test_solution_full_marks_stub_not_attempted_and_a_named_mistake(tmp_path, capsys):
    solved = write_notebook(tmp_path / "solved" / f"{STEM}.ipynb", "solution")
    assert main(["run", solved, "--json", str(tmp_path / "solved.json")]) == 0
    rows = json.loads((tmp_path / "solved.json").read_text())
    assert [row["id"] for row in rows] == [f"01.{n}" for n in range(1, 7)]
    assert all(KEYS <= row.keys() and row["notebook"] == solved for row in rows)
    assert {row["status"] for row in rows} <= {"passed", "unavailable"}
    assert sum(row["earned"] for row in rows if not row["optional"]) == 11
    assert "11 of 11 points" in capsys.readouterr().out

    untouched = write_notebook(tmp_path / "untouched" / f"{STEM}.ipynb", "text")
    wrong = write_notebook(
        tmp_path / "wrong" / f"{STEM}.ipynb",
        "solution",
        lambda source: source.replace(" / D**0.5", "").replace("2 * layers", "layers"),
    )
    assert main([untouched, wrong, "--json", str(tmp_path / "two.json")]) == 1
    rows = json.loads((tmp_path / "two.json").read_text())
    first, second = rows[:6], {row["id"]: row for row in rows[6:]}
    assert {row["status"] for row in first} <= {"not_attempted", "unavailable"}
    assert [row["earned"] for row in first] == [0] * 6
    assert (second["01.1"]["status"], second["01.1"]["misconception"]) == ("wrong", "no_scale")
    assert second["01.4"]["misconception"] == "forgets_two"
    assert second["01.3"]["status"] == "passed"
    out = capsys.readouterr().out
    assert "without the 1/sqrt(d)" in out and "not attempted" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say what to grade, such as exercises/01__attention.ipynb"),
        (["run"], "required"),
        (["run", "nowhere.ipynb"], "no notebook nowhere.ipynb"),
        (["01"], "no notebook 01; did you mean exercises/01__attention.ipynb?"),
        (["exercises"], "a folder: name a notebook in it"),
        (["notebooks/01__attention.ipynb"], "lesson; its exercises are in exercises/01__att"),
        (["--nonsense"], "--help"),
        (["run", "{other}"], "not an exercise notebook of this course; there are 00__start_here"),
        (["run", "{stub}", "--json", "{folder}/no/such/f.json"], "cannot write"),
        (["run", "{stub}", "--json", "{folder}"], "cannot write"),
        (["run", "{stub}", "--cell-seconds", "soon"], "soon"),
        (["batch", "nowhere"], "no folder nowhere"),
        (["batch", "{folder}", "--jobs", "0"], "--jobs is 0"),
        (["batch", "{folder}/empty"], "no student folders"),
    ],
)
def test_usage_is_one_sentence_on_stderr_and_code_2(arguments, words, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    other = tmp_path / "other.ipynb"
    other.write_text('{"cells": []}')
    stub = write_notebook(tmp_path / "s" / f"{STEM}.ipynb", "text")
    arguments = [a.format(other=other, stub=stub, folder=tmp_path) for a in arguments]
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
    assert captured.err.startswith("grading: ") and words in captured.err
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(("budget", "ends"), [(900, " 900 s"), (-1, " -1 s OVER BUDGET")])
def test_an_audit_in_full_says_what_it_took(budget, ends, monkeypatch, capsys):
    from grading import audit

    assert audit.BUDGET_S == 15 * 60
    found = audit.Audit("90.1", "t", 5, (), recognised=5)
    monkeypatch.setattr(audit, "audit", lambda full: [found])
    monkeypatch.setattr(audit, "BUDGET_S", budget)
    assert main(["audit", "--full"]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "0 s of a budget of" + ends


@pytest.mark.slow
def test_the_audit_with_mutants_holds(capsys):
    assert main(["audit", "--full"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "all checks hold"
    told = [line for line in lines if "% of mutants rejected" in line or "unavailable" in line]
    assert len(told) == len(EXERCISES)
    assert any(line.startswith("      no mistake: ") and line.endswith(")") for line in lines)


def test_the_audit_says_how_many_and_which(monkeypatch, capsys):
    from grading import audit

    good = audit.Audit("90.1", "t", 9, (), killed=19, mutants=20, survivors=("line 3: 1  ->  2",),
                       recognised=9, equivalent=("line 4: 0  ->  1  (why)",))  # fmt: skip
    weak = audit.Audit("90.2", "t", 5, ("the mistake x passes",), recognised=4)
    away = audit.Audit("90.3", "t", 0, (), unavailable="no telescope")
    monkeypatch.setattr(audit, "audit", lambda full: [good, weak, away])
    assert main(["audit"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "90.1  9 of 9 named mistakes under their own name, 95 % of mutants rejected (19 of 20)",
        "      survives: line 3: 1  ->  2",
        "      no mistake: line 4: 0  ->  1  (why)",
        "90.2  4 of 5 named mistakes under their own name  FAILED",
        "      the mistake x passes",
        "90.3  unavailable: no telescope",
        "in all: 13 of 14 named mistakes, 19 of 20 mutants rejected",
        "1 exercises have checks that do not hold",
    ]


def test_status_is_printed(capsys):
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(EXERCISES) and lines[0].startswith("00.1  not attempted")


def row(**changes):
    facts = {"notebook": "n", "id": "01.1", "title": "t", "points": 3, "earned": 3,
             "status": "passed", "misconception": None, "message": "", "hint_used": 0,
             "seconds": 0.1}  # fmt: skip
    return Row(**(facts | changes))


def test_totals_leave_out_what_is_unavailable_and_optional():
    rows = [
        row(),
        row(status="unavailable", earned=0, points=2),
        row(status="passed", points=2, earned=2, optional=True),
        row(status="wrong", earned=0, points=4),
    ]
    assert report.total(rows) == (3, 7, 2)
    assert not report.all_passed(rows) and report.all_passed(rows[:3])
    undone = row(status="not_attempted", earned=0)
    assert not report.all_passed([undone])
    assert report.all_passed([row(), row(status="not_attempted", earned=0, optional=True)])
    assert not report.all_passed([row(), row(status="wrong", earned=0, optional=True)])


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "f.json"
    path.write_text("old")

    def no_disk(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(report.os, "replace", no_disk)
    with pytest.raises(OSError, match="no space"):
        report.write_json([row()], path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.fixture
def students(notebook, tmp_path):
    """Two students of the tiny course, one of them all right; and things that are no work."""
    notebook(solved=True)[1]("class/ann/90__tiny.ipynb")
    notebook({1: "def double_1(number):\n    return number ** 2"})[1]("class/ben/my try.ipynb")
    broken = tmp_path / "class" / "cyd" / "90__tiny.ipynb"
    broken.parent.mkdir()
    broken.write_text("{")
    (tmp_path / "class" / "ann" / "notes.ipynb").write_text('{"cells": []}')
    (tmp_path / "class" / ".hidden").mkdir()
    (tmp_path / "class" / "ann" / "a folder.ipynb").mkdir()
    return tmp_path / "class"


def test_a_batch_goes_on_where_it_was_stopped(students, tiny_course, monkeypatch):
    todo, strange = batch.tasks(students, tiny_course)
    assert [task.student for task in todo] == ["ann", "ben", "cyd"]
    assert len(strange) == 1 and "notes.ipynb" in strange[0]
    graded = batch.grade_folder(students, tiny_course, jobs=2)
    by_student = {name: [r for who, r in graded if who == name] for name in ("ann", "ben", "cyd")}
    assert sum(r.earned for r in by_student["ann"]) == tiny_checks.COUNT
    assert by_student["ben"][0].misconception == "squared"
    assert {r.status for r in by_student["cyd"]} == {"error"}

    asked = []
    monkeypatch.setattr(batch, "grade_notebook", lambda path, *rest: asked.append(path) or [row()])
    assert batch.grade_folder(students, tiny_course) == graded
    assert asked == [], "graded twice"

    journal = students / batch.JOURNAL  # a kill in the middle of the last line
    whole = journal.read_text().rstrip("\n")
    journal.write_text(whole[: whole.rindex("\n") + 40])
    batch.grade_folder(students, tiny_course)
    assert len(asked) == 1
    batch.grade_folder(students, tiny_course)
    assert len(asked) == 1, "what was graded after the kill is lost"
    (students / "ben" / "my try.ipynb").write_text(
        (students / "ben" / "my try.ipynb").read_text() + " "
    )
    batch.grade_folder(students, tiny_course)
    assert len(asked) == 2, "a changed notebook was not graded again"
    (students / "ben" / "helper.py").write_text("x = 1")
    batch.grade_folder(students, tiny_course)
    assert asked[2:] == [students / "ben" / "my try.ipynb"], "a changed module went unnoticed"


def test_who_handed_in_nothing_is_named(students, tiny_course):
    (students / "dee").mkdir()
    (students / "loose.ipynb").write_text((students / "ben" / "my try.ipynb").read_text())
    _, strange = batch.tasks(students, tiny_course)
    assert len(strange) == 3
    assert strange[0].endswith("loose.ipynb: not in the folder of a student")
    assert strange[2].endswith("dee: no notebook was handed in")


def test_one_notebook_that_breaks_the_grader_stays_alone(students, tiny_course, monkeypatch):
    def sometimes(path, *rest):
        if "ann" in str(path):
            raise RuntimeError("out of luck")
        return [row(notebook=str(path))]

    monkeypatch.setattr(batch, "grade_notebook", sometimes)
    graded = batch.grade_folder(students, tiny_course)
    ann = [r for name, r in graded if name == "ann"]
    assert len(ann) == tiny_checks.COUNT and {r.status for r in ann} == {"error"}
    assert "out of luck" in ann[0].message
    assert [r.status for name, r in graded if name == "ben"] == ["passed"]


def test_json_and_csv_of_a_batch():
    graded = [
        ("ann", row()),
        ("ann", row(id="01.5", earned=2, points=2, optional=True)),
        ("ann", row(id="01.6", status="unavailable", earned=0, points=2)),
        ("ben, jr", row(id="01.1", status="partly", earned=2)),
    ]
    lines = list(csv.reader(batch.as_csv(graded).splitlines()))
    assert lines == [
        ["student", "01.1", "01.5", "01.6", "earned", "points", "extra"],
        ["ann", "3", "2", "", "3", "3", "2"],
        ["ben, jr", "2", "", "", "2", "3", "0"],
    ]
    rows = json.loads(batch.as_json(graded))
    assert rows[3]["student"] == "ben, jr" and KEYS <= rows[3].keys()
