"""Named mistakes in exercise 13.3: rows of another text."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def beams(select: Callable) -> type:
    """The cache with `select` open: (rows, lengths, order) -> (rows, lengths)."""

    class Beams:
        def __init__(self, batch, capacity, dim):
            self.rows_BSD = torch.zeros(batch, capacity, dim)
            self.length_B = torch.zeros(batch, dtype=torch.int64)

        def append(self, row_BD, grows_B):
            for b in grows_B.nonzero()[:, 0]:
                self.rows_BSD[b, self.length_B[b]] = row_BD[b]
                self.length_B[b] += 1

        def select(self, order_B):
            self.rows_BSD, self.length_B = select(self.rows_BSD, self.length_B, order_B)

        def read(self):
            inside_BS = torch.arange(self.rows_BSD.shape[1]) < self.length_B[:, None]
            return self.rows_BSD * inside_BS[:, :, None], self.length_B

    return Beams


def in_place(rows, length, order, backwards=False, both=True):
    rows, length, was = rows.clone(), length.clone(), length.clone()
    pairs = list(enumerate(order.tolist()))
    for i, b in pairs[::-1] if backwards else pairs:
        rows[i] = rows[b]
        length[i] = length[b] if both else was[b]
    return rows, length


def by(change: Callable, lengths: Callable | None = None) -> type:
    """Rows and lengths taken in a changed order; lengths in one of their own, if named."""

    def select(rows, length, order):
        other = change(order) if lengths is None else lengths(order)
        return rows[change(order)], length[other]

    return beams(select)


def same(order: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(order))


def exchanged(order: torch.Tensor) -> torch.Tensor:
    """Each text to its place instead of from it; of two for one place, the last wins."""
    where = torch.arange(len(order))
    for i, b in enumerate(order.tolist()):
        where[b] = i
    return where


def _once(order: torch.Tensor) -> torch.Tensor:
    seen: list[int] = []
    for i, b in enumerate(order.tolist()):
        seen.append(i if b in seen else b)
    return torch.tensor(seen)


def _lengths_in_place(rows, length, order):
    return rows[order], in_place(rows, length, order)[1]


def _cut(rows, length, order):
    shortest = length[order].min()
    return rows[order], torch.full_like(length, int(shortest))


def _longest(rows, length, order):
    return rows[order], torch.full_like(length, int(length.max()))


def _emptied(rows, length, order):
    return torch.zeros_like(rows), torch.zeros_like(length)


BEAMS = (
    Misconception(
        "as_it_was",
        "This is still the fault: rows are overwritten one after another, and a text that is "
        "copied later has been overwritten by then. Take all of them from what was there before.",
        beams(in_place),
    ),
    Misconception(
        "in_place_backwards",
        "Rows are overwritten one after another, from the last to the first. The same fault: some "
        "text is gone before it is copied.",
        beams(lambda rows, length, order: in_place(rows, length, order, backwards=True)),
    ),
    Misconception(
        "lengths_first",
        "The lengths come out right, but the rows are still overwritten one after another.",
        beams(lambda rows, length, order: in_place(rows, length, order, both=False)),
    ),
    Misconception(
        "lengths_in_place",
        "The rows are right, but lengths are still overwritten one after another. Take all of them "
        "from what was there before.",
        beams(_lengths_in_place),
    ),
    Misconception(
        "lengths_stay",
        "The rows moved and the lengths did not: a text ends where another one ended.",
        by(lambda order: order, same),
    ),
    Misconception(
        "rows_stay",
        "The lengths moved and the rows did not.",
        by(same, lambda order: order),
    ),
    Misconception(
        "nothing_moves",
        "Nothing moved: each text goes on as itself.",
        by(same),
    ),
    Misconception(
        "to_instead_of_from",
        "Text i was put in place order[i]. It is the other way round: place i gets text order[i].",
        by(exchanged),
    ),
    Misconception(
        "sorted",
        "The chosen texts are right, but in the order of their numbers instead of the one asked "
        "for.",
        by(lambda order: order.sort().values),
    ),
    Misconception(
        "each_once",
        "A text that is asked for twice is there only once.",
        by(_once),
    ),
    Misconception(
        "as_long_as_the_shortest",
        "All texts are cut to the length of the shortest one.",
        beams(_cut),
    ),
    Misconception(
        "as_long_as_the_longest",
        "All texts are as long as the longest one, so that what lies behind their end is read.",
        beams(_longest),
    ),
    Misconception(
        "emptied",
        "The rows are gone: every text begins anew.",
        beams(_emptied),
    ),
)
