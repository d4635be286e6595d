"""Chapter 05, the requests: how many fit, and where their pages lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.hints import tied
from grading.misconceptions.ch05_fit import FIT
from grading.misconceptions.ch05_pages import LOOKUP
from grading.references import ch05 as reference
from grading.references.largest_tensor import LARGEST, measured

NOTEBOOK = "05__the_bill"

# ---------------------------------------------------------------- 05.3

SOME, NONE = "as many as there is room for", "weights too large"
ARGUMENTS = (
    "cards", "card_bytes", "reserve_percent", "weight_bytes", "bytes_per_token", "context", "page"
)  # fmt: skip
V1_ON_8 = (8, 80 * 10**9, 10, 134_850_002_944, 389_120, 4096, 16)


def fit_cases(draw: Draw) -> tuple[Case, ...]:
    """V1; made-up machines, one of them full to the last byte; and weights that do not fit."""
    drawn = [(SOME, V1_ON_8)]
    for exact in (False, True):
        rate, page, rest, count = draw.sizes(4)
        rate, context = 1000 * rate + 7, page * (20 + count) + 1 + rest % (page - 1)
        one = -(-context // page) * page * rate
        cards, reserve = (3, 5, 6, 7)[draw.integer(0, 3)], 8 + draw.integer(0, 9)
        memory = cards * 16 * 10**9
        free = memory * (100 - reserve) // 100
        fit = (free - memory // 25) // one  # weights of a little over 4 %
        weights = free - fit * one - (0 if exact else one // 2)
        drawn.append((SOME, (cards, 16 * 10**9, reserve, weights, rate, context, page)))
    cards = draw.integer(3, 5)
    drawn.append((NONE, (cards, 80 * 10**9, 10, (cards * 80 + 3) * 10**9, 70_272, 999, 16)))
    drawn.append((NONE, (cards, 80 * 10**9, 20, (cards * 70) * 10**9, 389_120, 4096, 16)))
    cases = []
    for part, values in drawn:
        inputs = dict(zip(ARGUMENTS, values, strict=True))
        says = ", ".join(f"{name} {value:,}" for name, value in inputs.items())
        cases.append(Case(part, says, inputs))
    return tuple(cases)


REQUESTS = Exercise(
    id="05.3",
    title="How many requests fit",
    notebook=NOTEBOOK,
    parts=(Part(SOME, 2), Part(NONE, 1)),
    cases=fit_cases,
    run=call(*ARGUMENTS, output="requests"),
    expected=lambda inputs: {
        "requests": Expected(
            np.array(reference.requests_that_fit(**inputs)), kind="integer"
        )
    },
    hints=(
        tied(
            "Free is what the reserve and the weights leave of all cards together: memory - memory "
            "* reserve_percent // 100 - weight_bytes.",
            "forgets_weights", "weights_on_each_card", "forgets_reserve", "only_the_reserve",
            "reserve_of_the_rest", "one_card", "card_by_card",
        ),
        tied(
            "Pages of a request: context / page, rounded up. -(-a // b) rounds a / b up.",
            "no_pages", "pages_rounded_down", "always_one_page_more",
        ),
        tied(
            "A request takes pages * page * bytes_per_token. free // that, and max(0, ...) for "
            "weights that do not fit.",
            "pages_as_tokens", "one_token", "rounded_up", "negative", "not_whole", NONE,
        ),
    ),
    misconceptions=FIT,
)  # fmt: skip

# ---------------------------------------------------------------- 05.4

ROWS, NO_MORE = "the right rows", "nothing else is fetched"


def lookup_cases(draw: Draw) -> tuple[Case, ...]:
    """Texts whose pages lie scattered; some have fewer than others, and -1 in their table."""
    cases = []
    for T in (3, 1):
        page, dim, most, spare = draw.sizes(4)
        texts = draw.integer(2, 3)
        pages = texts * most + spare
        while pages in (page, dim) or not pages & (pages - 1):
            pages += 1
        places = torch.tensor(draw.random.permutation(pages - 1)[: texts * most] + 1)
        table = places.reshape(texts, most)
        counts = [most, *(draw.integer(2, most - 1) for _ in range(texts - 1))]
        for b, count in enumerate(counts):
            table[b, count:] = -1
        lasts = [count * page for count in counts]
        position = torch.stack(
            [torch.tensor(draw.random.permutation(np.arange(page, n))[:T]) for n in lasts]
        )
        inputs = {
            "pool": draw.normal(pages, page, dim),
            "table": table,
            "position": position,
        }
        says = f"N={pages} pages of P={page} rows, D={dim}, B={texts}, J={most}, T={T}"
        cases.append(Case(ROWS, says, inputs))
    return tuple(cases)


def _asked_for(inputs: Mapping[str, Any]) -> int:
    """Numbers in all the rows asked for, or in the table where that is larger."""
    return max(inputs["position"].numel() * inputs["pool"].shape[2], inputs["table"].numel())


def run_lookup(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    names = ("pool", "table", "position")
    output, largest = measured(answer, inputs, names, _asked_for(inputs))
    return {"rows": output, LARGEST: largest}


def expected_lookup(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    pool, table, position = (inputs[name] for name in ("pool", "table", "position"))
    cost = Expected(
        np.array(float(_asked_for(inputs))), kind="cost", part=NO_MORE,
        too_much="One row for each position is all that is asked for.",
    )  # fmt: skip
    return {
        "rows": Expected(reference.rows_of(pool, table, position), "BTD"),
        LARGEST: cost,
    }


PAGE_TABLE = Exercise(
    id="05.4",
    title="Page table lookup",
    notebook=NOTEBOOK,
    parts=(Part(ROWS, 2), Part(NO_MORE, 1)),
    cases=lookup_cases,
    run=run_lookup,
    expected=expected_lookup,
    hints=(
        tied(
            "P is pool_NPD.shape[1]. position_BT // P is the place in the table, position_BT % P "
            "the row in the page.",
            "no_table", "row_not_reduced", "always_the_first_row", "row_from_the_end",
            "row_one_further", "one_page_back", "exchanged", "pages_of_j",
        ),
        tied(
            "table_BJ.gather(1, position_BT // P) looks every text up in its own row of the table.",
            "first_text", "sorted_by_number", "from_the_back", ROWS, "returns",
        ),
        tied(
            "pool_NPD[page_BT, row_BT], both [B, T], picks one row of D numbers for each pair.",
            "laid_out", "whole_pages", NO_MORE, "shape",
        ),
    ),
    misconceptions=LOOKUP,
)  # fmt: skip
