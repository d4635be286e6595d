"""Exercises 08.4 and 08.5: one softmax with a sink, and the output turned back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch08_sink import SINK
from grading.misconceptions.ch08_turn import TURN
from grading.references import ch08 as reference

NOTEBOOK = "08__groups"

# ---------------------------------------------------------------- 08.4

SOME = "rows to see"
NONE = "a query that sees nothing"


def sink_cases(draw: Draw) -> tuple[Case, ...]:
    """Visible rows at random, one new token, scores around 100, and queries of which some see
    nothing."""
    heads, dim, new, rows = draw.sizes(4)
    batch = draw.integer(2, 3)
    cases = []
    for part, tokens in ((SOME, new), (SOME, 1), (NONE, new)):
        visible = torch.tensor(draw.random.random((tokens, rows)) < 0.6)
        visible[:, 0], visible[:, -1] = True, tokens == 1
        if part == NONE:
            visible[::2] = False
        inputs = {
            "query": draw.normal(batch, tokens, heads, dim, scale=1.5),
            "row": draw.normal(batch, rows, dim),
            "visible": tuple(map(tuple, visible.tolist())),
            "sink": 1.0 + draw.normal(heads, scale=0.7),
        }
        hidden = "some queries see nothing" if part == NONE else "some rows hidden"
        says = f"B={batch}, T={tokens}, H={heads}, D={dim}, S={rows}, {hidden}"
        cases.append(Case(part, says, inputs))
    return (*cases, _with_large_scores(cases[0]))


def _with_large_scores(case: Case) -> Case:
    """The same rows and queries, all moved along one direction until scores are around 100."""
    query, row = case.inputs["query"], case.inputs["row"]
    moved = {
        "row": row - row.mean(-1, keepdim=True) + 2,
        "query": query + 52 * row.shape[-1] ** -0.5,
    }
    return Case(case.part, f"{case.says}, scores around 100", {**case.inputs, **moved})


READ = ("query", "row", "visible", "sink")


def run_sink(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    visible = torch.tensor(inputs["visible"])
    return {"output": answer(inputs["query"], inputs["row"], visible, inputs["sink"])}


SINKING = Exercise(
    id="08.4",
    title="A softmax with a sink",
    notebook=NOTEBOOK,
    parts=(Part(SOME, 2), Part(NONE, 1)),
    cases=sink_cases,
    run=run_sink,
    expected=lambda inputs: {
        "output": Expected(reference.attend_with_sink(*(inputs[name] for name in READ)), "BTHD")
    },
    hints=(
        tied(
            'torch.einsum("bthd,bsd->bths", query_BTHD, row_BSD) / D**0.5, then masked_fill with '
            "~visible_TS[:, None, :] and -torch.inf.",
            "no_mask", "masked_late", "mask_upside_down", "not_scaled", "bare_exponentials",
        ),
        tied(
            "torch.cat the scores with sink_H[:, None].expand(B, T, H, 1), softmax over the last "
            "axis, and drop the last weight.",
            "no_sink", "zero_sink", "same_for_all_heads", "sink_not_a_score",
            "sink_scaled", "sink_beside_every_row", "wrong_one_dropped", SOME,
        ),
        tied(
            "Where no row is visible all scores are -inf but the sink, which takes all: the "
            "weights of the rows are 0.",
            "nan_where_nothing", NONE, "finite",
        ),
    ),
    misconceptions=SINK,
)  # fmt: skip

# ---------------------------------------------------------------- 08.5

NEAR = "rows of a window"
FAR = "entries of groups"
TURNED = ("query", "row", "query_at", "row_at", "R")


def attend(query_BTD, row_BSD):
    """What the exercise is given: every query sees every row, which is its own value."""
    score_BTS = query_BTD @ row_BSD.mT / query_BTD.shape[-1] ** 0.5
    return score_BTS.softmax(-1) @ row_BSD


def turn_cases(draw: Draw) -> tuple[Case, ...]:
    """Rows next to each other, and entries m positions apart; far along in a text."""
    rope = (6, 10)[draw.integer(0, 1)]
    new, rows, m, more = draw.sizes(4)
    while (dim := rope + more) in (new, rows) or dim & (dim - 1) == 0:
        new, rows, m, more = draw.sizes(4)
    batch = draw.integer(2, 3)
    cases = []
    for part, apart, start in ((NEAR, 1, 20 + more), (FAR, m, 0), (FAR, m, 5 * m)):
        first = start + apart * rows
        inputs = {
            "query": draw.normal(batch, new, dim, scale=1.5),
            "row": draw.normal(batch, rows, dim),
            "query_at": first + torch.arange(new),
            "row_at": start + apart * torch.arange(rows),
            "R": rope,
        }
        says = f"B={batch}, T={new}, S={rows}, D={dim}, R={rope}, rows {apart} apart from {start}"
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def run_turn(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"output": answer(*(inputs[name] for name in TURNED), attend)}


TURNING = Exercise(
    id="08.5",
    title="The turn back",
    notebook=NOTEBOOK,
    parts=(Part(NEAR, 1), Part(FAR, 2)),
    cases=turn_cases,
    run=run_turn,
    expected=lambda inputs: {
        "output": Expected(
            reference.attend_and_turn_back(*(inputs[name] for name in TURNED)), "BTD"
        )
    },
    hints=(
        tied(
            "Write a small function that turns x[..., -R:] with rotate(..., Rope(R), at) and puts "
            "x[..., :-R] back in front of it.",
            "first_numbers", "whole_row", "everything_turned_back", "shape",
        ),
        tied(
            "Queries by query_at_T, rows by row_at_S; then attend(query, row).",
            "query_unturned", "rows_unturned", "nothing_turned", "rows_by_number",
            "query_by_number", "turned_backwards", FAR,
        ),
        tied(
            "The output's last R numbers, turned by query_at_T with back=True.",
            "not_turned_back", "turned_on", "back_by_number", "back_by_the_first_row", NEAR,
        ),
    ),
    misconceptions=TURN,
)  # fmt: skip
