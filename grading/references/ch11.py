"""Chapter 11 one number at a time, by looking for the nearest value in a list."""

from __future__ import annotations

import math

import numpy as np

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e4m3_magnitudes() -> list[float]:
    """In the order of their codes, 0 to 126."""
    small = [m * 2.0**-9 for m in range(8)]
    return small + [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)][:-1]


def nearest(magnitude: float, values) -> int:
    """The code of the nearest value; of two the even one."""
    return min(range(len(values)), key=lambda c: (abs(values[c] - magnitude), c % 2))


def codes(values) -> np.ndarray:
    given = np.asarray(values, np.float64)
    found = np.empty(given.shape, np.int64)
    for at in np.ndindex(given.shape):
        sign = 8 if math.copysign(1, given[at]) < 0 else 0
        found[at] = nearest(abs(given[at]), MAGNITUDES) + sign
    return found


def packed(given) -> np.ndarray:
    rows = np.asarray(given, np.int64)
    return np.array([[low + 16 * high for low, high in zip(r[::2], r[1::2])] for r in rows])


def fp4_blocks(values) -> tuple[np.ndarray, np.ndarray]:
    given, table = np.asarray(values, np.float64), e4m3_magnitudes()
    scales = []
    for block in given:
        largest = max(6 * 2.0**-9, max(abs(x) for x in block))
        scales.append(table[nearest(largest / 6, table)])
    ready = [[max(-6.0, min(6.0, x / s)) for x in row] for row, s in zip(given, scales)]
    return np.array(scales), np.array(ready)


def power_of_two_scale(values) -> tuple[np.ndarray, np.ndarray]:
    largest = [max(abs(x) for x in block) for block in np.asarray(values, np.float64)]
    scales = []
    for most in largest:
        scale = 2.0**-40
        while most / scale > 6:
            scale *= 2
        scales.append(scale)
    return np.array(scales), np.array([m / (6 * s) for m, s in zip(largest, scales)])


def gradient(values, limit, arrives) -> np.ndarray:
    """What comes back through the rounding of what `arrives`."""
    v, most, g = (np.asarray(x, np.float64) for x in (values, limit, arrives))
    return np.array(
        [[g[i, j] if abs(v[i, j]) <= most[i, 0] else 0.0 for j in range(v.shape[1])]
         for i in range(v.shape[0])]
    )  # fmt: skip


def bytes_per_token(ratios, dim: int, index_dim: int) -> tuple[float, float]:
    """In bits, block by block, for as many tokens as make whole groups everywhere."""
    tokens = math.lcm(*ratios)
    rows = sum(tokens // ratio for ratio in ratios)

    def bits(count, block):
        return sum(8 + 4 * min(block, count - first) for first in range(0, count, block))

    return rows * bits(dim, 16) / 8 / tokens, rows * bits(index_dim, 32) / 8 / tokens
