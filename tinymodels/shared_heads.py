"""What sharing keys and values costs in quality. One command makes `checkpoints/shared_heads.json`:

    python -m tinymodels.shared_heads

Three models of four query heads: every head with keys and values of its own (MHA), one set for
two heads (GQA), one for all four (MQA). What the shared ones save in weights they get back as
feed-forward width, so all are equally large; and all read the same recall texts in the same order.
Only the bytes of the cache differ.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from . import checkpoints, data, ledger, train
from .config import GQA, Dense, ModelConfig, Rope, uniform
from .measure import loss, recall_accuracy
from .parts import Parts
from .run import Run, learning_rate
from .transformer import Transformer

FILE = checkpoints.FOLDER / "shared_heads.json"
WIDTHS = {4: 192, 2: 213, 1: 224}
"""kv heads and feed-forward width. A kv head weighs 2 x 64 x 16 numbers, a unit 3 x 64: giving up
three heads pays for 32 units, giving up two for 21 and a third."""
SEEDS = (0, 1, 2)
STEPS, ROWS, LENGTH, RATE, WARMUP = 1000, 4, 192, 3e-3, 50
EVERY, FIRST = 50, 20


def config(kv_heads: int) -> ModelConfig:
    """One of three models that differ in kv heads and not in size. Errors: ValueError otherwise."""
    if kv_heads not in WIDTHS:
        raise ValueError(f"kv_heads is {kv_heads}; equal sizes are worked out for {list(WIDTHS)}")
    attention = GQA(heads=4, kv_heads=kv_heads, head_dim=16, rope=Rope(16, pairs="half"))
    layers = uniform(4, attention, Dense(WIDTHS[kv_heads]))
    return ModelConfig(f"{kv_heads} kv heads", vocab=256, width=64, layers=layers, context=256)


def untrained(kv_heads: int, seed: int) -> Transformer:
    """Weights scaled up as `train.build` does, and for its reason: the model is narrow."""
    model = Transformer(config(kv_heads), Parts(attention=train.fused_attention), seed=seed)
    with torch.no_grad():
        model.embed.weight.mul_(50)
        for matrix in model.layers.parameters():
            if matrix.dim() > 1:
                matrix.mul_(50 / matrix.shape[-1] ** 0.5)
    return model


def stage(step: int) -> data.Stage:
    """What the rows of a step are: memory games, then short recall texts, then long ones."""
    if step < STEPS // 2:
        return data.Stage(32, 24, games=1.0, level=0)
    return data.Stage(12, 64) if step < 3 * STEPS // 4 else data.Stage(ROWS, LENGTH)


def learn(kv_heads: int, seed: int, steps: int = STEPS) -> dict:
    """Train one model for the first `steps` steps; what it has learned is measured at the end."""
    run = Run("tiny_v1", "recall", seed, STEPS, ROWS, LENGTH, RATE, WARMUP)
    model = untrained(kv_heads, seed)
    optimiser, losses = train.optimiser(model, run), []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(run, step)
        total, error = train.loss_of(model, data.batch("recall", seed, step, stage(step)))
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), run.clip)
        optimiser.step()
        losses.append(error.item())
    found = {
        "kv_heads": kv_heads,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes_per_token": ledger.rate(model.config),
        "first_losses": [round(x, 5) for x in losses[:FIRST]],
    }
    if steps == STEPS:
        parts = (losses[i : i + EVERY] for i in range(0, steps, EVERY))
        found |= {
            "curve": [round(sum(part) / len(part), 4) for part in parts],
            "loss": loss(model, "recall", 16, LENGTH),
            "right": recall_accuracy(model, LENGTH)["pairs"],
        }
    return found


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as problem:
        again = "python -m tinymodels.shared_heads"
        raise ValueError(f"{path} cannot be read ({problem}); make it: {again}") from None


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m tinymodels.shared_heads", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args(argv)
    start, runs = time.process_time(), []
    for seed in SEEDS:
        for kv_heads in WIDTHS:
            runs.append(learn(kv_heads, seed))
            seconds = round(time.process_time() - start, 1)
            print(f"{kv_heads} kv heads, seed {seed}: loss {runs[-1]['loss']}", flush=True)
            try:
                _write(runs, seconds, asked.out)
            except OSError as problem:
                print(f"{asked.out} cannot be written ({problem})", file=sys.stderr)
                return 2
    return 0


def _write(runs: list[dict], seconds: float, path: Path) -> None:
    """After each run, whole or not at all: a stopped command leaves what it has."""
    settings = {"steps": STEPS, "rows": ROWS, "length": LENGTH, "every": EVERY}
    made = {"command": "python -m tinymodels.shared_heads", "cpu_seconds": seconds}
    made |= {"threads": torch.get_num_threads(), "torch": torch.__version__}
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(made | settings | {"runs": runs}, indent=1) + "\n")
    os.replace(partial, path)


if __name__ == "__main__":
    sys.exit(main())
