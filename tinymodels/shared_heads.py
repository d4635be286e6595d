"""What sharing keys and values costs in quality. One command makes `checkpoints/shared_heads.json`:

    python -m tinymodels.shared_heads

Three models of four query heads: every head with keys and values of its own (MHA), one set for
two heads (GQA), one for all four (MQA). What the shared ones save in weights they get back as
feed-forward width, so all are equally large; and all read the same recall texts in the same order.
Only the bytes of the cache differ.
"""

import sys
from pathlib import Path

from . import checkpoints, data, ledger, study, train
from .config import GQA, Dense, ModelConfig, Rope, uniform
from .measure import loss, recall_accuracy
from .run import Run

FILE = checkpoints.FOLDER / "shared_heads.json"
COMMAND = "python -m tinymodels.shared_heads"
WIDTHS = {4: 192, 2: 213, 1: 224}
"""kv heads and feed-forward width. A kv head weighs 2 x 64 x 16 numbers, a unit 3 x 64: giving up
three heads pays for 32 units, giving up two for 21 and a third."""
SEEDS = (0, 1, 2)
STEPS, ROWS, LENGTH, RATE, WARMUP = 1000, 4, 192, 3e-3, 50
EVERY = 50


def config(kv_heads: int) -> ModelConfig:
    """One of three models that differ in kv heads and not in size. Errors: ValueError otherwise."""
    if kv_heads not in WIDTHS:
        raise ValueError(f"kv_heads is {kv_heads}; equal sizes are worked out for {list(WIDTHS)}")
    attention = GQA(heads=4, kv_heads=kv_heads, head_dim=16, rope=Rope(16, pairs="half"))
    layers = uniform(4, attention, Dense(WIDTHS[kv_heads]))
    return ModelConfig(f"{kv_heads} kv heads", vocab=256, width=64, layers=layers, context=256)


def stage(step: int) -> data.Stage:
    """What the rows of a step are: memory games, then short recall texts, then long ones."""
    if step < STEPS // 2:
        return data.Stage(32, 24, games=1.0, level=0)
    return data.Stage(12, 64) if step < 3 * STEPS // 4 else data.Stage(ROWS, LENGTH)


def learn(kv_heads: int, seed: int, steps: int = STEPS) -> dict:
    """Train one model for the first `steps` steps; what it has learned is measured at the end."""
    run = Run("tiny_v1", "recall", seed, STEPS, ROWS, LENGTH, RATE, WARMUP)
    model = study.untrained(config(kv_heads), seed)
    losses = study.descend(
        model,
        run,
        steps,
        lambda step: train.loss_of(model, data.batch("recall", seed, step, stage(step))),
    )
    found = {
        "kv_heads": kv_heads,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes_per_token": ledger.rate(model.config),
        "first_losses": [round(x, 5) for x in losses[: study.FIRST]],
    }
    if steps == STEPS:
        found |= {
            "curve": study.means(losses, EVERY),
            "loss": loss(model, "recall", 16, LENGTH),
            "right": recall_accuracy(model, LENGTH)["pairs"],
        }
    return found


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    return study.results(path, COMMAND)


def _all(save) -> None:
    runs = []
    for seed in SEEDS:
        for kv_heads in WIDTHS:
            runs.append(learn(kv_heads, seed))
            print(f"{kv_heads} kv heads, seed {seed}: loss {runs[-1]['loss']}", flush=True)
            save({"steps": STEPS, "rows": ROWS, "length": LENGTH, "every": EVERY, "runs": runs})


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    return study.command_line(argv, COMMAND, __doc__.split("\n")[0], FILE, _all)


if __name__ == "__main__":
    sys.exit(main())
