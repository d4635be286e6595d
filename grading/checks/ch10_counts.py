"""Exercises 10.3 and 10.4: what sharing is worth, and the work of a written token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch10_sharing import SHARING
from grading.misconceptions.ch10_work import WORK
from grading.references import ch10 as reference

NOTEBOOK = "10__csa2"

# ---------------------------------------------------------------- 10.3

AS_SHARED, UNSHARED = "as shared", "unshared"
SUM = ("ratios", "owners", "entry_bytes", "key_bytes")
V4_1 = ((0, 0) + (2,) * 18 + (1,) * 20, (2, 8, 14, 20))
ROWS = {"bf16": (1024, 256), "fp4": (288, 68)}


def sharing_cases(draw: Draw) -> tuple[Case, ...]:
    """V4.1 in two formats, and towers of other ratios."""
    towers: list[tuple] = [(*V4_1, *row) for row in ROWS.values()]
    for _ in range(2):
        windows, low, high = draw.integer(1, 3), draw.integer(4, 7), draw.integer(5, 9)
        entry, key = 10 * draw.integer(11, 30) + 3, draw.integer(21, 90)
        ratios = (0,) * windows + (4,) * low + (2,) * high
        owners = (windows, windows + 2, windows + low, windows + low + draw.integer(1, 3))
        towers.append((ratios, owners, entry, key))
    cases = []
    for tower in towers:
        inputs = dict(zip(SUM, tower, strict=True))
        says = (
            f"{len(inputs['ratios'])} layers, owners {', '.join(map(str, inputs['owners']))}, "
            f"{inputs['entry_bytes']:,} + {inputs['key_bytes']} bytes"
        )
        cases += [Case(part, says, inputs | {"asked": part}) for part in (AS_SHARED, UNSHARED)]
    return tuple(cases)


def run_sharing(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in SUM))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: as shared, unshared)": given}
    return {AS_SHARED: given[0], UNSHARED: given[1]}


def expected_sharing(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    sums = dict(zip((AS_SHARED, UNSHARED), reference.sharing(*(inputs[name] for name in SUM))))
    return {inputs["asked"]: Expected(np.array(float(sums[inputs["asked"]])), atol=1e-6)}


SHARED = Exercise(
    id="10.3",
    title="What sharing is worth",
    notebook=NOTEBOOK,
    parts=(Part(AS_SHARED, 1), Part(UNSHARED, 1)),
    cases=sharing_cases,
    run=run_sharing,
    expected=expected_sharing,
    hints=(
        tied(
            "A row is an entry and its key: entry_bytes + key_bytes. A layer of ratio m adds a row "
            "for every m tokens, so row / m a token.",
            "ratio_forgotten", "ratio_multiplied", "no_keys", "keys_alone", "entry_twice",
            "rounded",
        ),
        tied(
            "As shared: the sum of row / ratios[layer] over the layers in `owners`. Borrowers keep "
            "nothing.",
            "keys_by_all", "entries_by_all", "one_owner", "layer_numbers", "swapped", AS_SHARED,
        ),
        tied(
            "Unshared: the same sum over all layers whose ratio is not 0.",
            "windows_keep", "owners_besides", UNSHARED,
        ),
    ),
    misconceptions=SHARING,
)  # fmt: skip

# ---------------------------------------------------------------- 10.4

READ, SCORES = "FLOPs of attention", "FLOPs of index scores"
SIZES = (
    "n", "modes", "ratios", "window", "top_k", "pool", "heads", "dim", "index_heads", "index_dim",
)  # fmt: skip
REAL_MODES = (
    ("window",) * 2 + ("full", *("reuse",) * 5) * 3 + ("full", *("reuse",) * 3)
    + ("reindex", *("reuse",) * 3) * 4
)  # fmt: skip


def work_cases(draw: Draw) -> tuple[Case, ...]:
    """V4.1 at some contexts; small towers, short and long."""
    drawn: list[tuple] = [
        (n, REAL_MODES, V4_1[0], 128, 512, 16_384, 64, 512, 32, 128)
        for n in (100 + draw.integer(1, 9), 9_001, 1_048_576)
    ]
    for long in (False, True):
        heads, dim, index_heads, index_dim, more = draw.sizes(5)
        low = ("window", "full", *("reuse",) * draw.integer(1, 3))
        modes = (*low, "full", "reuse", *("reindex", "reuse", "reuse") * draw.integer(1, 2))
        ratios = (0, *(4,) * (len(low) - 1), *(1,) * (len(modes) - len(low)))
        n = 4 * (5 + more) + (401 if long else 3)
        sizes = (17, 11, 93, heads, 10 * dim + 3, index_heads, 10 * index_dim + 7)
        drawn.append((n, modes, ratios, *sizes))
    cases = []
    for values in drawn:
        inputs = dict(zip(SIZES, values, strict=True))
        says = f"n = {inputs['n']:,}, {len(inputs['modes'])} layers, " + ", ".join(
            f"{name} {inputs[name]:,}" for name in SIZES[3:]
        )
        cases += [Case(part, says, inputs | {"asked": part}) for part in (READ, SCORES)]
    return tuple(cases)


def run_work(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in SIZES))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: attention, scores)": given}
    return {READ: given[0], SCORES: given[1]}


def expected_work(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    counted = dict(zip((READ, SCORES), reference.work_at(*(inputs[name] for name in SIZES))))
    return {inputs["asked"]: Expected(np.array(counted[inputs["asked"]]), kind="integer")}


WORK_AT = Exercise(
    id="10.4",
    title="The work of a written token",
    notebook=NOTEBOOK,
    parts=(Part(READ, 1), Part(SCORES, 2)),
    cases=work_cases,
    run=run_work,
    expected=expected_work,
    hints=(
        tied(
            "Every layer reads min(n, window) rows; with a ratio, min(n // ratio, top_k) far "
            "entries more, whatever its mode.",
            "reads_everything", "always_top_k", "owners_read", "no_window", "full_window",
            "ratio_forgotten", "groups_rounded_up", "windows_read_far", "last_layer_missing",
        ),
        tied(
            "An entry read costs 2 x dim FLOPs as key and 2 x dim as value, in each head.",
            "keys_only", "no_heads", "multiplications", READ,
        ),
        tied(
            "Scores: full layers n // ratio entries, reindex layers min(n // ratio, pool), reuse "
            "and window layers none; 2 x index_dim FLOPs in each index head.",
            "reuse_scores", "reindex_scores_all", "reindex_scores_pool", "full_scores_pool",
            "only_full_scores", "one_index_head", "scores_twice", SCORES,
        ),
    ),
    misconceptions=WORK,
)  # fmt: skip
