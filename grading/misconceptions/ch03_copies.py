"""Named mistakes in exercises 03.3 to 03.5: Sinkhorn's turns, the copies, their traffic."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception

ROWS, COLUMNS = -1, -2


def divided(matrix, axis, eps):
    return matrix / (matrix.sum(axis, keepdim=True) + eps)


def sinkhorn(
    start: Callable = lambda logits, eps: logits.softmax(-1) + eps,
    first: tuple[int, ...] = (COLUMNS,),
    turn: tuple[int, ...] = (ROWS, COLUMNS),
    more: int = -1,
    divide: Callable = divided,
) -> Callable:
    """Sinkhorn with every choice open: what it starts from, the first turn, the others."""

    def answer(logits_BTNN, iterations, eps):
        matrix = start(logits_BTNN, eps)
        for axis in first:
            matrix = divide(matrix, axis, eps)
        for _ in range(iterations + more):
            for axis in turn:
                matrix = divide(matrix, axis, eps)
        return matrix

    return answer


def both_at_once(logits_BTNN, iterations, eps):
    matrix = divided(logits_BTNN.softmax(-1) + eps, COLUMNS, eps)
    for _ in range(iterations - 1):
        row, column = matrix.sum(ROWS, keepdim=True), matrix.sum(COLUMNS, keepdim=True)
        matrix = matrix / ((row + eps) * (column + eps))
    return matrix


def _softmax_of_all(logits, eps):
    return logits.flatten(-2).softmax(-1).view_as(logits) + eps


SINKHORN = (
    Misconception(
        "softmax_of_columns",
        "This is the answer with the softmax taken down the columns; it is taken along the "
        "rows, the last axis.",
        sinkhorn(start=lambda logits, eps: logits.softmax(-2) + eps),
    ),
    Misconception(
        "softmax_of_all",
        "This is the answer with one softmax over the whole matrix; each row has its own.",
        sinkhorn(start=_softmax_of_all),
    ),
    Misconception(
        "no_softmax",
        "This is the answer with exp alone in place of the softmax: before eps is added, each "
        "row must sum to 1.",
        sinkhorn(start=lambda logits, eps: logits.exp() + eps),
    ),
    Misconception(
        "log_softmax",
        "This starts from the logarithms, which are negative. Start from softmax.",
        sinkhorn(start=lambda logits, eps: logits.log_softmax(-1) + eps),
    ),
    Misconception(
        "raw_logits",
        "This divides the logits themselves. They may be negative; softmax comes first.",
        sinkhorn(start=lambda logits, eps: logits + eps),
    ),
    Misconception(
        "no_eps_after_softmax",
        "This is the answer without the eps that is added to every entry after the softmax.",
        sinkhorn(start=lambda logits, eps: logits.softmax(-1)),
    ),
    Misconception(
        "no_eps_in_sums",
        "This is the answer without the eps in the sums that rows and columns are divided by.",
        sinkhorn(divide=lambda matrix, axis, eps: divided(matrix, axis, 0.0)),
    ),
    Misconception(
        "no_eps",
        "This is the answer without eps, neither after the softmax nor in the sums.",
        sinkhorn(
            start=lambda logits, eps: logits.softmax(-1),
            divide=lambda matrix, axis, eps: divided(matrix, axis, 0.0),
        ),
    ),
    Misconception(
        "rows_last",
        "This is the answer with columns before rows in every further turn. Rows come first, "
        "then columns, so that columns are exact at the end.",
        sinkhorn(turn=(COLUMNS, ROWS)),
    ),
    Misconception(
        "rows_in_the_first_turn",
        "This is the answer with rows in the first turn as well. The softmax has just done the "
        "rows: the first turn is columns alone.",
        sinkhorn(first=(), more=0),
    ),
    Misconception(
        "rows_and_columns_confused",
        "Rows and columns have changed places in every turn: to divide columns by their sum, "
        "sum down the rows, axis -2.",
        sinkhorn(first=(ROWS,), turn=(COLUMNS, ROWS)),
    ),
    Misconception(
        "columns_only",
        "This is the answer with columns done in every turn, and rows never.",
        sinkhorn(turn=(COLUMNS,)),
    ),
    Misconception(
        "rows_only",
        "This is the answer with rows alone in every further turn.",
        sinkhorn(turn=(ROWS,)),
    ),
    Misconception(
        "one_turn_more",
        "This is the answer with one turn too many: the first one, columns alone, counts.",
        sinkhorn(more=0),
    ),
    Misconception(
        "one_turn_less",
        "This is the answer with one turn too few.",
        sinkhorn(more=-2),
    ),
    Misconception(
        "first_turn_only",
        "This is the answer after the first turn, whatever `iterations` says.",
        sinkhorn(turn=()),
    ),
    Misconception(
        "both_at_once",
        "This is the answer when rows and columns are divided at once, by sums that were both "
        "taken before. Take the sums of the columns after the rows are divided.",
        both_at_once,
    ),
    Misconception(
        "mean_for_sum",
        "This divides by the mean of a row or column; by its sum, it adds up to 1.",
        sinkhorn(divide=lambda matrix, axis, eps: matrix / (matrix.mean(axis, keepdim=True) + eps)),
    ),
    Misconception(
        "transposed",
        "This is the right matrix transposed.",
        lambda logits, iterations, eps: sinkhorn()(logits, iterations, eps).transpose(-1, -2),
    ),
)


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


def _streams(separate: Callable, fused: Callable, single: Callable) -> Callable:
    """streams moved by n copies, for each schedule -> an answer."""
    ways = {"separate": separate, "fused": fused, "single": single}

    def stream_traffic(layers, copies, width, bits, schedule):
        return 2 * layers * ways[schedule](copies) * width * bits // 8

    return stream_traffic


RIGHT = (lambda n: 4 * n + 4, lambda n: 3 * n + 2, lambda n: 2 * n + 2)


def _changed(change: Callable) -> Callable:
    """The right count, changed: change(bytes, layers, copies, width, bits)."""
    right = _streams(*RIGHT)

    def stream_traffic(layers, copies, width, bits, schedule):
        return change(right(layers, copies, width, bits, schedule), layers, copies, width, bits)

    return stream_traffic


TRAFFIC = (
    Misconception(
        "layers_for_sublayers",
        "This is half of it: a layer has two sublayers, attention and FFN.",
        _changed(lambda right, *_: right // 2),
    ),
    Misconception(
        "one_sublayer",
        "This is the traffic of one sublayer; count all layers, with two in each.",
        _changed(lambda right, layers, *_: right // (2 * layers)),
    ),
    Misconception(
        "bits",
        "These are bits; eight of them are one byte.",
        _changed(lambda right, *_: right * 8),
    ),
    Misconception(
        "numbers",
        "This is how many numbers move; each of them takes bits / 8 bytes.",
        _changed(lambda right, layers, copies, width, bits: right * 8 // bits),
    ),
    Misconception(
        "rounds_bits_first",
        "bits // 8 rounds down before anything is multiplied: 4-bit numbers come out as 0 "
        "bytes, 12-bit ones as 1. Multiply first, divide by 8 at the end.",
        lambda layers, copies, width, bits, schedule: (
            _streams(*RIGHT)(layers, copies, width, 8, schedule) * (bits // 8)
        ),
    ),
    Misconception(
        "reads_only",
        "This counts what is read. What is written moves, too.",
        _streams(lambda n: 3 * n + 2, lambda n: 2 * n + 1, lambda n: n + 1),
    ),
    Misconception(
        "writes_only",
        "This counts what is written. What is read moves, too.",
        _streams(lambda n: n + 2, lambda n: n + 1, lambda n: n + 1),
    ),
    Misconception(
        "no_norm_pass",
        "This leaves out the norm where it is a pass of its own: it reads the input and writes "
        "it again.",
        _streams(lambda n: 4 * n + 2, *RIGHT[1:]),
    ),
    Misconception(
        "answer_not_read",
        "This leaves out F: the sublayer's answer lies in memory and has to be read.",
        _streams(lambda n: 4 * n + 3, lambda n: 3 * n + 1, lambda n: 2 * n + 1),
    ),
    Misconception(
        "copies_only",
        "This counts the copies alone. F is read and the next input is written: streams, too.",
        _streams(lambda n: 4 * n, lambda n: 3 * n, lambda n: 2 * n),
    ),
    Misconception(
        "fused_as_single",
        "This gives the fused schedule one pass. Its second pass reads all copies once more, "
        "because the weights of the next read are known only then.",
        _streams(RIGHT[0], RIGHT[2], RIGHT[2]),
    ),
    Misconception(
        "schedules_reversed",
        "The schedules have changed places: separate passes move most, the single pass least.",
        _streams(*RIGHT[::-1]),
    ),
    Misconception(
        "one_copy",
        "This is a model with a single stream; there are `copies` of them.",
        _streams(lambda n: 8, lambda n: 5, lambda n: 4),
    ),
    Misconception(
        "copies_everywhere",
        "This counts F and the input as if there were one for each copy. They are one stream each.",
        _streams(lambda n: 8 * n, lambda n: 5 * n, lambda n: 4 * n),
    ),
)
