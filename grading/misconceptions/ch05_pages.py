"""Named mistakes in exercise 05.4: page table lookup."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def own_table(table: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    return table.gather(1, place.clamp(0, table.shape[1] - 1))


def one_row(pool: torch.Tensor, page: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return pool[page, row]


def answer(
    place: Callable = lambda s, P: s // P,
    row: Callable = lambda s, P: s % P,
    size: Callable = lambda pool, table: pool.shape[1],
    find: Callable = own_table,
    fetch: Callable = one_row,
) -> Callable:
    """The lookup with every choice open; the defaults make it right."""

    def rows_of(pool_NPD, table_BJ, position_BT):
        P = size(pool_NPD, table_BJ)
        page_BT = find(table_BJ, place(position_BT, P))
        row_BT = row(position_BT, P).clamp(max=pool_NPD.shape[1] - 1)
        return fetch(pool_NPD, page_BT, row_BT)

    return rows_of


def laid_out(pool_NPD, table_BJ, position_BT):
    whole_BSD = pool_NPD[table_BJ].flatten(1, 2)
    return torch.stack([rows[at] for rows, at in zip(whole_BSD, position_BT)])


def whole_pages(pool, page, row):
    pages_BTPD = pool[page]
    index = row[..., None, None].expand(*row.shape, 1, pool.shape[2])
    return pages_BTPD.gather(2, index).squeeze(2)


def first_text(table: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    return table[0][place]


def by_number(table: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    far = table.max() + 1
    return own_table(torch.where(table < 0, far, table).sort(1).values % far, place)


def from_the_back(table: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    count_B1 = (table >= 0).sum(1, keepdim=True)
    return table.gather(1, count_B1 - 1 - place)


LOOKUP = (
    Misconception(
        "laid_out",
        "The rows are right, but every page of every text was fetched to find them. Look up the "
        "page of each position first, then fetch its row.",
        laid_out,
    ),
    Misconception(
        "whole_pages",
        "The rows are right, but for each position its whole page was fetched. Index page and row "
        "at once: pool_NPD[page_BT, row_BT].",
        answer(fetch=whole_pages),
    ),
    Misconception(
        "no_table",
        "This reads the pool from its beginning, as if every text lay there in order: position "
        "// P is the place in the text's table, and the table says which page that is.",
        answer(find=lambda table, place: place),
    ),
    Misconception(
        "first_text",
        "This looks all texts up in row 0 of the table. Each has its own row; gather keeps them "
        "apart.",
        answer(find=first_text),
    ),
    Misconception(
        "row_not_reduced",
        "The pages are right, and the row is the position itself. Within the page it is "
        "position % P.",
        answer(row=lambda s, P: s),
    ),
    Misconception(
        "always_the_first_row",
        "The pages are right, and always their first row is taken. Within the page it is "
        "position % P.",
        answer(row=lambda s, P: s * 0),
    ),
    Misconception(
        "row_from_the_end",
        "The pages are right, and rows are counted from the end of the page. They are filled from "
        "its beginning.",
        answer(row=lambda s, P: P - 1 - s % P),
    ),
    Misconception(
        "row_one_further",
        "The pages are right, and the row is the one after. Rows are counted from 0, like "
        "positions.",
        answer(row=lambda s, P: (s + 1) % P),
    ),
    Misconception(
        "one_page_back",
        "The rows are right, and the page is the one before. Position s lies in page s // P of the "
        "text, counted from 0.",
        answer(place=lambda s, P: s // P - 1),
    ),
    Misconception(
        "exchanged",
        "Place and row are exchanged: s // P is the place in the table, s % P the row in the page.",
        answer(place=lambda s, P: s % P, row=lambda s, P: s // P),
    ),
    Misconception(
        "pages_of_j",
        "This takes J, the length of the table, for the size of a page. That is P, the pool's "
        "second axis.",
        answer(size=lambda pool, table: table.shape[1]),
    ),
    Misconception(
        "sorted_by_number",
        "This takes each text's pages in the order of their numbers. Their order in the table is "
        "the order of the text.",
        answer(find=by_number),
    ),
    Misconception(
        "from_the_back",
        "This goes through the table from its end. Its first page holds the first tokens.",
        answer(find=from_the_back),
    ),
)
