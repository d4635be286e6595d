"""Named mistakes in exercise 12.1: the longest usable prefix."""

from __future__ import annotations

import math
from collections.abc import Callable

from grading.exercise import Misconception


def common(prompt, stored) -> int:
    same = 0
    while same < min(len(prompt), len(stored)) and prompt[same] == stored[same]:
        same += 1
    return same


def equal_anywhere(prompt, stored) -> int:
    return sum(a == b for a, b in zip(prompt, stored))


def known_tokens(prompt, stored) -> int:
    known, same = set(stored), 0
    while same < len(prompt) and prompt[same] in known:
        same += 1
    return same


def answer(
    same: Callable = common,
    step: Callable = lambda ratios, piece: math.lcm(*ratios, piece),
    left: int = 1,
    cut: Callable = lambda same, step: same // step * step,
) -> Callable:
    """Every choice open; the defaults make it right."""

    def longest_prefix(prompt, stored, ratios, piece):
        return cut(min(same(prompt, stored), len(prompt) - left), step(ratios, piece))

    return longest_prefix


def subtracts_after(prompt, stored, ratios, piece):
    step = math.lcm(*ratios, piece)
    length = common(prompt, stored) // step * step
    return length - 1 if length == len(prompt) else length


def whole_or_nothing(prompt, stored, ratios, piece):
    step = math.lcm(*ratios, piece)
    length = min(len(prompt) - 1, len(stored)) // step * step
    return length if list(prompt[:length]) == list(stored[:length]) else 0


PREFIX = (
    Misconception(
        "nothing_left",
        "This uses all of a prompt that is stored whole. One token must be run, or nobody says "
        "what comes next.",
        answer(left=0),
    ),
    Misconception(
        "subtracts_after",
        "This rounds down first and then leaves one token to run, which cuts a piece. Leave one "
        "token first, then round down.",
        subtracts_after,
    ),
    Misconception(
        "always_one_less",
        "This rounds down and then takes one token off, always: the length is a multiple no more. "
        "Leave one token first, then round down.",
        answer(left=0, cut=lambda same, step: max(0, same // step * step - 1)),
    ),
    Misconception(
        "not_rounded",
        "This is where the texts part. The length has to be a multiple of the ratios and of the "
        "piece, so that nothing is cut.",
        answer(cut=lambda same, step: same),
    ),
    Misconception(
        "rounded_up",
        "This rounds up, to tokens that differ. Round down.",
        answer(cut=lambda same, step: -(-same // step) * step),
    ),
    Misconception(
        "only_the_piece",
        "This is a multiple of the piece alone. A group that ends inside a piece is cut then.",
        answer(step=lambda ratios, piece: piece),
    ),
    Misconception(
        "only_the_ratios",
        "This is a multiple of the ratios alone. Whole pieces are stored.",
        answer(step=lambda ratios, piece: math.lcm(*ratios)),
    ),
    Misconception(
        "largest_ratio",
        "This takes the largest of ratios and piece. A multiple of the largest need not be one of "
        "the others: take their least common multiple.",
        answer(step=lambda ratios, piece: max(*ratios, piece)),
    ),
    Misconception(
        "product",
        "This multiplies ratios and piece. Their least common multiple is often smaller, and more "
        "of the prompt can be used.",
        answer(step=lambda ratios, piece: math.prod(ratios) * piece),
    ),
    Misconception(
        "common_divisor",
        "This takes the greatest common divisor. It is the least common multiple that all of them "
        "divide.",
        answer(step=lambda ratios, piece: math.gcd(*ratios, piece)),
    ),
    Misconception(
        "equal_anywhere",
        "This counts all places where the tokens are equal. A row depends on every token before "
        "it: after the first difference nothing can be used.",
        answer(same=equal_anywhere),
    ),
    Misconception(
        "known_tokens",
        "This looks whether tokens occur anywhere in the stored text. They must stand at the same "
        "place.",
        answer(same=known_tokens),
    ),
    Misconception(
        "whole_or_nothing",
        "This gives 0 where the texts part somewhere. What comes before that can be used.",
        whole_or_nothing,
    ),
    Misconception(
        "counts_pieces",
        "This is a number of pieces. Tokens are asked for.",
        answer(cut=lambda same, step: same // step),
    ),
)
