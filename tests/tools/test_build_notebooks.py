"""Building: what comes out, byte-equal twice, what is left alone, what a failure leaves behind."""

import json
import shutil

import nbformat
import pytest

from tools import build as building
from tools.__main__ import main
from tools.execute import KERNELSPEC, WIDGET_VIEW, CellFailed, execute, normalise

STEM = "97__halves"


def read(root, folder):
    return nbformat.read(root / folder / f"{STEM}.ipynb", as_version=4)


def sources(notebook):
    return "\n".join(cell.source for cell in notebook.cells)


def target(root, folder):
    return building.Target(root, folder, STEM)


def test_lesson_is_executed_and_keeps_its_outputs(built):
    cells = read(built, "notebooks").cells
    assert [cell.get("execution_count") for cell in cells] == [None, 1, None, 2, 3]
    assert cells[3].outputs[0].text == "3.5\n"


def test_exercise_has_no_solution_and_no_output(built):
    notebook = read(built, "exercises")
    assert "denominator_of_half" not in sources(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    assert notebook.cells[3].source.splitlines()[-1] == "    ..."
    assert notebook.cells[4].metadata.deletable is False


def test_solution_is_solved_and_executed(built):
    notebook = read(built, "solutions")
    assert "denominator_of_half" in sources(notebook)
    assert notebook.cells[4].outputs[0].text == "7/2\n"


def test_two_builds_are_byte_equal(built):
    # The lesson's last cell prints the time: without it nothing may differ.
    path = built / "sources/lessons" / f"{STEM}.py"
    path.write_text(path.read_text().replace("print(time.perf_counter())", "print('done')"))
    texts = []
    for _ in range(2):
        shutil.rmtree(built / "notebooks")
        assert main(["--root", str(built), "build", "--force", STEM]) == 0
        texts.append([path.read_bytes() for path in building.built(built)])
    assert len(texts[0]) == 3 and texts[0] == texts[1]


def test_only_what_is_stale_is_built(built, capsys):
    path = built / "sources/lessons" / f"{STEM}.py"
    path.write_text(path.read_text().replace("halve(7)", "halve(9)"))
    assert main(["--root", str(built), "build"]) == 0
    said = capsys.readouterr().out
    assert f"notebooks/{STEM}.ipynb: built" in said and "CPU s" in said
    assert said.count("up to date") == 2
    assert read(built, "notebooks").cells[3].outputs[0].text == "4.5\n"


def test_a_stripped_lesson_is_built_again(built, capsys):
    path = built / "notebooks" / f"{STEM}.ipynb"
    notebook = read(built, "notebooks")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, []
    nbformat.write(notebook, path)
    assert main(["--root", str(built), "build"]) == 0
    assert f"notebooks/{STEM}.ipynb: built" in capsys.readouterr().out


def test_answers_are_kept_before_an_exercise_is_replaced(built):
    path = built / "exercises" / f"{STEM}.ipynb"
    answered = path.read_text().replace('    ..."', '    return Fraction(number, 3)"')
    assert answered != path.read_text()
    path.write_text(answered)
    assert main(["--root", str(built), "build"]) == 0
    (kept,) = (built / "backups").iterdir()
    assert kept.read_text() == answered
    assert "Fraction(number, 3)" not in path.read_text()


def test_a_failing_cell_is_named_and_nothing_is_written(built, capsys):
    path = built / "sources/lessons" / f"{STEM}.py"
    path.write_text(path.read_text().replace("print(halve(7))", "print(halve('seven'))"))
    before = (built / "notebooks" / f"{STEM}.ipynb").read_bytes()
    assert main(["--root", str(built), "build"]) == 1
    said = capsys.readouterr().err
    assert "cell 3" in said and "TypeError" in said and "halve('seven')" in said
    assert (built / "notebooks" / f"{STEM}.ipynb").read_bytes() == before
    assert [path.name for path in (built / "notebooks").iterdir()] == [f"{STEM}.ipynb"]


def test_a_slow_notebook_is_over_its_budget(built, monkeypatch, capsys):
    monkeypatch.setitem(building.CPU_BUDGET, "notebooks", 0.01)
    assert main(["--root", str(built), "time", STEM]) == 1
    said = capsys.readouterr().out
    assert f"notebooks/{STEM}.ipynb" in said and "too slow" in said
    assert said.count("too slow") == 1


@pytest.mark.parametrize("seconds, over", [(29.9, False), (30.1, True), (float("nan"), False)])
def test_budget_of_a_lesson(tmp_path, seconds, over):
    sentence = building.over_budget(target(tmp_path, "notebooks"), seconds)
    assert bool(sentence) is over
    if over:
        assert "30.1" in sentence and "30" in sentence


def test_an_unknown_stem_names_those_there_are(course, capsys):
    assert main(["--root", str(course), "build", "98__thirds"]) == 2
    out, err = capsys.readouterr()
    assert "98__thirds" in err and STEM in err and out == ""


def test_a_bad_source_is_named(course, capsys):
    (course / "sources/exercises" / f"{STEM}.py").write_text("# %% tag=1\nx\n")
    assert main(["--root", str(course), "build"]) == 2
    assert f"{STEM}.py:1" in capsys.readouterr().err


def test_normalise_takes_out_what_is_of_one_run():
    cell = nbformat.v4.new_code_cell("x", metadata={"execution": {"a": "1"}, "tags": ["t"]})
    view = {WIDGET_VIEW: {"model_id": "1"}}
    cell.outputs = [
        nbformat.v4.new_output("display_data", view | {"text/plain": "Slider"}),
        nbformat.v4.new_output("display_data", dict(view)),
        nbformat.v4.new_output("stream", name="stdout", text="kept"),
    ]
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {"state": {}}})
    notebook.metadata["language_info"] = {"name": "python", "version": "3.11.2"}
    normalise(notebook)
    assert "3.11" not in json.dumps(notebook) and "model_id" not in json.dumps(notebook)
    assert "widgets" not in notebook.metadata and dict(notebook.metadata.kernelspec) == KERNELSPEC
    assert cell.metadata == {"tags": ["t"]}
    assert len(cell.outputs) == 2 and cell.outputs[1].text == "kept"


def test_a_dead_kernel_is_a_sentence(course, capsys):
    path = course / "sources/lessons" / f"{STEM}.py"
    path.write_text("# %% [markdown]\n# # Dead\n\n# %%\nimport os\n\nos._exit(3)\n")
    assert main(["--root", str(course), "build"]) == 1
    said = capsys.readouterr().err
    assert "kernel died" in said and "cell 1" in said


def test_a_cell_that_runs_too_long_is_named(course):
    path = course / "sources/lessons" / f"{STEM}.py"
    path.write_text("# %%\n1\n\n# %%\nwhile True:\n    pass\n")
    notebook = building.unexecuted(target(course, "notebooks"))
    with pytest.raises(CellFailed, match="^cell 1 .*timed out"):
        execute(notebook, course, cell_timeout=2)


def test_cell_failed_is_not_a_usage_error():
    assert not issubclass(CellFailed, (ValueError, OSError))
