"""Chapter 02 in float64 numpy: one vector at a time, sorted lists, another solver."""

from __future__ import annotations

import numpy as np


def guess(stream_X: np.ndarray, gain_X: np.ndarray, head_VX: np.ndarray) -> np.ndarray:
    """Logits [V] of one vector of the stream."""
    stream = np.asarray(stream_X, np.float64)
    length = np.linalg.norm(stream) ** 2 / len(stream)
    return np.asarray(head_VX, np.float64) @ (np.asarray(gain_X) * stream / (length + 1e-6) ** 0.5)


def logit_lens(stream_LBX, gain_X, head_VX, answer_B) -> tuple[np.ndarray, np.ndarray]:
    """Rank and entropy in bits, [L, B] each."""
    layers, batch, _ = np.shape(stream_LBX)
    rank, entropy = np.empty((layers, batch)), np.empty((layers, batch))
    for place in np.ndindex(layers, batch):
        logits_V = guess(stream_LBX[place], gain_X, head_VX)
        order = np.argsort(-logits_V, kind="stable").tolist()
        rank[place] = 1 + order.index(int(answer_B[place[1]]))
        odds_V = np.exp(logits_V - logits_V.max())
        chance_V = odds_V / odds_V.sum()
        entropy[place] = -sum(p * np.log2(p) for p in chance_V if p > 0)
    return rank, entropy


def probe(train_NX, label_N, new_MX, classes: int, ridge: float) -> np.ndarray:
    """Scores [M, C]: least squares with the ridge as further rows, solved by SVD."""
    train, new = (np.asarray(x, np.float64) for x in (train_NX, new_MX))
    train = np.hstack([train, np.ones((len(train), 1))])
    new = np.hstack([new, np.ones((len(new), 1))])
    target = np.zeros((len(train), classes))
    target[np.arange(len(train)), np.asarray(label_N)] = 1
    rows = np.vstack([train, ridge**0.5 * np.eye(train.shape[1])])
    wanted = np.vstack([target, np.zeros((train.shape[1], classes))])
    return new @ np.linalg.lstsq(rows, wanted, rcond=None)[0]


def folded(x_N: np.ndarray, folds: int) -> np.ndarray:
    """The tent map, again and again."""
    y = np.asarray(x_N, np.float64)
    for _ in range(folds):
        y = np.where(y < 0.5, 2 * y, 2 - 2 * y)
    return y
