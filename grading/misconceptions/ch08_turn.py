"""Named mistakes in exercise 08.5: the turn back."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def tail(x, at, R: int, back: bool = False):
    from tinymodels.attention.rope import rotate
    from tinymodels.config import Rope

    turned = rotate(x[..., -R:], Rope(R), at, back=back)
    return torch.cat([x[..., :-R], turned], -1)


def head(x, at, R: int, back: bool = False):
    from tinymodels.attention.rope import rotate
    from tinymodels.config import Rope

    return torch.cat([rotate(x[..., :R], Rope(R), at, back=back), x[..., R:]], -1)


def left(x, at, R: int, back: bool = False):
    return x


def answer(
    query: Callable = tail,
    row: Callable = tail,
    out: Callable = lambda x, t, s, R: tail(x, t, R, back=True),
    row_at: Callable = lambda s: s,
) -> Callable:
    """One head with every choice open; the defaults make it right."""

    def attend_and_turn_back(query_BTD, row_BSD, query_at_T, row_at_S, R, attend):
        at = row_at(row_at_S)
        out_BTD = attend(query(query_BTD, query_at_T, R), row(row_BSD, at, R))
        return out(out_BTD, query_at_T, row_at_S, R)

    return attend_and_turn_back


def value_unturned(query_BTD, row_BSD, query_at_T, row_at_S, R, attend):
    """Turned rows as keys, unturned rows as values: nothing to turn back, and another output."""
    both = attend(tail(query_BTD, query_at_T, R), tail(row_BSD, row_at_S, R), row_BSD)
    return both


def everything(x, at, R: int, back: bool = False):
    even = x.shape[-1] // 2 * 2
    return tail(x, at, even, back)


def whole(x, at, R: int, back: bool = False):
    """All numbers handed to a rotation of R: it refuses."""
    from tinymodels.attention.rope import rotate
    from tinymodels.config import Rope

    return rotate(x, Rope(R), at, back=back)


TURN = (
    Misconception(
        "whole_row",
        "All D numbers were handed to a rotation of R numbers, and it refused. Only the last R "
        "are turned: x[..., -R:].",
        answer(whole, whole, lambda x, t, s, R: whole(x, t, R, back=True)),
    ),
    Misconception(
        "not_turned_back",
        "The output is not turned back: it is a sum of turned rows, and depends on where in the "
        "text they lie.",
        answer(out=lambda x, t, s, R: x),
    ),
    Misconception(
        "turned_on",
        "The output is turned once more in the same direction; `back=True` turns it back.",
        answer(out=lambda x, t, s, R: tail(x, t, R)),
    ),
    Misconception(
        "everything_turned_back",
        "All numbers of the output are turned back; only the last R were turned.",
        answer(out=lambda x, t, s, R: everything(x, t, R, back=True)),
    ),
    Misconception(
        "first_numbers",
        "The first R numbers are turned. It is the last R.",
        answer(head, head, lambda x, t, s, R: head(x, t, R, back=True)),
    ),
    Misconception(
        "query_unturned",
        "The query is not turned before its scores.",
        answer(query=left),
    ),
    Misconception(
        "rows_unturned",
        "The rows are not turned: neither scores nor values know where they stand.",
        answer(row=left),
    ),
    Misconception(
        "nothing_turned",
        "Nothing is turned at all, so the order of the text is lost.",
        answer(left, left, lambda x, t, s, R: x),
    ),
    Misconception(
        "rows_by_number",
        "Row s is turned by s. It stands at `row_at_S[s]`: a group's rows lie several positions "
        "apart.",
        answer(row_at=lambda s: torch.arange(len(s))),
    ),
    Misconception(
        "query_by_number",
        "Queries are turned by 0, 1, ...; they stand at `query_at_T`.",
        lambda query, row, t, s, R, attend: answer()(
            query, row, torch.arange(len(t)), s, R, attend
        ),
    ),
    Misconception(
        "back_by_number",
        "The output is turned back by 0, 1, ...; its query stands at `query_at_T`.",
        answer(out=lambda x, t, s, R: tail(x, torch.arange(len(t)), R, back=True)),
    ),
    Misconception(
        "back_by_the_first_row",
        "The output is turned back by the position of a row. It is the query's position that "
        "counts.",
        answer(out=lambda x, t, s, R: tail(x, s[:1].expand(len(t)), R, back=True)),
    ),
    Misconception(
        "turned_backwards",
        "Queries and rows are turned backwards, and the output forwards. Distances come out with "
        "the wrong sign.",
        answer(
            lambda x, at, R: tail(x, at, R, back=True),
            lambda x, at, R: tail(x, at, R, back=True),
            lambda x, t, s, R: tail(x, t, R),
        ),
    ),
)
