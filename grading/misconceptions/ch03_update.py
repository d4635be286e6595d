"""Named mistakes in exercise 03.4: what becomes of the copies."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def update(
    spread: Callable = lambda post, found: post[..., None] * found[:, :, None],
    mix: Callable = lambda comb, copies: comb.transpose(-1, -2) @ copies,
    read: Callable = lambda pre, new, old, found: (pre[..., None] * new).sum(2),
    order: Callable = lambda pre, post: (pre, post),
) -> Callable:
    """The update of the copies with each of its three steps open."""

    def update_copies(copies_BTNX, found_BTX, pre_BTN, post_BTN, comb_BTNN):
        pre, post = order(pre_BTN, post_BTN)
        new = spread(post, found_BTX) + mix(comb_BTNN, copies_BTNX)
        return new, read(pre, new, copies_BTNX, found_BTX)

    return update_copies


def added_before_mixing(copies, found, pre, post, comb):
    added = copies + post[..., None] * found[:, :, None]
    new = comb.transpose(-1, -2) @ added
    return new, (pre[..., None] * new).sum(2)


def kept_besides(copies, found, pre, post, comb):
    new, _ = update()(copies, found, pre, post, comb)
    new = new + copies
    return new, (pre[..., None] * new).sum(2)


def in_place(copies, found, pre, post, comb):
    new, read = update()(copies, found, pre, post, comb)
    copies.copy_(new)
    return copies, read


def answers_swapped(copies, found, pre, post, comb):
    return update()(copies, found, pre, post, comb)[::-1]


UPDATE = (
    Misconception(
        "comb_transposed",
        "This is the answer with comb[j, i] for comb[i, j]. The first axis is the old copy, "
        "and the sum runs over it: comb transposed, times the copies.",
        update(mix=lambda comb, copies: comb @ copies),
    ),
    Misconception(
        "not_mixed",
        "This is the answer without comb: every copy keeps only itself.",
        update(mix=lambda comb, copies: copies),
    ),
    Misconception(
        "old_copies_lost",
        "This is the answer without the old copies: only what was found is left.",
        update(mix=lambda comb, copies: torch.zeros_like(copies)),
    ),
    Misconception(
        "kept_besides",
        "The old copies are in it twice: mixed, and once more as they were. The mix already "
        "hands on each of them.",
        kept_besides,
    ),
    Misconception(
        "found_not_added",
        "This is the answer without F: the copies are only mixed.",
        update(spread=lambda post, found: 0 * found[:, :, None]),
    ),
    Misconception(
        "no_post",
        "This is the answer with F added to every copy alike; each gets post[j] times F.",
        update(spread=lambda post, found: found[:, :, None]),
    ),
    Misconception(
        "added_before_mixing",
        "This is the answer when F is added first and mixed along with the copies. Only the "
        "old copies are mixed.",
        added_before_mixing,
    ),
    Misconception(
        "post_on_the_mix",
        "This is the answer with post on the mixed copies as well; it weighs F alone.",
        lambda copies, found, pre, post, comb: (lambda new: (new, (pre[..., None] * new).sum(2)))(
            post[..., None] * (found[:, :, None] + comb.transpose(-1, -2) @ copies)
        ),
    ),
    Misconception(
        "pre_and_post_swapped",
        "This is the answer with pre and post in each other's place: pre is for reading, post "
        "for writing.",
        update(order=lambda pre, post: (post, pre)),
    ),
    Misconception(
        "reads_old_copies",
        "The new copies are right. But the next sublayer reads the *new* copies; this is what "
        "pre makes of the old ones.",
        update(read=lambda pre, new, old, found: (pre[..., None] * old).sum(2)),
    ),
    Misconception(
        "reads_without_pre",
        "The new copies are right. But what is read is their plain sum; pre weighs each.",
        update(read=lambda pre, new, old, found: new.sum(2)),
    ),
    Misconception(
        "reads_the_mean",
        "The new copies are right. But what is read is their mean; each is weighed by pre.",
        update(read=lambda pre, new, old, found: new.mean(2)),
    ),
    Misconception(
        "divided_by_copies",
        "The new copies are right. But the weighed copies are summed up, not averaged.",
        update(read=lambda pre, new, old, found: (pre[..., None] * new).mean(2)),
    ),
    Misconception(
        "reads_with_post",
        "The new copies are right. But they are read with post; pre is for reading.",
        lambda copies, found, pre, post, comb: (lambda new: (new, (post[..., None] * new).sum(2)))(
            update()(copies, found, pre, post, comb)[0]
        ),
    ),
    Misconception(
        "reads_the_first_copy",
        "The new copies are right. But the next sublayer reads a mixture, not copy 0.",
        update(read=lambda pre, new, old, found: new[:, :, 0]),
    ),
    Misconception(
        "in_place",
        "The numbers are right, but `copies_BTNX` was overwritten; the caller still holds it.",
        in_place,
    ),
    Misconception(
        "answers_swapped",
        "The two answers have changed places: first the new copies, then what is read.",
        answers_swapped,
    ),
)
