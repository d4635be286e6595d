"""What the tiny models are trained on: texts of the small world, or pure recall.

A batch is a function of (task, seed, step) and of nothing else. Training can stop and go on at
any step, and any step's tokens can be made again: there is no position in a file to remember.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Int
from torch import Tensor

from tinymodels import stories, tokenizer
from tinymodels.dice import Dice
from tinymodels.world import WORDS

TASKS = ("text", "recall")
IGNORED = -100  # a target that the loss leaves out, torch's own number for it


@dataclass(frozen=True)
class Batch:
    """tokens: what the model reads. targets: what comes next, or IGNORED where none is asked.

    known: the same targets, all IGNORED but those that can be known: answers, and words that
    repeat a fact. The rest of a story is up to chance.
    """

    tokens: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    known: Int[Tensor, "B T"]

    def to(self, device: str | torch.device) -> "Batch":
        return Batch(*(getattr(self, f.name).to(device) for f in fields(self)))


@dataclass(frozen=True)
class Stage:
    """How the rows of a step are made: `rows` of `length` tokens.

    games: the share of rows that are memory games, of levels up to `level`. both_ways: every
    second game asks the other way round.
    """

    rows: int
    length: int
    games: float = 0.0
    level: int = 0
    both_ways: bool = False

    def __post_init__(self):
        if self.rows < 1 or self.length < 1:
            raise ValueError(f"{self.rows} rows of {self.length} tokens: both must be at least 1")
        if not 0 <= self.games <= 1 or not 0 <= self.level < len(JOINS):
            raise ValueError(
                f"games is {self.games} and level {self.level}; games is a share, 0 to 1, and "
                f"levels are 0 to {len(JOINS) - 1}"
            )


# ---------------------------------------------------------------- memory games

JOINS = ("", "has", "has the", "is in the")
"""What stands between the two words of a pair, by level."""
BACKWARD = (
    ("", "?", ""),
    ("has", "?", ""),
    ("has the", "?", ""),
    ("has the", "\nWho has the", "?"),
)
"""The same where the first word is asked, and what stands before and after the second then."""

_SENTENCE_END = tokenizer.encode(".", bos=False)[0]
_WORD_IDS = tuple(map(tokenizer.word_id, WORDS))


def _again(pair: tuple[int, int], between: list[int], end: list[int], ask=("", "")):
    """A pair named again, and the index in it of the word that can be known."""
    first, second = pair
    before, after = (tokenizer.encode(part, bos=False) for part in ask)
    if not before:
        return [first, *between, second, *end], 1 + len(between)
    statement = [first, *between, second, *end] if after else [first]
    return [*before, second, *after, *statement], len(before) + 1 + len(after)


def game_row(
    dice: Dice, length: int, level: int, backward: bool = False
) -> tuple[list[int], list[int]]:
    """`length` tokens of a memory game, and what in it can be known.

    Pairs of words, any words, are named and then named again in any order: `lamp Ada blue park
    lamp Ada`. At a higher level more comes between: `lamp has the Ada.` With `backward` the
    second word asks for the first: `lamp Ada blue park ? Ada lamp`. Here looking back is all
    there is to learn, and it is learned in minutes; from stories alone it was not learned at all.
    """
    chosen = level if dice.chance(0.5) else dice.below(level + 1)
    join, *ask = BACKWARD[chosen] if backward else (JOINS[chosen], "", "")
    between = tokenizer.encode(join, bos=False)
    end = [_SENTENCE_END] if level and dice.chance(0.7) else []
    pairs = dice.between(2, 4)
    words = dice.sample(_WORD_IDS, 2 * pairs)
    named = list(zip(words[:pairs], words[pairs:]))
    row = [tokenizer.BOS]
    for first, second in named:
        row += [first, *between, second, *end]
    known = [IGNORED] * len(row)
    while len(row) < length:
        said, at = _again(dice.choice(named), between, end, ask)
        known += [token if i == at else IGNORED for i, token in enumerate(said)]
        row += said
    return row[:length], known[:length]


# ---------------------------------------------------------------- text


def text_row(dice: Dice, length: int) -> tuple[list[int], list[int]]:
    """`length` tokens: texts one after the other, each behind its <bos>, the last one cut.

    Also the same tokens with all IGNORED but those that can be known.
    """
    row: list[int] = []
    known: list[int] = []
    while len(row) < length:
        first, *rest = stories.any_text(dice, room=length).parts()
        row += tokenizer.encode(first)
        known += [IGNORED] * (len(row) - len(known))
        for part in rest:
            row += tokenizer.encode(part, bos=False, line_start=False)
            known.append(row[len(known)])
            known += [IGNORED] * (len(row) - len(known))
    return row[:length], known[:length]


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


def batch(task: str, seed: int, step: int, stage: Stage, held_out: bool = False) -> Batch:
    """The batch of one training step.

    held_out: a batch that training never sees, whatever its seed. Errors: ValueError for an
    unknown task.
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}; tasks are {', '.join(TASKS)}")
    split = "held out" if held_out else "train"
    tokens, targets, known = [], [], []
    for row in range(stage.rows):
        dice = Dice(split, task, seed, step, row)
        if row < stage.games * stage.rows:
            backward = stage.both_ways and row % 2 == 1
            read, sure = game_row(dice, stage.length + 1, stage.level, backward)
        else:
            read, sure = (text_row if task == "text" else _recall_row)(dice, stage.length + 1)
        all_asked = task == "text" and row >= stage.games * stage.rows
        tokens.append(read[:-1])
        targets.append((read if all_asked else sure)[1:])
        known.append(sure[1:])
    return Batch(*map(torch.tensor, (tokens, targets, known)))


def fingerprint(batches: Iterable[Batch]) -> str:
    """SHA-256 of the tokens and targets of some batches, in order.

    Runs with the same fingerprint read the same data; it is written beside each checkpoint.
    """
    digest = hashlib.sha256()
    for made in batches:
        for values in (made.tokens, made.targets, made.known):
            digest.update(values.to(torch.int16).numpy().astype("<i2").tobytes())
    return digest.hexdigest()
