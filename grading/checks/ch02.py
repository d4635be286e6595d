"""Chapter 02: layers. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.hints import tied
from grading.misconceptions.ch02_bytes import BYTES
from grading.misconceptions.ch02_lens import LENS
from grading.misconceptions.ch02_probe import PROBE
from grading.misconceptions.ch02_tent import ONE_LAYER
from grading.references import ch02 as reference

NOTEBOOK = "02__layers"

RANK, ENTROPY = "the rank of the answer", "the entropy of the guess"


def lens_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    # In the first, the 1e-6 counts; in the last, the p of some words is 0 in float32.
    for scale, impossible in ((0.002, 0), (1.0, 0), (3.0, 7)):
        layers, batch, width, more = draw.sizes(4)
        words = 10 * more + 7
        inputs = {
            "stream": draw.normal(layers, batch, width, scale=scale) + 0.3 * scale,
            "gain": draw.normal(width).abs() + 0.2,
            "head": draw.normal(words, width),
            "answer": draw.tokens(batch, vocabulary=words - impossible),
        }
        if impossible:
            inputs["stream"] += 3 * scale
            inputs["head"][-impossible:] -= 300.0
        says = f"L={layers}, B={batch}, X={width}, V={words}, stream of size {scale:g}"
        says += f", the last {impossible} words all but impossible" * bool(impossible)
        cases.append(Case(RANK, says, inputs))
    return tuple(cases)


def run_lens(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in ("stream", "gain", "head", "answer")))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: rank, entropy)": given}
    return {"rank": given[0], "entropy": given[1]}


def expected_lens(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    rank, entropy = reference.logit_lens(
        *(np.asarray(inputs[name]) for name in ("stream", "gain", "head", "answer"))
    )
    return {
        "rank": Expected(rank, "LB", "integer"),
        "entropy": Expected(entropy, "LB", part=ENTROPY),
    }


LOGIT_LENS = Exercise(
    id="02.1",
    title="The logit lens",
    notebook=NOTEBOOK,
    parts=(Part(RANK, 2), Part(ENTROPY, 1)),
    cases=lens_cases,
    run=run_lens,
    expected=expected_lens,
    hints=(
        tied(
            "First the norm: one number for each vector, the root of the mean of its squares. "
            "x.square().mean(-1, keepdim=True) keeps the axis, so that you can divide.",
            "no_norm", "gain_only", "no_gain", "centred", "sum_of_squares", "mean_square",
        ),
        tied("Logits: normed @ head_VX.T, shape [L, B, V].", "shape"),
        tied(
            "The answer's own logits: logits.gather(-1, index), where index has the shape [L, B, "
            "1]. The rank is how many logits are larger, plus 1.",
            "rank_from_zero", "counts_itself", "rank_from_below", "argsort_once", RANK,
        ),
        tied(
            "With log_p = logits.log_softmax(-1), the sum of -p log p is in nats; a bit has "
            "log(2) = 0.693 of them.",
            "nats", "sign", "surprise", "entropy_of_layers", "entropy_of_texts", "zero_log_zero",
            "entropy_first", ENTROPY,
        ),
    ),
    misconceptions=LENS,
)  # fmt: skip


OWN, BORROWED = "every layer keeps its own", "some layers borrow"
ARGUMENTS = ("kv_heads", "source", "head_dim", "tokens", "batch", "bits_per_number")


def _layers(draw: Draw, count: int, borrow: bool) -> tuple[list[int], list[int]]:
    """kv heads and source of each layer; the first keeps its own, owners are never borrowers."""
    heads = [draw.integer(2, 9) for _ in range(count)]
    source = list(range(count))
    if borrow:
        for i in range(1, count):
            owners = [j for j in range(i) if source[j] == j]
            if i == count - 1 or draw.integer(0, 2):
                source[i] = owners[draw.integer(0, len(owners) - 1)]
    return heads, source


def bytes_cases(draw: Draw) -> tuple[Case, ...]:
    """DeepSeek-V1 67B, then made-up models, half of them with layers that borrow."""
    models: list[tuple] = [(OWN, [8] * 95, list(range(95)), 128, 600, 1, 16)]
    for part, bits in ((OWN, 16), (OWN, 4), (BORROWED, 16), (BORROWED, 8)):
        count, dim, tokens, batch = draw.sizes(4)
        heads, source = _layers(draw, count, part == BORROWED)
        models.append((part, heads, source, 8 * dim, 10 * tokens + 1, batch, bits))
    cases = []
    for part, *model in models:
        inputs: dict[str, Any] = dict(zip(ARGUMENTS, model, strict=True))
        says = f"{len(inputs['kv_heads'])} layers, " + ", ".join(
            f"{name} {value if len(str(value)) < 60 else str(value)[:20] + '...'}"
            for name, value in inputs.items()
        )
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def expected_bytes(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Counted by giving each layer that reads itself a store, and weighing the stores."""
    row = 2 * inputs["head_dim"] * inputs["bits_per_number"] / 8
    stores = {owner: inputs["kv_heads"][owner] * row for owner in set(inputs["source"])}
    weight = sum(stores.values()) * inputs["tokens"] * inputs["batch"]
    return {"bytes": Expected(np.array(weight), kind="integer")}


