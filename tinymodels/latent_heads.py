"""A latent against heads, at equal size and equal training. One command makes
`checkpoints/latent_heads.json`:

    python -m tinymodels.latent_heads

Three models of three layers with four query heads: every head with keys and values of its own
(MHA), one key and value of 16 for all (MQA), and one latent of 24 with a rope key of 8. The last
two keep equally many bytes. Feed-forward widths make all equally large; all read the same memory
games (`depth.texts`) in the same order.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from . import checkpoints, data, ledger, train
from .config import GQA, MLA, Dense, ModelConfig, Rope, uniform
from .depth import found, texts
from .parts import Parts
from .run import Run, learning_rate
from .transformer import Transformer

FILE = checkpoints.FOLDER / "latent_heads.json"
COMMAND = "python -m tinymodels.latent_heads"
MODELS = {
    "MHA": (GQA(heads=4, kv_heads=4, head_dim=16, rope=Rope(16, pairs="half")), 192),
    "MQA": (GQA(heads=4, kv_heads=1, head_dim=16, rope=Rope(16, pairs="half")), 224),
    "latent": (
        MLA(4, nope_dim=16, rope_dim=8, v_dim=16, kv_rank=24, q_rank=None, rope=Rope(8)),
        197,
    ),
}
"""Attention and feed-forward width. MHA weighs 16,384 numbers a layer, MQA 10,240, the latent
15,384; a unit of the feed-forward network weighs 192, and there are as many as make up for it."""
SEEDS = (0, 1, 2)
STEPS, ROWS, RATE, WARMUP = 1200, 32, 3e-3, 50
EVERY, FIRST = 100, 20


def config(name: str) -> ModelConfig:
    """One of three models of about the same size. Errors: ValueError for another name."""
    if name not in MODELS:
        raise ValueError(f"{name!r} is none of the models compared: {', '.join(MODELS)}")
    attention, width = MODELS[name]
    return ModelConfig(name, 256, 64, uniform(3, attention, Dense(width)), context=64)


def untrained(name: str, seed: int) -> Transformer:
    """Weights scaled up as `train.build` does, and for its reason: the model is narrow."""
    model = Transformer(config(name), Parts(attention=train.fused_attention), seed=seed)
    with torch.no_grad():
        model.embed.weight.mul_(50)
        for matrix in model.layers.parameters():
            if matrix.dim() > 1:
                matrix.mul_(50 / matrix.shape[-1] ** 0.5)
    return model


def learn(name: str, seed: int, steps: int = STEPS, measure: bool = True) -> dict:
    """Train one model for the first `steps` of STEPS steps: its losses, and what it finds."""
    run = Run("tiny_v1", "recall", seed, STEPS, ROWS, 24, RATE, WARMUP)
    model = untrained(name, seed)
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
        "model": name,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes_per_token": ledger.rate(model.config),
        "first_losses": [round(x, 5) for x in losses[:FIRST]],
        "loss": [round(mean, 4) for mean in means],
        "right": right,
    }


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as problem:
        raise ValueError(f"{path} cannot be read ({problem}); make it: {COMMAND}") from None


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args(argv)
    start, runs = time.process_time(), []
    for seed in SEEDS:
        for name in MODELS:
            runs.append(learn(name, seed))
            print(f"{name}, seed {seed}: right {runs[-1]['right'][-1]}", flush=True)
            try:
                _write(runs, round(time.process_time() - start, 1), asked.out)
            except OSError as problem:
                print(f"{asked.out} cannot be written ({problem})", file=sys.stderr)
                return 2
    return 0


def _write(runs: list[dict], seconds: float, path: Path) -> None:
    """After each run, whole or not at all: a stopped command leaves what it has."""
    made = {"command": COMMAND, "cpu_seconds": seconds, "threads": torch.get_num_threads()}
    made |= {"torch": torch.__version__, "steps": STEPS, "rows": ROWS, "every": EVERY}
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(made | {"runs": runs}, indent=1) + "\n")
    os.replace(partial, path)


if __name__ == "__main__":
    sys.exit(main())
