"""Chapter 13: the fault lab, a test of one's own, the frontier. What is drawn, run, expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.checks.ch13_frontier import FRONTIER
from grading.checks.ch13_rows import GROUPS, SCALES, WINDOWS
from grading.checks.ch13_tests import TESTS_GRADED
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch13_beams import BEAMS
from grading.misconceptions.ch13_positions import POSITIONS, RESET
from grading.references import ch13 as reference

NOTEBOOK = "13__capstone"


def chunks(total: int, draw: Draw, most: int = 4) -> tuple[int, ...]:
    """Sizes that add up to `total`, one of them 1 and not all alike."""
    sizes = [1]
    while sum(sizes) < total:
        sizes.append(min(draw.integer(1, most), total - sum(sizes)))
    order = draw.random.permutation(len(sizes))
    return tuple(sizes[i] for i in order)


# ---------------------------------------------------------------- 13.1

TURNED = "every key at its place"


def turned_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for _ in range(2):
        length = 7 + 2 * draw.integer(0, 3)
        dim = (6, 10, 12)[draw.integer(0, 2)]
        batch = draw.integer(2, 3)
        sizes = (2, *chunks(length - 2, draw))
        inputs = {"key": draw.normal(batch, length, dim), "sizes": sizes}
        says = f"B={batch}, D={dim}, chunks of {', '.join(map(str, sizes))} tokens"
        cases.append(Case(TURNED, says, inputs))
    return tuple(cases)


def run_turned(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The cache is fed chunk by chunk; a second one for another text is used in between."""
    key, cache = inputs["key"], answer(inputs["key"].shape[-1])
    seen, start = {}, 0
    for n, size in enumerate(inputs["sizes"], 1):
        seen[f"keys after chunk {n}"] = cache.append(key[:, start : start + size].clone())
        start += size
        if n == 1:
            answer(key.shape[-1]).append(key.flip(1))
    return seen


