"""Chapter 10 in numpy and plain Python, one layer, one query and one entry at a time."""

from __future__ import annotations

import numpy as np


def chosen(scores: list[float], k: int) -> list[int]:
    """Places of the k best, in order of position, filled up with -1; of equal ones the first."""
    best = sorted(range(len(scores)), key=lambda s: (-scores[s], s))[:k]
    return sorted(best) + [-1] * (k - len(best))


def owners_and_choices(modes, query_LTD, key_LTD, k: int) -> tuple[np.ndarray, np.ndarray]:
    query, key = (np.asarray(x, np.float64) for x in (query_LTD, key_LTD))
    T = query.shape[1]
    owners, choices = [], []
    for layer, mode in enumerate(modes):
        below = [i for i in range(layer + 1) if modes[i] == "full"]
        asks = [i for i in range(layer + 1) if modes[i] in ("full", "reindex")]
        if mode == "window":
            owners.append(-1)
            choices.append([[-1] * k] * T)
            continue
        asking = asks[-1]
        owner = [i for i in below if i <= asking][-1]
        owners.append(below[-1])
        choices.append(
            [
                chosen([float(query[asking, t] @ key[owner, s]) for s in range(t + 1)], k)
                for t in range(T)
            ]
        )
    return np.array(owners), np.array(choices)


def candidates(score_BTS, counts, block: int, keep: int) -> np.ndarray:
    """counts: how many entries each query sees."""
    score = np.asarray(score_BTS, np.float64)
    mask = np.zeros(score.shape)
    for b, t in np.ndindex(*score.shape[:2]):
        n = counts[t]
        blocks = [list(range(i, min(i + block, n))) for i in range(0, n, block)]
        best = {rows[0]: max(score[b, t, s] for s in rows) for rows in blocks}
        ranked = sorted(blocks[:-1], key=lambda rows: -best[rows[0]])  # noqa: B023: used at once
        for rows in [*ranked[: keep - 1], *blocks[-1:]]:
            mask[b, t, rows] = 1
    return mask


def sharing(ratios, owners, entry_bytes: int, key_bytes: int) -> tuple[float, float]:
    """Counted over a stretch of tokens that all groups fill exactly."""
    stretch = 1
    for ratio in set(ratios) - {0}:
        stretch *= ratio
    rows = [stretch // ratio if ratio else 0 for ratio in ratios]
    row = entry_bytes + key_bytes
    return (
        sum(rows[layer] for layer in owners) * row / stretch,
        sum(rows) * row / stretch,
    )


def work_at(
    n, modes, ratios, window, top_k, pool, heads, dim, index_heads, index_dim
) -> tuple[int, int]:
    attention = scores = 0
    for mode, ratio in zip(modes, ratios, strict=True):
        entries = len(range(ratio, n + 1, ratio)) if ratio else 0
        for read in (min(n, window), min(entries, top_k)):
            attention += read * heads * (2 * dim + 2 * dim)
        looked = {"full": entries, "reindex": min(entries, pool)}.get(mode, 0)
        scores += looked * index_heads * 2 * index_dim
    return attention, scores
