"""What depth buys in training, at equal parameters. One command makes `checkpoints/depth.json`:

    python -m tinymodels.depth

**Looking up** (transformers). Pairs of words are named and named again: `lamp Ada blue park lamp`
goes on with `Ada`. One, two and four layers of the same width, their feed-forward widths chosen
so that all have the same number of parameters, read the same texts in the same order.

**Folding** (ReLU networks). One wide layer and four narrow ones, with 241 parameters each, learn
the k-fold tent map from points. What a network can express is one thing, what training finds
another; the losses say which won.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from . import checkpoints, data, ledger, tent, train
from .config import GQA, Dense, ModelConfig, Rope, uniform
from .parts import Parts
from .run import Run, learning_rate
from .transformer import Transformer

FILE = checkpoints.FOLDER / "depth.json"
WIDTHS = {1: 426, 2: 170, 4: 42}
"""Layers and feed-forward width: layers x (86 + width) is 512 in all of them, so parameters are
equal. (An attention of 4 heads of 16 and its two norms weigh as much as 86 units.)"""
SEEDS = (0, 1, 2)
STEPS, ROWS, LENGTH, RATE, WARMUP = 2000, 32, 24, 3e-3, 50
EVERY, FIRST = 100, 20

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


def untrained(layers: int, seed: int) -> Transformer:
    """Weights scaled up as `train.build` does, and for its reason: the model is narrow."""
    model = Transformer(config(layers), Parts(attention=train.fused_attention), seed=seed)
    with torch.no_grad():
        model.embed.weight.mul_(50)
        for matrix in model.layers.parameters():
            if matrix.dim() > 1:
                matrix.mul_(50 / matrix.shape[-1] ** 0.5)
    return model


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


def look_up(layers: int, seed: int, steps: int | None = None, measure: bool = True) -> dict:
    """Train one model for the first `steps` of STEPS steps (all): losses, and what it finds."""
    steps = STEPS if steps is None else steps
    run = Run("tiny_v1", "recall", seed, STEPS, ROWS, LENGTH, RATE, WARMUP)
    model = untrained(layers, seed)
    optimiser, losses, right = train.optimiser(model, run), [], []
    for step in range(steps):
        batch = texts(ROWS, seed, step)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(run, step)
        logits_NV = model(batch.tokens).flatten(0, 1)
        loss = cross_entropy(logits_NV, batch.known.flatten(), ignore_index=data.IGNORED)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), run.clip)
        optimiser.step()
        losses.append(loss.item())
        if measure and len(losses) % EVERY == 0:
            right.append(round(found(model), 4))
    means = [sum(losses[i : i + EVERY]) / EVERY for i in range(0, steps, EVERY)]
    return {
        "layers": layers,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes_per_token": ledger.rate(model.config),
        "first_losses": [round(loss, 5) for loss in losses[:FIRST]],
        "loss": [round(mean, 4) for mean in means],
        "right": right,
    }


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
        "first_losses": [round(loss, 5) for loss in losses[:FIRST]],
        "error": round(error, 5),
    }


# ---------------------------------------------------------------- both


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as problem:
        raise ValueError(f"{path} cannot be read ({problem}); python -m tinymodels.depth") from None


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m tinymodels.depth", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args(argv)
    start, looked, folded = time.process_time(), [], []
    for layers in WIDTHS:
        for seed in SEEDS:
            looked.append(look_up(layers, seed))
            print(f"{layers} layers, seed {seed}: {looked[-1]['right'][-1]:.1%} found", flush=True)
    for folds in FOLDS:
        for shape in SHAPES:
            folded += [fold(shape, folds, seed) for seed in FOLD_SEEDS]
            print(
                f"{folds} folds, {shape}: {[f['error'] for f in folded[-len(FOLD_SEEDS) :]]}",
                flush=True,
            )
    written = {
        "command": "python -m tinymodels.depth",
        "cpu_seconds": round(time.process_time() - start, 1),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "look_up": {"steps": STEPS, "rows": ROWS, "length": LENGTH, "every": EVERY, "runs": looked},
        "fold": {"steps": FOLD_STEPS, "points": POINTS, "runs": folded},
    }
    partial = asked.out.with_name(asked.out.name + ".tmp")
    try:
        partial.write_text(json.dumps(written, indent=1) + "\n")
        os.replace(partial, asked.out)
    except OSError as problem:
        print(f"{asked.out} cannot be written ({problem})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
