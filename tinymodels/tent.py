"""Folding: what a stack of small layers can do that one wide layer can not.

    tent(x) = 2x up to 1/2, 2 - 2x after it          x from 0 to 1

folds the line once: two pieces. Folded k times, tent(tent(...)), it has 2^k straight pieces. A
network of k layers with two ReLU units each computes that exactly. In a network of one layer
every unit adds at most one bend, so it needs 2^k units (Telgarsky, arXiv 1509.08101, builds his
theorem on this map).
"""

import torch
from jaxtyping import Float
from torch import Tensor

Network = tuple[tuple[Tensor, Tensor], ...]
"""Weight and bias of every layer; a ReLU stands between two of them."""


def tent(x: Tensor, folds: int = 1) -> Tensor:
    """The tent map, `folds` times."""
    for _ in range(folds):
        x = 1 - (1 - 2 * x).abs()
    return x


def _check(folds: int) -> None:
    if not isinstance(folds, int) or not 1 <= folds <= 16:
        raise ValueError(f"folds is {folds!r}; it is a whole number from 1 to 16")


def run(network: Network, x_N: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """A ReLU network of one input and one output."""
    x_NF = x_N[:, None]
    for weight, bias in network[:-1]:
        x_NF = (x_NF @ weight.T + bias).relu()
    weight, bias = network[-1]
    return (x_NF @ weight.T + bias)[:, 0]


def units(network: Network) -> int:
    """ReLU units: the outputs of all layers but the last."""
    return sum(len(bias) for _, bias in network[:-1])


def parameters(network: Network) -> int:
    return sum(tensor.numel() for pair in network for tensor in pair)


def deep(folds: int) -> Network:
    """One fold a layer: tent(x) = 2 relu(x) - 4 relu(x - 1/2), and the next layer reads that."""
    _check(folds)
    read = torch.tensor([[2.0, -4.0]], dtype=torch.float64)
    bias = torch.tensor([0.0, -0.5], dtype=torch.float64)
    first = (torch.ones(2, 1, dtype=torch.float64), bias)
    later = (read.expand(2, 2).clone(), bias)
    return (first, *[later] * (folds - 1), (read, torch.zeros(1, dtype=torch.float64)))


def wide(folds: int) -> Network:
    """The same in one layer: a unit that starts each piece, up first, then down and up in turns.

    Up and down are 2^folds steep, so a bend changes the slope by twice as much.
    """
    _check(folds)
    pieces = 2**folds
    start_M = torch.arange(pieces, dtype=torch.float64) / pieces
    turn_M = 2.0 * pieces * (-1.0) ** torch.arange(pieces, dtype=torch.float64)
    turn_M[0] = pieces
    into = (torch.ones(pieces, 1, dtype=torch.float64), -start_M)
    return (into, (turn_M[None], torch.zeros(1, dtype=torch.float64)))


def grid(points: int) -> Float[Tensor, "N"]:
    """0 to 1 in `points` equal steps; a power of two of them is exact in binary."""
    return torch.arange(points + 1, dtype=torch.float64) / points


def pieces(y_N: Float[Tensor, "N"]) -> int:
    """Straight pieces of a curve, counted: neighbouring steps of one height are one piece.

    For curves whose bends lie on the grid; otherwise a bend between two points counts twice.
    """
    steps = y_N.diff()
    return 1 + int((steps[1:] != steps[:-1]).sum())
