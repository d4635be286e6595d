"""Each rule for text and files finds its fault in a notebook that is otherwise clean."""

import nbformat
import pytest
from lint_pages import OPENING, STEM, code, found, lesson, stdout

from tools.page import Page
from tools.rules import files, outputs, text


@pytest.mark.parametrize(
    "opening, words",
    [
        ("Halves\n\n5 minutes. Objectives:\n- halve", "# title"),
        ("# Halves\n\nObjectives:\n- halve", "how long"),
        ("# Halves\n\n5 minutes.\n- halve", "objectives"),
        ("# Halves\n\n5 minutes. Objectives: none", "0 objectives"),
        ("# Halves\n\n5 minutes.\n\n## Objectives\n" + "- halve\n" * 7, "7 objectives"),
    ],
)
def test_lesson_opens(opening, words):
    page = lesson(code("x = 1"), opening=nbformat.v4.new_markdown_cell(opening))
    (message,) = found(page, text.lesson_opens)
    assert words in message


def test_objectives_end_with_their_section():
    opening = "# Halves\n\n45-90 min\n\n## Objectives\n\n1. halve\n\n## Plan\n\n" + "- x\n" * 9
    page = lesson(code("x = 1"), opening=nbformat.v4.new_markdown_cell(opening))
    assert found(page, text.lesson_opens) == []


def test_lines_and_cells_are_short():
    rule = text.cells_are_short
    assert found(lesson(code("x" * 88)), outputs.stored_outputs)
    (message,) = found(lesson(code("x = '" + "x" * 84 + "'")), rule)
    assert "90 columns" in message
    long = "\n".join(["x = 1"] * 26)
    two = [code(long), code(long, count=2)]
    assert found(lesson(*two), rule) == []
    three = found(lesson(*two, code(long, count=3)), rule)
    assert len(three) == 3 and "26 lines" in three[0]
    fits = "\n".join(["x = 1"] * 25)
    assert found(lesson(*two, code(fits, count=3)), rule) == []


def test_words_between_code():
    cells = [code("x = 1", count=n) for n in range(1, 6)]
    assert found(lesson(*cells[:3]), text.words_between_code) == []
    (message,) = found(lesson(*cells), text.words_between_code)
    assert "4th" in message


@pytest.mark.parametrize("path", ["/home/ada/x", "/tmp/a", "C:\\Users", "/work/x", "/root/.x"])
def test_no_absolute_paths(path):
    rule = text.no_absolute_paths
    assert found(lesson(code(f"open({path!r})".replace("\\\\", "\\"))), rule)
    assert found(lesson(code("f()", stdout(f"read {path}\n"))), rule)
    assert found(lesson(nbformat.v4.new_markdown_cell(f"see {path}")), rule)


@pytest.mark.parametrize("words", ["and/or", "https://x.org/home/ada", "../data/x", "a/tmp/b"])
def test_relative_paths_and_links_are_no_absolute_paths(words):
    page = lesson(nbformat.v4.new_markdown_cell(words))
    assert found(page, text.no_absolute_paths) == []


def test_links_resolve(course):
    (course / "exercises" / f"{STEM}.ipynb").write_text(
        nbformat.writes(nbformat.v4.new_notebook(cells=[OPENING]))
    )
    (course / "README.md").write_text("# A course\n## Two *words*\n")
    good = (
        f"[e](../exercises/{STEM}.ipynb) [h](../exercises/{STEM}.ipynb#Halves) [r](../README.md)"
        "[s](../README.md#Two-words) [up](#Halves) [web](https://example.org/x) ![p](../README.md)"
        ' `[code](nowhere)` <a href="../README.md">r</a>\n```\n[code](nowhere)\n```\n'
    )
    assert found(lesson(nbformat.v4.new_markdown_cell(good), root=course), text.links_resolve) == []
    for bad in ("98.ipynb", "#Thirds", "../README.md#Thirds", f"../exercises/{STEM}.ipynb#x"):
        page = lesson(nbformat.v4.new_markdown_cell(f"[x]({bad})"), root=course)
        assert bad in found(page, text.links_resolve)[0]
    page = lesson(nbformat.v4.new_markdown_cell('<a href="98.ipynb">x</a>'), root=course)
    assert len(found(page, text.links_resolve)) == 1


@pytest.mark.parametrize("change, rule, words", [
    (lambda nb: nb.cells[1].update(id=nb.cells[0].id), files.unique_ids, "of an earlier cell"),
    (lambda nb: nb.cells[1].pop("id"), files.unique_ids, "no cell id"),
    (lambda nb: nb.metadata.kernelspec.update(name="venv"), files.plain_metadata, "kernelspec"),
    (lambda nb: nb.metadata.language_info.update(version="3"), files.plain_metadata, "version"),
    (lambda nb: nb.metadata.update(authors=[]), files.plain_metadata, "authors"),
    (lambda nb: nb.cells[1].metadata.update(execution={}), files.plain_metadata, "times"),
])  # fmt: skip
def test_files(change, rule, words):
    page = lesson(code("x = 1"))
    change(page.notebook)
    (message,) = found(page, rule)
    assert words in message


@pytest.mark.parametrize("end", ["", "\n\n"])
def test_ends_in_one_newline(end):
    page = lesson(code("x = 1"))
    page = Page(page.path, page.text.rstrip("\n") + end, page.notebook)
    assert len(found(page, files.ends_in_newline)) == 1
