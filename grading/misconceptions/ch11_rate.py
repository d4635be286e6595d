"""Named mistakes in exercise 11.6: the bytes a token of packed rows and keys."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def reciprocal(ratio: int) -> float:
    return 1 / ratio


def answer(
    row: Callable = lambda dim: dim / 2 + -(-dim // 16),
    key: Callable = lambda dim: dim / 2 + -(-dim // 32),
    share: Callable = lambda ratios: sum(map(reciprocal, ratios)),
    says: Callable = lambda rows, keys: (rows, keys),
) -> Callable:
    def bytes_per_token(ratios, dim, index_dim):
        return says(share(ratios) * row(dim), share(ratios) * key(index_dim))

    return bytes_per_token


RATE = (
    Misconception(
        "no_scales",
        "The scales are missing. They lie in the cache as well and are counted.",
        answer(row=lambda d: d / 2, key=lambda d: d / 2),
    ),
    Misconception(
        "key_without_scales",
        "The keys are counted without their scales, one byte for every 32 numbers.",
        answer(key=lambda d: d / 2),
    ),
    Misconception(
        "one_block_size",
        "The keys have a scale for every 32 numbers, not for every 16.",
        answer(key=lambda d: d / 2 + -(-d // 16)),
    ),
    Misconception(
        "sixteen_and_dropped",
        "Two things about scales: the keys have one for every 32 numbers, not for every 16, and a "
        "short last block has one too.",
        answer(row=lambda d: d / 2 + d // 16, key=lambda d: d / 2 + d // 16),
    ),
    Misconception(
        "sixteen_and_fraction",
        "Two things about scales: the keys have one for every 32 numbers, not for every 16, and "
        "there are no fractions of a scale.",
        answer(row=lambda d: d / 2 + d / 16, key=lambda d: d / 2 + d / 16),
    ),
    Misconception(
        "row_blocks_of_32",
        "The rows have a scale for every 16 numbers, not for every 32.",
        answer(row=lambda d: d / 2 + -(-d // 32)),
    ),
    Misconception(
        "byte_a_number",
        "A number was counted as a byte; it has four bits.",
        answer(row=lambda d: d + -(-d // 16), key=lambda d: d + -(-d // 32)),
    ),
    Misconception(
        "short_block_dropped",
        "A short last block has a scale too: round the number of scales up.",
        answer(row=lambda d: d / 2 + d // 16, key=lambda d: d / 2 + d // 32),
    ),
    Misconception(
        "scales_as_fraction",
        "There are no fractions of a scale: round their number up.",
        answer(row=lambda d: d / 2 + d / 16, key=lambda d: d / 2 + d / 32),
    ),
    Misconception(
        "row_each_token",
        "Every owner was given a row for each token. With ratio m it makes one row for m tokens.",
        answer(share=len),
    ),
    Misconception(
        "ratios_added",
        "The ratios were added. A ratio of 2 is *half* a row a token: add 1 / ratio.",
        answer(share=sum),
    ),
    Misconception(
        "one_owner",
        "Only the first owner was counted.",
        answer(share=lambda ratios: 1 / ratios[0]),
    ),
    Misconception(
        "mean_ratio",
        "You divided by the mean ratio. Each owner has its own: add up 1 / ratio.",
        answer(share=lambda ratios: len(ratios) ** 2 / sum(ratios)),
    ),
    Misconception(
        "sum_alone",
        "A pair is asked for, rows and keys apart. This is their sum.",
        answer(says=lambda rows, keys: rows + keys),
    ),
    Misconception(
        "swapped",
        "The pair is the other way round: first the rows, then the keys.",
        answer(says=lambda rows, keys: (keys, rows)),
    ),
    Misconception(
        "keys_once",
        "The keys were counted for one layer with a key a token; every owner has its own, one for "
        "each row.",
        lambda ratios, d, i: (answer()(ratios, d, i)[0], i / 2 + -(-i // 32)),
    ),
    Misconception(
        "scale_of_four_bytes",
        "A scale was counted as four bytes; it has one.",
        answer(row=lambda d: d / 2 + 4 * -(-d // 16), key=lambda d: d / 2 + 4 * -(-d // 32)),
    ),
)
