"""Chapter 12, what it is worth: a conversation's bill, and the disk against the interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch12_bill import BILL, DISK
from grading.references import ch12 as reference

NOTEBOOK = "12__serving"
PRICES = ((0.003, 0.14, 0.6), (0.022, 0.43, 1.98))


def _run(names: tuple[str, ...], outputs: tuple[str, str]) -> Callable:
    """The two numbers of a pair, each with a name of its own."""

    def run(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        pair = answer(*[inputs[name] for name in names])
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            return {f"the answer (a pair: {outputs[0]}, {outputs[1]})": pair}
        return dict(zip(outputs, pair, strict=True))

    return run


def _cases(part: str, names: tuple[str, ...], drawn: Iterable[tuple]) -> tuple[Case, ...]:
    """A case for each row of drawn values, which says them all by name."""

    def said(value: Any) -> str:
        return f"{value:,.10g}" if isinstance(value, int | float) else ", ".join(map(str, value))

    return tuple(
        Case(
            part,
            "; ".join(f"{name} {said(value)}" for name, value in zip(names, values, strict=True)),
            dict(zip(names, values, strict=True)),
        )
        for values in drawn
    )


def _expected(pair: tuple[float, float], outputs: tuple[str, str]) -> dict[str, Expected]:
    return {
        name: Expected(np.array(value), rtol=1e-8, atol=1e-12)
        for name, value in zip(outputs, pair, strict=True)
    }


# ---------------------------------------------------------------- 12.4

DOLLARS = ("with the prefix cache", "without it")
TOLD = ("turns", "hit", "miss", "output")


def bill_cases(draw: Draw) -> tuple[Case, ...]:
    drawn = []
    for prices in PRICES:
        turns, length = [], 1000 * draw.integer(8, 30)
        for found in (0, draw.integer(3, 7), 9):
            written = draw.integer(300, 2000)
            turns.append((length, length * found // 10, written))
            length += written + draw.integer(500, 5000)
        drawn.append((tuple(turns), *prices))
    return _cases("dollars", TOLD, drawn)


BILLED = Exercise(
    id="12.4",
    title="The bill",
    notebook=NOTEBOOK,
    parts=(Part("dollars", 2),),
    cases=bill_cases,
    run=_run(TOLD, DOLLARS),
    expected=lambda inputs: _expected(reference.bill(**inputs), DOLLARS),
    hints=(
        tied(
            "Of a prompt, `found` tokens cost `hit`, the other prompt - found cost `miss`.",
            "found_paid_twice", "hits_for_free", "all_at_the_hit_price", "prices_exchanged",
        ),
        tied(
            "Add up all turns, and divide by a million once, at the end.",
            "single_tokens", "single_tokens_twice", "thousands", "last_turn", "first_turn",
        ),
        tied(
            "Without the prefix cache the whole prompt costs `miss`. The answers cost the same "
            "both times.",
            "answers_forgotten", "answers_forgotten_without", "exchanged", "only_with",
            "only_without", "dollars",
        ),
    ),
    misconceptions=BILL,
)  # fmt: skip

# ---------------------------------------------------------------- 12.5

DISKS = ("ratio", "interval")
ARGUMENTS = ("far", "window", "other", "interval", "wanted")


def disk_cases(draw: Draw) -> tuple[Case, ...]:
    """V4-Flash and V4-Pro against V4.1, and made-up models."""
    drawn: list[tuple[Any, ...]] = [
        (3514.25, 3_214_336, 890, 128, 8.0),
        (5031.4375, 4_559_872, 890, 4096, 9.5),
    ]
    for _ in range(2):
        far, window, other, rest = draw.sizes(4)
        far = 100 * far + 7
        drawn.append((far, 1000 * window + rest, 10 * other + 3, 50 * rest, far / other + 3.5))
    return _cases("both numbers", ARGUMENTS, drawn)


DISK_RATIO = Exercise(
    id="12.5",
    title="The disk against the interval",
    notebook=NOTEBOOK,
    parts=(Part("both numbers", 2),),
    cases=disk_cases,
    run=_run(ARGUMENTS, DISKS),
    expected=lambda inputs: _expected(reference.disk_ratio(**inputs), DISKS),
    hints=(
        tied(
            "A token's bytes on the first disk: far + window / interval.",
            "no_windows", "window_for_every_token", "far_divided_too", "windows_multiplied",
            "only_windows", "upside_down", "both numbers",
        ),
        tied(
            "far + window / p = wanted * other. Bring far to the other side, then solve for p.",
            "far_not_subtracted", "other_forgotten", "signs_exchanged", "interval_upside_down",
            "whole_interval", "rounded_interval", "only_the_ratio",
        ),
    ),
    misconceptions=DISK,
)  # fmt: skip
