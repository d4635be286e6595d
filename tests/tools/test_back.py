"""The way back: edits reach the source, solutions stay, unclear edits are refused."""

import nbformat
import pytest

from tools.__main__ import main
from tools.build import targets
from tools.stale import stale

STEM = "97__halves"


def edit(root, folder, change):
    path = root / folder / f"{STEM}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)
    return main(["--root", str(root), "back", str(path)])


def source(root, kind):
    return (root / "sources" / kind / f"{STEM}.py").read_text()


def test_nothing_edited_changes_nothing(built, capsys):
    for folder, kind in (("notebooks", "lessons"), ("exercises", "exercises")):
        before = source(built, kind)
        assert edit(built, folder, lambda nb: None) == 0
        assert source(built, kind) == before
    assert capsys.readouterr().out.count("nothing to bring back") == 2


def test_an_edit_touches_its_cell_only(built):
    before = source(built, "lessons")
    text = "print(halve(11))\nprint(halve(13))"
    assert edit(built, "notebooks", lambda nb: nb.cells[3].update(source=text)) == 0
    assert source(built, "lessons") == before.replace("print(halve(7))", text)


def test_cells_that_were_not_edited_keep_their_odd_spacing(built):
    path = built / "sources/lessons" / f"{STEM}.py"
    odd = path.read_text().replace("# %%\ndef", "\n\n# %%  \ndef").replace("2\n\n# %%", "2\n# %%")
    path.write_text(odd + "\n\n")
    assert edit(built, "notebooks", lambda nb: None) == 0
    assert path.read_text() == odd + "\n\n"
    assert edit(built, "notebooks", lambda nb: nb.cells[3].update(source="halve(5)")) == 0
    assert path.read_text() == odd.replace("print(halve(7))", "halve(5)")


def test_new_moved_and_removed_cells(built):
    def rearrange(notebook):
        notebook.cells[2].source = "## Sixths\n\n`x` as text"
        notebook.cells.insert(4, nbformat.v4.new_code_cell("halve(1)", metadata={"x": 1}))
        notebook.cells.append(nbformat.v4.new_code_cell(""))
        notebook.cells.pop(1)

    assert edit(built, "notebooks", rearrange) == 0
    text = source(built, "lessons")
    assert "# ## Sixths\n#\n# `x` as text\n" in text
    assert "def halve" not in text
    assert text.count("# %%\n") == 2 and text.endswith("print(time.perf_counter())\n")
    (lesson,) = (t for t in targets(built) if t.folder == "notebooks")
    notebook = nbformat.read(lesson.path, as_version=4)
    notebook.cells.pop()  # the empty cell that JupyterLab leaves
    nbformat.write(notebook, lesson.path)
    assert not [p for p in stale(lesson) if "id" not in p.message]


def test_an_exercise_keeps_its_solution(built):
    def reword(notebook):
        notebook.cells[2].source += "\n\nNo rounding."
        cell = notebook.cells[3]
        cell.source = cell.source.replace("exactly.", "as a fraction.")

    before = source(built, "exercises")
    assert edit(built, "exercises", reword) == 0
    expected = before.replace("exactly.", "as a fraction.")
    expected = expected.replace("5 minutes\n", "5 minutes\n#\n# No rounding.\n")
    assert source(built, "exercises") == expected


@pytest.mark.parametrize(
    "change, words",
    [
        (
            lambda nb: nb.cells[3].update(source="def halve(number):\n    return 1"),
            "exercise 97.1 has no '...'",
        ),
        (lambda nb: nb.cells.pop(3), "0 cells are exercise 97.1"),
        (lambda nb: nb.cells.append(nb.cells[3]), "2 cells are exercise 97.1"),
        (lambda nb: nb.cells.pop(4), "check of exercise 97.1 is gone"),
        (lambda nb: nb.cells[3].metadata.update(exercise_id="97.2"), "exercise 97.1"),
        (lambda nb: nb.cells.append(nbformat.v4.new_raw_cell("x")), "raw cell"),
    ],
    ids=["filled in", "deleted", "copied", "no check", "renamed", "raw"],
)
def test_what_cannot_be_placed_is_refused(built, capsys, change, words):
    before = source(built, "exercises")
    assert edit(built, "exercises", change) == 2
    out, err = capsys.readouterr()
    assert words in err and out == ""
    assert source(built, "exercises") == before


def test_solution_notebooks_have_no_way_back(built, capsys):
    assert main(["--root", str(built), "back", str(built / f"solutions/{STEM}.ipynb")]) == 2
    assert "no way back" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["notebooks/98.ipynb", "README.md", "sources/lessons/x.ipynb"])
def test_other_paths_are_refused(built, capsys, name):
    assert main(["--root", str(built), "back", str(built / name)]) == 2
    assert name in capsys.readouterr().err
