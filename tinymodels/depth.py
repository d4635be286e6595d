"""What depth buys in training, at equal parameters. One command makes `checkpoints/depth.json`:

    python -m tinymodels.depth

**Looking up** (transformers). Pairs of words are named and named again: `lamp Ada blue park lamp`
goes on with `Ada`. One, two and four layers of the same width, their feed-forward widths chosen
so that all have the same number of parameters, read the same texts in the same order.

**Folding** (ReLU networks). One wide layer and four narrow ones, with 241 parameters each, learn
the k-fold tent map from points. What a network can express is one thing, what training finds
another; the losses say which won.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from . import checkpoints, data, study, tent
from .config import GQA, Dense, ModelConfig, Rope, uniform
from .run import Run

FILE = checkpoints.FOLDER / "depth.json"
COMMAND = "python -m tinymodels.depth"
WIDTHS = {1: 426, 2: 170, 4: 42}
"""Layers and feed-forward width: layers x (86 + width) is 512 in all of them, so parameters are
equal. (An attention of 4 heads of 16 and its two norms weigh as much as 86 units.)"""
SEEDS = (0, 1, 2)
STEPS, ROWS, LENGTH, RATE, WARMUP = 2000, 32, 24, 3e-3, 50
EVERY = 100

FOLDS = (1, 2, 3, 4, 5)
SHAPES = {"one layer of 80": (1, 80, 1), "four layers of 8": (1, 8, 8, 8, 8, 1)}
FOLD_SEEDS, FOLD_STEPS, FOLD_RATE, POINTS = (0, 1, 2, 3, 4), 3000, 1e-2, 512


# ---------------------------------------------------------------- looking up


def config(layers: int) -> ModelConfig:
    """One of three models that differ in depth and not in size. Errors: ValueError otherwise."""
    if layers not in WIDTHS:
        raise ValueError(f"layers is {layers}; equal sizes are worked out for {list(WIDTHS)}")
    attention = GQA(heads=4, kv_heads=4, head_dim=16, rope=Rope(16, pairs="half"))
    described = uniform(layers, attention, Dense(WIDTHS[layers]))
    return ModelConfig(f"{layers} layers", vocab=256, width=64, layers=described, context=64)


def texts(rows: int, seed: int, step: int, held_out: bool = False) -> data.Batch:
    """Memory games of 2 to 4 pairs; `known` has every second word that was named before."""
    stage = data.Stage(rows, LENGTH, games=1.0, level=0)
    return data.batch("recall", seed, step, stage, held_out)


@torch.no_grad()
def found(model: nn.Module) -> float:
    """The share of second words that are right, in 256 texts that training has not seen."""
    batch = texts(256, 0, 0, held_out=True)
    asked_BT = batch.known != data.IGNORED
    return (model(batch.tokens).argmax(-1) == batch.known)[asked_BT].float().mean().item()


def play(
    model: nn.Module,
    run: Run,
    steps: int,
    every: int | None,
    texts: Callable = texts,
    found: Callable = found,
) -> tuple[list[float], list[float]]:
    """Train on memory games: (the loss of each step, the share found after each `every` steps).

    every None: nothing is measured on the way. texts(rows, seed, step): other games than these;
    found(model): how they are measured. An indexer's lesson is trained on and not noted.
    """
    right = []

    def loss_at(step: int):
        batch = texts(run.size, run.seed, step)
        logits_BTV, lessons = model.with_losses(batch.tokens)
        logits_NV = logits_BTV.flatten(0, 1)
        loss = cross_entropy(logits_NV, batch.known.flatten(), ignore_index=data.IGNORED)
        return sum(lessons, loss), loss.detach()

    def after(done: int) -> None:
        if every and done % every == 0:
            right.append(round(found(model), 4))

    return study.descend(model, run, steps, loss_at, after), right


def look_up(layers: int, seed: int, steps: int | None = None, measure: bool = True) -> dict:
    """Train one model for the first `steps` of STEPS steps (all): losses, and what it finds."""
    run = Run("tiny_v1", "recall", seed, STEPS, ROWS, LENGTH, RATE, WARMUP)
    model = study.untrained(config(layers), seed)
    losses, right = play(model, run, steps or STEPS, EVERY if measure else None)
    return {"layers": layers, "seed": seed} | study.told(model, losses, right, EVERY)


# ---------------------------------------------------------------- folding


def _draw(sizes: tuple[int, ...], seed: int) -> list[Tensor]:
    """Weights as He et al. draw them (arXiv 1502.01852); bends spread over the line."""
    draw = torch.Generator().manual_seed(seed)
    drawn = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        drawn.append(torch.randn(outputs, inputs, generator=draw) * (2 / inputs) ** 0.5)
        spread = 1.0 if inputs == 1 else 0.1
        drawn.append((2 * torch.rand(outputs, generator=draw) - 1) * spread)
    return [tensor.requires_grad_() for tensor in drawn]


def fold(shape: str, folds: int, seed: int, steps: int | None = None) -> dict:
    """Train one network on the folded line: the root of its mean squared error at the end."""
    steps = FOLD_STEPS if steps is None else steps
    drawn = _draw(SHAPES[shape], seed)
    network = tuple(zip(drawn[::2], drawn[1::2]))
    x_N = (torch.arange(POINTS) + 0.5) / POINTS
    y_N, optimiser, losses = tent.tent(x_N, folds), torch.optim.Adam(drawn, lr=FOLD_RATE), []
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = FOLD_RATE * min(
            (step + 1) / 100, 0.5 * (1 + math.cos(math.pi * step / FOLD_STEPS))
        )
        loss = (tent.run(network, 2 * x_N - 1) - y_N).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    with torch.no_grad():
        error = (tent.run(network, 2 * x_N - 1) - y_N).square().mean().sqrt().item()
    return {
        "shape": shape,
        "folds": folds,
        "seed": seed,
        "parameters": tent.parameters(network),
        "first_losses": [round(loss, 5) for loss in losses[: study.FIRST]],
        "error": round(error, 5),
    }


# ---------------------------------------------------------------- both


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    return study.results(path, COMMAND)


def _all(save) -> None:
    looked, folded = [], []
    for layers in WIDTHS:
        for seed in SEEDS:
            looked.append(look_up(layers, seed))
            print(f"{layers} layers, seed {seed}: {looked[-1]['right'][-1]:.1%} found", flush=True)
    for folds in FOLDS:
        for shape in SHAPES:
            made = [fold(shape, folds, seed) for seed in FOLD_SEEDS]
            print(f"{folds} folds, {shape}: {[run['error'] for run in made]}", flush=True)
            folded += made
    save(
        {
            "look_up": dict(steps=STEPS, rows=ROWS, length=LENGTH, every=EVERY, runs=looked),
            "fold": {"steps": FOLD_STEPS, "points": POINTS, "runs": folded},
        }
    )


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    return study.command_line(argv, COMMAND, __doc__.split("\n")[0], FILE, _all)


if __name__ == "__main__":
    sys.exit(main())
