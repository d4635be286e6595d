"""Chapter 08: groups. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from grading.checks.ch08_bytes import HELD
from grading.checks.ch08_reading import SINKING, TURNING
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.hints import tied
from grading.misconceptions.ch08_overlap import OVERLAP
from grading.misconceptions.ch08_pool import POOL
from grading.misconceptions.ch08_visible import VISIBLE
from grading.references import ch08 as reference

NOTEBOOK = "08__groups"

# ---------------------------------------------------------------- 08.1

FIRST = "a text from its first token"
LATER = "the newest tokens of a longer text"
ASKED = ("start", "new", "groups", "m")


def visible_cases(draw: Draw) -> tuple[Case, ...]:
    """From the start; a later chunk; one token that completes a group, and the one before it."""
    m, new, past = draw.sizes(3)
    cases = []
    for part, start, count in (
        (FIRST, 0, 3 * m + 2),
        (LATER, past, new),
        (LATER, 2 * m - 1, 1),
        (LATER, 3 * m - 2, 1),
        (LATER, 4 * m - 3, 7),
    ):
        groups = (start + count) // m + 1
        inputs = dict(start=start, new=count, groups=groups, m=m)
        cases.append(Case(part, f"start={start}, new={count}, groups={groups}, m={m}", inputs))
    return tuple(cases)


def run_visible(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in ASKED))
    if isinstance(given, torch.Tensor) and given.dtype == torch.bool:
        given = given.long()
    return {"visible (1: True)": given}


def expected_visible(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    mask = reference.visible_groups(*(inputs[name] for name in ASKED))
    return {"visible (1: True)": Expected(mask.astype(np.int64), "TG", kind="integer")}


SEEING = Exercise(
    id="08.1",
    title="Visible groups",
    notebook=NOTEBOOK,
    parts=(Part(FIRST, 1), Part(LATER, 1)),
    cases=visible_cases,
    run=run_visible,
    expected=expected_visible,
    hints=(
        tied(
            "At position t there are t + 1 tokens, so (t + 1) // m groups are complete: those "
            "numbered below it may be read.",
            "started", "one_late", "one_early", "up_to_and_with", "tokens_for_groups", FIRST,
        ),
        tied(
            "The positions of the new tokens are start + torch.arange(new).",
            "from_zero", "start_for_all", "last_for_all", LATER,
        ),
        tied(
            "torch.arange(groups) < counts_T[:, None] compares every group with every token.",
            "upside_down", "newest_only", "shape",
        ),
    ),
    misconceptions=VISIBLE,
)  # fmt: skip

# ---------------------------------------------------------------- 08.2


def fitting(draw: Draw, lengths: Callable, halves: int) -> list[int]:
    """Three sizes for which no text is as long as a row of numbers, or a power of two."""
    while True:
        m, groups, half = sizes = draw.sizes(3)
        tokens = lengths(m, groups)
        if halves * half not in (m, *tokens) and all(n & (n - 1) for n in tokens):
            return sizes


def pool_texts(m: int, groups: int) -> tuple[int, ...]:
    return m * groups, m, m * groups + m - 1, m + 2


def overlap_texts(m: int, groups: int) -> tuple[int, ...]:
    return m, m + 2, 2 * m, m * groups + m - 1


EVEN = "whole groups only"
OPEN = "with an open group at the end"
POOLED = ("value", "gate", "bias")


def grouped_cases(
    draw: Draw, parts: tuple[str, ...], texts: Callable, halves: int, letter: str
) -> tuple[Case, ...]:
    """A case a text length: values and gates of `halves` times D numbers, and a bias."""
    m, groups, dim = fitting(draw, texts, halves)
    batch, width = draw.integer(2, 3), halves * dim
    cases = []
    for part, tokens in zip(parts, texts(m, groups), strict=True):
        inputs = {
            "value": draw.normal(batch, tokens, width),
            "gate": draw.normal(batch, tokens, width, scale=1.5),
            "bias": draw.normal(m, width),
        }
        cases.append(Case(part, f"B={batch}, S={tokens}, {letter}={width}, M={m}", inputs))
    return tuple(cases)


def pool_cases(draw: Draw) -> tuple[Case, ...]:
    """Whole groups, an open one of several tokens, one group, and two tokens more than that."""
    return grouped_cases(draw, (EVEN, EVEN, OPEN, OPEN), pool_texts, 1, "D")


POOLING = Exercise(
    id="08.2",
    title="Plain pooling",
    notebook=NOTEBOOK,
    parts=(Part(EVEN, 2), Part(OPEN, 1)),
    cases=pool_cases,
    run=call(*POOLED, output="entries"),
    expected=lambda inputs: {
        "entries": Expected(reference.pool_groups(*(inputs[name] for name in POOLED)), "BGD")
    },
    hints=(
        tied(
            "G = S // m groups are complete: value_BSD[:, : G * m].unflatten(1, (G, m)) has one "
            "axis for groups and one for their tokens.",
            "half_built", "from_the_end", "strided", OPEN, "shape",
        ),
        tied(
            "Gates in groups, plus bias_MD: its first row meets the first token of each group.",
            "no_bias", "bias_reversed", "bias_on_weights",
        ),
        tied(
            "softmax(2) runs over the tokens of a group. Multiply by the values, sum over axis 2.",
            "over_channels", "over_groups", "one_weight_a_token", "sigmoid", "mean_of_values",
            "mean_of_weighed", "no_softmax", EVEN,
        ),
    ),
    misconceptions=POOL,
)  # fmt: skip

# ---------------------------------------------------------------- 08.3

ALONE = "the first group"
AFTER = "groups after another"


def overlap_cases(draw: Draw) -> tuple[Case, ...]:
    """One group; two groups, judged apart; several, with tokens left over."""
    return grouped_cases(draw, (ALONE, ALONE, AFTER, AFTER), overlap_texts, 2, "C")


OVERLAPPING = Exercise(
    id="08.3",
    title="The overlapping compressor",
    notebook=NOTEBOOK,
    parts=(Part(ALONE, 1), Part(AFTER, 3)),
    cases=overlap_cases,
    run=call(*POOLED, output="entries"),
    expected=lambda inputs: {
        "entries": Expected(reference.pool_overlapping(*(inputs[name] for name in POOLED)), "BGD")
    },
    hints=(
        tied(
            "Add the bias first: bias_MC[torch.arange(S) % m] has a row for every token.",
            "no_bias", "bias_halves_swapped",
        ),
        tied(
            "Entry j begins at first = j * m. Its rows: [first - m : first] with the numbers :D, "
            "and [first : first + m] with the numbers D:.",
            "halves_swapped", "first_half_of_both", "last_half_of_both", "next_group",
            "no_overlap", AFTER,
        ),
        tied(
            "For entry 0 take an empty slice for the rows before it (max(0, first - m) : first), "
            "or give them a gate of -inf.",
            "first_weighs_nothing_real", "around_the_corner", "first_left_out", ALONE,
        ),
        tied(
            "torch.cat the two pieces over the tokens, one softmax over all of them, times the "
            "values, summed. Only complete groups.",
            "two_softmaxes", "over_channels", "open_group", "shape",
        ),
    ),
    misconceptions=OVERLAP,
)  # fmt: skip


def _as_it_is(mine: Callable) -> Callable:
    return mine


PARTS = {
    "08.2": ("pool", _as_it_is),
    "08.3": ("pool_overlapping", _as_it_is),
    "08.4": ("attend_with_sink", _as_it_is),
}

EQUIVALENT: dict[str, dict[str, str]] = {
    "08.3": {
        "0  ->  -1": "the slice before the first group is empty, from -1 as well as from 0",
        "max(0, first - m)  ->  max(first - m, 0)": "the larger of two, in either order",
    },
    "08.6": {"min(n, window)  ->  min(window, n)": "the smaller of two, in either order"},
}

EXERCISES = (SEEING, POOLING, OVERLAPPING, SINKING, TURNING, HELD)
