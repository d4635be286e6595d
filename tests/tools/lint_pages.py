"""Notebook pages for the tests of the lints: clean ones, to be broken in one place."""

import base64
from pathlib import Path

import nbformat

from tools import lint
from tools.page import Page
from tools.rules import files

STEM = "97__halves"
ALT = "The halves of one to nine, a straight line."
PNG = base64.b64encode(b"\x89PNG pixels").decode()


def output(kind="display_data", **parts):
    return nbformat.v4.new_output(kind, **parts)


def picture(**changes):
    """The bundle that the lint's docstring asks for."""
    data = {
        "text/html": f'<img alt="{ALT}" src="data:image/png;base64,{PNG}">',
        "image/png": PNG,
        "text/plain": ALT,
    } | changes
    return output(data={kind: value for kind, value in data.items() if value is not None})


def code(source, *outs, count=1, tags=()):
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {})
    cell.outputs, cell.execution_count = list(outs), count
    return cell


OPENING = nbformat.v4.new_markdown_cell("# Halves\n\n5 minutes. Objectives:\n\n- halve")


def lesson(*cells, opening=OPENING, root=Path("/nowhere")):
    """A lesson page of these cells; a text cell stands first."""
    notebook = nbformat.v4.new_notebook(cells=[opening, *cells])
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": dict(files.KERNELSPEC), "language_info": dict(files.LANGUAGE)}
    )
    return Page(root / "notebooks" / f"{STEM}.ipynb", nbformat.writes(notebook) + "\n", notebook)


def stdout(words):
    return output("stream", name="stdout", text=words)


def found(page, rule):
    """The findings of one rule; every other rule must be content with the page."""
    problems = list(lint.lint(page))
    name = rule.__name__.replace("_", "-")
    assert {problem.rule for problem in problems} <= {name}, [str(p) for p in problems]
    return [problem.message for problem in problems]