CACHE_BYTES = Exercise(
    id="02.2",
    title="Bytes with layers",
    notebook=NOTEBOOK,
    parts=(Part(OWN, 1), Part(BORROWED, 1)),
    cases=bytes_cases,
    run=call(*ARGUMENTS, output="bytes"),
    expected=expected_bytes,
    hints=(
        tied(
            "One layer, one token: a key and a value, for each kv head of that layer, head_dim "
            "numbers each.",
            "forgets_two", "layers_only", "one_layer",
        ),
        tied(
            "Go through the layers with enumerate(kv_heads) and add up the heads, but only where "
            "source[i] == i: the others keep nothing.",
            "all_layers", "borrowers", "heads_of_the_source", "first_times_layers",
            "first_times_owners", "most_times_owners", BORROWED,
        ),
        tied(
            "Multiply the sum by 2, head_dim, tokens, batch and bits; divide by 8 at the end.",
            "forgets_tokens", "forgets_batch", "batch_added", "bits", "numbers",
            "rounds_bits_first",
        ),
    ),
    misconceptions=BYTES,
)  # fmt: skip


SCORES = "the scores"


def probe_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for ridge in (0.3, 1.0, 4.0):
        width, few, many, classes = draw.sizes(4)
        N, M = 10 * many + 7, few
        shift = draw.normal(width)  # vectors of a stream are not centred
        inputs = {
            "train": draw.normal(N, width) + shift,
            "label": draw.tokens(N, vocabulary=classes),
            "new": draw.normal(M, width) + shift,
            "classes": classes,
            "ridge": ridge,
        }
        says = f"N={N} labelled, M={M} new, X={width}, C={classes}, ridge {ridge:g}"
        cases.append(Case(SCORES, says, inputs))
    return tuple(cases)


PROBE_INPUTS = ("train", "label", "new", "classes", "ridge")

LINEAR_PROBE = Exercise(
    id="02.3",
    title="A linear probe",
    notebook=NOTEBOOK,
    parts=(Part(SCORES, 3),),
    cases=probe_cases,
    run=call(*PROBE_INPUTS, output="scores"),
    expected=lambda inputs: {
        "scores": Expected(
            reference.probe(*(inputs[name] for name in PROBE_INPUTS)), "MC", rtol=1e-3, atol=1e-4
        )
    },
    hints=(
        tied(
            "torch.cat([x, torch.ones(len(x), 1)], dim=1) appends the 1; do it for the labelled "
            "vectors and for the new ones.",
            "no_one", "one_in_front", "zero_for_new", "shape",
        ),
        tied(
            "torch.eye(classes)[label] is the table of targets: the identity's row of each label.",
            "numbers_as_targets", "plus_and_minus", "class_means",
        ),
        tied(
            "torch.linalg.solve(A.T @ A + ridge * I, A.T @ Y) gives W; I has as many rows as a "
            "vector with its 1 has numbers. The scores are new vectors @ W.",
            "no_inverse", "no_ridge", "ridge_everywhere", "ridge_spares_the_one",
            "ridge_times_count", "scores_of_training", "softmax", "guesses", "transposed",
        ),
    ),
    misconceptions=PROBE,
)  # fmt: skip


CURVE, UNITS = "the curve", "as few units as possible"


def tent_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for folds in (1, 2, draw.integer(3, 4), 5):
        steps = 6 * 2**folds
        says = f"{folds} folds; row n of the curve is x = n / {steps}"
        inputs = {"folds": folds, "x": np.arange(steps + 1) / steps}
        cases.append(Case(CURVE, says, inputs))
    return tuple(cases)


def run_tent(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Add the units up in float64, whatever dtype they come in."""
    import torch

    given = answer(inputs["folds"])
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: start, turn)": given}
    start, turn = given
    for name, one in (("start", start), ("turn", turn)):
        if not isinstance(one, torch.Tensor) or one.ndim != 1:
            return {f"{name} (a tensor of one axis)": one}
    if len(start) != len(turn):
        return {"start and turn (of one length)": given}
    start, turn = start.double(), turn.double()
    x = torch.tensor(inputs["x"], dtype=torch.float64)[:, None]
    curve = ((x - start).relu() * turn).sum(-1)
    return {"curve": curve, "units": len(start)}


def expected_tent(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    folds = inputs["folds"]
    enough = "the curve is right, but fewer units would do"
    return {
        "curve": Expected(reference.folded(inputs["x"], folds), "N"),
        "units": Expected(np.array(2.0**folds), kind="cost", part=UNITS, too_much=enough),
    }


ONE_WIDE_LAYER = Exercise(
    id="02.4",
    title="How many ReLU units one layer needs for the folded line",
    notebook=NOTEBOOK,
    parts=(Part(CURVE, 2), Part(UNITS, 1)),
    cases=tent_cases,
    run=run_tent,
    expected=expected_tent,
    hints=(
        tied(
            "Draw it for two folds: up from 0 to 1 until 1/4, down to 0 at 1/2, up, down. Where "
            "does the slope change, and by how much?",
            "one_fold_less", "one_fold_more", "slope_two", "spread_to_the_end", "starts_at_ends",
            "starts_in_the_middle", "upside_down", "only_bends",
        ),
        tied(
            "Each of the 2**folds pieces begins with one unit that starts there. The slope is "
            "2**folds up or as much down.",
            "two_a_fold", "unit_a_half_piece", "unit_at_the_end", UNITS,
        ),
        tied(
            "The first unit turns the slope from 0 to 2**folds. Each later one must turn it "
            "twice as far: down by 2 * 2**folds, then up again by as much, in turns.",
            "first_turn_doubled", "single_turns", "all_up", "all_down",
        ),
    ),
    misconceptions=ONE_LAYER,
)  # fmt: skip

EXERCISES = (LOGIT_LENS, CACHE_BYTES, LINEAR_PROBE, ONE_WIDE_LAYER)

EQUIVALENT = {
    "02.4": {
        "2.0 * pieces * (-1.0) ** torch.arange(pieces)  ->  "
        "2.0 * pieces / (-1.0) ** torch.arange(pieces)": "1 / 1 is 1, and 1 / -1 is -1",
    },
}
