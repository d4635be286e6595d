"""A latent against heads, at equal size and equal training. One command makes
`checkpoints/latent_heads.json`:

    python -m tinymodels.latent_heads

Three models of three layers with four query heads: every head with keys and values of its own
(MHA), one key and value of 16 for all (MQA), and one latent of 24 with a rope key of 8. The last
two keep equally many bytes. Feed-forward widths make all equally large; all read the same memory
games (`depth.texts`) in the same order.
"""

import sys
from pathlib import Path

from . import checkpoints, study
from .config import GQA, MLA, Dense, ModelConfig, Rope, uniform
from .depth import play
from .run import Run

FILE = checkpoints.FOLDER / "latent_heads.json"
COMMAND = "python -m tinymodels.latent_heads"
MODELS: dict[str, tuple[GQA | MLA, int]] = {
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
EVERY = 100


def config(name: str) -> ModelConfig:
    """One of three models of about the same size. Errors: ValueError for another name."""
    if name not in MODELS:
        raise ValueError(f"{name!r} is none of the models compared: {', '.join(MODELS)}")
    attention, width = MODELS[name]
    return ModelConfig(name, 256, 64, uniform(3, attention, Dense(width)), context=64)


def learn(name: str, seed: int, steps: int = STEPS, measure: bool = True) -> dict:
    """Train one model for the first `steps` of STEPS steps: its losses, and what it finds."""
    run = Run("tiny_v1", "recall", seed, STEPS, ROWS, 24, RATE, WARMUP)
    model = study.untrained(config(name), seed)
    losses, right = play(model, run, steps, EVERY if measure else None)
    return {"model": name, "seed": seed} | study.told(model, losses, right, EVERY)


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    return study.results(path, COMMAND)


def _all(save) -> None:
    runs = []
    for seed in SEEDS:
        for name in MODELS:
            runs.append(learn(name, seed))
            print(f"{name}, seed {seed}: right {runs[-1]['right'][-1]}", flush=True)
            save({"steps": STEPS, "rows": ROWS, "every": EVERY, "runs": runs})


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    return study.command_line(argv, COMMAND, __doc__.split("\n")[0], FILE, _all)


if __name__ == "__main__":
    sys.exit(main())
