"""Named mistakes in exercises 11.1 and 11.2: E2M1 codes, and two of them in a byte."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def answer(
    up: Callable = lambda at, middle, code: (at > middle) | ((at == middle) & (code % 2 == 1)),
    ready: Callable = lambda x: x.abs(),
    sign: Callable = lambda x, code: code + 8 * x.signbit(),
) -> Callable:
    """The rounding with every choice open. up(magnitude, middle, the code below): goes up."""

    def e2m1_codes(values):
        middle = torch.tensor([(a + b) / 2 for a, b in zip(VALUES, VALUES[1:])])
        code = up(ready(values).unsqueeze(-1), middle, torch.arange(7)).sum(-1)
        return sign(values, code).to(torch.uint8)

    return e2m1_codes


def values_back(values):
    code = answer()(values).long()
    return torch.tensor([*VALUES, *(-v for v in VALUES)])[code]


def even_steps(values):
    """As if the seven steps were equal."""
    code = (values.abs() * 7 / 6).round().clamp(max=7)
    return (code + 8 * values.signbit()).to(torch.uint8)


def halves(values):
    code = (values.abs() * 2).round().clamp(max=7)
    return (code + 8 * values.signbit()).to(torch.uint8)


def wraps(values):
    code = answer()(values)
    return torch.where(values.abs() > 6, (code & 8).to(torch.uint8), code)


ROUND = (
    Misconception(
        "ties_up",
        "In the middle of two values you always go up. The even code wins: 0.25 becomes 0.",
        answer(up=lambda at, middle, code: at >= middle),
    ),
    Misconception(
        "ties_down",
        "In the middle of two values you always go down. The even code wins: 0.75 becomes 1.",
        answer(up=lambda at, middle, code: at > middle),
    ),
    Misconception(
        "nearest_in_a_table",
        "Two things: in the middle of two values the first of the table won, and -0.0 lost its "
        "sign. The even code wins, and `x.signbit()` knows -0.0.",
        answer(
            up=lambda at, middle, code: at > middle,
            sign=lambda x, code: code + 8 * (x < 0),
        ),
    ),
    Misconception(
        "ties_to_odd",
        "In the middle of two values the odd code wins here; it is the even one.",
        answer(up=lambda at, middle, code: (at > middle) | ((at == middle) & (code % 2 == 0))),
    ),
    Misconception(
        "cut",
        "Numbers are cut down to the value below, not brought to the nearest one.",
        answer(up=lambda at, middle, code: at >= torch.tensor(VALUES[1:])),
    ),
    Misconception(
        "next_above",
        "Numbers go to the value above, not to the nearest one.",
        answer(up=lambda at, middle, code: at > torch.tensor(VALUES[:-1])),
    ),
    Misconception(
        "no_sign",
        "The sign is lost: bit 3 is set for negative numbers.",
        answer(sign=lambda x, code: code),
    ),
    Misconception(
        "zero_without_sign",
        "A small negative number lost its sign: -0.1 is code 8, and so is -0.0.",
        answer(sign=lambda x, code: code + 8 * ((x < 0) & (code > 0))),
    ),
    Misconception(
        "minus_zero",
        "-0.0 lost its sign. `x < 0` is False for it; `x.signbit()` is True.",
        answer(sign=lambda x, code: code + 8 * (x < 0)),
    ),
    Misconception(
        "sign_turned",
        "The sign is the wrong way round: bit 3 is set for *negative* numbers.",
        answer(sign=lambda x, code: code + 8 * ~x.signbit()),
    ),
    Misconception(
        "negative_is_zero",
        "All negative numbers became code 0. Round the magnitude, then set the sign.",
        answer(ready=lambda x: x, sign=lambda x, code: code),
    ),
    Misconception(
        "twos_complement",
        "Negative codes are written as 16 - code. E2M1 has a sign bit: 8 + code.",
        answer(sign=lambda x, code: torch.where(x.signbit(), (16 - code) % 16, code)),
    ),
    Misconception(
        "values_for_codes",
        "These are the values; their codes are asked for.",
        values_back,
    ),
    Misconception(
        "even_steps",
        "The values are not spaced evenly: they are 0, 0.5, 1, 1.5, 2, 3, 4, 6.",
        even_steps,
    ),
    Misconception(
        "halves",
        "This is a scale of halves, 0 to 3.5. Above 2 the steps of E2M1 grow: 2, 3, 4, 6.",
        halves,
    ),
    Misconception(
        "too_large_is_zero",
        "What is larger than 6 became zero; it becomes 6, code 7 (or 15).",
        wraps,
    ),
)  # fmt: skip


def pair(
    put: Callable = lambda even, odd: even | (odd << 4),
    take: Callable = lambda b: torch.stack((b & 15, b >> 4), -1).flatten(1),
    split: Callable = lambda codes: (codes[:, 0::2], codes[:, 1::2]),
) -> Callable:
    def nibbles(codes):
        byte = put(*split(codes))
        return byte, take(byte)

    return nibbles


def halves_of_row(codes):
    half = codes.shape[1] // 2
    return codes[:, :half], codes[:, half:]


NIBBLES = (
    Misconception(
        "high_first",
        "The halves are swapped: the even place belongs in the low four bits.",
        pair(put=lambda even, odd: (even << 4) | odd,
             take=lambda b: torch.stack((b >> 4, b & 15), -1).flatten(1)),
    ),
    Misconception(
        "high_first_when_packing",
        "The bytes have their halves swapped: the even place belongs in the low four bits. They "
        "are taken out the right way.",
        pair(put=lambda even, odd: (even << 4) | odd),
    ),
    Misconception(
        "high_first_when_read",
        "The bytes are right. Taking them apart, you put the high half first; it is the odd one.",
        pair(take=lambda b: torch.stack((b >> 4, b & 15), -1).flatten(1)),
    ),
    Misconception(
        "halves_of_the_row",
        "You pair the first half of the row with the second. Neighbours share a byte: 0 and 1, 2 "
        "and 3.",
        pair(split=halves_of_row, take=lambda b: torch.cat((b & 15, b >> 4), -1)),
    ),
    Misconception(
        "not_interleaved",
        "The bytes are right. Taken out, all even codes come first and then all odd ones; they "
        "take turns.",
        pair(take=lambda b: torch.cat((b & 15, b >> 4), -1)),
    ),
    Misconception(
        "shifted_by_three",
        "The high code is shifted by three bits, into the sign of the low one. A nibble has four.",
        pair(put=lambda even, odd: even | (odd << 3)),
    ),
    Misconception(
        "added",
        "The two codes were put on top of each other: shift the odd one by four bits.",
        pair(put=lambda even, odd: even | odd),
    ),
    Misconception(
        "low_only",
        "The high half was not masked off: `b & 15` is the low code alone.",
        pair(take=lambda b: torch.stack((b, b >> 4), -1).flatten(1)),
    ),
    Misconception(
        "sign_lost",
        "Three bits were taken out of each half; the fourth is the sign.",
        pair(take=lambda b: torch.stack((b & 7, (b >> 4) & 7), -1).flatten(1)),
    ),
    Misconception(
        "unpacked",
        "One code a byte is no packing: two of them share one.",
        lambda codes: (codes.clone(), codes.clone()),
    ),
    Misconception(
        "input_again",
        "The bytes are right, and the second tensor is your input. It is to be taken out of the "
        "bytes: nothing else is there when a cache is read.",
        lambda codes: (pair()(codes)[0], codes),
    ),
    Misconception(
        "bytes_alone",
        "Two tensors are asked for: the bytes, and the codes taken out of them.",
        lambda codes: pair()(codes)[0],
    ),
)  # fmt: skip
