"""Exercises 01.5 and 01.6, for those who want to know how kernels read a long cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from grading.checks.kernel_lines import no_triton, ready
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch01_kernel import KERNEL_LINES, KernelLines
from grading.misconceptions.ch01_online import ONLINE
from grading.references import ch01 as reference

NOTEBOOK = "01__attention"
USUAL = "ordinary scores"
EDGES = "masked blocks, very large and very small scores"
KERNEL = "the kernel's output"
INFINITE = float("inf")
OVERWRITTEN = 12_345.0


def online_cases(draw: Draw) -> tuple[Case, ...]:
    """Ordinary scores in uneven blocks; then the edges where exp() and -inf bite."""
    rows, dim, first, last = draw.sizes(4)
    while (first + last + 1) in (rows, dim, 16):
        rows, dim, first, last = draw.sizes(4)
    blocks = (first, 1, last)

    def inputs(score: Any, blocks: tuple[int, ...] = blocks) -> dict[str, Any]:
        return {"score": score, "value": draw.normal(rows, sum(blocks), dim), "blocks": blocks}

    def scores(scale: float, shift: float = 0.0) -> Any:
        return draw.normal(rows, sum(blocks), scale=scale) + shift

    masked = scores(2.0)
    masked[0] = -INFINITE  # a row that sees nothing
    masked[1, :first] = -INFINITE  # nothing in its first block
    masked[2, first:] = -INFINITE  # nothing but its first block
    spread = scores(1.0)
    spread[:, ::2] += 150.0  # large and small scores side by side in a block
    sizes = f"N={rows} rows, blocks of {first}, 1 and {last}, D={dim}"
    return (
        Case(USUAL, sizes, inputs(scores(3.0))),
        Case(EDGES, f"{sizes}, scores around 200", inputs(scores(9.0, 200.0))),
        Case(EDGES, f"{sizes}, scores around -200", inputs(scores(9.0, -200.0))),
        Case(EDGES, f"{sizes}, scores around 0 and around 150", inputs(spread)),
        Case(EDGES, f"{sizes}, some blocks masked (-inf)", inputs(masked)),
        Case(EDGES, f"N={rows} rows, blocks of 1, {last} and {first}, D={dim}",
             inputs(scores(3.0), (1, last, first))),
    )  # fmt: skip


def stream(score_NS: Any, value_NSD: Any, sizes: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Blocks one after another; the one before is overwritten, as in a chip's small memory."""
    start = 0
    block: tuple[Any, ...] = ()
    for size in sizes:
        for tensor in block:
            tensor.fill_(OVERWRITTEN)
        block = tuple(x[:, start : start + size].clone() for x in (score_NS, value_NSD))
        start += size
        yield block[0], block[1]
    for tensor in block:
        tensor.fill_(OVERWRITTEN)


ONLINE_SOFTMAX = Exercise(
    id="01.5",
    title="Online softmax: attention in blocks",
    notebook=NOTEBOOK,
    parts=(Part(USUAL, 1), Part(EDGES, 1)),
    cases=online_cases,
    run=lambda answer, given: {
        "output": answer(stream(given["score"], given["value"], given["blocks"]))
    },
    expected=lambda given: {
        "output": Expected(reference.softmax_over_blocks(given["score"], given["value"]), "ND")
    },
    hints=(
        tied(
            "Carry three things from block to block, for each row: the largest score so far, the "
            "sum of the weights, and the weighted sum of the values.",
            "blocks_kept",
            "blocks_summed",
            "blocks_averaged",
            USUAL,
        ),
        tied(
            "Weights are exp(score - maximum). When a block brings a larger maximum, all that was "
            "summed before is too large by one factor: exp(old maximum - new maximum).",
            "accumulator_not_rescaled",
            "denominator_not_rescaled",
            "nothing_rescaled",
            "rescale_upside_down",
            "no_maximum",
            "newest_maximum",
        ),
        tied(
            "Start the maximum at -inf and both sums at 0. A row that has seen only -inf has the "
            "maximum -inf; subtract 0 there, or -inf minus -inf gives NaN.",
            "infinity_minus_infinity",
            "starts_at_zero",
            "finite",
            EDGES,
        ),
        tied(
            "At the end divide by the sum of the weights, and by 1 where that is 0.", "not_divided"
        ),
    ),
    misconceptions=ONLINE,
    optional=True,
)


def kernel_cases(draw: Draw) -> tuple[Case, ...]:
    """Several blocks with a remainder; fewer entries than one block; one entry."""
    rows, dim, length = sorted(draw.sizes(3))
    length += length % 4 == 0  # leave a remainder
    cases = []
    for entries in (length, 3, 1):
        inputs = {
            "query": draw.normal(rows, dim),
            "key": draw.normal(rows, entries, dim, scale=2.0),
            "value": draw.normal(rows, entries, dim),
        }
        says = f"{rows} rows, S={entries}, D={dim}, blocks of 4 entries"
        cases.append(Case(KERNEL, says, inputs))
    return tuple(cases)


def run_kernel(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """One program a row."""
    names = ("query", "key", "value")
    kernel, (query_ND, key_NSD, value_NSD), output_ND = ready(answer, KernelLines, inputs, names)
    rows, dim = query_ND.shape
    block = 1 << (dim - 1).bit_length()
    kernel[(rows,)](
        query_ND, key_NSD, value_NSD, output_ND, key_NSD.shape[1], dim**-0.5,
        D=dim, BLOCK_D=block, BLOCK_S=4,
    )  # fmt: skip
    return {"output": output_ND}


def expected_kernel(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    arrays = (np.asarray(inputs[name], np.float64) for name in ("query", "key", "value"))
    rows = [reference.attend_one(query, key, value) for query, key, value in zip(*arrays)]
    return {"output": Expected(np.stack(rows), "ND")}


DECODE_KERNEL = Exercise(
    id="01.6",
    title="Two lines of a Triton decode kernel",
    notebook=NOTEBOOK,
    parts=(Part(KERNEL, 2),),
    cases=kernel_cases,
    run=run_kernel,
    expected=expected_kernel,
    hints=(
        tied(
            "The first line loads the block's values just as the block's keys were loaded above.",
            "key_for_value",
            "first_row_for_all",
            "no_mask",
        ),
        tied(
            "The second line is exercise 01.5 again: multiply what is there by `rescale`, then add "
            "this block's weighted sum.",
            "not_rescaled",
            "last_block_only",
            "new_part_rescaled_too",
            "divided_in_the_loop",
        ),
        tied(
            "weight has one number an entry, value one row an entry: weight[:, None] * value, "
            "summed over the entries, axis=0.",
            "unweighted",
            "score_for_weight",
            "wrong_axis",
            "shape",
        ),
    ),
    misconceptions=KERNEL_LINES,
    optional=True,
    placeholder=True,
    unavailable=no_triton,
    seconds=60.0,  # on a GPU each wrong kernel is compiled
)
