"""Chapter 05: the bill. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.checks.ch05_requests import PAGE_TABLE, REQUESTS
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch05_config import CONFIG
from grading.misconceptions.ch05_grouped import GROUPED
from grading.references import ch05 as reference
from grading.references.largest_tensor import LARGEST, measured

NOTEBOOK = "05__the_bill"


# ---------------------------------------------------------------- 05.1

VALUES, NO_COPY = "the values", "no keys and values for every head"


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
    output, largest = measured(answer, inputs, ("query", "key", "value"), _scores(inputs))
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
        tied(
            "query_BTHD.unflatten(2, (K, H // K)) splits the heads into K groups of G that stand "
            "side by side: the first G heads read kv head 0.",
            "repeats", "taking_turns", "split_g_first", "one_group", NO_COPY,
        ),
        tied(
            'torch.einsum("btkgd,bskd->bkgts", query_BTKGD, key_BSKD) makes all scores: k stands '
            "in both, g only in the query.",
            "keys_of_another_group", "no_scale", "scaled_by_d", "scaled_by_width",
        ),
        tied(
            "torch.ones(T, S, dtype=torch.bool).tril(S - T) is what the T newest may see. Mask "
            "before the softmax, over the last axis.",
            "no_mask", "mask_at_the_start", "mask_afterwards", "softmax_over_queries",
            "softmax_over_group",
        ),
        tied(
            'torch.einsum("bkgts,bskd->btkgd", weight_BKGTS, value_BSKD), then flatten(2, 3) puts '
            "the heads side by side again.",
            "joined_g_first", "group_mean", "values_of_another_group", "shape",
        ),
    ),
    misconceptions=GROUPED,
)  # fmt: skip

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
        tied(
            "2 (key and value) x rows of all layers x kv heads x head dim x bytes per number. Only "
            "the rows differ from layer to layer.",
            "query_heads", "forgets_two", "always_two_bytes", "bits", "one_layer", "one_token",
            "width_of_stream",
        ),
        tied(
            'config.get("head_dim") gives None when the field is missing, and also when it is '
            "there and None; `or` then takes what stands behind it.",
            "head_dim_divided", "divided_by_kv_heads", PLAIN,
        ),
        tied(
            "Rows: go through the layers that keep something, all but the last "
            "num_kv_shared_layers. A windowed one has min(tokens, window) rows, another one "
            "tokens.",
            "no_window", "window_everywhere", "window_in_full_layers", "window_always_full",
            "larger_of_both", "sharing_ignored", "first_layers_share", "borrowers_only", WINDOWS,
            SHARED,
        ),
    ),
    misconceptions=CONFIG,
)  # fmt: skip

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
