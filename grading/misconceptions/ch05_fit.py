"""Named mistakes in exercise 05.3: how many requests fit."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def rounded_up(context: int, page: int) -> int:
    return -(-context // page) * page


def set_aside(memory: int, percent: int, weights: int) -> int:
    return memory * percent // 100


def whole(free: int, one: int) -> int:
    return max(0, free // one)


def answer(
    memory: Callable = lambda cards, card: cards * card,
    reserve: Callable = set_aside,
    weigh: Callable = lambda weights, cards: weights,
    rows: Callable = rounded_up,
    count: Callable = whole,
) -> Callable:
    """The count with every choice open; the defaults make it right."""

    def requests_that_fit(cards, card, percent, weights, rate, context, page):
        there = memory(cards, card)
        free = there - reserve(there, percent, weights) - weigh(weights, cards)
        return count(free, rows(context, page) * rate)

    return requests_that_fit


def card_by_card(cards, card, percent, weights, rate, context, page):
    each = card - card * percent // 100 - -(-weights // cards)
    return cards * whole(each, rounded_up(context, page) * rate)


FIT = (
    Misconception(
        "forgets_weights",
        "This is the answer without the weights. They lie in the same memory, before any cache.",
        answer(weigh=lambda weights, cards: 0),
    ),
    Misconception(
        "weights_on_each_card",
        "This puts all the weights on every card. They lie there once, spread over the cards.",
        answer(weigh=lambda weights, cards: weights * cards),
    ),
    Misconception(
        "forgets_reserve",
        "This is the answer without the reserve.",
        answer(reserve=lambda memory, percent, weights: 0),
    ),
    Misconception(
        "only_the_reserve",
        "This fills the reserve and leaves the rest empty. reserve_percent is what is set aside.",
        answer(reserve=lambda memory, percent, weights: memory * (100 - percent) // 100),
    ),
    Misconception(
        "reserve_of_the_rest",
        "This sets aside a share of what the weights leave. It is a share of all memory.",
        answer(reserve=lambda memory, percent, weights: (memory - weights) * percent // 100),
    ),
    Misconception(
        "one_card",
        "This is the answer for the memory of one card.",
        answer(memory=lambda cards, card: card),
    ),
    Misconception(
        "card_by_card",
        "This counts whole requests on each card by itself. The memory counts as one, and a "
        "request may lie on several cards.",
        card_by_card,
    ),
    Misconception(
        "no_pages",
        "This takes exactly the tokens of the context. A request gets whole pages, and its last "
        "one is seldom full.",
        answer(rows=lambda context, page: context),
    ),
    Misconception(
        "pages_rounded_down",
        "This rounds the pages down, and the last tokens of each request have no place. Round up: "
        "-(-context // page).",
        answer(rows=lambda context, page: context // page * page),
    ),
    Misconception(
        "always_one_page_more",
        "This takes one page more even where the context fills its pages exactly: context // page "
        "+ 1 is not the same as rounding up.",
        answer(rows=lambda context, page: (context // page + 1) * page),
    ),
    Misconception(
        "pages_as_tokens",
        "This multiplies the number of pages by the bytes of one token. A page has `page` tokens.",
        answer(rows=lambda context, page: -(-context // page)),
    ),
    Misconception(
        "one_token",
        "This counts how many tokens fit. A request has `context` of them.",
        answer(rows=lambda context, page: 1),
    ),
    Misconception(
        "rounded_up",
        "The result is rounded up: a part of a request is no request.",
        answer(count=lambda free, one: max(0, -(-free // one))),
    ),
    Misconception(
        "negative",
        "Where the weights do not fit, this gives a number below 0. Then no request fits: 0.",
        answer(count=lambda free, one: free // one),
    ),
    Misconception(
        "not_whole",
        "This is no whole number. Divide with // : a part of a request is no request.",
        answer(count=lambda free, one: max(0.0, free / one)),
    ),
)
