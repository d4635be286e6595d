"""Beginnings: `python -m tools new chapter | exercise | model`.

Each command writes what can be written without thinking, and says what comes next. What it leaves
fails its test until the thinking is done: an exercise without a check, a model without an answer.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tools.new_check import write_check

LESSON = """\
# %% [markdown]
# # {number} · {title}
#
# *60 minutes.* What was built before, with a link to it, and what is missing.
#
# **Objectives.** After this chapter you can
#
# - say what ... is,
# - build ...,
# - derive the number of this chapter:
#
# > **bytes per token = ...**

# %%
from grading import predict
from tinymodels.widgets import plot

# %% [markdown]
# ## The idea in plain words
#
# Something to change within the first five minutes.
#
# **Before you run the next cell:** a question with a number for an answer.

# %% tags=["predict"]
guess = ...
predict("{number}-a", guess)

# %%
predict("{number}-a", guess, answer=2 + 2)

# %% [markdown]
# ## What it costs
#
# ## Sources
"""

EXERCISES = """\
# %% [markdown]
# # Exercises {number}: {lower}
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("{number}.1")` gives a hint, and again the next one.

# %%
from grading import check, hint
"""

EXERCISE = '''
# %% [markdown]
# ## {id} {title}
#
# difficulty 2/5, importance 3/5, about 15 minutes
#
# What is given, what is asked, and one small example to check by hand.


# %% exercise_id="{id}" points=2 tags=["exercise"]
def {name}(number: int) -> int:
    """Twice the number. (Replace this.)"""
    ### BEGIN SOLUTION
    return 2 * number
    ### END SOLUTION


# %% exercise_id="{id}" tags=["check"]
check("{id}", {name})
'''


def chapter(root: Path, stem: str, title: str) -> str:
    """Begin a chapter: the sources of its lesson and of its exercises. Returns what comes next.

    Raises ValueError for a stem that is none, or that is taken.
    """
    if not re.fullmatch(r"\d\d__[a-z0-9_]+", stem):
        raise ValueError(f"{stem!r} is no stem: two digits and a topic, such as 14__topic")
    number = stem[:2]
    taken = sorted((root / "sources" / "lessons").glob(f"{number}__*.py"))
    if taken:
        raise ValueError(f"chapter {number} is there: {taken[0].relative_to(root)}")
    for folder, text in (("lessons", LESSON), ("exercises", EXERCISES)):
        path = root / "sources" / folder / f"{stem}.py"
        if path.exists():
            raise ValueError(f"{path.relative_to(root)} is there and stays as it is")
        path.write_text(
            text.format(number=number, title=title, lower=title.lower()), encoding="utf-8"
        )
    return (
        f"Written: sources/lessons/{stem}.py and sources/exercises/{stem}.py. Next: "
        f"`python -m tools build {stem}`; the stem, and what it stands on, in "
        "tools/site/chapters.py; its minutes in docs/syllabi.md, its link and terms in "
        f"docs/glossary.md, '## {number} ...' with four questions in docs/teaching.md, its row in "
        "the ledger (tinymodels/widgets/ledger_entries.py). What is missing is said by "
        "`python -m pytest tests/test_glossary.py tests/test_repository.py "
        "tests/grading/test_teaching_guide.py tests/tools/test_site.py`."
    )


def exercise(root: Path, identity: str, title: str) -> str:
    """Add an exercise at the end of its chapter's source. Returns what comes next.

    Raises ValueError for an id that is none or taken, and for a chapter without exercises.
    """
    if not re.fullmatch(r"\d\d\.\d+", identity):
        raise ValueError(f"{identity!r} is no exercise id: chapter and number, such as 05.5")
    number = identity[:2]
    found = sorted((root / "sources" / "exercises").glob(f"{number}__*.py"))
    if not found:
        raise ValueError(
            f"chapter {number} has no sources/exercises/{number}__*.py: begin it with "
            "`python -m tools new chapter`"
        )
    path = found[0]
    text = path.read_text(encoding="utf-8")
    if f'exercise_id="{identity}"' in text:
        raise ValueError(f"{identity} is there: see {path.relative_to(root)}")
    name = re.sub(r"\W+", "_", title.lower()).strip("_")
    if not name or name[0].isdigit():
        name = "answer"
    block = EXERCISE.format(id=identity, title=title, name=name)
    told = write_check(root, identity, title, name, path.stem)
    path.write_text(text.rstrip("\n") + "\n" + block, encoding="utf-8")
    return (
        f"Added {identity} to {path.relative_to(root)}, and grading/checks/ch{number}_{name}.py: "
        f"{told}. Both stand for a placeholder: write the exercise and its solution, then the "
        "reference, the hints and at least five named mistakes (grading/README.md says how). "
        f"Then `python -m tools build {path.stem}` and `python -m pytest "
        f"tests/grading/test_grading_exercises.py -k {identity} -m ''`; its minutes go into "
        "docs/syllabi.md."
    )


def model(root: Path, config: Path) -> str:
    """Take a released config.json into the tested ones. Returns what comes next.

    Raises ValueError for a file that is none, or a name that is taken.
    """
    from tinymodels.families import load

    if not config.is_file():
        raise ValueError(f"{config}: there is no such file; give a released config.json")
    name = config.parent.name if config.stem == "config" else config.stem
    target = root / "tests" / "configs" / f"{name}.json"
    if target.exists():
        raise ValueError(f"{target.relative_to(root)} is there; rename {config.name} first")
    try:
        load(config)
        said = f"`python -m tinymodels bytes {target.relative_to(root)} --explain` reads it"
    except ValueError as problem:
        said = f"no reader yet ({problem}): write one in tinymodels/families/"
    shutil.copyfile(config, target)
    return (
        f"Copied to {target.relative_to(root)}; {said}. Next: trim it to the fields that decide the"
        " cache, work its bytes out by hand, and add them to ANSWERS in"
        " tests/tinymodels/test_families.py: (bytes a token, bytes of full windows, bytes of fixed"
        " states). `python -m pytest tests/tinymodels/test_families.py` compares."
    )
