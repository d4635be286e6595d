"""Guesses before answers: kept, compared, and summed up at the end of a chapter.

    guess = ...                                   # replace the dots by your guess
    predict("01-a", guess)                        # keeps it
    predict("01-a", guess, answer=measured)       # later: shows how far off it was
    predict("01")                                 # at the end: what one misjudges

What the first two show depends on their arguments alone. The third reads what was kept,
so its cell is tagged `nbval-ignore-output`.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from grading import progress
from grading.result import Text

_NONE = object()


def predict(id: str, guess: Any = _NONE, *, answer: Any = _NONE, unit: str = "") -> Text:
    """Keep the guess for question `id`; with `answer`, show how they compare.

    A guess is a number or a word; `...` means no guess yet. With the id of a chapter and
    nothing else, sums up that chapter's guesses.
    """
    if guess is _NONE and answer is _NONE:
        return Text(summary(id))
    if guess is _NONE:
        guess = ...
    if answer is _NONE:
        if guess is ...:
            return Text("No guess yet: replace the dots and run the cell, before you read on.")
        progress.write_event("guess", id, guess=_plain(guess))
        return Text(f"Kept: {_show(guess, unit)}. The answer comes below.")
    if guess is ...:
        return Text(f"The answer is {_show(answer, unit)}. (No guess was made.)")
    progress.write_event(
        "answer", id, guess=_plain(guess), answer=_plain(answer), unit=unit,
        right=is_right(guess, answer),
    )  # fmt: skip
    return Text(_compared(guess, answer, unit))


def summary(chapter: str) -> str:
    """What was guessed in a chapter, and what was misjudged most. From progress."""
    latest = {
        event["id"]: event
        for event in progress.events("answer")
        if str(event.get("id", "")).startswith(f"{chapter}-")
    }
    if not latest:
        return f"No guesses are kept for chapter {chapter}."
    wrong = [event for event in latest.values() if not event.get("right")]
    right = len(latest) - len(wrong)
    verb = "was" if right == 1 else "were"
    lines = [f"Chapter {chapter}: {right} of {len(latest)} guesses {verb} right."]
    for event in wrong:
        compared = _compared(event.get("guess"), event.get("answer"), event.get("unit", ""))
        lines.append(f"{event['id']}: {compared}")
    return "\n".join(lines)


def is_right(guess: Any, answer: Any) -> bool:
    """Words must be equal, numbers within 2 %: a guess is no calculation."""
    if _is_number(guess) and _is_number(answer):
        return math.isclose(float(guess), float(answer), rel_tol=0.02)
    return str(guess).strip().lower() == str(answer).strip().lower()


def _compared(guess: Any, answer: Any, unit: str) -> str:
    if is_right(guess, answer):
        return f"The answer is {_show(answer, unit)}: your guess was right."
    text = f"The answer is {_show(answer, unit)}; you guessed {_show(guess, unit)}"
    if _is_number(guess) and _is_number(answer) and guess > 0 and answer > 0:
        ratio = float(guess) / float(answer)
        how = f"{ratio:.3g} times too much" if ratio > 1 else f"{1 / ratio:.3g} times too little"
        text += f", {how}"
    return text + "."


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        return int(number) if number.is_integer() else number
    return str(value)


def _show(value: Any, unit: str) -> str:
    text = f"{value:,}" if _is_number(value) else str(value)
    return f"{text} {unit}".strip()
