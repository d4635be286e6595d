"""Far entries of one's own against borrowed ones, at equal size and equal training. One command
makes `checkpoints/shared_entries.json`:

    python -m tinymodels.shared_entries

Three models of three layers. Layer 0 has a window of 4 tokens only; the other two read far
entries as well, 3 of them at a time. They differ in whose:

    own       both own entries and choose among them (Full, Full)
    reindex   the first owns; the second chooses anew among its entries (Full, Reindex)
    reuse     the first owns and chooses for both (Full, Reuse)

Feed-forward widths make all about equally large; all read the same memory games (`depth.texts`)
in the same order.
"""

import sys
from pathlib import Path

from . import checkpoints, depth, study
from .config import Dense, Indexer, Layer, ModelConfig, Rope
from .published_v4 import csa2_layers
from .run import Run

FILE = checkpoints.FOLDER / "shared_entries.json"
COMMAND = "python -m tinymodels.shared_entries"
MODELS = {
    "own": ((1, 2), (1, 2), 134),
    "reindex": ((1,), (1, 2), 139),
    "reuse": ((1,), (1,), 145),
}
"""Layers that own entries, layers that choose, and the feed-forward width."""
SEEDS = (0, 1, 2)
STEPS, ROWS, LENGTH, RATE, WARMUP = 1200, 24, 24, 3e-3, 50
EVERY = 50


def config(name: str) -> ModelConfig:
    """One of three models of about the same size. Errors: ValueError for another name."""
    if name not in MODELS:
        raise ValueError(f"{name!r} is none of the models compared: {', '.join(MODELS)}")
    owners, choosers, width = MODELS[name]
    attentions = csa2_layers(
        ratios=(0, 1, 1),
        kv_sources=owners,
        index_sources=choosers,
        candidates=None,
        indexer=Indexer(heads=4, dim=16, top_k=3, rope_dim=8),
        near=Rope(8),
        far=Rope(8),
        heads=4,
        head_dim=32,
        rope_dim=8,
        q_rank=48,
        out_groups=2,
        out_rank=32,
        window=4,
    )
    layers = tuple(Layer(attention, Dense(width)) for attention in attentions)
    return ModelConfig(name, 256, 64, layers, context=64, row="fp4")


# ---------------------------------------------------------------- the runs


def learn(name: str, seed: int, steps: int = STEPS, measure: bool = True) -> dict:
    """Train one model for the first `steps` of STEPS steps: its losses, and what it finds."""
    run = Run("tiny_v4_1", "recall", seed, STEPS, ROWS, LENGTH, RATE, WARMUP)
    model = study.untrained(config(name), seed)
    losses, right = depth.play(model, run, steps, EVERY if measure else None)
    return {"model": name, "seed": seed} | study.told(model, losses, right, EVERY)


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    return study.results(path, COMMAND)


def _all(save) -> None:
    runs = []
    for seed in SEEDS:
        for name in MODELS:
            run = learn(name, seed)
            runs.append(run)
            print(f"{name}, seed {seed}: right {run['right'][-1]}", flush=True)
            save({"steps": STEPS, "rows": ROWS, "length": LENGTH, "every": EVERY, "runs": runs})


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    return study.command_line(argv, COMMAND, __doc__.split("\n")[0], FILE, _all)


if __name__ == "__main__":
    sys.exit(main())
