"""What a leak does to training. One command makes `checkpoints/leak_in_training.json`:

    python -m tinymodels.leak_in_training

Two models, alike but for the mask over their groups of 4 tokens: *complete* shows a group once
its last token is there, *started* once its first one is, so that a token is told of up to three
that come after it. Both learn to say every next word of the same memory games (`group_sizes`),
and are measured twice on games they have not seen:

    at once      the whole text in one pass, under the mask of their training, as training sees it
    one by one   token by token, as a model writes: what comes later is not there to be read

More than half of the words are drawn by dice. `least` is what a model would lose that knew all
the rest.
"""

import math
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import cross_entropy

from . import checkpoints, data, group_sizes, study
from .attention import seen
from .run import Run
from .step import Step

FILE = checkpoints.FOLDER / "leak_in_training.json"
COMMAND = "python -m tinymodels.leak_in_training"
RATIO = 4
SEEDS = (0, 1, 2)
STEPS, ROWS, RATE, WARMUP = 1000, 16, 4e-3, 50
EVERY = 100
TEXTS = 256
"""Games that are measured on."""


def started_groups(step: Step, entries: int, ratio: int) -> Bool[Tensor, "T S"]:
    """The wrong mask: groups whose first token is there."""
    return torch.arange(entries) < (step.positions_T // ratio + 1)[:, None]


MASKS: dict[str, Callable] = {"complete": seen.complete_groups, "started": started_groups}


def with_every_word(batch: data.Batch) -> data.Batch:
    """The same texts, asked for every next word that the text still holds."""
    return data.Batch(batch.tokens[:, :-1], batch.tokens[:, 1:], batch.known[:, :-1])


def least(batch: data.Batch) -> float:
    """The mean loss of a model that knows a game's rules, how many pairs it has, and every word
    that can be known: what the dice alone leave open, in nats a word."""
    lost = 0.0
    for row in torch.cat([batch.tokens, batch.targets[:, -1:]], dim=1).tolist():
        pairs = list(zip(row[1::2], row[2::2]))
        named = list(dict.fromkeys(pairs))
        left = len(group_sizes.WORDS)
        lost += sum(math.log(left - i) for i in range(2 * len(named)))
        lost += (len(row[1::2]) - len(named)) * math.log(len(named))
    return lost / batch.targets.numel()


@torch.no_grad()
def measured(model, batch: data.Batch, at_once: bool) -> dict[str, float]:
    """Loss over all words, and the share of those that can be known that are right."""
    if at_once:
        logits_BTV = model(batch.tokens)
    else:
        cache = model.new_cache(*batch.tokens.shape, storage="float32")
        parts = [model(token, cache) for token in batch.tokens.split(1, dim=1)]
        logits_BTV = torch.cat(parts, dim=1)
    loss = cross_entropy(logits_BTV.flatten(0, 1), batch.targets.flatten())
    asked_BT = batch.known != data.IGNORED
    right = (logits_BTV.argmax(-1) == batch.known)[asked_BT].float().mean()
    return {"loss": round(loss.item(), 4), "right": round(right.item(), 4)}


def learn(rule: str, seed: int, steps: int = STEPS, measure: bool = True) -> dict:
    """Train one model for the first `steps` of STEPS steps, and measure it both ways.

    Errors: ValueError for a rule that is none of the MASKS.
    """
    if rule not in MASKS:
        raise ValueError(f"{rule!r} is none of the masks compared: {', '.join(MASKS)}")
    run = Run("tiny_v4", "recall", seed, STEPS, ROWS, group_sizes.LENGTH, RATE, WARMUP)
    model = study.untrained(group_sizes.config(RATIO), seed)
    held_out = with_every_word(group_sizes.texts(TEXTS, 0, 0, held_out=True))
    found: dict[str, list] = {"at once": [], "one by one": []}

    def loss_at(step: int):
        batch = with_every_word(group_sizes.texts(ROWS, seed, step))
        logits_BTV = model(batch.tokens)
        loss = cross_entropy(logits_BTV.flatten(0, 1), batch.targets.flatten())
        return loss, loss.detach()

    def after(done: int) -> None:
        if measure and done % EVERY == 0:
            for way, results in found.items():
                results.append(measured(model, held_out, way == "at once"))

    with patch.object(seen, "complete_groups", MASKS[rule]):
        losses = study.descend(model, run, steps, loss_at, after)
    return {
        "rule": rule,
        "seed": seed,
        "first_losses": [round(x, 5) for x in losses[: study.FIRST]],
        "loss": study.means(losses, EVERY),
        "measured": found,
    }


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    return study.results(path, COMMAND)


def _all(save) -> None:
    floor = least(with_every_word(group_sizes.texts(TEXTS, 0, 0, held_out=True)))
    made: dict[str, Any] = {
        "steps": STEPS,
        "rows": ROWS,
        "every": EVERY,
        "least": round(floor, 4),
        "runs": [],
    }
    for seed, rule in product(SEEDS, MASKS):
        made["runs"].append(learn(rule, seed))
        ends = {way: found[-1] for way, found in made["runs"][-1]["measured"].items()}
        print(f"{rule}, seed {seed}: {ends}", flush=True)
        save(made)


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    return study.command_line(argv, COMMAND, __doc__.split("\n")[0], FILE, _all)


if __name__ == "__main__":
    sys.exit(main())
