"""Chapter 03: the residual stream. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.checks.ch03_copies import SINKHORN, TRAFFIC, UPDATE
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch03_block import BLOCK
from grading.misconceptions.ch03_patching import PATCHING
from grading.references import ch03 as reference
from grading.references.counting_sublayer import CountingSublayer

NOTEBOOK = "03__residual_stream"

USUAL = "streams of usual size"
SMALL = "streams so small that eps counts"


def matrices(draw: Draw, count: int, width: int) -> tuple:
    """One matrix a sublayer: its answers are about as large as what it reads."""
    return tuple(draw.normal(width, width, scale=1.5 / width**0.5) for _ in range(count))


def block_cases(draw: Draw) -> tuple[Case, ...]:
    tokens, width = draw.sizes(2)
    batch = draw.integer(2, 3)
    cases = []
    for part, scale, eps in ((USUAL, 1.0, 1e-6), (USUAL, 6.0, 1e-5), (SMALL, 0.02, 0.003)):
        inputs = {
            "x": draw.normal(batch, tokens, width, scale=scale) + scale / 2,
            "sublayers": matrices(draw, 2, width),
            "attention_weight": draw.normal(width, scale=0.3) + 1.5,
            "ffn_weight": draw.normal(width, scale=0.3) + 1.5,
            "eps": eps,
        }
        says = f"B={batch}, T={tokens} tokens, X={width}, numbers about {scale:g}, eps={eps:g}"
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def two_sublayers(inputs: Mapping[str, Any]) -> tuple[CountingSublayer, CountingSublayer]:
    """Attention looks back; the FFN works on each token alone."""
    attention, ffn = inputs["sublayers"]
    return CountingSublayer(attention), CountingSublayer(ffn, looks_back=False)


def run_block(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    weights = (inputs["attention_weight"], inputs["ffn_weight"])
    return {"stream": answer(inputs["x"], *two_sublayers(inputs), *weights, inputs["eps"])}


def expected_block(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    attention, ffn = two_sublayers(inputs)
    weights = (np.asarray(inputs[name]) for name in ("attention_weight", "ffn_weight"))
    value = reference.pre_norm_block(
        np.asarray(inputs["x"]), attention.on_one_text, ffn.on_one_text, tuple(weights),
        inputs["eps"],
    )  # fmt: skip
    return {"stream": Expected(value, "BTX")}


PRE_NORM_BLOCK = Exercise(
    id="03.1",
    title="A pre-norm block",
    notebook=NOTEBOOK,
    parts=(Part(USUAL, 2), Part(SMALL, 1)),
    cases=block_cases,
    run=run_block,
    expected=expected_block,
    hints=(
        tied(
            "Write the norm first, as a function of its own: it takes a stream and a weight.",
            "no_norm", "layer_norm", "one_norm_for_both", "norm_of_the_output",
        ),
        tied(
            "The mean of the squares runs over the last axis, for each token alone: "
            "x.square().mean(-1, keepdim=True). Add eps, take the root, divide, weigh.",
            "norm_over_tokens", "norm_over_all", "no_root", "no_eps", "eps_outside_the_root",
            "sum_for_mean", "divided_by_weight", "no_weight", SMALL,
        ),
        tied(
            "Then two lines of the same form: x = x + sublayer(norm(x, weight)). The second "
            "reads the x that the first has made.",
            "side_by_side", "second_forgets_attention", "in_place", "post_norm",
            "added_to_the_normed", "nothing_added", "one_weight", "weights_swapped", "ffn_first",
        ),
    ),
    misconceptions=BLOCK,
)  # fmt: skip

RIGHT = "the patched stream"
NO_MORE = "no sublayer runs for nothing"


def patching_cases(draw: Draw) -> tuple[Case, ...]:
    """A sublayer in the middle, the first and the last; a token early, in the middle, last."""
    tokens, width, count = sorted(draw.sizes(3), reverse=True)
    batch = draw.integer(2, 3)
    middle = (draw.integer(1, count - 2), draw.integer(1, tokens - 2))
    cases = []
    for which, position in (middle, (0, draw.integer(0, tokens - 2)), (count - 1, tokens - 1)):
        inputs = {
            "x": draw.normal(batch, tokens, width),
            "other": draw.normal(batch, tokens, width),
            "sublayers": matrices(draw, count, width),
            "which": which,
            "position": position,
        }
        says = (
            f"B={batch}, T={tokens} tokens, X={width}, {count} sublayers; which={which}, "
            f"position={position}"
        )
        cases.append(Case(RIGHT, says, inputs))
    return tuple(cases)


def run_patching(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    sublayers = [CountingSublayer(matrix) for matrix in inputs["sublayers"]]
    stream = answer(sublayers, inputs["x"], inputs["other"], inputs["which"], inputs["position"])
    return {"stream": stream, "calls of sublayers": sum(s.calls for s in sublayers)}


def expected_patching(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    sublayers = [CountingSublayer(matrix).on_one_text for matrix in inputs["sublayers"]]
    value = reference.patched_run(
        sublayers, np.asarray(inputs["x"]), np.asarray(inputs["other"]), inputs["which"],
        inputs["position"],
    )  # fmt: skip
    # This run needs every sublayer once, the other one those up to `which`.
    enough = np.array(float(len(sublayers) + inputs["which"] + 1))
    cost = Expected(
        enough, kind="cost", part=NO_MORE,
        too_much="The stream is right, but sublayers run more often than they need to",
    )  # fmt: skip
    return {"stream": Expected(value, "BTX"), "calls of sublayers": cost}


PATCHED_RUN = Exercise(
    id="03.2",
    title="Patching",
    notebook=NOTEBOOK,
    parts=(Part(RIGHT, 2), Part(NO_MORE, 1)),
    cases=patching_cases,
    run=run_patching,
    expected=expected_patching,
    hints=(
        tied(
            "First the other run: other = other + sublayer(other) for the sublayers before "
            "`which`. Then ask sublayer `which` what it finds there, and keep it.",
            "input_exchanged", "roles_swapped", "sublayer_before",
        ),
        tied(
            "Then the run of x_BTX, all sublayers in a loop with their numbers. Where the number "
            "is `which`, change what was found before it is added.",
            "later_ones_frozen", "whole_stream", "not_patched",
            "all_later_ones_too", "all_up_to_it", "next_sublayer", "nothing_added", "taken_out",
            "replaces_the_stream",
        ),
        tied(
            "found = sublayer(x); found = found.clone(); found[:, position] = "
            "taken[:, position]; x = x + found.",
            "every_position", "added_on_top", "first_text_for_all", "inputs",
            "token_exchanged", "next_position", "difference_added",
        ),
        tied(
            "sublayers[:which] are those before it: the other run stops after asking "
            "sublayers[which] once.",
            NO_MORE, "other_run_to_its_end", "runs_twice", "from_the_start",
        ),
    ),
    misconceptions=PATCHING,
)  # fmt: skip

EXERCISES = (PRE_NORM_BLOCK, PATCHED_RUN, SINKHORN, UPDATE, TRAFFIC)


def _as_it_is(mine: Any) -> Any:
    """The exercise has the signature of the model's own function."""
    return mine


PARTS = {"03.1": ("block", _as_it_is), "03.3": ("sinkhorn", _as_it_is)}
EQUIVALENT = {"03.3": {"-2  ->  +2": "of four axes, axis 2 is axis -2"}}
