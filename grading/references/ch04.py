"""Chapter 04 in float64 numpy, one token and one unit at a time: slow, plain, independent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def swiglu_one(gate: float, up: float, limit: float | None) -> float:
    """One unit. A gate that is too high, an up that is too far from 0: cut first."""
    if limit is not None:
        gate = min(gate, limit)
        up = max(-limit, min(up, limit))
    return gate / (1 + math.exp(-gate)) * up


def swiglu(gate_BTF, up_BTF, limit: float | None) -> np.ndarray:
    pairs = zip(np.ravel(gate_BTF).tolist(), np.ravel(up_BTF).tolist(), strict=True)
    said = [swiglu_one(gate, up, limit) for gate, up in pairs]
    return np.array(said).reshape(np.shape(gate_BTF))


def scores(x_X: Sequence[float], gate_EX) -> list[float]:
    """sqrt(log(1 + e^z)) of each expert's dot product z, where e^z may be tiny or huge."""
    logits = np.asarray(gate_EX, np.float64) @ np.asarray(x_X, np.float64)
    return [math.sqrt(max(z, 0.0) + math.log1p(math.exp(-abs(z)))) for z in logits.tolist()]


def route_one(x_X, gate_EX, bias_E, top_k: int, scale: float) -> tuple[list[int], list[float]]:
    """The experts of one token and their weights: a list of pairs, sorted and cut."""
    score_E = scores(x_X, gate_EX)
    ranked = sorted((-(s + float(b)), e) for e, (s, b) in enumerate(zip(score_E, bias_E)))
    chosen = [e for _, e in ranked[:top_k]]
    whole = sum(score_E[e] for e in chosen)
    return chosen, [scale * score_E[e] / whole for e in chosen]


def route(x_BTX, gate_EX, bias_E, top_k: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    x = np.asarray(x_BTX, np.float64)
    told = [route_one(row, gate_EX, bias_E, top_k, scale) for row in x.reshape(-1, x.shape[-1])]
    shape = (*x.shape[:-1], top_k)
    experts, weights = (np.array(part, np.float64).reshape(shape) for part in zip(*told))
    return experts, weights


def least_gap(x_BTX, gate_EX, bias_E, top_k: int) -> float:
    """How near two scores come that decide who is chosen and in which order; exact ties apart."""
    x, bias = np.asarray(x_BTX, np.float64), np.asarray(bias_E, np.float64)
    nearest = np.inf
    for row in x.reshape(-1, x.shape[-1]):
        ranked = sorted(np.asarray(scores(row, gate_EX)) + bias, reverse=True)[: top_k + 1]
        gaps = [a - b for a, b in zip(ranked, ranked[1:]) if a != b]
        nearest = min([nearest, *gaps])
    return float(nearest)


def updated_bias(bias_E, experts_BTk, gamma: float) -> np.ndarray:
    """Compared as whole numbers: load x E against the number of all choices."""
    chosen = np.ravel(experts_BTk).tolist()
    bias = np.asarray(bias_E, np.float64).copy()
    for e in range(len(bias)):
        mine = chosen.count(e) * len(bias)
        bias[e] += gamma * ((mine < len(chosen)) - (mine > len(chosen)))
    return bias


def parameters(layers, width, expert_width, experts, shared, top_k) -> dict[str, int]:
    """Counted by laying the matrices out."""
    network = [(expert_width, width), (expert_width, width), (width, expert_width)]
    router = [(experts, width), (experts, 1)]

    def numbers(shapes) -> int:
        return sum(rows * columns for rows, columns in shapes)

    def layer(networks: int) -> int:
        return numbers(router) + sum(numbers(network) for _ in range(networks))

    return {
        "total": sum(layer(experts + shared) for _ in range(layers)),
        "active": sum(layer(top_k + shared) for _ in range(layers)),
    }
