"""Chapter 08 in float64 numpy and plain Python: one token, one channel, one row at a time."""

from __future__ import annotations

import numpy as np

from grading.references.ch06 import turned


def visible_groups(start: int, new: int, groups: int, m: int) -> np.ndarray:
    """By the members of a group: all of them have to be there."""
    visible: np.ndarray = np.zeros((new, groups), dtype=bool)
    for t in range(new):
        there = set(range(start + t + 1))
        for j in range(groups):
            visible[t, j] = set(range(j * m, (j + 1) * m)) <= there
    return visible


def weighed(rows: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Pairs of value and gate, pooled channel by channel."""
    values, gates = (np.stack(part) for part in zip(*rows, strict=True))
    entry = np.empty(values.shape[1])
    for d in range(len(entry)):
        weight = np.exp(gates[:, d] - gates[:, d].max())
        entry[d] = weight @ values[:, d] / weight.sum()
    return entry


def pool_groups(value_BSD, gate_BSD, bias_MD) -> np.ndarray:
    value, gate, bias = (np.asarray(x, np.float64) for x in (value_BSD, gate_BSD, bias_MD))
    (B, S, D), m = value.shape, len(bias)
    entries = np.empty((B, S // m, D))
    for b, j in np.ndindex(B, S // m):
        rows = [(value[b, j * m + r], gate[b, j * m + r] + bias[r]) for r in range(m)]
        entries[b, j] = weighed(rows)
    return entries


def pool_overlapping(value_BSC, gate_BSC, bias_MC) -> np.ndarray:
    value, gate, bias = (np.asarray(x, np.float64) for x in (value_BSC, gate_BSC, bias_MC))
    (B, S, C), m = value.shape, len(bias)
    D = C // 2
    entries = np.empty((B, S // m, D))
    for b, j in np.ndindex(B, S // m):
        rows = []
        for s in range((j - 1) * m, (j + 1) * m):
            if s >= 0:
                half = slice(0, D) if s < j * m else slice(D, C)
                rows.append((value[b, s, half], gate[b, s, half] + bias[s % m, half]))
        entries[b, j] = weighed(rows)
    return entries


def attend_with_sink(query_BTHD, row_BSD, visible_TS, sink_H) -> np.ndarray:
    query, row, sink = (np.asarray(x, np.float64) for x in (query_BTHD, row_BSD, sink_H))
    out = np.zeros(query.shape)
    for b, t, h in np.ndindex(query.shape[:3]):
        seen = np.flatnonzero(np.asarray(visible_TS)[t])
        if len(seen):
            score = row[b, seen] @ query[b, t, h] / query.shape[-1] ** 0.5
            top = max(score.max(), sink[h])
            weight = np.exp(score - top)
            out[b, t, h] = weight @ row[b, seen] / (weight.sum() + np.exp(sink[h] - top))
    return out


def attend_and_turn_back(query_BTD, row_BSD, query_at, row_at, R: int) -> np.ndarray:
    """For each query the rows are turned by their distance to it, and nothing is turned back."""
    query, row = np.asarray(query_BTD, np.float64), np.asarray(row_BSD, np.float64)
    out = np.empty(query.shape)
    for b, t in np.ndindex(query.shape[:2]):
        seen = row[b].copy()
        for s, at in enumerate(row_at):
            seen[s, -R:] = turned(seen[s, -R:], int(at) - int(query_at[t]))
        score = seen @ query[b, t] / query.shape[-1] ** 0.5
        weight = np.exp(score - score.max())
        out[b, t] = weight @ seen / weight.sum()
    return out


def bytes_held(n: int, ratios, entry: int, key: int, window: int) -> tuple[int, int]:
    """Token by token: what is added when it comes, and what leaves the window."""
    groups = near = 0
    for t in range(n):
        for m in ratios:
            near += entry
            if t >= window:
                near -= entry
            if m and (t + 1) % m == 0:
                groups += entry
                if m == 4:
                    groups += key
    return groups, near
