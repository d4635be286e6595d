"""What each tiny model can do, beside what it keeps: recall and loss against bytes.

    python -m tinymodels.quality     measures what is not measured yet: checkpoints/quality.json

Most figures lie beside the checkpoints already. What is added here are games in texts longer than
any that was trained on, and everything about the two-layer model of the frontier hunt. The record
names the weights that were measured: after new ones arrive, the command adds them and no others.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from . import checkpoints, data, frontier, ledger, measure
from .config import ModelConfig
from .dice import Dice
from .run import DEFAULTS

FILE = checkpoints.FOLDER / "quality.json"
COMMAND = "python -m tinymodels.quality"
LONGER = (384, 512)  # tokens; training has seen 256
PAIRS, TEXTS = 48, 32
SEEDS = (0, 1, 2)
OWN = "ours"  # the two-layer model of chapter 13
FOLLOWS = {
    "tiny_v1": "",
    "tiny_v2": "tiny_v1",
    "tiny_v2_lite": "tiny_v2",
    "tiny_v3": "tiny_v2",
    "tiny_v3_2": "tiny_v3",
    "tiny_v4": "tiny_v3_2",
    "tiny_v4_1": "tiny_v4",
    OWN: "tiny_v1",
}
"""The models, and which each is compared with: the generation before it."""


def config(name: str) -> ModelConfig:
    """Errors: ValueError for a name that is not in FOLLOWS."""
    if name not in FOLLOWS:
        raise ValueError(f"{name!r} is none of the models compared: {', '.join(FOLLOWS)}")
    return frontier.EXAMPLE if name == OWN else checkpoints.preset(name)


def short(name: str) -> str:
    """V3.2 for tiny_v3_2, as the chapters call the generations."""
    if name == OWN:
        return "Ours"
    return name.removeprefix("tiny_").replace("_lite", "-Lite").replace("_", ".").replace("v", "V")


# ---------------------------------------------------------------- what can be asked


@dataclass(frozen=True)
class Measure:
    """path: where its figure lies in what was measured. more_is_better: no loss."""

    name: str
    task: str
    path: tuple[str, ...]
    more_is_better: bool = True

    def text(self, value: float) -> str:
        return f"{value:.1%}" if self.more_is_better else f"{value:.3f} nats"


def _measures() -> dict[str, Measure]:
    def games(name, *path):
        return Measure(f"games: {name}", "recall", path)

    made = [games(f"{p} pairs", "recall", "pairs", str(p)) for p in measure.PAIRS]
    made += [games(f"{d} tokens back", "recall", "distance", str(d)) for d in measure.DISTANCES]
    made += [games(f"text of {n} tokens", "longer", str(n)) for n in LONGER]
    made += [
        Measure("games: loss", "recall", ("loss",), False),
        Measure("stories: loss", "text", ("loss",), False),
    ]
    made += [
        Measure(f"stories: {n} sentences on", "text", ("given", str(n), "all"))
        for n in measure.STORY_LENGTHS
    ]
    return {m.name: m for m in made}


MEASURES = _measures()


# ---------------------------------------------------------------- the record


@torch.no_grad()
def longer(model: nn.Module, length: int, texts: int = TEXTS) -> float:
    """The share answered right of games of `length` tokens with 48 pairs."""
    made = [data.recall(Dice("quality", length, i), length, PAIRS) for i in range(texts)]
    right = []
    for start in range(0, texts, 8):
        some = made[start : start + 8]
        best_BT = model(torch.tensor([m.tokens for m in some])).argmax(-1).tolist()
        right += [
            best[at - 1] == m.tokens[at] for best, m in zip(best_BT, some) for at in m.answers
        ]
    return measure.share(right)


def trained() -> dict[str, tuple[str, int, str]]:
    """{checkpoint: (model, seed, SHA-256 of its weights)} of all recall models that are there."""
    found = {}
    for name in checkpoints.available():
        preset, task, numbered = name.split("-")
        if task == "recall" and preset in FOLLOWS:
            with safe_open(checkpoints.FOLDER / f"{name}.safetensors", "pt") as file:
                found[name] = (preset, int(numbered[4:]), file.metadata()["sha256"])
    for seed in frontier.SEEDS:
        path = frontier.path(frontier.EXAMPLE, seed, frontier.FOLDER)
        if path.is_file():
            weights = hashlib.sha256(path.read_bytes()).hexdigest()
            found[path.stem] = (OWN, seed, weights)
    return found


def measured(name: str, model: str, seed: int) -> dict:
    """What the record holds of one checkpoint, measured now."""
    if model != OWN:
        ready = checkpoints.load(name)
        return {"longer": {str(n): longer(ready, n) for n in LONGER}}
    ready, how = frontier.load(frontier.EXAMPLE, seed, frontier.FOLDER), DEFAULTS["recall"]
    found = measure.measure(ready, "recall", how["size"], how["length"])
    return found | {"longer": {str(n): longer(ready, n) for n in LONGER}}


def record(path: Path = FILE) -> dict[str, dict]:
    """{checkpoint: what was measured}. Errors: ValueError when the file is missing or broken."""
    try:
        return json.loads(path.read_text())["models"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as problem:
        raise ValueError(f"{path} cannot be read ({problem}); make it: {COMMAND}") from None


def stale(path: Path = FILE) -> list[str]:
    """Checkpoints whose weights are not those of the record, and those that are no longer there."""
    there, kept = trained(), record(path)
    changed = [n for n, (_, _, sha) in there.items() if kept.get(n, {}).get("sha256") != sha]
    return sorted({*changed, *(set(kept) - set(there))})


@cache
def seeds(model: str, task: str) -> dict[int, dict]:
    """{seed: all that was measured} of one model on one task, of what is trained."""
    config(model)
    if task not in data.TASKS:
        raise ValueError(f"unknown task {task!r}; tasks are {', '.join(data.TASKS)}")
    kept, found = record(), {}
    for seed in SEEDS:
        if model == OWN:
            name = frontier.path(frontier.EXAMPLE, seed, frontier.FOLDER).stem
            if task == "recall" and name in kept:
                found[seed] = kept[name]
        elif (name := f"{model}-{task}-seed{seed}") in checkpoints.available():
            found[seed] = {**checkpoints.describe(name)["measured"], **kept.get(name, {})}
    return found


def values(model: str, asked: Measure) -> list[float]:
    """One figure for each seed that is trained and measured; none: an empty list."""
    found: list[float] = []
    at: Any
    for at in seeds(model, asked.task).values():
        for step in asked.path:
            at = at.get(step, {})
        if isinstance(at, float | int):
            found.append(at)
    return found


# ---------------------------------------------------------------- the frontier


@dataclass(frozen=True)
class Standing:
    """on: nobody who costs no more does as well. beaten: `by` does, and each of its seeds, at least
    two, as well as the best one here. open: `by` does on average only, or has one seed.
    missing: not trained."""

    how: str
    by: str = ""


def standings(
    costs: dict[str, float], found: dict[str, list[float]], more_is_better: bool = True
) -> dict[str, Standing]:
    """Where each model stands. costs: what is to be small. found: a figure for each seed.

    Of two that cost the same and do the same, neither beats the other.
    """
    sign = 1 if more_is_better else -1
    good = {name: [sign * x for x in found[name]] for name in costs if found[name]}
    cheapest_first = sorted(good, key=costs.__getitem__)

    def beats(b: str, a: str) -> bool:
        more = costs[b] < costs[a] or _mean(good[b]) > _mean(good[a])
        return b != a and costs[b] <= costs[a] and more

    made = {}
    for a in costs:
        rivals = [b for b in cheapest_first if a in good and beats(b, a)]
        surely = [b for b in rivals if len(good[b]) > 1 and min(good[b]) >= max(good[a])]
        maybe = [b for b in rivals if _mean(good[b]) >= _mean(good[a])]
        how = "beaten" if surely else "open" if maybe else "on" if a in good else "missing"
        made[a] = Standing(how, next(iter(surely or maybe), ""))
    return made


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def costs(weigh: str) -> dict[str, float]:
    """{model: what it costs}. Errors: ValueError for another name than those of COSTS."""
    if weigh not in COSTS:
        raise ValueError(f"{weigh!r} cannot be weighed; there are {', '.join(COSTS)}")
    return {name: COSTS[weigh](config(name)) for name in FOLLOWS}


COSTS: dict[str, Callable[[ModelConfig], float]] = {
    "bytes a token": ledger.rate,
    "bytes held after 256 tokens": lambda made: ledger.exact(made, 256)["total"],
    "parameters": ledger.parameters,
}

# ---------------------------------------------------------------- the command


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=FILE)
    out = parser.parse_args(argv).out
    try:
        kept = record(out) if out.exists() else {}
        there = trained()
        models = {name: kept[name] for name in there if name in kept}
        for name, (model, seed, sha) in there.items():
            if models.get(name, {}).get("sha256") != sha:
                models[name] = {"sha256": sha} | measured(name, model, seed)
                print(f"{name}: {models[name]['longer']}", flush=True)
                _write(out, models)
        _write(out, models)
    except (ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


def _write(out: Path, models: dict[str, dict]) -> None:
    partial = out.with_name(out.name + ".tmp")
    about = {"command": COMMAND, "torch": torch.__version__, "pairs": PAIRS, "texts": TEXTS}
    text = json.dumps(about | {"models": dict(sorted(models.items()))}, indent=1)
    partial.write_text(text + "\n")
    os.replace(partial, out)


if __name__ == "__main__":
    sys.exit(main())
