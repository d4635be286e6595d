"""Named mistakes in exercise 07.2: the best k, with ties, and -1 where there are fewer."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def mask_first(score, visible):
    return score.masked_fill(~visible, -float("inf"))


def lowest_index(score, k):
    return score.sort(dim=-1, descending=True, stable=True).indices[..., :k]


def minus_one(index, reached):
    """In position order, -1 at the end."""
    none = torch.iinfo(index.dtype).max
    index = index.masked_fill(~reached, none).sort(dim=-1).values
    return index.masked_fill(index == none, -1)


def answer(
    mask: Callable = mask_first, best: Callable = lowest_index, finish: Callable = minus_one
) -> Callable:
    """The choice with every step open; the defaults make it right."""

    def select(score, visible, k):
        index = best(mask(score, visible), min(k, score.shape[-1]))
        return finish(index, visible.expand(score.shape).gather(-1, index))

    return select


def highest_index(score, k):
    """Of equal scores the last."""
    last = score.shape[-1] - 1
    return last - lowest_index(score.flip(-1), k)


def front(index, reached):
    """-1 sorts itself to the front."""
    return index.masked_fill(~reached, -1).sort(dim=-1).values


def by_score(index, reached):
    return index.masked_fill(~reached, -1)


def one_less(score, k):
    return lowest_index(score, max(k - 1, 1))


def padded(score, visible, k):
    """Always k wide, also where there are fewer rows."""
    choice = answer()(score, visible, k)
    return torch.nn.functional.pad(choice, (0, k - choice.shape[-1]), value=-1)


def topk_alone(score, visible, k):
    return mask_first(score, visible).topk(min(k, score.shape[-1])).indices


SELECT = (
    Misconception(
        "no_mask",
        "Rows that a query may not see were chosen.",
        answer(mask=lambda score, visible: score, finish=lambda index, _: index.sort(-1).values),
    ),
    Misconception(
        "mask_after_choice",
        "The mask came after the choice: rows that may not be seen took places, and became -1. "
        "Mask first, then choose among what is left.",
        answer(mask=lambda score, visible: score),
    ),
    Misconception(
        "masked_with_zero",
        "Hidden scores were set to 0. A visible score can be below 0, and then a hidden one wins; "
        "set them to -inf.",
        answer(mask=lambda score, visible: score.masked_fill(~visible, 0)),
    ),
    Misconception(
        "hidden_listed",
        "Where fewer than k rows are visible, hidden ones fill the list. Their places are -1.",
        answer(finish=lambda index, reached: index.sort(dim=-1).values),
    ),
    Misconception(
        "zero_for_none",
        "Empty places hold 0, which is a row. They are -1.",
        answer(finish=lambda index, reached: minus_one(index, reached).clamp(min=0)),
    ),
    Misconception(
        "minus_one_first",
        "The -1 stand at the front: they were sorted in as if they were positions. They come last.",
        answer(finish=front),
    ),
    Misconception(
        "by_score",
        "The rows are in the order of their scores. They are listed by position.",
        answer(finish=by_score),
    ),
    Misconception(
        "topk_alone",
        "This is the list that torch.topk gives: by score, and where fewer than k rows are visible "
        "hidden ones fill it. Wanted are positions in rising order, then -1.",
        topk_alone,
    ),
    Misconception(
        "ties_left_open",
        "All right but where scores are equal: torch.topk takes any of them. Here the lowest index "
        "wins, so that everybody chooses alike.",
        answer(best=lambda score, k: score.topk(k).indices),
    ),
    Misconception(
        "falling",
        "The list runs from the newest row to the oldest. Positions rise.",
        answer(finish=lambda index, reached: (
            index.masked_fill(~reached, -1).sort(dim=-1, descending=True).values
        )),
    ),
    Misconception(
        "last_of_equals",
        "Of equal scores the highest index was taken; the lowest wins.",
        answer(best=highest_index),
    ),
    Misconception(
        "nudged",
        "Equal scores were told apart by taking a little off for each index. That also reorders "
        "scores that are nearly equal; a stable sort reorders nothing.",
        answer(mask=lambda score, visible: mask_first(
            score - 1e-6 * torch.arange(score.shape[-1]), visible
        )),
    ),
    Misconception(
        "worst",
        "These are the rows with the lowest scores.",
        answer(
            mask=lambda score, visible: score.masked_fill(~visible, float("inf")),
            best=lambda score, k: score.sort(dim=-1, stable=True).indices[..., :k],
        ),
    ),
    Misconception(
        "largest_size",
        "Scores were compared by their size, without the sign.",
        answer(mask=lambda score, visible: mask_first(score.abs(), visible)),
    ),
    Misconception(
        "newest",
        "These are the newest k rows; the scores were not asked.",
        answer(mask=lambda score, visible: mask_first(
            torch.arange(score.shape[-1], dtype=score.dtype).expand(score.shape), visible
        )),
    ),
    Misconception(
        "one_less",
        "There is one row too few.",
        answer(best=one_less),
    ),
    Misconception(
        "always_k",
        "The list is k wide even where there are fewer than k rows; it is min(k, S) wide.",
        padded,
    ),
)  # fmt: skip
