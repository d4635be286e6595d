"""Named mistakes in exercises 11.3 to 11.5: a block's scale, and the way back through it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception

FLOOR = 6 * 2.0**-9


def _e4m3(scale):
    from tinymodels.formats import E4M3, round_to

    return round_to(scale, E4M3)


def blocks(
    largest: Callable = lambda x: x.abs().amax(1).clamp(min=FLOOR),
    wanted: Callable = lambda most: most / 6,
    stored: Callable = _e4m3,
    ready: Callable = lambda x, wanted, stored: (x / stored[:, None]).clamp(-6, 6),
) -> Callable:
    def fp4_blocks(values):
        scale = wanted(largest(values))
        kept = stored(scale)
        return kept, ready(values, scale, kept)

    return fp4_blocks


def _power(scale):
    return 2.0 ** scale.clamp(min=2.0**-30).log2().ceil()


FP4_BLOCKS = (
    Misconception(
        "divided_by_the_chosen",
        "You divide by the scale as chosen and store a rounded copy. What is read back is then off "
        "by the rounding of the scale: divide by the stored one.",
        blocks(ready=lambda x, wanted, stored: (x / wanted[:, None]).clamp(-6, 6)),
    ),
    Misconception(
        "chosen_and_no_floor",
        "Two things. You divide by the scale as chosen and store a rounded copy: divide by the "
        "stored one. And the floor is missing: a block of zeros gives 0 / 0.",
        blocks(
            largest=lambda x: x.abs().amax(1),
            ready=lambda x, wanted, stored: (x / wanted[:, None]).clamp(-6, 6),
        ),
    ),
    Misconception(
        "no_floor_no_clamp",
        "Two things. The floor is missing: a block of zeros gives 0 / 0. And some numbers are "
        "above 6, where the stored scale was rounded down.",
        blocks(
            largest=lambda x: x.abs().amax(1),
            ready=lambda x, wanted, stored: x / stored[:, None],
        ),
    ),
    Misconception(
        "not_rounded",
        "The scale is not stored in E4M3: round_to(scale, E4M3).",
        blocks(stored=lambda scale: scale),
    ),
    Misconception(
        "no_floor",
        "The floor is missing: a block of (nearly) zeros gets the scale 0, and its numbers are "
        "0 / 0.",
        blocks(largest=lambda x: x.abs().amax(1)),
    ),
    Misconception(
        "floor_of_the_scale",
        "The floor 6 x 2^-9 was set to the scale. It belongs to the largest magnitude; the scale "
        "is then 2^-9 at least.",
        blocks(largest=lambda x: x.abs().amax(1), wanted=lambda most: (most / 6).clamp(min=FLOOR)),
    ),
    Misconception(
        "not_clamped",
        "Some numbers are above 6: where the stored scale was rounded down, they are cut off at 6.",
        blocks(ready=lambda x, wanted, stored: x / stored[:, None]),
    ),
    Misconception(
        "signed_largest",
        "The largest *value* was taken, not the largest magnitude: abs() first.",
        blocks(largest=lambda x: x.amax(1).clamp(min=FLOOR)),
    ),
    Misconception(
        "one_scale_for_all",
        "One scale for all blocks: take the maximum of each block by itself.",
        blocks(largest=lambda x: x.abs().amax().clamp(min=FLOOR).expand(len(x))),
    ),
    Misconception(
        "of_448",
        "The largest is brought to 448, the end of E4M3. The codes are E2M1, and end at 6.",
        blocks(wanted=lambda most: most / 448),
    ),
    Misconception(
        "largest_as_scale",
        "The largest magnitude itself is the scale here: the block comes down to 1 and most codes "
        "lie idle. Divide it by 6.",
        blocks(wanted=lambda most: most),
    ),
    Misconception(
        "power_of_two",
        "The scale is a power of two. That is the next exercise; here it is stored in E4M3.",
        blocks(stored=_power),
    ),
    Misconception(
        "multiplied",
        "Numbers are multiplied by the scale; they are divided by it, and multiplied when read.",
        blocks(ready=lambda x, wanted, stored: (x * stored[:, None]).clamp(-6, 6)),
    ),
    Misconception(
        "swapped",
        "The pair is the other way round: first the scales, then the numbers.",
        lambda values: blocks()(values)[::-1],
    ),
)


def power(
    scale: Callable = lambda most: 2.0 ** (most / 6).log2().ceil(),
    share: Callable = lambda most, scale: most / (6 * scale),
    largest: Callable = lambda x: x.abs().amax(1),
) -> Callable:
    def power_of_two_scale(values):
        most = largest(values)
        found = scale(most)
        return found, share(most, found)

    return power_of_two_scale


POWER = (
    Misconception(
        "rounded_down",
        "The power of two below was taken (the standard's own rule): the largest is then above 6 "
        "and cut off.",
        power(scale=lambda most: 2.0 ** (most / 6).log2().floor()),
    ),
    Misconception(
        "rounded",
        "The nearest power of two was taken; where it lies below, the largest is cut off. Take the "
        "next above.",
        power(scale=lambda most: 2.0 ** (most / 6).log2().round()),
    ),
    Misconception(
        "always_doubled",
        "One power too many: where largest / 6 is a power of two itself, or lies just below one, "
        "that one is enough.",
        power(scale=lambda most: 2.0 ** ((most / 6).log2().floor() + 1)),
    ),
    Misconception(
        "exponent",
        "These are the exponents; the scale is 2 to that power.",
        power(scale=lambda most: (most / 6).log2().ceil()),
    ),
    Misconception(
        "no_six",
        "The largest goes down to 6, not to 1: divide it by 6 before the logarithm.",
        power(scale=lambda most: 2.0 ** most.log2().ceil()),
    ),
    Misconception(
        "floor_of_log_less_two",
        "You took 6 for 4 (an exponent of 2): floor(log2(largest)) - 2 is the standard's rule, and "
        "lets the largest lie above 6.",
        power(scale=lambda most: 2.0 ** (most.log2().floor() - 2)),
    ),
    Misconception(
        "natural_log",
        "The exponent comes from another logarithm: for a power of two it is log2.",
        power(scale=lambda most: 2.0 ** (most / 6).log().ceil()),
    ),
    Misconception(
        "signed_largest",
        "The largest *value* was taken, not the largest magnitude: abs() first.",
        power(largest=lambda x: x.amax(1).clamp(min=1e-6)),
    ),
    Misconception(
        "share_without_six",
        "The scales are right. The share is largest / (6 x scale): 1 would be a block that reaches "
        "6.",
        power(share=lambda most, scale: most / scale),
    ),
    Misconception(
        "share_upside_down",
        "The scales are right. The share is upside down: it is at most 1.",
        power(share=lambda most, scale: 6 * scale / most),
    ),
    Misconception(
        "not_a_power",
        "largest / 6 is not a power of two: round its logarithm up.",
        power(scale=lambda most: most / 6),
    ),
)


def both(value: Callable, slope: Callable) -> Callable:
    """An answer with this forward value and a gradient of `slope` at each number."""

    def straight_through(values, rounded, limit):
        way = values * slope(values, rounded, limit).detach()
        return value(values, rounded, limit).detach() + (way - way.detach())

    return straight_through


def _rounded(values, rounded, limit):
    return rounded


def _inside(values, rounded, limit):
    return (values.abs() <= limit).to(values.dtype)


THROUGH = (
    Misconception(
        "no_gradient",
        "No gradient comes back at all: the rounded numbers have no past. Add the values and "
        "take them away again, detached.",
        lambda values, rounded, limit: rounded + 0 * values,
    ),
    Misconception(
        "everywhere",
        "The gradient passes beyond the limit, too. What was cut off does not change with its "
        "number: 0 there.",
        both(_rounded, lambda v, r, m: torch.ones_like(v)),
    ),
    Misconception(
        "not_rounded",
        "Forward, the values came out as they were; the rounded ones should.",
        both(lambda v, r, m: v, _inside),
    ),
    Misconception(
        "clamped",
        "Forward, the values came out cut off but not rounded.",
        lambda v, r, m: torch.where(v.abs() <= m, v, v.detach().sign() * m),
    ),
    Misconception(
        "only_outside",
        "It is the other way round: inside the limit the gradient passes, outside it is 0.",
        both(_rounded, lambda v, r, m: 1 - _inside(v, r, m)),
    ),
    Misconception(
        "limit_left_out",
        "A number exactly at the limit was not cut off: its gradient passes (<=, not <).",
        both(_rounded, lambda v, r, m: (v.abs() < m).to(v.dtype)),
    ),
    Misconception(
        "negatives_pass",
        "Negative numbers pass, however large: compare the magnitude with the limit.",
        both(_rounded, lambda v, r, m: (v <= m).to(v.dtype)),
    ),
    Misconception(
        "doubled",
        "Forward, the value was added to the rounded one: take it away again, detached.",
        lambda v, r, m: r + torch.where(v.abs() <= m, v, v.detach()),
    ),
    Misconception(
        "sign_turned",
        "The gradient comes back with the other sign.",
        both(_rounded, lambda v, r, m: -_inside(v, r, m)),
    ),
    Misconception(
        "scaled",
        "The gradient was scaled by how far the rounding moved the number. It passes as it came.",
        both(_rounded, lambda v, r, m: _inside(v, r, m) * r / v),
    ),
    Misconception(
        "one_limit",
        "One limit was used for all rows; each row has its own.",
        both(_rounded, lambda v, r, m: (v.abs() <= m.max()).to(v.dtype)),
    ),
)
