"""Exercise 07.5, for those who want to see rows gathered from wherever they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from grading.checks.kernel_lines import no_triton, ready
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch07_kernel import KERNEL_LINES, GatherLines
from grading.references import ch07 as reference

NOTEBOOK = "07__sparse_attention"
KERNEL = "the kernel's output"
SCALE = 0.4


def kernel_cases(draw: Draw) -> tuple[Case, ...]:
    """Several blocks of 16 with a remainder; one block; empty places at the end of a list."""
    heads, dim = draw.sizes(2)
    batch = draw.integer(2, 3)
    cases = []
    for entries, places, empty in ((61, 37, 0), (29, 9, 0), (23, 21, 4)):
        index = torch.full((batch, places), -1)
        for b in range(batch):
            chosen = sorted(draw.random.permutation(entries)[: places - empty].tolist())
            index[b, : len(chosen)] = torch.tensor(chosen)
        inputs = {
            "query": draw.normal(batch, heads, dim),
            "entry": draw.normal(batch, entries, dim),
            "index": index,
        }
        says = f"B={batch}, H={heads}, S={entries}, K={places}, D={dim}, {empty} places empty"
        cases.append(Case(KERNEL, says, inputs))
    return tuple(cases)


def run_kernel(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """One program a text."""
    names = ("query", "entry", "index")
    kernel, (query, entry, index), output = ready(answer, GatherLines, inputs, names)
    (batch, heads, dim), (entries, places) = query.shape, (entry.shape[1], index.shape[1])
    kernel[(batch,)](
        query, entry, index.int(), output, entries, places, SCALE,
        H=heads, D=dim, BLOCK_H=16, BLOCK_K=16, BLOCK_D=16,
    )  # fmt: skip
    return {"output": output}


GATHER_KERNEL = Exercise(
    id="07.5",
    title="Two lines of the gather kernel",
    notebook=NOTEBOOK,
    parts=(Part(KERNEL, 2),),
    cases=kernel_cases,
    run=run_kernel,
    expected=lambda inputs: {
        "output": Expected(
            reference.gather(inputs["query"], inputs["entry"], inputs["index"], SCALE), "BHD"
        )
    },
    hints=(
        tied(
            "The list of text b lies at index_ptr + b * K. Load its places place_K; behind its end "
            "(place_K >= K) nothing is read, and `other` stands in: -1.",
            "no_choice", "list_of_the_first", "row_0_behind_the_end", "last_place_missing",
            "first_block_again",
        ),
        tied(
            "Entry row_K of text b begins at entry_ptr + (b * S + row_K) * D. Make a column of it, "
            "[:, None], and add d, a row.",
            "by_place", "entries_of_the_first", "one_later", "numbers_reversed",
        ),
        "Its mask: there_K[:, None] & (d < D), with other=0.0.",
    ),
    misconceptions=KERNEL_LINES,
    optional=True,
    placeholder=True,
    unavailable=no_triton,
    seconds=60.0,  # on a GPU each wrong kernel is compiled
)  # fmt: skip
