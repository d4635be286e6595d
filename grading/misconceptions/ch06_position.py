"""Named mistakes in exercise 06.2: decoupled RoPE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grading.exercise import Misconception


def turn(x: torch.Tensor, position_T: torch.Tensor, pairs: Any = "adjacent") -> torch.Tensor:
    from tinymodels.attention.rope import rotate
    from tinymodels.config import Rope

    return rotate(x, Rope(x.shape[-1], pairs=pairs), position_T)


def unturned(x: torch.Tensor, position_T: torch.Tensor) -> torch.Tensor:
    return x


def newest(new: int, entries: int) -> torch.Tensor:
    return torch.arange(entries - new, entries)


def summed(nope, near, numbers_D: int, numbers_R: int) -> torch.Tensor:
    return (nope + near) / (numbers_D + numbers_R) ** 0.5


def answer(
    query: Callable = turn,
    key: Callable = turn,
    nope: Callable = unturned,
    stand: Callable = newest,
    join: Callable = summed,
) -> Callable:
    """Decoupled scores with every choice open; the defaults make them right."""

    def decoupled_scores(nope_BTHD, rope_BTHR, key_BSHD, rope_key_BSR):
        (T, _, D), (S, R) = nope_BTHD.shape[1:], rope_key_BSR.shape[1:]
        at_T, at_S = stand(T, S), torch.arange(S)
        content = torch.einsum("bthd,bshd->bhts", nope(nope_BTHD, at_T), nope(key_BSHD, at_S))
        turned = query(rope_BTHR, at_T), key(rope_key_BSR, at_S)
        near = torch.einsum("bthr,bsr->bhts", *turned)
        return join(content, near, D, R)

    return decoupled_scores


def transposed(*given):
    return answer()(*given).transpose(1, 2)


def masked(nope_BTHD, rope_BTHR, key_BSHD, rope_key_BSR):
    score = answer()(nope_BTHD, rope_BTHR, key_BSHD, rope_key_BSR)
    T, S = score.shape[-2:]
    return score.masked_fill(torch.ones(T, S).tril(S - T) == 0, -float("inf"))


def backwards(x, position_T):
    return turn(x, -position_T)


POSITION = (
    Misconception(
        "nothing_turned",
        "Nothing is turned: the rope pieces of queries and keys are turned by their positions.",
        answer(query=unturned, key=unturned),
    ),
    Misconception(
        "query_unturned",
        "Only the rope keys are turned. The queries' rope pieces are too; then the score depends "
        "on how far apart the two stand.",
        answer(query=unturned),
    ),
    Misconception(
        "key_unturned",
        "Only the queries are turned. The rope key of each entry is turned too, by the entry's own "
        "position.",
        answer(key=unturned),
    ),
    Misconception(
        "everything_turned",
        "The nope pieces are turned as well. They must not be: with a rotation between query and "
        "up-projection nothing can be absorbed.",
        answer(nope=turn),
    ),
    Misconception(
        "nope_turned_instead",
        "The nope pieces are turned and the rope pieces are not; it is the other way round.",
        answer(nope=turn, query=unturned, key=unturned),
    ),
    Misconception(
        "queries_from_zero",
        "The queries are turned as if the first of them stood at position 0. They are the newest: "
        "the first stands at S - T.",
        answer(stand=lambda new, entries: torch.arange(new)),
    ),
    Misconception(
        "one_late",
        "The queries stand one position too far: the last of them is at S - 1.",
        answer(stand=lambda new, entries: newest(new, entries) + 1),
    ),
    Misconception(
        "all_at_the_end",
        "All queries are turned by the last position; each has its own.",
        answer(stand=lambda new, entries: torch.full((new,), entries - 1)),
    ),
    Misconception(
        "turned_apart",
        "Queries and keys are turned in opposite directions. Then the score depends on the sum of "
        "their positions; turned the same way it depends on the difference.",
        answer(key=backwards),
    ),
    Misconception(
        "half_pairs",
        "The pairs that are turned are x[0] and x[R/2]. Here pairs are neighbours: x[0] and x[1], "
        "as `Rope(R)` does it.",
        answer(query=lambda x, at: turn(x, at, "half"), key=lambda x, at: turn(x, at, "half")),
    ),
    Misconception(
        "not_scaled",
        "The scores are not divided by the square root of D + R.",
        answer(join=lambda content, near, D, R: content + near),
    ),
    Misconception(
        "scaled_by_nope",
        "The scores are divided by the square root of D. Both pieces together are D + R long.",
        answer(join=lambda content, near, D, R: (content + near) / D**0.5),
    ),
    Misconception(
        "scaled_apart",
        "Each product is divided by the root of its own length. It is one score of D + R products.",
        answer(join=lambda content, near, D, R: content / D**0.5 + near / R**0.5),
    ),
    Misconception(
        "no_position",
        "The rope product is missing: the score is the sum of both.",
        answer(join=lambda content, near, D, R: content / (D + R) ** 0.5),
    ),
    Misconception(
        "no_content",
        "The nope product is missing: the score is the sum of both.",
        answer(join=lambda content, near, D, R: near / (D + R) ** 0.5),
    ),
    Misconception(
        "multiplied",
        "The two products are multiplied; they are added.",
        answer(join=lambda content, near, D, R: content * near / (D + R) ** 0.5),
    ),
    Misconception(
        "axes",
        "These are the right scores with the axes T and H exchanged: [B, H, T, S] is asked for.",
        transposed,
    ),
    Misconception(
        "masked",
        "Later entries are masked. That comes afterwards: here every score is asked for.",
        masked,
    ),
)
