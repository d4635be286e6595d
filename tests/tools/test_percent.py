"""Percent sources: what is read, what is refused, ids that stay."""

import jupytext
import pytest

from tools import percent

FORMAT = {"extension": ".py", "format_name": "percent"}


def parse(tmp_path, text):
    return percent.parse(text, tmp_path / "probe.py")


def test_cells_are_those_of_jupytext(course):
    path = course / "sources/exercises/97__halves.py"
    cells = percent.read(path).cells
    theirs = jupytext.read(path).cells
    assert [(c.kind, c.text) for c in cells] == [(c.cell_type, c.source) for c in theirs]
    assert cells[3].metadata == {"exercise_id": "97.1", "points": 3, "tags": ["exercise"]}


def test_check_cells_are_locked(course):
    check = percent.read(course / "sources/exercises/97__halves.py").cells[4]
    assert check.metadata["editable"] is False and check.metadata["deletable"] is False


def test_each_cell_knows_its_line_and_its_text(course):
    path = course / "sources/lessons/97__halves.py"
    source = percent.read(path)
    lines = path.read_text().splitlines()
    assert all(lines[cell.line - 1].startswith("# %%") for cell in source.cells)
    assert source.head + "".join(cell.raw for cell in source.cells) == path.read_text()


def test_front_matter_is_kept(tmp_path):
    head = "# ---\n# jupyter:\n#   kernelspec:\n#     name: python3\n# ---\n\n"
    source = parse(tmp_path, head + "# %%\n1\n")
    assert source.head == head
    assert [cell.text for cell in source.cells] == ["1"]


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("x = 1\n", "first cell"),
        ("x = 1\n# %%\ny = 2\n", "first cell"),
        ("", "first cell"),
        ('# %% tag=["exercise"]\nx = 1\n', "unknown cell metadata tag"),
        ("# %% A title\nx = 1\n", "unknown cell metadata"),
        ('# %%\nx = """\n# %% not a cell\n"""\n', "inside a string"),
    ],
)
def test_bad_sources_are_named(tmp_path, text, complaint):
    with pytest.raises(ValueError, match=complaint) as error:
        parse(tmp_path, text)
    assert "probe.py" in str(error.value)


@pytest.mark.parametrize(
    "cell",
    [
        percent.Cell("code", "x = 1\ny = 2", {"tags": ["nbval-ignore-output"]}),
        percent.Cell("code", "%matplotlib inline\nx = 1"),
        percent.Cell("code", "def f():\n    return 1\n\n\nclass C:\n    pass"),
        percent.Cell("markdown", "# Title\n\n```python\n# %% no cell\n```\n\n- item"),
        percent.Cell("markdown", "words", {"tags": ["predict"], "exercise_id": "97.2"}),
        percent.Cell(
            "code",
            'check("97.1", f)',
            {
                "exercise_id": "97.1",
                "tags": ["check"],
                "editable": False,
                "deletable": False,
            },
        ),
    ],
    ids=lambda cell: cell.text[:12],
)
def test_a_written_cell_reads_the_same(tmp_path, cell):
    text = percent.write_cell(cell)
    (again,) = parse(tmp_path, text).cells
    assert again.content == cell.content
    assert "jupytext" not in text


def test_ids_stay_when_another_cell_changes(tmp_path):
    before = parse(tmp_path, "# %%\na = 1\n\n# %%\nb = 2\n\n# %%\nc = 3\n").cells
    after = parse(tmp_path, "# %%\na = 1\n\n# %%\nnew\n\n# %%\nb = 5\n\n# %%\nc = 3\n").cells
    old, new = percent.cell_ids(before), percent.cell_ids(after)
    assert old[0] == new[0] and old[2] == new[3]
    assert old[1] not in new


def test_ids_differ_for_equal_cells_and_for_other_kinds(tmp_path):
    cells = parse(tmp_path, "# %%\nx\n\n# %%\nx\n\n# %% [markdown]\n# x\n").cells
    ids = percent.cell_ids(cells)
    assert len(set(ids)) == 3
    assert ids[1] == ids[0] + "-2"


def test_exercise_ids_do_not_depend_on_the_text(course):
    cells = percent.read(course / "sources/exercises/97__halves.py").cells
    assert percent.cell_ids(cells)[3:] == ["exercise-97-1", "check-97-1"]
