"""Chapter 12 the long way round: counted one by one, in float64 numpy."""

from __future__ import annotations

import numpy as np


def longest_prefix(prompt, stored, ratios, piece) -> int:
    """Every length is tried, from the longest down."""
    for length in range(len(prompt) - 1, 0, -1):
        whole = all(length % part == 0 for part in (*ratios, piece))
        if whole and length <= len(stored) and list(prompt[:length]) == list(stored[:length]):
            return length
    return 0


def layer(x, down, up, visible):
    """Rows, and what leaves: each token adds the mean of the rows that it sees."""
    rows = x @ down
    out = np.array(x, dtype=np.float64)
    for t in range(len(x)):
        seen = [s for s in range(len(x)) if visible[t][s]]
        if seen:
            out[t] = x[t] + np.tanh(rows[seen].mean(axis=0)) @ up
    return rows, out


def windows(x, down, up, window) -> np.ndarray:
    x, down, up = (np.asarray(a, np.float64) for a in (x, down, up))
    x = x[max(0, len(x) - window) :]
    before = [[s <= t for s in range(len(x))] for t in range(len(x))]
    found = []
    for one, other in zip(down, up):
        rows, x = layer(x, one, other, before)
        found.append(rows)
    return np.stack(found)


def memory(budget, ttl, calls) -> tuple[list[int], list[int]]:
    """Plain lists: (name, size, time) in the order of use. Answers, and bytes after each call."""
    held: list[tuple] = []
    answers: list[int] = []
    used: list[int] = []
    for name, size, now in calls:
        held = [entry for entry in held if now - entry[2] < ttl]
        old = [entry for entry in held if entry[0] == name]
        others = [entry for entry in held if entry[0] != name]
        if size is None:
            answers.append(len(old))
            held = others + [(name, entry[1], now) for entry in old]
        else:
            answers.append(int(size <= budget))
            if size <= budget:
                while sum(entry[1] for entry in others) > budget - size:
                    others = others[1:]
                held = [*others, (name, size, now)]
        used.append(sum(entry[1] for entry in held))
    return answers, used


def bill(turns, hit, miss, output) -> tuple[float, float]:
    paid = without = 0.0
    for prompt, found, written in turns:
        paid += found * hit / 10**6 + (prompt - found) * miss / 10**6 + written * output / 10**6
        without += prompt * miss / 10**6 + written * output / 10**6
    return paid, without


def disk_ratio(far, window, other, interval, wanted) -> tuple[float, float]:
    """Bytes of `interval` tokens in both; then an interval that is halved towards."""
    ratio = (far * interval + window) / (other * interval)
    low, high = 1e-9, 1e12
    for _ in range(400):
        middle = (low * high) ** 0.5
        too_much = far * middle + window > wanted * other * middle
        low, high = (middle, high) if too_much else (low, middle)
    return ratio, low
