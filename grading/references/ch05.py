"""Chapter 05 in plain loops and float64 numpy: one query head, one layer, one page at a time."""

from __future__ import annotations

import numpy as np


def grouped_attention(query_BTHD, key_BSKD, value_BSKD) -> np.ndarray:
    """Every query head by itself, with the one kv head it reads."""
    query, key, value = (np.asarray(x, np.float64) for x in (query_BTHD, key_BSKD, value_BSKD))
    B, T, H, D = query.shape
    S, K = key.shape[1:3]
    output = np.zeros((B, T, H, D))
    for b, t, h in np.ndindex(B, T, H):
        seen = S - T + t + 1
        k = h * K // H
        score = key[b, :seen, k] @ query[b, t, h] / np.sqrt(D)
        weight = np.exp(score - score.max())
        output[b, t, h] = weight @ value[b, :seen, k] / weight.sum()
    return output


def cache_bytes(config: dict, tokens: int) -> int:
    """Layer by layer, from the last to the first."""

    def given(name, otherwise):
        return otherwise if config.get(name) is None else config[name]

    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    size = {"bfloat16": 2, "float16": 2, "float32": 4}[given("torch_dtype", "bfloat16")]
    numbers = given("num_key_value_heads", heads)
    numbers *= given("head_dim", config["hidden_size"] // heads)
    total = 0
    for layer in reversed(range(layers)):
        if layer >= layers - given("num_kv_shared_layers", 0):
            continue
        kinds = config.get("layer_types")
        slides = kinds is None or kinds[layer] == "sliding_attention"
        rows = min(tokens, given("sliding_window", tokens)) if slides else tokens
        total += rows * (numbers + numbers) * size
    return total


def requests_that_fit(
    cards, card_bytes, reserve_percent, weight_bytes, bytes_per_token, context, page
) -> int:
    """Requests are let in one after another until the next one is too many. Halves the search."""
    one = sum(page for _ in range(0, context, page)) * bytes_per_token
    room = cards * card_bytes * (100 - reserve_percent)

    def fits(count: int) -> bool:
        return 100 * (weight_bytes + count * one) <= room

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def rows_of(pool_NPD, table_BJ, position_BT) -> np.ndarray:
    """One position at a time, walking along the table page by page."""
    pool, table, position = (np.asarray(x) for x in (pool_NPD, table_BJ, position_BT))
    P, D = pool.shape[1:]
    out = np.zeros((*position.shape, D))
    for b, t in np.ndindex(*position.shape):
        left, j = int(position[b, t]), 0
        while left >= P:
            left, j = left - P, j + 1
        out[b, t] = pool[table[b, j], left]
    return out
