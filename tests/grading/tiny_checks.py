"""A course without torch, so that a graded notebook starts in a second: `double` a number."""

import numpy as np

from grading.exercise import Case, Exercise, Expected, Misconception, Part, call

NOTEBOOK = "90__tiny"
COUNT = 60
ENDLESS = (56, 57, 58, 59)  # the exercises whose time is short; all others have plenty of it


def cases(draw):
    return tuple(Case("whole", f"number {n}", {"number": n}) for n in (draw.integer(3, 9), 1, 12))


def double(number):
    return Exercise(
        id=f"90.{number}",
        title=f"Double {number}",
        notebook=NOTEBOOK,
        parts=(Part("whole", 1),),
        cases=cases,
        run=call("number"),
        expected=lambda inputs: {"output": Expected(np.array(2.0 * inputs["number"]))},
        hints=("Add it to itself.", "number + number"),
        misconceptions=(
            Misconception("squared", "This is the square.", lambda number: number * number),
            Misconception("halved", "This is the half.", lambda number: number / 2),
        ),
        seconds=3.0 if number in ENDLESS else 60.0,
    )


EXERCISES = tuple(double(number) for number in range(1, COUNT + 1))
