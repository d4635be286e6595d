"""The beginning of a check: what `python -m tools new exercise` writes into grading/checks/.

It grades the placeholder that the exercise starts with, under one named mistake. A test asks for
five of them, so it fails until the exercise is a real one.
"""

from __future__ import annotations

from pathlib import Path

CHECK = '''\
"""Exercise {id}: {title}."""

from __future__ import annotations

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Misconception, Part, call
from grading.hints import tied

ALL = "the answer"


def cases(draw: Draw) -> tuple[Case, ...]:
    """What the answer is called with: drawn anew for each student."""
    several = [draw.integer(5, 99) for _ in range(3)]
    return tuple(Case(ALL, f"number {{n}}", {{"number": n}}) for n in several)


def expected(inputs) -> dict[str, Expected]:
    """What it should give: worked out here, not taken from the package that is taught."""
    return {{"output": Expected(np.array(2.0 * inputs["number"]), "", "integer")}}


MISTAKES = (
    Misconception(
        "squared",
        "This is the number times itself. (Say what was done, and what would be right.)",
        lambda number: number * number,
    ),
)

{constant} = Exercise(
    id="{id}",
    title="{title}",
    notebook="{stem}",
    parts=(Part(ALL, 2),),
    cases=cases,
    run=call("number"),
    expected=expected,
    hints=(
        tied("The first hint, for whoever made one of these mistakes.", "squared"),
        "The last hint says it plainly.",
    ),
    misconceptions=MISTAKES,
)
'''

CHAPTER = '''\
"""Chapter {number}: its exercises, in their order."""

from grading.checks.{module} import {constant}

EXERCISES = ({constant},)
'''


def write_check(root: Path, identity: str, title: str, name: str, stem: str) -> str:
    """Write the check of a new exercise; returns what to do with it, in a sentence.

    Raises ValueError where a file of that name is there.
    """
    folder = root / "grading" / "checks"
    number = identity[:2]
    module = f"ch{number}_{name}"
    path = folder / f"{module}.py"
    if path.exists():
        raise ValueError(f"{path.relative_to(root)} is there: give the exercise another title")
    constant = name.upper()
    folder.mkdir(parents=True, exist_ok=True)
    words = {"id": identity, "title": title, "stem": stem, "constant": constant}
    path.write_text(CHECK.format(**words), encoding="utf-8")
    chapter = folder / f"ch{number}.py"
    if chapter.exists():
        return f"import {constant} in {chapter.relative_to(root)} and add it to its EXERCISES"
    text = CHAPTER.format(number=number, module=module, constant=constant)
    chapter.write_text(text, encoding="utf-8")
    return f"{chapter.relative_to(root)} has it among its EXERCISES"
