"""Exercise 06.4: what a latent cache saves, and at how many bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch06_saving import SAVING
from grading.references import ch06 as reference

NOTEBOOK = "06__mla"
BYTES = "bytes of the new model"
PERCENT = "the saving in percent"
SUM = ("old_layers", "old_kv_heads", "old_dim", "layers", "latent", "rope", "bits")
V1_TO_V2 = (95, 8, 128, 60, 512, 64)


def saving_cases(draw: Draw) -> tuple[Case, ...]:
    """V2 against V1 at three widths, and made-up models with all numbers different."""
    models = [(*V1_TO_V2, bits) for bits in (16, 8, 6)]
    for bits in (6, 10):
        old_layers, layers, heads, a, b = draw.sizes(5)
        models.append((old_layers, heads, 10 * a + 6, layers, 10 * b + 14, a + 3, bits))
    cases = []
    for model in models:
        inputs = dict(zip(SUM, model, strict=True))
        says = ", ".join(f"{name} {value:,}" for name, value in inputs.items())
        cases += [Case(part, says, inputs | {"asked": part}) for part in (BYTES, PERCENT)]
    return tuple(cases)


def run_saving(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in SUM))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: bytes, percent)": given}
    return {BYTES: given[0], PERCENT: given[1]}


def expected_saving(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    counted = dict(zip((BYTES, PERCENT), reference.saving(*(inputs[name] for name in SUM))))
    return {inputs["asked"]: Expected(np.array(float(counted[inputs["asked"]])), atol=1e-6)}


THE_SAVING = Exercise(
    id="06.4",
    title="The 93.3 %",
    notebook=NOTEBOOK,
    parts=(Part(BYTES, 1), Part(PERCENT, 1)),
    cases=saving_cases,
    run=run_saving,
    expected=expected_saving,
    hints=(
        tied(
            "The new model: layers x (latent + rope) numbers of bits / 8 bytes. No heads, and "
            "nothing twice.",
            "keys_and_values", "latent_twice", "no_rope", "for_each_head", "bits_as_bytes",
            "always_16_bits", "layers_of_the_old", BYTES,
        ),
        tied(
            "The old one: old_layers x 2 x old_kv_heads x old_dim numbers of 2 bytes, whatever "
            "`bits` is.",
            "old_in_new_bits", "keys_only",
        ),
        tied("100 x (1 - new / old).", "what_is_left", "share", "of_the_new", PERCENT),
    ),
    misconceptions=SAVING,
)  # fmt: skip
