"""Chapter 05: the bill. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.misconceptions.ch05_config import CONFIG
from grading.misconceptions.ch05_fit import FIT
from grading.misconceptions.ch05_grouped import GROUPED
from grading.misconceptions.ch05_pages import LOOKUP
from grading.references import ch05 as reference
from grading.references.largest_tensor import LargestTensor

NOTEBOOK = "05__the_bill"


def _measured(
    answer: Any, inputs: Mapping[str, Any], names: tuple[str, ...], enough: int
) -> tuple[Any, int]:
    """What the answer gives, and the largest tensor it made. All that is `enough` or less counts
    alike, so that a mistake is known again in code that makes smaller tensors on its way."""
    given = [inputs[name] for name in names]
    with LargestTensor(given) as seen:
        output = answer(*given)
    return output, max(seen.numbers, enough)


# ---------------------------------------------------------------- 05.1

VALUES, NO_COPY = "the values", "no keys and values for every head"
LARGEST = "numbers in the largest tensor made"


def grouped_cases(draw: Draw) -> tuple[Case, ...]:
    """T new tokens after cached ones, one alone, and a whole sequence. T is the smallest size, so
    keys repeated for every head would be larger than all that is needed."""
    few, *others = sorted(draw.sizes(5))
    kv_heads, group, dim, many = (others[int(i)] for i in draw.random.permutation(4))
    batch = draw.integer(2, 3)
    cases = []
    for T, S in ((few, many), (1, many), (few, few)):
        inputs = {
            "query": draw.normal(batch, T, kv_heads * group, dim),
            "key": draw.normal(batch, S, kv_heads, dim),
            "value": draw.normal(batch, S, kv_heads, dim),
        }
        says = f"B={batch}, T={T}, S={S}, H={kv_heads * group}, K={kv_heads}, D={dim}"
        cases.append(Case(VALUES, says, inputs))
    return tuple(cases)


def _is_chunk(inputs: Mapping[str, Any]) -> bool:
    return inputs["query"].shape[1] < inputs["key"].shape[1]


def _scores(inputs: Mapping[str, Any]) -> int:
    """Numbers in the largest tensor that is needed: the output, the keys or the scores."""
    query, key = inputs["query"], inputs["key"]
    B, T, H, _ = query.shape
    return max(query.numel(), key.numel(), B * H * T * key.shape[1])


def run_grouped(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    output, largest = _measured(answer, inputs, ("query", "key", "value"), _scores(inputs))
    return {"output": output} | ({LARGEST: largest} if _is_chunk(inputs) else {})


def expected_grouped(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    value = reference.grouped_attention(inputs["query"], inputs["key"], inputs["value"])
    cost = Expected(
        np.array(float(_scores(inputs))), kind="cost", part=NO_COPY,
        too_much="Scores, keys and output are all smaller: something was made for every query head "
        "that all heads of a group could have shared.",
    )  # fmt: skip
    return {"output": Expected(value, "BTHD")} | ({LARGEST: cost} if _is_chunk(inputs) else {})


GROUPED_HEADS = Exercise(
    id="05.1",
    title="Grouped heads without copying",
    notebook=NOTEBOOK,
    parts=(Part(VALUES, 2), Part(NO_COPY, 1)),
    cases=grouped_cases,
    run=run_grouped,
    expected=expected_grouped,
    hints=(
        "query_BTHD.unflatten(2, (K, H // K)) splits the heads into K groups of G that stand "
        "side by side: the first G heads read kv head 0.",
        'torch.einsum("btkgd,bskd->bkgts", query_BTKGD, key_BSKD) makes all scores: k stands in '
        "both, g only in the query.",
        "torch.ones(T, S, dtype=torch.bool).tril(S - T) is what the T newest may see. Mask before "
        "the softmax, over the last axis.",
        'torch.einsum("bkgts,bskd->btkgd", weight_BKGTS, value_BSKD), then flatten(2, 3) puts the '
        "heads side by side again.",
    ),
    misconceptions=GROUPED,
)

# ---------------------------------------------------------------- 05.2

PLAIN = "every layer keeps everything"
WINDOWS = "layers with a window"
SHARED = "layers that share"
LLAMA = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "torch_dtype": "bfloat16",
}  # fmt: skip
MISTRAL = LLAMA | {"sliding_window": 4096}
FULL, SLIDING = "full_attention", "sliding_attention"


def _made_up(draw: Draw, **more: Any) -> dict[str, Any]:
    """A model with all sizes different. Its heads do not divide by accident what they should."""
    layers, kv_heads, group, dim = draw.sizes(4)
    heads = kv_heads * group
    return {
        "num_hidden_layers": layers,
        "hidden_size": heads * (dim + 1),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    } | more


def _kinds(draw: Draw, layers: int) -> list[str]:
    """Some of each, the windows in the majority; the last layer sees everything."""
    full = {layers - 1, draw.integer(0, layers // 3)}
    return [FULL if i in full else SLIDING for i in range(layers)]


def config_cases(draw: Draw) -> tuple[Case, ...]:
    window = 10 * draw.integer(5, 9) + 3
    long, short = 7 * window + 5, window - 11
    layers = draw.integer(9, 13)
    mixed = {"num_hidden_layers": layers, "layer_types": _kinds(draw, layers)}
    mixed |= {"sliding_window": window}
    alone = _made_up(draw, torch_dtype="float32", sliding_window=None)
    del alone["num_key_value_heads"]
    drawn = [
        (PLAIN, LLAMA, 131_072),
        (PLAIN, alone, long),
        (PLAIN, _made_up(draw, head_dim=17 + draw.integer(0, 4), torch_dtype="float16"), long),
        (WINDOWS, MISTRAL, 30_000),
        (WINDOWS, _made_up(draw, head_dim=None) | mixed, long),
        (WINDOWS, _made_up(draw, torch_dtype="bfloat16") | mixed, short),
        (SHARED, _made_up(draw, head_dim=19) | mixed | {"num_kv_shared_layers": 3}, long),
        (SHARED, _made_up(draw, num_hidden_layers=11, num_kv_shared_layers=4), long),
    ]
    return tuple(
        Case(part, f"{tokens:,} tokens, {_says(config)}", {"config": config, "tokens": tokens})
        for part, config, tokens in drawn
    )


def _says(config: dict[str, Any]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, list):
            return f"[{value.count(FULL)} full, {value.count(SLIDING)} sliding]"
        return repr(value)

    return ", ".join(f"{name} {shown(value)}" for name, value in config.items())


def run_config(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"bytes": answer(dict(inputs["config"]), inputs["tokens"])}


CONFIG_BYTES = Exercise(
    id="05.2",
    title="The bytes of a given config.json",
    notebook=NOTEBOOK,
    parts=(Part(PLAIN, 2), Part(WINDOWS, 1), Part(SHARED, 1)),
    cases=config_cases,
    run=run_config,
    expected=lambda inputs: {
        "bytes": Expected(
            np.array(reference.cache_bytes(inputs["config"], inputs["tokens"])), kind="integer"
        )
    },
    hints=(
        "2 (key and value) x rows of all layers x kv heads x head dim x bytes per number. Only the "
        "rows differ from layer to layer.",
        'config.get("head_dim") gives None when the field is missing, and also when it is there '
        "and None; `or` then takes what stands behind it.",
        "Rows: go through the layers that keep something, all but the last num_kv_shared_layers. "
        "A windowed one has min(tokens, window) rows, another one tokens.",
    ),
    misconceptions=CONFIG,
)

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
        "Free is what the reserve and the weights leave of all cards together: memory - memory * "
        "reserve_percent // 100 - weight_bytes.",
        "Pages of a request: context / page, rounded up. -(-a // b) rounds a / b up.",
        "A request takes pages * page * bytes_per_token. free // that, and max(0, ...) for weights "
        "that do not fit.",
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
    output, largest = _measured(answer, inputs, names, _asked_for(inputs))
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
        "P is pool_NPD.shape[1]. position_BT // P is the place in the table, position_BT % P the "
        "row in the page.",
        "table_BJ.gather(1, position_BT // P) looks every text up in its own row of the table.",
        "pool_NPD[page_BT, row_BT], both [B, T], picks one row of D numbers for each pair.",
    ),
    misconceptions=LOOKUP,
)

EQUIVALENT = {
    "05.2": {
        "min(tokens, window)  ->  min(window, tokens)": "the smaller of two, in either order",
        "0  ->  -1": "a list cut behind its end is the whole list",
    },
    "05.3": {
        "max(0, free // (pages * page * bytes_per_token))  ->  "
        "max(free // (pages * page * bytes_per_token), 0)": "the larger of two, in either order",
    },
}

EXERCISES = (GROUPED_HEADS, CONFIG_BYTES, REQUESTS, PAGE_TABLE)
