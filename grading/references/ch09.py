"""Chapter 09 in float64 numpy, one token at a time; what is exact is found by trying."""

from __future__ import annotations

import numpy as np

from grading.references.ch06 import turned


def decoder_rows(stream_LBTX, encoder, kv_EDX, norm_ED, rope, start, eps) -> np.ndarray:
    stream, kv, norm = (np.asarray(x, np.float64) for x in (stream_LBTX, kv_EDX, norm_ED))
    _, B, T, _ = stream.shape
    E, D, _ = kv.shape
    rows = np.empty((E, B, T, D))
    for e, b, t in np.ndindex(E, B, T):
        row = kv[e] @ stream[encoder - 1, b, t]
        row = row / (sum(n * n for n in row.tolist()) / D + eps) ** 0.5 * norm[e]
        rows[e, b, t] = [*row[: D - rope], *turned(row[D - rope :], start + t)]
    return rows


def who_runs(prompt, written, layers, encoder, window) -> np.ndarray:
    """Told as it happens: chunk, replay, words."""
    events = [(range(encoder), t) for t in range(prompt)]
    missing = list(range(prompt))[-window:]
    events += [(range(encoder, layers), t) for t in missing]
    events += [(range(layers), prompt + i) for i in range(written)]
    table = np.zeros((layers, prompt + written))
    for which, t in events:
        for i in which:
            table[i, t] = 1
    return table


def one_layer(x_TX, weight_XX, seen: list[range]) -> np.ndarray:
    """What the check's layers do: each token adds a mix of those it sees, by likeness."""
    out = np.empty_like(x_TX)
    for t, places in enumerate(seen):
        near = x_TX[list(places)]
        score = near @ x_TX[t] / x_TX.shape[1]
        share = np.exp(score - score.max())
        out[t] = x_TX[t] + np.tanh(weight_XX @ (share @ near / share.sum()))
    return out


def bounded_replay(x_BTX, weight_LXX, window, run) -> np.ndarray:
    last = []
    for x_TX in np.asarray(x_BTX, np.float64):
        start = max(0, len(x_TX) - run)
        x_TX = x_TX[start:]
        seen = [range(max(0, t - window + 1), t + 1) for t in range(len(x_TX))]
        for weight_XX in np.asarray(weight_LXX, np.float64):
            x_TX = one_layer(x_TX, weight_XX, seen)
        last.append(x_TX[-1])
    return np.stack(last)


def _exact(end: int, first: int, window: int, layers: int) -> list[bool]:
    """For each token up to `end`, whether the last layer has it right, if none before `first`
    was run: a token is right where all that it sees is."""
    right = [t >= first for t in range(end)]
    for _ in range(layers):
        right = [all(right[max(0, t - window + 1) : t + 1]) for t in range(end)]
    return right


def exactness(prompt, window, layers) -> tuple[int, bool, int]:
    run = next(n for n in range(1, prompt + 1) if _exact(prompt, prompt - n, window, layers)[-1])
    first = max(0, prompt - window)
    far = prompt + layers * window + 2
    right = _exact(far, first, window, layers)
    words = next(n for n in range(far) if all(right[prompt - 1 + n :]))
    return run, right[prompt - 1], words
