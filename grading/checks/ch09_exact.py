"""Exercise 09.4: how many tokens an exact replay runs, and when a bounded one is exact again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch09_runs import EXACTNESS
from grading.references import ch09 as reference

TOKENS = "tokens to run"
ENOUGH = "whether the bounded replay is exact"
WORDS = "words until it is exact again"
GIVEN = ("prompt", "window", "layers")


def exact_cases(draw: Draw) -> tuple[Case, ...]:
    """Beyond all reach, within it, just the window, shorter; and a single layer."""
    window, layers = draw.sizes(2)
    window, layers = min(window, 7), 3 + layers % 3
    reach = layers * (window - 1) + 1
    models = [
        (reach + 12, window, layers),
        (reach - 1, window, layers),
        (window + 1, window, layers),
        (window, window, layers),
        (window - 1, window, layers),
        (5 * window, window, 1),
    ]
    cases = []
    for model in models:
        inputs = dict(zip(GIVEN, model))
        says = ", ".join(f"{name} {value}" for name, value in inputs.items())
        for part in (TOKENS, ENOUGH, WORDS):
            cases.append(Case(part, f"{says}, {part}", inputs | {"asked": part}))
    return tuple(cases)


def run_exact(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in GIVEN))
    if not isinstance(given, tuple | list) or len(given) != 3:
        return {"the answer (three: tokens, exact or not, words)": given}
    run, exact, words = given
    exact = int(exact) if isinstance(exact, bool | np.bool_) else exact
    numbers = {TOKENS: run, ENOUGH: exact, WORDS: words}
    return {inputs["asked"]: numbers[inputs["asked"]]}


def expected_exact(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    found = dict(zip((TOKENS, ENOUGH, WORDS), reference.exactness(*(inputs[n] for n in GIVEN))))
    return {inputs["asked"]: Expected(np.array(float(found[inputs["asked"]])), kind="integer")}


EXACT = Exercise(
    id="09.4",
    title="What is exact",
    notebook="09__ced",
    parts=(Part(TOKENS, 1), Part(ENOUGH, 1), Part(WORDS, 1)),
    cases=exact_cases,
    run=run_exact,
    expected=expected_exact,
    hints=(
        tied(
            "One layer looks back window - 1 tokens, two layers twice that. Then add the token "
            "itself; and the prompt may be shorter.",
            "windows_side_by_side", "last_forgotten", "one_layer_short", "one_window",
            "whole_prompt", "more_than_there_are", "windows_multiplied", "both_one_too_wide",
            TOKENS,
        ),
        tied(
            "The bounded replay runs `window` tokens. Are these as many as must be run?",
            "exact_below_only", "never_exact", "always_exact", "one_layer_forgotten",
            "reach_for_window", ENOUGH,
        ),
        tied(
            "The first decoder layer's rows are right, whatever was run: they are made of the "
            "encoder's stream. So its outputs are right once its window is full of run tokens, "
            "which it is at the prompt's last token. Each layer above it waits window - 1 tokens "
            "more.",
            "all_layers_fade", "one_window_fades", "whole_windows_fade", "one_word_more",
            "gone_at_once", "fades_from_nothing", WORDS,
        ),
    ),
    misconceptions=EXACTNESS,
)  # fmt: skip
