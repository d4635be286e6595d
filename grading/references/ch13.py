"""Chapter 13 in float64 numpy: what each cache of the fault lab should hold."""

from __future__ import annotations

import numpy as np

from grading.references.ch06 import turned


def turned_keys(key_BTD) -> np.ndarray:
    """Key t turned to position t."""
    texts = np.asarray(key_BTD)
    return np.array([[turned(key, t) for t, key in enumerate(text)] for text in texts])


def pooled(x_BTD, size: int) -> np.ndarray:
    """Means of complete groups, each turned to the position of its first token: [B, G, D]."""
    mean = means(x_BTD, size)
    made = np.empty_like(mean)
    for b, g in np.ndindex(*mean.shape[:2]):
        made[b, g] = turned(mean[b, g], g * size)
    return made


def means(x_BTD, size: int) -> np.ndarray:
    """Means of complete groups [B, G, D]."""
    x = np.asarray(x_BTD, np.float64)
    groups = [x[:, g * size : (g + 1) * size].mean(1) for g in range(x.shape[1] // size)]
    return np.stack(groups, 1) if groups else x[:, :0]


def beams(steps, batch: int, capacity: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts as lists. A step is ("append", rows, who grows) or ("select", order)."""
    texts: list[list] = [[] for _ in range(batch)]
    for name, *given in steps:
        if name == "select":
            texts = [list(texts[b]) for b in given[0].tolist()]
        else:
            rows, grows = (np.asarray(x) for x in given)
            texts = [text + [row] if more else text for text, row, more in zip(texts, rows, grows)]
    made = np.zeros((batch, capacity, dim))
    for b, text in enumerate(texts):
        for s, row in enumerate(text):
            made[b, s] = row
    return made, np.array([len(text) for text in texts])


def window(row_BTD, sizes, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each chunk: the rows from at most `size` before it, and what its tokens see of them."""
    x, start, found = np.asarray(row_BTD, np.float64), 0, []
    for count in sizes:
        first = max(0, start - size)
        read = list(range(first, start + count))
        sees = [[t - size < s <= t for s in read] for t in range(start, start + count)]
        found.append((x[:, first : start + count], np.array(sees, np.float64)))
        start += count
    return found


def eight_bits(row_BTD, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes [B, T, D] and scales [B, T, N], block after block."""
    x = np.asarray(row_BTD, np.float64)
    code = np.empty_like(x)
    scale = np.empty((*x.shape[:2], x.shape[2] // block))
    for b, t, n in np.ndindex(*scale.shape):
        inside = slice(n * block, (n + 1) * block)
        scale[b, t, n] = max(abs(v) for v in x[b, t, inside]) / 127
        code[b, t, inside] = np.round(x[b, t, inside] / scale[b, t, n])
    return code, scale
