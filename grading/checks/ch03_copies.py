"""Exercises 03.3 to 03.5: Sinkhorn's turns, the update of the copies, and their traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.hints import tied
from grading.misconceptions import ch03_sinkhorn, ch03_traffic, ch03_update
from grading.references import ch03 as reference

NOTEBOOK = "03__residual_stream"

FIRST = "the first turn"
FURTHER = "further turns"


def sinkhorn_cases(draw: Draw) -> tuple[Case, ...]:
    """Few turns, while each still changes much; eps large enough to be seen, and V4's own."""
    (tokens,) = draw.sizes(1)
    batch = draw.integer(2, 3)
    cases = []
    for part, copies, turns, eps in (
        (FIRST, 3, 1, 0.04),
        (FURTHER, 3, 2, 0.03),
        (FURTHER, 2, 3, 0.02),
        (FURTHER, 3, 5, 1e-6),
    ):
        logits = draw.normal(batch, tokens, copies, copies, scale=2.0)
        says = f"B={batch}, T={tokens} tokens, N={copies} copies, {turns} turns, eps={eps:g}"
        inputs = {"logits": logits, "iterations": turns, "eps": eps}
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def expected_sinkhorn(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    logits = np.asarray(inputs["logits"])
    value = reference.sinkhorn(logits, inputs["iterations"], inputs["eps"])
    return {"matrix": Expected(value, "BTij")}


SINKHORN = Exercise(
    id="03.3",
    title="Sinkhorn's turns",
    notebook=NOTEBOOK,
    parts=(Part(FIRST, 1), Part(FURTHER, 2)),
    cases=sinkhorn_cases,
    run=call("logits", "iterations", "eps", output="matrix"),
    expected=expected_sinkhorn,
    hints=(
        tied(
            "softmax(-1) makes each row sum to 1: the last axis runs along a row. Then + eps.",
            "softmax_of_columns", "softmax_of_all", "no_softmax", "no_eps_after_softmax",
            "log_softmax", "raw_logits", "no_eps",
        ),
        tied(
            "The sum of each column is a sum down the rows: matrix.sum(-2, keepdim=True). "
            "keepdim leaves the axis there, so that the division fits.",
            "rows_and_columns_confused", "columns_only", "shape",
            "rows_only", "mean_for_sum", "no_eps_in_sums", "transposed",
        ),
        tied(
            "Columns once; then, iterations - 1 times, rows and columns. Take each sum from "
            "the matrix as it is by then.",
            "one_turn_more", "one_turn_less", "both_at_once", "rows_last", FURTHER,
            "first_turn_only", "rows_in_the_first_turn",
        ),
    ),
    misconceptions=ch03_sinkhorn.SINKHORN,
)  # fmt: skip

NEW = "the new copies"
READ = "what the next sublayer reads"
WEIGHTS = ("copies", "found", "pre", "post", "comb")


def update_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for copies in (3, 2, 3):
        tokens, width = draw.sizes(2)
        batch = 2 if copies == 3 else 3
        inputs = {
            "copies": draw.normal(batch, tokens, copies, width),
            "found": draw.normal(batch, tokens, width),
            "pre": draw.normal(batch, tokens, copies).sigmoid(),
            "post": 2 * draw.normal(batch, tokens, copies).sigmoid(),
            "comb": draw.normal(batch, tokens, copies, copies).softmax(-2),
        }
        says = f"B={batch}, T={tokens} tokens, N={copies} copies, X={width}"
        cases.append(Case(NEW, says, inputs))
    return tuple(cases)


def run_update(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in WEIGHTS))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: new copies, input)": given}
    return dict(zip((NEW, READ), given))


def expected_update(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    new, read = reference.update_copies(*(np.asarray(inputs[name]) for name in WEIGHTS))
    return {NEW: Expected(new, "BTNX"), READ: Expected(read, "BTX", part=READ)}


UPDATE = Exercise(
    id="03.4",
    title="The update of the copies",
    notebook=NOTEBOOK,
    parts=(Part(NEW, 2), Part(READ, 1)),
    cases=update_cases,
    run=run_update,
    expected=expected_update,
    hints=(
        tied(
            "post_BTN[..., None] gives post an axis for the channels, found_BTX[:, :, None] gives "
            "F one for the copies: their product is [B, T, N, X].",
            "no_post", "found_not_added", "post_on_the_mix", "pre_and_post_swapped",
            "divided_by_copies",
        ),
        tied(
            "The sum over i of comb[i, j] times copy i: "
            'torch.einsum("btij,btix->btjx", comb, copies), or comb.transpose(-1, -2) @ copies.',
            "comb_transposed", "not_mixed", "added_before_mixing",
            "old_copies_lost", "kept_besides", "in_place",
        ),
        tied(
            "What is read: (pre_BTN[..., None] * new_BTNX).sum(2), from the new copies.",
            READ, "reads_old_copies", "reads_the_first_copy", "reads_the_mean", "reads_with_post",
            "reads_without_pre", "answers_swapped",
        ),
    ),
    misconceptions=ch03_update.UPDATE,
)  # fmt: skip

BYTES = "the bytes"
ARGUMENTS = ("layers", "copies", "width", "bits_per_number", "schedule")


def traffic_cases(draw: Draw) -> tuple[Case, ...]:
    """V4-Flash and V4.1-Flash, and made-up models in other sizes of number."""
    models = [(43, 4, 4096, 16, "fused"), (40, 4, 5120, 16, "single")]
    for bits, schedule in ((16, "separate"), (4, "fused"), (12, "single"), (8, "separate")):
        layers, copies, width = draw.sizes(3)
        models.append((layers, copies, 8 * width, bits, schedule))
    cases = []
    for model in models:
        inputs = dict(zip(ARGUMENTS, model, strict=True))
        says = ", ".join(f"{name} {value}" for name, value in inputs.items())
        cases.append(Case(BYTES, says, inputs))
    return tuple(cases)


TRAFFIC = Exercise(
    id="03.5",
    title="Count the traffic",
    notebook=NOTEBOOK,
    parts=(Part(BYTES, 2),),
    cases=traffic_cases,
    run=call(*ARGUMENTS, output="bytes"),
    expected=lambda inputs: {
        "bytes": Expected(
            np.array(float(reference.stream_traffic(*(inputs[name] for name in ARGUMENTS)))),
            kind="integer",
        )
    },
    hints=(
        tied(
            "Count the table row by row, reads and writes: `all copies` are `copies` streams, F "
            "and the input one each. For \"single\" that is 2 copies + 2.",
            "reads_only", "writes_only", "copies_only", "copies_everywhere", "answer_not_read",
            "fused_as_single", "no_norm_pass", "one_copy", "schedules_reversed",
        ),
        tied(
            "A stream is `width` numbers of bits / 8 bytes. Multiply everything first and divide "
            "by 8 at the end, with //.",
            "bits", "numbers", "rounds_bits_first",
        ),
        tied(
            "Once for every sublayer, and there are two in a layer.",
            "layers_for_sublayers", "one_sublayer",
        ),
    ),
    misconceptions=ch03_traffic.TRAFFIC,
)  # fmt: skip
