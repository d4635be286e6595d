"""A tiny course in a temporary folder: one lesson and one exercise notebook, written as sources."""

import shutil
from pathlib import Path

import pytest

from tools.__main__ import main

LESSON = """\
# %% [markdown]
# # 97. Halves
#
# 5 minutes. Objectives:
#
# - halve a number

# %%
def halve(number):
    return number / 2

# %% [markdown]
# ## What it gives
#
# The half of seven:

# %%
print(halve(7))

# %% tags=["nbval-ignore-output"]
import time

print(time.perf_counter())
"""

EXERCISE = '''\
# %% [markdown]
# # Exercises 97

# %%
from fractions import Fraction

# %% [markdown]
# ## 97.1 Halve it
#
# difficulty 1/5, importance 2/5, 5 minutes

# %% exercise_id="97.1" points=3 tags=["exercise"]
def halve(number: int) -> Fraction:
    """The half of a whole number, exactly."""
    ### BEGIN SOLUTION
    denominator_of_half = 2
    return Fraction(number, denominator_of_half)
    ### END SOLUTION

# %% exercise_id="97.1" tags=["check"]
print(halve(7))
'''

STEM = "97__halves"


def write_sources(root: Path) -> Path:
    """Write both sources under `root`; nothing is built."""
    for folder, text in (("lessons", LESSON), ("exercises", EXERCISE)):
        path = root / "sources" / folder / f"{STEM}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    for folder in ("notebooks", "exercises", "solutions"):
        (root / folder).mkdir()
    return root


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """The root of a course with the sources above; nothing is built."""
    return write_sources(tmp_path / "course")


@pytest.fixture(scope="session")
def built_once(tmp_path_factory) -> Path:
    """A built course that no test may change."""
    root = write_sources(tmp_path_factory.mktemp("built") / "course")
    assert main(["--root", str(root), "build"]) == 0
    return root


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """A built course of one test's own."""
    return Path(shutil.copytree(built_once, tmp_path / "course"))
