"""Named mistakes in exercise 03.3: Sinkhorn's turns."""

from __future__ import annotations

from collections.abc import Callable

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
