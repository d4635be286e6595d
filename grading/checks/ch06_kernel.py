"""Exercise 06.5, for those who want to see one row serve all heads in a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grading.checks.kernel_lines import no_triton, ready
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch06_kernel import KERNEL_LINES, LatentLines
from grading.references import ch06 as reference

NOTEBOOK = "06__mla"
KERNEL = "the kernel's output"


def kernel_cases(draw: Draw) -> tuple[Case, ...]:
    """Several blocks with a remainder; fewer entries than one block; one entry."""
    heads, latent, rope = draw.sizes(3)
    batch = draw.integer(2, 3)
    cases = []
    for entries in (32 + draw.integer(1, 9), 14, 1):
        inputs = {
            "query": draw.normal(batch, heads, latent),
            "rope_query": draw.normal(batch, heads, rope),
            "latent": draw.normal(batch, entries, latent),
            "rope": draw.normal(batch, entries, rope),
        }
        says = f"B={batch}, H={heads}, S={entries}, C={latent}, R={rope}, blocks of 16 entries"
        cases.append(Case(KERNEL, says, inputs))
    return tuple(cases)


ROWS = ("query", "rope_query", "latent", "rope")
SCALE = 0.4


def run_kernel(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """One program a text."""
    kernel, (query, rope_query, latent, rope), output = ready(answer, LatentLines, inputs, ROWS)
    batch, heads, wide = query.shape
    kernel[(batch,)](
        query, rope_query, latent, rope, output, latent.shape[1], SCALE,
        H=heads, C=wide, R=rope.shape[-1], BLOCK_H=16, BLOCK_S=16, BLOCK_C=16, BLOCK_R=16,
    )  # fmt: skip
    return {"output": output}


DECODE_KERNEL = Exercise(
    id="06.5",
    title="Two lines of the absorbed decode kernel",
    notebook=NOTEBOOK,
    parts=(Part(KERNEL, 2),),
    cases=kernel_cases,
    run=run_kernel,
    expected=lambda inputs: {
        "output": Expected(
            reference.decode(
                inputs["query"], inputs["rope_query"], inputs["latent"], inputs["rope"], SCALE
            ),
            "BHC",
        )
    },
    hints=(
        tied(
            "Two products, added: the query with the turned block, tl.trans(latent_SC), and the "
            "rope query with tl.trans(rope_SR).",
            "no_position", "no_content", "position_subtracted", "scaled_twice",
        ),
        tied(
            "The second line is exercise 01.6 with matrices: sum_HC * rescale_H[:, None], plus "
            "tl.dot(weight_HS, latent_SC, ...). The block that was the key is now the value.",
            "not_rescaled", "last_block_only", "new_part_rescaled_too", "divided_in_the_loop",
            "score_for_weight", "unweighted",
        ),
    ),
    misconceptions=KERNEL_LINES,
    optional=True,
    placeholder=True,
    unavailable=no_triton,
    seconds=60.0,  # on a GPU each wrong kernel is compiled
)  # fmt: skip
