"""What the tiny models are trained on: texts of the small world, or pure recall.

A batch is a function of (task, seed, step) and of nothing else. Training can stop and go on at
any step, and any step's tokens can be made again: there is no position in a file to remember.
"""

import hashlib
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from tinymodels import stories, tokenizer
from tinymodels.dice import Dice
from tinymodels.world import WORDS

TASKS = ("text", "recall")
IGNORED = -100  # a target that the loss leaves out, torch's own number for it
HASHED_TOKENS = 65_536


@dataclass(frozen=True)
class Batch:
    """tokens: what the model reads. targets: what comes next, or IGNORED where none is asked."""

    tokens: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]


def _check(task: str, **sizes: int) -> None:
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}; tasks are {', '.join(TASKS)}")
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")


# ---------------------------------------------------------------- text


def text_row(dice: Dice, length: int) -> list[int]:
    """`length` tokens: texts one after the other, each behind its <bos>, the last one cut."""
    row: list[int] = []
    while len(row) < length:
        row += tokenizer.encode(stories.any_text(dice).text)
    return row[:length]


# ---------------------------------------------------------------- recall

KEYS = tuple(tokenizer.word_id(word) for word in WORDS[:64])
VALUES = tuple(tokenizer.word_id(word) for word in WORDS[64:128])
NOISE = tuple(tokenizer.encode("abcdefghijklmnopqrstuvwxyz", bos=False))
QUERY = tokenizer.encode("?", bos=False)[0]


@dataclass(frozen=True)
class Recall:
    """One recall text: pairs `key value` scattered in noise, then queries `? key value`.

    answers: index in `tokens` of each answered value. distances: tokens from the value where it
    was given to the query's key, which must find it.
    """

    tokens: tuple[int, ...]
    answers: tuple[int, ...]
    distances: tuple[int, ...]


def recall(dice: Dice, length: int, pairs: int, queries: int | None = None) -> Recall:
    """A recall text of exactly `length` tokens with `pairs` pairs, each asked at most once.

    queries: how many are asked, as many as fit (16 at most) if None. What the pairs and queries
    leave free is noise between the pairs, so distances vary. Errors: ValueError if it cannot fit.
    """
    queries = min(pairs, 16) if queries is None else queries
    free = length - 1 - 2 * pairs - 3 * queries
    if not 1 <= queries <= pairs <= len(KEYS) or free < 0:
        raise ValueError(
            f"{pairs} pairs and {queries} queries in {length} tokens: pairs may be 1 to "
            f"{len(KEYS)}, queries 1 to pairs, and 1 + 2 x pairs + 3 x queries must fit"
        )
    gaps = [0] * (pairs + 1)
    for _ in range(free):
        gaps[dice.below(pairs + 1)] += 1
    tokens = [tokenizer.BOS]
    place: dict[int, int] = {}
    for key, gap in zip(dice.sample(KEYS, pairs), gaps):
        tokens += [dice.choice(NOISE) for _ in range(gap)]
        place[key] = len(tokens) + 1
        tokens += [key, dice.choice(VALUES)]
    tokens += [dice.choice(NOISE) for _ in range(gaps[-1])]
    answers, distances = [], []
    for key in dice.sample(list(place), queries):
        distances.append(len(tokens) + 1 - place[key])
        tokens += [QUERY, key, tokens[place[key]]]
        answers.append(len(tokens) - 1)
    return Recall(tuple(tokens), tuple(answers), tuple(distances))


def _recall_row(dice: Dice, length: int) -> tuple[list[int], list[int]]:
    """Tokens, and targets that ask only for the answers."""
    most = min(48, (length - 1) // 5)
    made = recall(dice, length, pairs=dice.between(max(1, most // 8), max(1, most)))
    targets = [IGNORED] * length
    for answer in made.answers:
        targets[answer] = made.tokens[answer]
    return list(made.tokens), targets


# ---------------------------------------------------------------- batches


def batch(task: str, seed: int, step: int, size: int, length: int, held_out: bool = False) -> Batch:
    """The batch of one training step: `size` rows of `length` tokens and their targets.

    held_out: a batch that training never sees, whatever its seed. Errors: ValueError for an
    unknown task or a size or length below 1.
    """
    _check(task, size=size, length=length)
    split = "held out" if held_out else "train"
    rows, targets = [], []
    for row in range(size):
        dice = Dice(split, task, seed, step, row)
        if task == "text":
            tokens = text_row(dice, length + 1)
            asked = tokens
        else:
            tokens, asked = _recall_row(dice, length + 1)
        rows.append(tokens[:-1])
        targets.append(asked[1:])
    return Batch(torch.tensor(rows), torch.tensor(targets))


def fingerprint(task: str, seed: int, size: int, length: int) -> str:
    """SHA-256 of the first 65,536 tokens and targets of training, in order.

    Two runs with the same fingerprint read the same data; it is written beside each checkpoint.
    """
    digest = hashlib.sha256()
    seen = step = 0
    while seen < HASHED_TOKENS:
        made = batch(task, seed, step, size, length)
        for values in (made.tokens, made.targets):
            digest.update(values.to(torch.int16).numpy().astype("<i2").tobytes())
        seen += made.tokens.numel()
        step += 1
    return digest.hexdigest()
