"""Chapter 07: sparse attention. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.checks.ch07_kernel import GATHER_KERNEL
from grading.checks.ch07_reads import BISECTION, READS_AND_BYTES
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch07_scores import SCORES
from grading.misconceptions.ch07_select import SELECT
from grading.references import ch07 as reference

NOTEBOOK = "07__sparse_attention"

# ---------------------------------------------------------------- 07.1

MARKS = "the scores"
ASKED = ("query", "weight", "key")


def score_cases(draw: Draw) -> tuple[Case, ...]:
    """A chunk, one new token, one head; weights of both signs."""
    batch = draw.integer(2, 3)
    cases = []
    for one_token, one_head in ((False, False), (True, False), (False, True)):
        tokens, heads, dim, entries = draw.sizes(4)
        tokens, heads = (1 if one_token else tokens), (1 if one_head else heads)
        inputs = {
            "query": draw.normal(batch, tokens, heads, dim),
            "weight": draw.normal(batch, tokens, heads),
            "key": draw.normal(batch, entries, dim),
        }
        says = f"B={batch}, T={tokens}, I={heads}, D={dim}, S={entries}"
        cases.append(Case(MARKS, says, inputs))
    return tuple(cases)


INDEX_SCORES = Exercise(
    id="07.1",
    title="Indexer score",
    notebook=NOTEBOOK,
    parts=(Part(MARKS, 3),),
    cases=score_cases,
    run=lambda answer, inputs: {"scores": answer(*(inputs[name] for name in ASKED))},
    expected=lambda inputs: {
        "scores": Expected(reference.index_scores(*(inputs[name] for name in ASKED)), "BTS")
    },
    hints=(
        tied(
            'torch.einsum("btid,bsd->btis", query_BTID, key_BSD) is each head\'s product with each '
            "key.",
            "axes", "scaled", "first_head", "masked",
        ),
        tied(
            ".relu() sets what is below 0 to 0. It comes before the weights.",
            "no_relu", "relu_of_the_sum", "relu_after_weight", "absolute", "squared",
        ),
        tied(
            'Times the weights, added over the heads: torch.einsum("btis,bti->bts", ...).',
            "not_weighted", "mean_of_heads", "best_head", "softmax", MARKS,
        ),
    ),
    misconceptions=SCORES,
)  # fmt: skip

# ---------------------------------------------------------------- 07.2

ENOUGH = "enough visible rows, all scores different"
TIES = "equal scores"
FEWER = "fewer than k visible rows"


def select_cases(draw: Draw) -> tuple[Case, ...]:
    """Order hides and more than order hides; whole scores that tie, scores that nearly do; k
    larger than S."""
    batch = draw.integer(2, 3)
    cases = []

    def case(part, score, visible, k, says):
        B, T, S = score.shape
        inputs = {"score": score, "visible": tuple(map(tuple, visible.tolist())), "k": k}
        cases.append(Case(part, f"B={B}, T={T}, S={S}, k={k}{says}", inputs))

    new, k = 5, 3 + draw.integer(0, 2)
    entries = 17 + draw.integer(1, 5)
    late = torch.ones(new, entries, dtype=torch.bool).tril(entries - new)
    score = draw.normal(batch, new, entries)
    score[..., -1] += 3  # most queries would like the last row, and may not see it
    case(ENOUGH, score, late, k, "")
    marks = draw.random.integers(-2, 2, (batch, new, entries))
    case(TIES, torch.tensor(marks, dtype=torch.float32), late, k, ", scores -2 to 1")
    case(TIES, torch.zeros(batch, 1, 6), torch.ones(1, 6, dtype=torch.bool), 4, ", all scores 0")
    order = np.stack([draw.random.permutation(9) for _ in range(batch * 5)])
    close = 1 + torch.tensor(order.reshape(batch, 5, 9)) * 2.0**-23
    case(TIES, close.float(), torch.ones(5, 9, dtype=torch.bool), 6,
         ", all scores near 1 and none equal")  # fmt: skip

    early = torch.ones(9, 11, dtype=torch.bool).tril()
    case(FEWER, draw.normal(batch, 9, 11), early, 6, ", the first query sees one row")
    some = early & torch.tensor(draw.random.random((9, 11)) < 0.5)
    case(FEWER, draw.normal(batch, 9, 11), some, 4, ", some hidden; a query may see none")
    case(FEWER, draw.normal(batch, 3, 5), torch.ones(3, 5, dtype=torch.bool).tril(2), 9,
         ", k above S")  # fmt: skip
    return tuple(cases)


def run_select(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"choice": answer(inputs["score"], torch.tensor(inputs["visible"]), inputs["k"])}


SELECTION = Exercise(
    id="07.2",
    title="Top-k with ties and -1",
    notebook=NOTEBOOK,
    parts=(Part(ENOUGH, 1), Part(TIES, 1), Part(FEWER, 2)),
    cases=select_cases,
    run=run_select,
    expected=lambda inputs: {
        "choice": Expected(
            reference.select(inputs["score"], inputs["visible"], inputs["k"]), "BTk", "integer"
        )
    },
    hints=(
        tied(
            "First score_BTS.masked_fill(~visible_TS, -float('inf')): what is hidden comes last.",
            "no_mask", "mask_after_choice", "masked_with_zero", "newest", "largest_size", ENOUGH,
        ),
        tied(
            "A stable sort keeps equal ones in their order: score.sort(dim=-1, descending=True, "
            "stable=True).indices[..., :k].",
            "last_of_equals", "ties_left_open", "nudged", "worst", "one_less", TIES,
        ),
        tied(
            "visible_TS.expand(score_BTS.shape).gather(-1, index_BTk) says which of the chosen are "
            "visible at all.",
            "hidden_listed", "zero_for_none",
        ),
        tied(
            "Give the others the number S, sort by position, then turn each S into -1: so they "
            "stand at the end.",
            "topk_alone", "minus_one_first", "by_score", "falling", "always_k", FEWER,
        ),
    ),
    misconceptions=SELECT,
)  # fmt: skip


def _fit_select(mine):
    """The model indexes with int64, whatever whole numbers the answer gives."""

    def select(score_BTS, visible_TS, k):
        return mine(score_BTS, visible_TS, k).long()

    return select


PARTS = {"07.2": ("select", _fit_select)}
_SMALLER = "the smaller of two, in either order"
_BEYOND = "a bit above the highest: no key reaches it"
_UNSEEN = "what is loaded outside the mask meets a 0, gets the weight 0, or is not stored"
EQUIVALENT: dict[str, dict[str, str]] = {
    "07.2": {"min(k, S)  ->  min(S, k)": _SMALLER},
    "07.3": {"min(k, context)  ->  min(context, k)": _SMALLER},
    "07.4": {"bits - 1  ->  bits + 1": _BEYOND, "1  ->  0": _BEYOND},
    "07.5": {
        "0.0  ->  1.0": _UNSEEN,
        "0.0  ->  -1.0": _UNSEEN,
        "1  ->  2": "-2 is no row either",
    },
}

EXERCISES = (INDEX_SCORES, SELECTION, READS_AND_BYTES, BISECTION, GATHER_KERNEL)
