"""Chapter 11, the scales: in E4M3, as a power of two, and the gradient through both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch11_scales import FP4_BLOCKS, POWER, THROUGH
from grading.references import ch11 as reference

NOTEBOOK = "11__fp4"


def _pair(first: str, second: str):
    """Runs an answer of two tensors and shows the one that is asked for."""

    def run(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        given = answer(inputs["values"])
        if not isinstance(given, tuple | list) or len(given) != 2:
            return {f"the answer (two tensors: {first}, {second})": given}
        return {inputs["asked"]: given[0] if inputs["asked"] == first else given[1]}

    return run


# ---------------------------------------------------------------- 11.3

STORED, READY = "stored scales", "numbers ready for E2M1"


def fp4_cases(draw: Draw) -> tuple[Case, ...]:
    """Blocks of many sizes: normal ones, tiny and zero ones, one beyond 6 x 448."""
    rows, width = draw.sizes(2)
    normal = draw.normal(rows, width) * torch.exp(draw.normal(rows, 1))
    normal[:, 0] = -normal.abs().amax(1) * 1.3  # the largest magnitude is negative
    normal[-1] = normal[-1].abs()
    tiny = draw.normal(3, width, scale=0.003)
    tiny[1] = 0.0
    tiny[2] = tiny[2] / tiny[2].abs().max() * 0.04
    huge = draw.normal(3, width, scale=30.0)
    huge[1, 2] = 3000.0
    cases = []
    for values, says in ((normal, "as a model has them"), (tiny, "tiny, one all zeros"),
                         (huge, "large, one beyond 2,688")):  # fmt: skip
        told = f"N={len(values)}, G={width}, {says}"
        cases += [Case(part, told, {"values": values, "asked": part}) for part in (STORED, READY)]
    return tuple(cases)


def expected_fp4(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    scale, ready = reference.fp4_blocks(inputs["values"])
    if inputs["asked"] == STORED:
        return {STORED: Expected(scale, "N", rtol=1e-6, atol=1e-9)}
    return {READY: Expected(ready, "ND", rtol=1e-5, atol=1e-7)}


FP4_SCALE = Exercise(
    id="11.3",
    title="A scale in E4M3",
    notebook=NOTEBOOK,
    parts=(Part(STORED, 1), Part(READY, 2)),
    cases=fp4_cases,
    run=_pair(STORED, READY),
    expected=expected_fp4,
    hints=(
        tied(
            "values.abs().amax(1) is the largest magnitude of each block, and .clamp(min=6 * "
            "2.0**-9) its floor.",
            "no_floor", "floor_of_the_scale", "signed_largest", "one_scale_for_all",
            "no_floor_no_clamp", "chosen_and_no_floor", "finite",
        ),
        tied(
            "Divide it by 6, then round_to(..., E4M3): that is the stored scale.",
            "not_rounded", "of_448", "largest_as_scale", "power_of_two", STORED,
        ),
        tied(
            "(values / stored[:, None]).clamp(-6, 6): divide by the scale that will be read.",
            "divided_by_the_chosen", "not_clamped", "multiplied", READY,
        ),
    ),
    misconceptions=FP4_BLOCKS,
)  # fmt: skip

# ---------------------------------------------------------------- 11.4

POWERS, USED = "the powers of two", "the share that is used"


def power_cases(draw: Draw) -> tuple[Case, ...]:
    """Blocks of many sizes; and blocks whose largest is 6 times a power of two."""
    rows, width = draw.sizes(2)
    values = draw.normal(rows, width) * torch.exp(1.5 * draw.normal(rows, 1))
    values[:, 0] = -values.abs().amax(1) * 1.3
    exact = draw.normal(3, width, scale=0.01)
    exact[:, 1] = -6 * 2.0 ** torch.arange(-1.0, 2.0)
    cases = []
    for given, says in ((values, "as a model has them"), (exact, "largest is 6 x 2^n")):
        told = f"N={len(given)}, G={width}, {says}"
        cases += [Case(part, told, {"values": given, "asked": part}) for part in (POWERS, USED)]
    return tuple(cases)


def expected_power(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    scale, used = reference.power_of_two_scale(inputs["values"])
    return {inputs["asked"]: Expected(scale if inputs["asked"] == POWERS else used, "N")}


MXFP4_SCALE = Exercise(
    id="11.4",
    title="A power of two against it",
    notebook=NOTEBOOK,
    parts=(Part(POWERS, 1), Part(USED, 1)),
    cases=power_cases,
    run=_pair(POWERS, USED),
    expected=expected_power,
    hints=(
        tied(
            "(largest / 6).log2() is the exponent that would just do; .ceil() rounds it up; 2.0 ** "
            "of it is the scale.",
            "rounded_down", "rounded", "always_doubled", "exponent", "no_six",
            "floor_of_log_less_two", "natural_log", "not_a_power", POWERS,
        ),
        tied("largest is values.abs().amax(1).", "signed_largest"),
        tied(
            "largest / (6 * scale): never above 1, and always above a half.",
            "share_without_six", "share_upside_down", USED,
        ),
    ),
    misconceptions=POWER,
)  # fmt: skip

# ---------------------------------------------------------------- 11.5

FORWARD, GRADIENT = "what comes out", "the gradient that comes back"


def through_cases(draw: Draw) -> tuple[Case, ...]:
    """Each row has its own limit, numbers beyond it with both signs, and one just at it."""
    rows, width = draw.sizes(2)
    values = draw.normal(rows, width, scale=2.0)
    limit = 1 + draw.normal(rows, 1).abs()
    values[:, 0] = -limit[:, 0]
    values[:, 1], values[:, 2] = -3 * limit[:, 0], 2 * limit[:, 0]
    inputs = {
        "values": values,
        "rounded": (values * 2).round().clamp(-limit, limit) / 2 + 0.125,
        "limit": limit,
        "arrives": draw.normal(rows, width),
    }
    says = f"N={rows}, G={width}"
    return tuple(Case(part, says, inputs | {"asked": part}) for part in (FORWARD, GRADIENT))


def run_through(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    with torch.enable_grad():
        values = inputs["values"].clone().requires_grad_()
        out = answer(values, inputs["rounded"], inputs["limit"])
        if inputs["asked"] == FORWARD or not isinstance(out, torch.Tensor):
            return {inputs["asked"]: out.detach() if isinstance(out, torch.Tensor) else out}
        if out.requires_grad and out.shape == inputs["arrives"].shape:
            out.backward(inputs["arrives"])
        grad = values.grad
    return {GRADIENT: torch.zeros_like(inputs["values"]) if grad is None else grad}


def expected_through(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    if inputs["asked"] == FORWARD:
        return {FORWARD: Expected(np.asarray(inputs["rounded"], np.float64), "ND")}
    given = (inputs[name] for name in ("values", "limit", "arrives"))
    return {GRADIENT: Expected(reference.gradient(*given), "ND")}


STRAIGHT_THROUGH = Exercise(
    id="11.5",
    title="Straight through",
    notebook=NOTEBOOK,
    parts=(Part(FORWARD, 1), Part(GRADIENT, 2)),
    cases=through_cases,
    run=run_through,
    expected=expected_through,
    hints=(
        tied(
            "x - x.detach() is 0, and has the gradient of x. Add that to the rounded numbers.",
            "no_gradient", "not_rounded", "doubled", "clamped", "sign_turned", "scaled", FORWARD,
        ),
        tied(
            "torch.where(inside, values, values.detach()) is the values, and has a gradient only "
            "where `inside` is True.",
            "everywhere", "only_outside", GRADIENT,
        ),
        tied(
            "inside is values.abs() <= limit_N1: of each row its own limit, with its end.",
            "limit_left_out", "negatives_pass", "one_limit",
        ),
    ),
    misconceptions=THROUGH,
)  # fmt: skip
