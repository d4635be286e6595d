"""Beginnings of chapters, exercises and models; copies for Colab."""

import json

import nbformat
import pytest

from grading.draw import Draw
from tools import build, elsewhere, percent, solutions
from tools.__main__ import main

STEM = "97__halves"


def run(course, *words):
    return main(["--root", str(course), "new", *words])


def test_a_chapter_begins_and_its_sources_can_be_built(course, capsys):
    assert run(course, "chapter", "98__thirds", "Thirds") == 0
    assert "98__thirds" in capsys.readouterr().out
    for target in build.targets(course, ("98__thirds",)):
        notebook = build.unexecuted(target)
        assert notebook.cells[0].source.splitlines()[0] in (
            "# 98 · Thirds",
            "# Exercises 98: thirds",
        )


def test_an_exercise_is_added_and_is_one(course, capsys):
    before = (course / "sources" / "exercises" / f"{STEM}.py").read_text()
    assert run(course, "exercise", "97.2", "Double it, twice") == 0
    after = (course / "sources" / "exercises" / f"{STEM}.py").read_text()
    assert after.startswith(before.rstrip("\n"))
    source = percent.read(course / "sources" / "exercises" / f"{STEM}.py")
    solutions.check_regions(source)
    (cell,) = (
        c
        for c in source.cells
        if c.metadata.get("exercise_id") == "97.2" and "exercise" in c.metadata["tags"]
    )
    assert "def double_it_twice" in cell.text
    assert "2 * number" not in solutions.cut(cell).text
    assert "test_grading_exercises.py -k 97.2" in capsys.readouterr().out
    checks = course / "grading" / "checks"
    assert "EXERCISES = (DOUBLE_IT_TWICE,)" in (checks / "ch97.py").read_text()
    found = {}
    exec(compile((checks / "ch97_double_it_twice.py").read_text(), "check", "exec"), found)
    made = found["DOUBLE_IT_TWICE"]
    assert (made.id, made.notebook, made.points) == ("97.2", STEM, 2)
    for inputs in (case.inputs for case in made.cases(Draw(3))):
        assert made.expected(inputs)["output"].value == 2 * inputs["number"]
        assert made.run(lambda number: 2 * number, inputs)["output"] == 2 * inputs["number"]
    assert run(course, "exercise", "97.3", "Double it thrice") == 0
    assert "import DOUBLE_IT_THRICE in grading/checks/ch97.py" in capsys.readouterr().out


def test_a_model_is_taken_in_and_what_is_missing_is_said(course, tmp_path, capsys):
    (course / "tests" / "configs").mkdir(parents=True)
    config = {
        "model_type": "llama",
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "hidden_size": 60,
        "head_dim": 10,
    }
    file = tmp_path / "llama-tiny.json"
    file.write_text(json.dumps(config))
    assert run(course, "model", str(file)) == 0
    assert "--explain` reads it" in capsys.readouterr().out
    assert (course / "tests" / "configs" / "llama-tiny.json").exists()
    unknown = tmp_path / "new-kind.json"
    unknown.write_text(json.dumps({**config, "model_type": "nobody_knows"}))
    assert run(course, "model", str(unknown)) == 0
    assert "no reader yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, said",
    [
        (("chapter", "thirds", "Thirds"), "no stem"),
        (("chapter", "97__other", "Other"), "chapter 97 is there"),
        (("exercise", "97", "Halves"), "no exercise id"),
        (("exercise", "97.1", "Halves"), "97.1 is there"),
        (("exercise", "96.1", "Halves"), "chapter 96 has no"),
        (("model", "nowhere.json"), "no such file"),
    ],
)
def test_what_cannot_begin_is_refused_in_a_sentence(course, capsys, words, said):
    before = {path: path.read_text() for path in course.rglob("*.py")}
    assert run(course, *words) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1
    assert before == {path: path.read_text() for path in course.rglob("*.py")}


def test_copies_for_colab_begin_with_the_cell_and_leave_the_notebooks_alone(built, tmp_path):
    before = {path: path.read_bytes() for path in built.rglob("*.ipynb")}
    made = elsewhere.write_copies(built, "https://example.org/course.git", tmp_path / "colab")
    assert [path.parent.name for path in made] == ["notebooks", "exercises"]
    for path in made:
        notebook = nbformat.read(path, 4)
        nbformat.validate(notebook)
        first, *rest = notebook.cells
        compile(first.source, "first", "exec")
        assert "https://example.org/course.git" in first.source
        assert f"/content/course/{path.parent.name}" in first.source
        original = nbformat.read(built / path.parent.name / path.name, 4)
        assert [cell.source for cell in rest] == [cell.source for cell in original.cells]
        assert not any(cell.get("outputs") for cell in rest)
    assert before == {path: path.read_bytes() for path in built.rglob("*.ipynb")}
    with pytest.raises(ValueError, match="no address"):
        elsewhere.write_copies(built, "course.git", tmp_path / "other")
