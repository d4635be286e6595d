"""Pairs of texts that differ in one thing: who has what. So what carries that fact can be found.

    text     Ada has the key. Ben has the lamp. What does Ada have? Ada has the   -> key
    swapped  Ada has the lamp. Ben has the key. What does Ada have? Ada has the   -> lamp

Both have the same length, word by word, so a place in one is the same place in the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from . import tokenizer
from .dice import Dice
from .world import MEN, THINGS, WOMEN


@dataclass(frozen=True)
class Swap:
    """A text that asks for `answer`; with the two things swapped it asks for `other`."""

    text: str
    swapped: str
    answer: str
    other: str


def swap(asked: str, beside: str, answer: str, other: str) -> Swap:
    """`asked` has the `answer`, `beside` has the `other`; then the question about `asked`."""

    def told(one: str, two: str) -> str:
        facts = f"{asked} has the {one}. {beside} has the {two}."
        return f"{facts}\nWhat does {asked} have? {asked} has the"

    return Swap(told(answer, other), told(other, answer), answer, other)


def swaps(count: int, seed: int = 0) -> list[Swap]:
    """`count` different pairs, the asked person a woman and a man in turns.

    Errors: ValueError for fewer than one.
    """
    if count < 1:
        raise ValueError(f"count is {count}; at least one pair is needed")
    made: dict[Swap, None] = {}
    dice = Dice("swaps", seed)
    while len(made) < count:
        people = [dice.choice(WOMEN), dice.choice(MEN)]
        asked, beside = people if len(made) % 2 == 0 else people[::-1]
        made[swap(asked, beside, *dice.sample(THINGS, 2))] = None
    return list(made)


@dataclass(frozen=True)
class Tokens:
    """Pairs as tensors, one row each."""

    text_BT: Int[Tensor, "B T"]
    swapped_BT: Int[Tensor, "B T"]
    answer_B: Int[Tensor, " B"]
    other_B: Int[Tensor, " B"]


def tokens(pairs: Sequence[Swap]) -> Tokens:
    """All pairs side by side: every word in them is one token, so all rows are equally long."""
    rows = [[tokenizer.encode(text) for text in (pair.text, pair.swapped)] for pair in pairs]
    words = [[tokenizer.word_id(word) for word in (pair.answer, pair.other)] for pair in pairs]
    text, swapped = zip(*rows)
    answer, other = zip(*words)
    return Tokens(*(torch.tensor(x) for x in (text, swapped, answer, other)))
