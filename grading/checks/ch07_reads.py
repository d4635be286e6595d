"""Exercises 07.3 and 07.4: what a choice saves, and how it is found without sorting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch07_reads import READS
from grading.misconceptions.ch07_threshold import THRESHOLD
from grading.references import ch07 as reference
from grading.references.sorting import Sorting

NOTEBOOK = "07__sparse_attention"

# ---------------------------------------------------------------- 07.3

KEPT = "bytes kept of a token"
READ = "bytes read for a new token"
SUM = ("layers", "latent", "rope", "index", "k", "context")
V3_2 = (61, 512, 64, 128, 2048)


def reads_cases(draw: Draw) -> tuple[Case, ...]:
    """V3.2 with a long and with a short context, and made-up models with all numbers different."""
    models = [(*V3_2, 131_072), (*V3_2, 1_000), (*V3_2, 2_048)]
    for far in (True, False):
        layers, a, b, c, k = draw.sizes(5)
        context = 10 * k + draw.integer(1, 9) if far else k - draw.integer(1, 2)
        models.append((layers, 10 * a + 4, b + 14, 2 * c + 45, k, context))
    cases = []
    for model in models:
        inputs = dict(zip(SUM, model, strict=True))
        says = ", ".join(f"{name} {value:,}" for name, value in inputs.items())
        cases += [Case(part, says, inputs | {"asked": part}) for part in (KEPT, READ)]
    return tuple(cases)


def run_reads(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in SUM))
    if isinstance(given, torch.Tensor | np.ndarray):  # a pair all the same
        given = given.tolist()
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: kept, read)": given}
    return {KEPT: given[0], READ: given[1]}


def expected_reads(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    counted = dict(zip((KEPT, READ), reference.reads(*(inputs[name] for name in SUM))))
    return {inputs["asked"]: Expected(np.array(float(counted[inputs["asked"]])), atol=1e-6)}


READS_AND_BYTES = Exercise(
    id="07.3",
    title="Reads against bytes",
    notebook=NOTEBOOK,
    parts=(Part(KEPT, 1), Part(READ, 2)),
    cases=reads_cases,
    run=run_reads,
    expected=expected_reads,
    hints=(
        tied(
            "Kept of a token: layers x (latent + rope + index) x 2. k is not in it, nor is the "
            "context: what is not chosen today may be chosen tomorrow.",
            "no_index_kept", "index_instead", "kept_by_choice", KEPT,
        ),
        tied(
            "Read in a layer: the index keys of all `context` tokens, and the rows (latent + rope) "
            "of min(k, context).",
            "no_index_read", "index_of_chosen", "all_rows_read", "always_k", READ,
        ),
        "Both in all layers, 2 bytes a number.",
    ),
    misconceptions=READS,
)  # fmt: skip

# ---------------------------------------------------------------- 07.4

RIGHT = "the k-th largest key"
COUNTED = "found without sorting"
SORTED = "calls of a sorting function"


def threshold_cases(draw: Draw) -> tuple[Case, ...]:
    """Keys all over the range, with equal ones; the highest and lowest bit decide; k = N, k = 1."""
    bits, count = 9 + draw.integer(0, 3), 32 + draw.integer(1, 7)
    cases = []

    def case(keys, k, width, says):
        inputs = {"key": torch.tensor(keys), "k": k, "bits": width}
        cases.append(Case(RIGHT, f"N={len(keys)}, k={k}, bits={width}{says}", inputs))

    spread = draw.random.integers(0, 2**bits, count).tolist()
    case(spread, draw.integer(5, 9), bits, "")
    case(spread, count, bits, ": all of them reach it")
    case(spread, 1, bits, ": the largest")
    few = draw.random.integers(0, 7, count).tolist()  # many equal ones
    case(few, draw.integer(10, 20), 3, ", many equal keys")
    high = [2**bits - 1 - int(x) for x in draw.random.permutation(40)[:count]]
    case(high, draw.integer(5, 9), bits, ", all near the top")
    case([0] * 5 + [6, 3], 4, 5, ", the threshold is 0")
    return tuple(cases)


def run_threshold(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    with Sorting() as seen:
        found = answer(inputs["key"], inputs["k"], inputs["bits"])
    return {"threshold": found, SORTED: int(bool(seen.asked))}


def expected_threshold(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    found = reference.threshold(inputs["key"].tolist(), inputs["k"])
    return {
        "threshold": Expected(np.array(float(found)), atol=1e-6),
        SORTED: Expected(
            np.array(0.0), kind="cost", part=COUNTED,
            too_much="a sorting function was called; only counting is needed",
        ),
    }  # fmt: skip


BISECTION = Exercise(
    id="07.4",
    title="A threshold instead of sorting",
    notebook=NOTEBOOK,
    parts=(Part(RIGHT, 2), Part(COUNTED, 1)),
    cases=threshold_cases,
    run=run_threshold,
    expected=expected_threshold,
    hints=(
        tied(
            "Begin with 0 and go through the bits from the highest, bits - 1, down to 0.",
            "lowest_bit_first", "highest_bit_missing", "lowest_bit_missing",
        ),
        tied(
            "The candidate is what is settled so far with this bit set: threshold | (1 << bit).",
            "bits_do_not_add_up", COUNTED,
        ),
        tied(
            "(key_N >= candidate).sum() keys reach it. If that is at least k, the bit stays.",
            "more_than_k", "fewer_than_k", "above_not_reached", "one_less", "one_more", RIGHT,
        ),
    ),
    misconceptions=THRESHOLD,
)  # fmt: skip
