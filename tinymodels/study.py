"""A small study: a few models, alike but for one thing, trained alike; what came of it in a file.

Each study is a module (`depth`, `shared_heads`, `latent_heads`): one command makes its JSON, and
its tests make the first steps again.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from . import ledger, train
from .config import ModelConfig
from .parts import Parts
from .run import Run, learning_rate
from .transformer import Transformer

FIRST = 20  # losses stored one by one, so that a run can be compared at its start


def untrained(config: ModelConfig, seed: int) -> Transformer:
    """A model as training starts with it (`train.scale_up`)."""
    model = Transformer(config, Parts(attention=train.fused_attention), seed=seed)
    train.scale_up(model)
    return model


def descend(
    model: nn.Module,
    run: Run,
    steps: int,
    loss_at: Callable[[int], tuple[Tensor, Tensor]],
    after: Callable[[int], None] = lambda done: None,
) -> list[float]:
    """The first `steps` steps of a run. loss_at(step): what is minimised, and what is noted.
    after(done) is called with the number of steps done. Returns what was noted, one a step."""
    optimiser, noted = train.optimiser(model, run), []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(run, step)
        total, error = loss_at(step)
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), run.clip)
        optimiser.step()
        noted.append(error.item())
        after(step + 1)
    return noted


def told(model: nn.Module, losses: list[float], right: list[float], every: int) -> dict:
    """What a study writes of one run. right: the share found, measured each `every` steps."""
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes_per_token": ledger.rate(model.config),
        "first_losses": [round(x, 5) for x in losses[:FIRST]],
        "loss": means(losses, every),
        "right": right,
    }


def means(losses: list[float], every: int) -> list[float]:
    """Losses as means of `every` steps, the last of fewer if they do not fit."""
    parts = (losses[i : i + every] for i in range(0, len(losses), every))
    return [round(sum(part) / len(part), 4) for part in parts]


def results(path: Path, command: str) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as problem:
        raise ValueError(f"{path} cannot be read ({problem}); make it: {command}") from None


def command_line(
    argv: list[str] | None, command: str, about: str, file: Path, work: Callable
) -> int:
    """The command of a study. work(save) trains, and may save(what it has) as often as it likes:
    the file is written whole or not at all. Exit code 0, or 2 with one sentence on stderr."""
    parser = argparse.ArgumentParser(prog=command, description=about)
    parser.add_argument("--out", type=Path, default=file)
    out = parser.parse_args(argv).out
    start = time.process_time()

    def save(found: dict) -> None:
        made = {
            "command": command,
            "cpu_seconds": round(time.process_time() - start, 1),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        partial = out.with_name(out.name + ".tmp")
        partial.write_text(json.dumps(made | found, indent=1) + "\n")
        os.replace(partial, out)

    try:
        work(save)
    except OSError as problem:
        print(f"{out} cannot be written ({problem})", file=sys.stderr)
        return 2
    return 0
