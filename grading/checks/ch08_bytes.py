"""Exercise 08.6: what V4-Flash holds at n tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch08_bytes import BYTES
from grading.references import ch08 as reference

NOTEBOOK = "08__groups"
GROUPS = "bytes of groups"
WINDOWS = "bytes of windows"
SUM = ("n", "ratios", "entry", "key", "window")
V4_FLASH = ((0, 0) + (4, 128) * 20 + (4,), 584, 68, 128)


def held_cases(draw: Draw) -> tuple[Case, ...]:
    """V4-Flash on its stairs, and made-up models with all numbers different."""
    models: list[tuple] = [(n, *V4_FLASH) for n in (3, 4, 127, 128, 300 + draw.integer(1, 60))]
    for n in (70, 200):
        a, b, c, d = draw.sizes(4)
        ratios = (0,) * 2 + (4,) * a + (10 * b + 7,) * (c + 1)
        models.append((n + d, ratios, 90 + d, 20 + c, 10 * a + 51))
    cases = []
    for model in models:
        inputs = dict(zip(SUM, model, strict=True))
        kinds = ", ".join(f"{inputs['ratios'].count(m)} of {m}" for m in sorted({*model[1]}))
        says = f"n={model[0]}, layers: {kinds}; entry={model[2]}, key={model[3]}, window={model[4]}"
        cases += [Case(part, says, inputs | {"asked": part}) for part in (GROUPS, WINDOWS)]
    return tuple(cases)


def run_held(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(
        inputs["n"], list(inputs["ratios"]), inputs["entry"], inputs["key"], inputs["window"]
    )
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: groups, windows)": given}
    return {GROUPS: given[0], WINDOWS: given[1]}


def expected_held(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    counted = dict(zip((GROUPS, WINDOWS), reference.bytes_held(*(inputs[name] for name in SUM))))
    return {inputs["asked"]: Expected(np.array(counted[inputs["asked"]]), kind="integer")}


HELD = Exercise(
    id="08.6",
    title="V4-Flash at n tokens",
    notebook=NOTEBOOK,
    parts=(Part(GROUPS, 2), Part(WINDOWS, 1)),
    cases=held_cases,
    run=run_held,
    expected=expected_held,
    hints=(
        tied(
            "A layer of ratio m > 0 has n // m complete groups.",
            "from_the_rate", "rounded_up", "one_entry_a_token", GROUPS,
        ),
        tied(
            "Each leaves entry bytes, and key bytes more where m is 4.",
            "no_keys", "keys_in_hca", "key_for_every_token", "one_layer_each",
        ),
        tied(
            "Windows: all layers, min(n, window) rows in each, entry bytes a row.",
            "window_in_two_layers", "window_in_the_others", "window_full_at_once",
            "window_grows", "one_window", "window_with_keys", WINDOWS,
        ),
        tied("Return two numbers: groups, windows.", "one_sum", "swapped"),
    ),
    misconceptions=BYTES,
)  # fmt: skip
