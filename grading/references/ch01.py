"""Chapter 01 in float64 numpy, one query and one head at a time: slow, plain, independent.

No batched products and no masks: a query at position p simply reads entries 0 to p.
"""

from __future__ import annotations

import numpy as np


def attend_one(query_D: np.ndarray, key_ND: np.ndarray, value_ND: np.ndarray) -> np.ndarray:
    """Attention of one query over the N entries it may see -> [D]."""
    score_N = key_ND @ query_D / len(query_D) ** 0.5
    weight_N = np.exp(score_N - score_N.max())
    return (weight_N @ value_ND) / weight_N.sum()


def causal_attention(query_BTHD, key_BSHD, value_BSHD) -> np.ndarray:
    """The T queries are the last T of S positions; each sees itself and what came before."""
    query, key, value = (np.asarray(x, np.float64) for x in (query_BTHD, key_BSHD, value_BSHD))
    batch, new, heads, _ = query.shape
    stored = key.shape[1] - new
    output = np.empty((batch, new, heads, value.shape[3]))
    for b, t, h in np.ndindex(batch, new, heads):
        end = stored + t + 1
        output[b, t, h] = attend_one(query[b, t, h], key[b, :end, h], value[b, :end, h])
    return output


def softmax_over_blocks(score_NS: np.ndarray, value_NSD: np.ndarray) -> np.ndarray:
    """softmax(score) times value; a row whose scores are all -inf gives 0."""
    score, value = np.asarray(score_NS, np.float64), np.asarray(value_NSD, np.float64)
    output = np.zeros((value.shape[0], value.shape[2]))
    for n, row in enumerate(score):
        seen = np.flatnonzero(row > -np.inf)
        if len(seen):
            weight = np.exp(row[seen] - row[seen].max())
            output[n] = weight @ value[n, seen] / weight.sum()
    return output
