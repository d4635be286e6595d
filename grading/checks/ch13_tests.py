"""Chapter 13: a test of the learner's own, graded on broken and on right caches."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch13_tests import TESTS
from grading.references.lab_caches import FAULTS, RIGHT, broken

SEED = "random numbers of the test"
BLAMED = "right cache {} blamed"
FREE = "broken caches that went free"
CAUGHT = "broken caches that were caught"
KINDS = (
    "keeps the whole text and computes everything anew", "keeps no more than it needs",
    "keeps its rows in 8 bits, so leave room for rounding",
    "keeps its rows in 8 bits, rounded up or down by chance, so leave room for that",
)  # fmt: skip
"""What is said of each of RIGHT."""


def faulty_cases(draw: Draw) -> tuple[Case, ...]:
    """Each broken cache, and with each of them all the right ones."""
    return tuple(
        Case(
            fault,
            f"the cache with {fault}, and {len(RIGHT)} right ones",
            {"fault": fault, SEED: draw.integer(1, 10**9)},
        )
        for fault in FAULTS
    )


def run_test(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """1 where the test blames a cache. Who blames a right one has caught nothing.

    Caches cannot be told apart by name, by looks or by turn: all come as one kind of `Cache`, in
    an order that is drawn. CAUGHT keeps a test from being taken, fault by fault, for one that
    overlooks what this one finds.
    """
    torch.manual_seed(inputs[SEED])
    makers = {BLAMED.format(number): make for number, make in enumerate(RIGHT, 1)}
    makers |= {fault: broken(fault) for fault in FAULTS}
    turns = random.Random(inputs[SEED]).sample(list(makers), len(makers))
    verdicts = {name: _verdict(answer, makers[name]) for name in turns}
    caught = {fault: verdicts.pop(fault) for fault in FAULTS}
    return verdicts | {FREE: 1 - caught[inputs["fault"]], CAUGHT: sum(caught.values())}


def expected_verdicts(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    def none(why: str) -> Expected:
        return Expected(np.array(0.0), kind="cost", too_much=why)

    right = {
        BLAMED.format(number): none(f"You blamed a right cache: this one {kind}")
        for number, kind in enumerate(KINDS, 1)
    }
    free = none(f"The cache with {inputs['fault']} went free")
    return right | {FREE: free, CAUGHT: Expected(np.array(float(len(FAULTS))), kind="cost")}


class Cache:
    """What a test may see of a cache: what it does, not how it is built or which fault it has.

    Plain functions, because a bound method would show the cache itself as its `__self__`.
    """

    __slots__ = ("append", "reset", "select")

    def __init__(self, cache: Any):
        self.append = lambda x_BTD: cache.append(x_BTD)
        self.select = lambda order_B: cache.select(order_B)
        self.reset = lambda: cache.reset()


def _verdict(answer: Any, make: Any) -> int:
    """What the test says, as 0 or 1; it sees a maker without a name."""
    given = answer(lambda **sizes: Cache(make(**sizes)))
    if isinstance(given, torch.Tensor) and given.numel() == 1:
        given = given.item()
    if not isinstance(given, bool | np.bool_ | int):
        raise ValueError(f"is_broken should give True or False; it gave {type(given).__name__}")
    return int(bool(given))


TESTS_GRADED = Exercise(
    id="13.7",
    title="The test that would have caught them",
    notebook="13__capstone",
    parts=tuple(Part(fault, 1) for fault in FAULTS),
    cases=faulty_cases,
    run=run_test,
    expected=expected_verdicts,
    hints=(
        tied(
            "A right cache answers the same, however you ask: a text at once or token by token, "
            "a new cache or one that was reset, texts exchanged before or after. Make two, compare "
            "shapes first and then numbers.",
            "blames_none", "only_at_once", "looks_at_rows_only", FAULTS[0], FAULTS[5],
        ),
        tied(
            "Compare with room: (a - b).abs() > 0.03 * b.abs().amax(-1, keepdim=True) is a real "
            "difference, less is rounding.",
            "blames_all", "to_the_last_digit",
        ),
        tied(
            "Reset in the middle of a group. Select with an order such as [1, 2, 0], in which row "
            "0 is overwritten before it is copied.",
            "never_resets", "one_text_only", "never_selects",             FAULTS[1], FAULTS[2],
        ),
        tied(
            "Count the rows: min(n, window) and n // group. Make some tokens 1,000 times larger "
            "than their neighbours.",
            "never_counts", "all_alike", FAULTS[3], FAULTS[4],
        ),
    ),
    misconceptions=TESTS,
    seconds=30.0,
)  # fmt: skip