def expected_turned(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    ends = np.cumsum(inputs["sizes"])
    whole = reference.turned_keys(inputs["key"])
    return {
        f"keys after chunk {n}": Expected(whole[:, :end], "BSD") for n, end in enumerate(ends, 1)
    }


STALE = Exercise(
    id="13.1",
    title="A stale position",
    notebook=NOTEBOOK,
    parts=(Part(TURNED, 2),),
    cases=turned_cases,
    run=run_turned,
    expected=expected_turned,
    hints=(
        tied(
            "Print position_T in both calls of `append`. Which one is wrong, and what should it "
            "be?",
            "as_it_was", "not_turned", "one_position", "backwards", "counts_chunks",
            "counts_texts",
        ),
        tied(
            "A new key's position is the number of keys that were kept before it: 0 while nothing "
            "is kept, else self.kept_BSD.shape[1].",
            "from_one", "one_before", "counts_too_late",
        ),
        tied(
            "torch.arange(start, start + T). Turn the new keys only, put them behind the old ones, "
            "return all.",
            "turned_again", "in_front", "new_keys_only", "forgets", "shape",
        ),
    ),
    misconceptions=POSITIONS,
)  # fmt: skip

# ---------------------------------------------------------------- 13.2

SECOND = "a second and a third text"


def reset_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for _ in range(2):
        size, batch = (3, 5)[draw.integer(0, 1)], draw.integer(2, 3)
        dim = (6, 10, 12)[draw.integer(0, 2)]
        lengths = (size + 2 + 2 * draw.integer(0, 1), 2 * size + 1, 3 * size)
        inputs: dict[str, Any] = {
            f"text {n}": draw.normal(batch, length, dim) for n, length in enumerate(lengths, 1)
        }
        says = f"B={batch}, D={dim}, groups of {size}, texts of {', '.join(map(str, lengths))}"
        cases.append(Case(SECOND, says, inputs | {"size": size}))
    return tuple(cases)


def run_reset(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    cache, seen = answer(inputs["size"], inputs["text 1"].shape[-1]), {}
    for n in (1, 2, 3):
        if n > 1:
            cache.reset()
        seen[f"entries of text {n}"] = cache.append(inputs[f"text {n}"])
    return seen


RESETS = Exercise(
    id="13.2",
    title="No reset",
    notebook=NOTEBOOK,
    parts=(Part(SECOND, 2),),
    cases=reset_cases,
    run=run_reset,
    expected=lambda inputs: {
        f"entries of text {n}": Expected(
            reference.pooled(inputs[f"text {n}"], inputs["size"]), "BND"
        )
        for n in (1, 2, 3)
    },
    hints=(
        tied(
            "What does a new cache hold? Compare __init__ with reset, line by line.",
            "as_it_was", "nothing", "waiting_stays", "position_stays", "entries_stay",
            "only_the_position", "only_the_waiting",
        ),
        tied(
            "Three things must be as in a new cache: no entries, nothing that waits, position 0.",
            "from_one", "from_minus_one", "last_one_waits", "rounded_position",
        ),
    ),
    misconceptions=RESET,
)  # fmt: skip

# ---------------------------------------------------------------- 13.3

OWN = "each text reads its own rows"


def beam_cases(draw: Draw) -> tuple[Case, ...]:
    """Orders in which a text is overwritten before it is copied, and one is there twice."""
    cases = []
    for order in ((1, 2, 0, 3, 4), (2, 0, 0, 4, 3), (4, 3, 1, 1, 0)):
        dim, batch = draw.sizes(1)[0], 5
        dim = 7 if dim == batch else dim
        shuffle = torch.tensor(draw.random.permutation(batch))
        turn = torch.empty_like(shuffle)
        turn[shuffle] = shuffle[torch.tensor(order)]  # the same order under other names
        orders = (torch.tensor(order), turn)
        steps: list[Any] = []
        for round_, chosen in enumerate(orders):
            for n in range(3):
                grows = torch.tensor(draw.random.random(batch) < 0.6)
                grows[n] = True
                steps.append(("append", draw.normal(batch, dim), grows))
            steps.append(("select", chosen))
            everyone = torch.ones(batch, dtype=torch.bool)
            if round_:
                everyone[draw.integer(0, batch - 1)] = False
            steps.append(("append", draw.normal(batch, dim), everyone))
        says = f"B={batch}, D={dim}, orders {' and '.join(str(o.tolist()) for o in orders)}"
        cases.append(Case(OWN, says, {"steps": tuple(steps), "sizes": (batch, 9, dim)}))
    return tuple(cases)


def run_beams(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    cache, seen = answer(*inputs["sizes"]), {}
    for n, (name, *given) in enumerate(inputs["steps"], 1):
        getattr(cache, name)(*(x.clone() for x in given))
        if name == "select" or n == len(inputs["steps"]):
            rows, lengths = cache.read()
            seen[f"rows after step {n}"] = rows.clone()
            seen[f"lengths after step {n}"] = lengths.clone()
    return seen


def expected_beams(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    wanted = {}
    for n, (name, *_) in enumerate(inputs["steps"], 1):
        if name == "select" or n == len(inputs["steps"]):
            rows, lengths = reference.beams(inputs["steps"][:n], *inputs["sizes"])
            wanted[f"rows after step {n}"] = Expected(rows, "BSD")
            wanted[f"lengths after step {n}"] = Expected(lengths, "B", kind="integer")
    return wanted


LEAKED = Exercise(
    id="13.3",
    title="A leaked batch row",
    notebook=NOTEBOOK,
    parts=(Part(OWN, 2),),
    cases=beam_cases,
    run=run_beams,
    expected=expected_beams,
    hints=(
        tied(
            "Follow select([1, 0]) with a pencil. What is in row 0 when it is copied to row 1?",
            "as_it_was", "in_place_backwards", "lengths_first", "emptied",
        ),
        tied(
            "rows[order_B] makes a new tensor whose row i is row order_B[i] of the old one: all "
            "are read before anything is written.",
            "to_instead_of_from", "sorted", "each_once", "nothing_moves",
        ),
        tied(
            "Rows and lengths belong together: both move, in the same order.",
            "lengths_stay", "lengths_in_place", "rows_stay", "as_long_as_the_shortest",
            "as_long_as_the_longest",
        ),
    ),
    misconceptions=BEAMS,
)  # fmt: skip

EXERCISES = (
    STALE, RESETS, LEAKED, WINDOWS, SCALES, GROUPS, TESTS_GRADED, FRONTIER,
)  # fmt: skip

_ANOTHER = "another test, with other numbers, that catches as much"
_BOTH_WAYS = "differences are the same, whichever of the two is taken away"
_MEASURED = "so large a difference is one either way: the loud tokens are 1,000 times larger"

EQUIVALENT = {
    "13.7": {
        "1000  ->  1001": _ANOTHER,
        "1000  ->  999": _ANOTHER,
        "13  ->  14": _ANOTHER,
        "13  ->  12": _ANOTHER,
        "1  ->  2": _ANOTHER + " (another seed, other loud tokens, pieces of two)",
        "1  ->  0": _ANOTHER + " (another seed, other loud tokens, fewer or more of them reset)",
        "2  ->  3": _ANOTHER + " (every third token is loud)",
        "2  ->  1": _ANOTHER + " (the order 1, 1, 0)",
        "0  ->  1": _ANOTHER + " (the order 1, 2, 1)",
        "4  ->  5": _ANOTHER + " (the used cache had one token more)",
        "4  ->  3": _ANOTHER + " (the position of the old text stays, and tells)",
        "(:, :4)  ->  (:4, :)": _ANOTHER + " (the used cache had the whole text)",
        "0.03  ->  1.03": _MEASURED,
        "(ours - theirs).abs() > room  ->  (ours - theirs).abs() >= room": _MEASURED,
        "(ours, theirs[order])  ->  (theirs[order], ours)": _BOTH_WAYS,
        "zip(one_by_one, right)  ->  zip(right, one_by_one)": _BOTH_WAYS,
        "zip(again, right)  ->  zip(right, again)": _BOTH_WAYS,
        "differ(ours, theirs)  ->  differ(theirs, ours)": _BOTH_WAYS,
    },
}
