"""Chapter 07 in float64 numpy and plain Python, one query and one entry at a time."""

from __future__ import annotations

import numpy as np


def index_scores(query_BTID, weight_BTI, key_BSD) -> np.ndarray:
    query, weight, key = (np.asarray(x, np.float64) for x in (query_BTID, weight_BTI, key_BSD))
    (B, T, heads, _), S = query.shape, key.shape[1]
    score = np.zeros((B, T, S))
    for b, t, s, i in np.ndindex(B, T, S, heads):
        score[b, t, s] += weight[b, t, i] * max(0.0, float(query[b, t, i] @ key[b, s]))
    return score


def select(score_BTS, visible_TS, k: int) -> np.ndarray:
    """One query at a time: by falling score, then by rising index; what is left over is -1."""
    score, visible = np.asarray(score_BTS, np.float64), np.asarray(visible_TS)
    B, T, S = score.shape
    choice = np.full((B, T, min(k, S)), -1)
    for b, t in np.ndindex(B, T):
        seen = [s for s in range(S) if visible[t, s]]
        best = sorted(sorted(seen, key=lambda s: (-score[b, t, s], s))[:k])
        choice[b, t, : len(best)] = best
    return choice


def reads(layers, latent, rope, index, k, context) -> tuple[int, int]:
    """Numbers of 2 bytes, entry by entry."""
    kept = read = 0
    for _ in range(layers):
        kept += 2 * (latent + rope) + 2 * index
        read += 2 * index * context + 2 * (latent + rope) * (k if context > k else context)
    return kept, read


def threshold(key_N, k: int) -> int:
    return sorted((int(key) for key in key_N), reverse=True)[k - 1]


def gather(query_BHD, entry_BSD, index_Bk, scale: float) -> np.ndarray:
    """One new token a text over the listed entries; -1 lists none."""
    query, entry = (np.asarray(x, np.float64) for x in (query_BHD, entry_BSD))
    output = np.zeros(query.shape)
    for b, h in np.ndindex(query.shape[:2]):
        rows = entry[b, [s for s in np.asarray(index_Bk)[b].tolist() if s >= 0]]
        score = scale * rows @ query[b, h]
        weight = np.exp(score - score.max())
        output[b, h] = weight @ rows / weight.sum()
    return output
