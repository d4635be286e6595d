"""mypy over the packages, ruff over code and notebooks: as their configurations say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*words, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, timeout=900
    )


def test_packages_and_notebooks_have_no_type_error():
    for words in ([], sorted(map(str, (ROOT / "sources" / "exercises").glob("*.py")))):
        checked = run("mypy", *words)
        assert checked.returncode == 0, checked.stdout[-3000:] + checked.stderr
        assert re.search(r"no issues found in \d\d+ source files", checked.stdout)


MISTAKES = {
    "returns.py": ("def half(n: int) -> int:\n    return str(n)\n", "return-value"),
    "takes.py": ("len(3)\n", "arg-type"),
    "calls.py": ("import tools.new\n\ntools.new.chapter(1, 2)\n", "call-arg"),
    "kernel.py": ("from kernels import mla_decode\n\nmla_decode(1)\n", "call-arg"),
    "05__the_bill.py": ("from tinymodels import ledger\n\nledger.rates()\n", "attr-defined"),
    "13__capstone.py": ("from tinymodels import ledger\n\nledger.rate(name=3)\n", "call-arg"),
    "no_cell.py": ("a = 3\na = len\n", "assignment"),
}


def test_the_configuration_still_finds_mistakes(tmp_path):
    for name, (text, _) in MISTAKES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "02__layers.py").write_text("a = 3\na = len\n")  # cells do that
    found = run("mypy", "--config-file", str(ROOT / "mypy.ini"), *map(str, tmp_path.glob("*.py")))
    assert found.returncode == 1
    for name, (_, code) in MISTAKES.items():
        assert re.search(rf"{name}:\d+: error: .*\[{code}\]", found.stdout), (name, found.stdout)
    assert "02__layers.py" not in found.stdout


def test_code_and_notebooks_pass_ruff():
    checked = run("ruff", "check", ".")
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
