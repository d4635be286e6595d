"""A sparse model made from a dense one, as V3.2 was made from V3.1. One command makes its record:

    python -m tinymodels.from_dense     checkpoints/from_dense.json

V3.2 did not learn to read from nothing: it began as V3.1, and got indexers (arXiv 2512.02556,
section 2.1). Here the tiny V3 that was trained on stories gets them, in the report's two stages:

    warm-up    all rows are read, only the indexers learn, from the attention beside them
    sparse     24 rows are read, and everything learns

Beside it the same V3 is trained further for as many steps as the second stage has, dense as it
was: what more training alone does.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import checkpoints, data, few_entries, measure, study, train
from .moe import watch_routing
from .parts import Parts
from .run import DEFAULTS, Run
from .transformer import Transformer

FILE = checkpoints.FOLDER / "from_dense.json"
COMMAND = "python -m tinymodels.from_dense"
SEEDS = (0,)
DENSE, SPARSE = "tiny_v3", "tiny_v3_2"
WARM_UP = Run(SPARSE, "text", 0, steps=300, size=4, length=512, rate=3e-3, warmup=20)
GO_ON = Run(SPARSE, "text", 0, steps=1000, size=4, length=512, rate=6e-4, warmup=50)
EVERY = 100


def dense(seed: int) -> Transformer:
    """The tiny V3 of stories. Errors: ValueError where that seed was not trained."""
    return checkpoints.load(f"{DENSE}-text-seed{seed}", Parts(attention=train.fused_attention))


def with_indexers(model: Transformer, seed: int) -> Transformer:
    """tiny_v3_2 with the weights of a tiny_v3; its indexers are as an untrained model has them."""
    made, given = study.untrained(checkpoints.preset(SPARSE), seed), model.state_dict()
    wanted = {n: w.shape for n, w in made.state_dict().items() if ".indexer." not in n}
    if wanted != {name: weight.shape for name, weight in given.items()}:
        raise ValueError(f"the weights of {model.config.name} are not those of a {DENSE}")
    made.load_state_dict(given, strict=False)
    return made


def next_stories(run: Run, step: int) -> data.Batch:
    """What follows the stories that the dense model has read: of its last stage, never met."""
    read = Run(DENSE, "text", run.seed, **DEFAULTS["text"])
    stage = read.stage(read.steps - 1)
    return data.batch("text", run.seed, read.steps + step, stage)


def warm_up(model: Transformer, run: Run, steps: int) -> list[float]:
    """Teach the indexers of a model that reads every row, and nothing else of it. Returns the
    lesson's loss (a divergence, summed over layers), one a step."""
    for name, weight in model.named_parameters():
        weight.requires_grad_(".indexer." in name)

    def loss_at(step: int):
        _, lessons = model.with_losses(next_stories(run, step).tokens)
        lesson = sum(lessons)
        return lesson, lesson.detach()

    noted = study.descend(model, run, steps, loss_at)
    model.requires_grad_(True)
    return noted


def go_on(model: Transformer, run: Run, steps: int) -> list[float]:
    """Train all of a model on stories, as `train` does. Returns the error in nats, one a step."""

    def loss_at(step: int):
        with watch_routing(model) as routed:
            total, error = train.loss_of(model, next_stories(run, WARM_UP.steps + step))
        train.balance(model, routed)
        return total, error.detach()

    return study.descend(model, run, steps, loss_at)


def exam(model: nn.Module) -> dict[str, Any]:
    """The loss on stories, and the facts that are found."""
    found = measure.measure(model, "text", GO_ON.size, GO_ON.length)
    return {key: found[key] for key in ("loss", "given")}


def told(model: nn.Module, losses: list[float]) -> dict[str, Any]:
    """What is written of a model. It is measured rounded to bf16, as checkpoints are."""
    checkpoints.round_to_shipped(model)
    return {
        "first_losses": [round(x, 5) for x in losses[: study.FIRST]],
        "loss": study.means(losses, EVERY),
        "measured": exam(model),
    }


def study_of(seed: int) -> dict[str, Any]:
    """All of one seed: the warm-up's lesson, and what sparse and dense models became."""
    warm, on = (replace(run, seed=seed) for run in (WARM_UP, GO_ON))
    torch.manual_seed(seed)
    before = with_indexers(dense(seed), seed)
    reads_all = few_entries.with_top_k(before, checkpoints.preset(SPARSE).context)
    lesson = warm_up(reads_all, warm, warm.steps)
    sparse = few_entries.with_top_k(reads_all, before.config.layers[0].attention.indexer.top_k)
    untaught, taught = exam(before), exam(sparse)  # before `sparse` is trained on
    as_it_was = dense(seed)
    return {
        "seed": seed,
        "lesson": study.means(lesson, EVERY // 2),
        "first_lessons": [round(x, 5) for x in lesson[: study.FIRST]],
        "untaught": untaught,
        "after the warm-up": taught,
        "sparse": told(sparse, go_on(sparse, on, on.steps)),
        "dense": told(as_it_was, go_on(as_it_was, on, on.steps)),
    }


def results(path: Path = FILE) -> dict[str, Any]:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    return study.results(path, COMMAND)


def work(save) -> None:
    made: list[dict] = []
    for seed in SEEDS:
        made.append(study_of(seed))
        save({"runs": made})


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    return study.command_line(argv, COMMAND, (__doc__ or "").split("\n")[0], FILE, work)


if __name__ == "__main__":
    sys.exit(main())
