"""mypy over the packages, ruff over code and notebooks: as their configurations say."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*words, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, timeout=900
    )


def test_the_packages_have_no_type_error():
    checked = run("mypy")
    assert checked.returncode == 0, checked.stdout[-3000:] + checked.stderr


@pytest.mark.parametrize(
    "line, code",
    [
        ("def half(n: int) -> int:\n    return str(n)\n", "return-value"),
        ("len(3)\n", "arg-type"),
        ("import tools.new\n\ntools.new.chapter(1, 2)\n", "call-arg"),
    ],
)
def test_the_configuration_still_finds_mistakes(tmp_path, line, code):
    (tmp_path / "wrong.py").write_text(line)
    found = run("mypy", "--config-file", str(ROOT / "mypy.ini"), str(tmp_path / "wrong.py"))
    assert found.returncode == 1 and f"[{code}]" in found.stdout, found.stdout


def test_code_and_notebooks_pass_ruff():
    checked = run("ruff", "check", ".", "--ignore", "E501")  # a long line breaks nothing
    assert checked.returncode == 0, checked.stdout[-3000:]


def test_ruff_reads_notebooks(tmp_path):
    """A name that a cell uses wrongly is seen, so the line above says something."""
    import nbformat

    cell = nbformat.v4.new_code_cell("import os\nx = 1 if x == None else 2")
    (tmp_path / "notebooks").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "notebooks" / "a.ipynb")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    found = run("ruff", "check", ".", cwd=tmp_path)
    assert found.returncode == 1 and "E711" in found.stdout
