"""What the course may weigh and take: the repository, its weights, its imports, its limits."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import build, suite

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY_BYTES = 40_000_000
CHECKPOINT_BYTES = 24_000_000
IMPORT_CPU_SECONDS = 3.0  # a tenth of it on a quiet machine
HEAVY = ("torch", "triton", "transformers", "matplotlib", "jupyterlab")


def tracked() -> list[Path]:
    """The files that git keeps, as they are now. Skips where there is no git."""
    try:
        told = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git here: what belongs to the repository cannot be told")
    paths = (ROOT / name for name in told.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def test_size_of_the_repository():
    sizes = {path: path.stat().st_size for path in tracked()}
    largest = sorted(sizes, key=sizes.get)[-3:]
    assert len(sizes) > 300
    assert sum(sizes.values()) <= REPOSITORY_BYTES, [
        (str(path.relative_to(ROOT)), sizes[path]) for path in largest
    ]


def test_size_of_the_checkpoints():
    weights = [path for path in (ROOT / "tinymodels" / "checkpoints").iterdir() if path.is_file()]
    assert weights and sum(path.stat().st_size for path in weights) <= CHECKPOINT_BYTES


@pytest.mark.parametrize(
    "package",
    ["tinymodels", "kernels", "grading", "tools", "tinymodels.widgets", "tinymodels.ledger"],
)
def test_an_import_is_light(package):
    """None of the packages brings torch along by itself, and each is there at once."""
    code = (
        f"import sys, time; start = time.process_time(); import {package}; "
        f"print(time.process_time() - start, *(n for n in {HEAVY!r} if n in sys.modules))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    seconds, *heavy = told.stdout.split()
    assert heavy == []
    assert float(seconds) <= IMPORT_CPU_SECONDS


def test_limits_are_the_agreed_ones():
    assert build.CPU_BUDGET == {"notebooks": 30.0, "solutions": 20.0}
    assert suite.BUDGET_S == {False: 10 * 60, True: 45 * 60}


def test_a_suite_that_takes_too_long_says_so(capsys):
    outcome = suite.Outcome(suite.Step("tests", ("pytest",)), 0, 601.0, {"passed": 3})
    suite.summarise([outcome], suite.BUDGET_S[False])
    assert "OVER BUDGET" in capsys.readouterr().out
