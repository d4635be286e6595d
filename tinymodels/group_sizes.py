"""What is lost when m tokens become one entry. One command makes `checkpoints/group_sizes.json`:

    python -m tinymodels.group_sizes

Models of three layers, alike but for m: a layer with a window of 8 tokens, then two with the same
window and groups of m = 1, 2, 4 or 8 tokens, all read; or with no groups at all. They read the
same memory games in the same order, and are asked for words that left the window. A wider m keeps
fewer entries. Wider groups would need a wider window: a token has to stay until its group is
complete, and 8 tokens just do.

There are two games, since the first is kind to groups of two:

    in a row     pairs one after the other, Ada Rosa Iris Nora Ada Rosa: a rhythm of two words
    with gaps    none to two letters before each pair, Ada Rosa q Iris Nora x f Ada Rosa

Only 32 words play, so that 1,400 steps are enough to learn the first to the end, or nearly so.
"""

import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from . import checkpoints, data, study, tokenizer
from .config import Dense, Grouped, Layer, ModelConfig, Rope
from .depth import play
from .dice import Dice
from .run import Run

FILE = checkpoints.FOLDER / "group_sizes.json"
COMMAND = "python -m tinymodels.group_sizes"
SIZES = (0, 1, 2, 4, 8)
"""Tokens to an entry; 0 is no entries, the window alone."""
WINDOW = 8
GAMES = {"in a row": 0, "with gaps": 2}
"""The most letters before a pair."""
WORDS = data.KEYS[:32]
SEEDS = (0, 1)
STEPS, ROWS, LENGTH, RATE, WARMUP = 1400, 16, 32, 4e-3, 50
EVERY = 100
SHAPES: dict[str, Any] = dict(
    heads=4, head_dim=32, rope_dim=8, q_rank=48, out_groups=2, out_rank=32
)


def config(size: int) -> ModelConfig:
    """One of five models that differ in the size of their groups. Errors: ValueError otherwise."""
    if size not in SIZES:
        raise ValueError(f"groups of {size!r} are not compared; those of {SIZES} are")

    def layer(ratio: int) -> Layer:
        attention = Grouped(window=WINDOW, ratio=ratio, rope=Rope(8), **SHAPES)
        return Layer(attention, Dense(128))

    return ModelConfig(f"m = {size}", 256, 64, tuple(map(layer, (0, size, size))), context=64)


def row(dice: Dice, letters: int) -> tuple[list[int], list[int]]:
    """LENGTH + 1 tokens of a game of 2 to 4 pairs, and what in them can be known."""
    pairs = dice.between(2, 4)
    words = dice.sample(WORDS, 2 * pairs)
    named = list(zip(words[:pairs], words[pairs:]))
    tokens, known, told = [tokenizer.BOS], [data.IGNORED], 0
    while len(tokens) <= LENGTH:
        gap = [dice.choice(data.NOISE) for _ in range(dice.below(letters + 1))]
        first, second = named[told] if told < pairs else dice.choice(named)
        tokens += [*gap, first, second]
        known += [data.IGNORED] * (len(gap) + 1) + [second if told >= pairs else data.IGNORED]
        told += 1
    return tokens[: LENGTH + 1], known[: LENGTH + 1]


def texts(
    rows: int, seed: int, step: int, held_out: bool = False, game: str = "in a row"
) -> data.Batch:
    """The texts of one step: next words that can be known, and all others IGNORED."""
    split = "held out" if held_out else "train"
    dice = (Dice(split, game, seed, step, i) for i in range(rows))
    tokens, known = zip(*(row(each, GAMES[game]) for each in dice), strict=True)
    tokens_BT, known_BT = torch.tensor(tokens), torch.tensor(known)[:, 1:]
    return data.Batch(tokens_BT[:, :-1], known_BT, known_BT)


def far(batch: data.Batch) -> Bool[Tensor, "B T"]:
    """Where a word is asked whose pair was last named before the window.

    The token read there is the pair's first word; the pair ends one token after its last one.
    """
    tokens_BT = batch.tokens
    place_T = torch.arange(tokens_BT.shape[1])
    behind_TS = place_T[:, None] - place_T
    same_BTS = (tokens_BT[:, :, None] == tokens_BT[:, None, :]) & (behind_TS > 0)
    last_BT = torch.where(same_BTS, place_T, -1).amax(-1)
    return (batch.known != data.IGNORED) & (place_T - (last_BT + 1) >= WINDOW)


@torch.no_grad()
def found(model: nn.Module, game: str = "in a row") -> float:
    """The share of far words that are right, in 512 texts that training has not seen."""
    batch = texts(512, 0, 0, True, game)
    right_BT = model(batch.tokens).argmax(-1) == batch.known
    return right_BT[far(batch)].float().mean().item()


def learn(
    size: int, seed: int, game: str = "in a row", steps: int = STEPS, measure: bool = True
) -> dict:
    """Train one model for the first `steps` of STEPS steps: its losses, and what it finds."""
    run = Run("tiny_v4", "recall", seed, STEPS, ROWS, LENGTH, RATE, WARMUP)
    model = study.untrained(config(size), seed)
    of_game = (partial(part, game=game) for part in (texts, found))
    losses, right = play(model, run, steps, EVERY if measure else None, *of_game)
    described = {"game": game, "size": size, "seed": seed}
    return described | study.told(model, losses, right, EVERY)


def results(path: Path = FILE) -> dict:
    """What was measured and shipped. Errors: ValueError when the file is missing or broken."""
    return study.results(path, COMMAND)


def _all(save) -> None:
    runs = []
    for seed, game, size in product(SEEDS, GAMES, SIZES):
        runs.append(learn(size, seed, game))
        print(f"{game}, m = {size}, seed {seed}: {runs[-1]['right'][-1]}", flush=True)
        save({"steps": STEPS, "rows": ROWS, "length": LENGTH, "every": EVERY, "runs": runs})


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    return study.command_line(argv, COMMAND, __doc__.split("\n")[0], FILE, _all)


if __name__ == "__main__":
    sys.exit(main())
