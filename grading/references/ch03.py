"""Chapter 03 in float64 numpy, one token at a time: slow, plain, independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
Sublayer = Callable[[Array], Array]  # [T, X] -> [T, X], of one text


def rms_norm(x_TX: Array, weight_X: Array, eps: float) -> Array:
    """Each token divided by the root of its mean square, then weighed."""
    rows = [x_X / (sum(x_X * x_X) / len(x_X) + eps) ** 0.5 * weight_X for x_X in x_TX]
    return np.stack(rows)


def pre_norm_block(
    x_BTX: Array, attention: Sublayer, ffn: Sublayer, weights: Sequence[Array], eps: float
) -> Array:
    """Norm, sublayer, addition; twice, text by text."""
    output = np.array(x_BTX, np.float64)
    for x_TX in output:
        for sublayer, weight_X in zip((attention, ffn), weights, strict=True):
            x_TX += sublayer(rms_norm(x_TX, np.asarray(weight_X, np.float64), eps))
    return output


def patched_run(
    sublayers: Sequence[Sublayer], x_BTX: Array, other_BTX: Array, which: int, position: int
) -> Array:
    """Both texts run to the end, every addition kept; then one row is exchanged."""
    output = np.array(x_BTX, np.float64)
    for x_TX, other_TX in zip(output, np.array(other_BTX, np.float64), strict=True):
        for number, sublayer in enumerate(sublayers):
            found_TX, elsewhere_TX = sublayer(x_TX), sublayer(other_TX)
            if number == which:
                found_TX[position] = elsewhere_TX[position]
            x_TX += found_TX
            other_TX += elsewhere_TX
    return output


def sinkhorn(logits_BTNN: Array, iterations: int, eps: float) -> Array:
    """Matrix by matrix: rows and columns divided one after another, entry by entry."""
    logits = np.asarray(logits_BTNN, np.float64)
    output = np.empty_like(logits)
    size = logits.shape[-1]
    for place in np.ndindex(logits.shape[:2]):
        power = np.exp(logits[place] - logits[place].max())
        matrix = np.stack([row / row.sum() for row in power]) + eps
        for turn in range(iterations):
            if turn:
                for i in range(size):
                    matrix[i] = matrix[i] / (matrix[i].sum() + eps)
            for j in range(size):
                matrix[:, j] = matrix[:, j] / (matrix[:, j].sum() + eps)
        output[place] = matrix
    return output


def update_copies(copies_BTNX, found_BTX, pre_BTN, post_BTN, comb_BTNN) -> tuple[Array, Array]:
    """New copies and next input, one token and one copy at a time."""
    copies, found, pre, post, comb = (
        np.asarray(x, np.float64) for x in (copies_BTNX, found_BTX, pre_BTN, post_BTN, comb_BTNN)
    )
    new, read = np.zeros_like(copies), np.zeros_like(found)
    for b, t in np.ndindex(found.shape[:2]):
        for j in range(copies.shape[2]):
            new[b, t, j] = post[b, t, j] * found[b, t]
            for i in range(copies.shape[2]):
                new[b, t, j] += comb[b, t, i, j] * copies[b, t, i]
            read[b, t] += pre[b, t, j] * new[b, t, j]
    return new, read


def stream_traffic(layers: int, copies: int, width: int, bits: int, schedule: str) -> int:
    """Bytes, added up pass by pass: how many streams each reads and writes."""
    every: list = list(range(copies))
    found = following = ["one"]
    passes: list[tuple[list, list]] = {
        "separate": [(every + found, every), (every, []), (every, following),
                     (following, following)],
        "fused": [(every + found, every), (every, following)],
        "single": [(every + found, every + following)],
    }[schedule]  # fmt: skip
    streams: int = sum(len(reads) + len(writes) for reads, writes in passes)
    bits_moved = sum(streams * width * bits for _ in range(layers) for _ in ("attention", "ffn"))
    return bits_moved // 8
