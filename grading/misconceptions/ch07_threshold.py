"""Named mistakes in exercise 07.4: the k-th largest key, bit by bit."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def reached(key, candidate):
    return int((key >= candidate).sum())


def answer(
    bits: Callable = lambda bits: range(bits - 1, -1, -1),
    keep: Callable = lambda count, k: count >= k,
    count: Callable = reached,
    says: Callable = lambda threshold: threshold,
    grow: Callable = lambda threshold, bit: threshold | 1 << bit,
) -> Callable:
    """The guessing game with every choice open; the defaults make it right."""

    def threshold(key, k, bits_of):
        found = 0
        for bit in bits(bits_of):
            candidate = grow(found, bit)
            if keep(count(key, candidate), k):
                found = candidate
        return says(found)

    return threshold


THRESHOLD = (
    Misconception(
        "sorted",
        "The right number, but by sorting. Count, for each bit, how many keys reach a candidate.",
        lambda key, k, bits: int(key.sort(descending=True).values[k - 1]),
    ),
    Misconception(
        "lowest_bit_first",
        "The bits were settled from the lowest up. A high bit weighs more than all below it: begin "
        "with it.",
        answer(bits=range),
    ),
    Misconception(
        "highest_bit_missing",
        "The highest bit, bits - 1, was never tried.",
        answer(bits=lambda bits: range(bits - 2, -1, -1)),
    ),
    Misconception(
        "lowest_bit_missing",
        "The lowest bit, bit 0, was never tried.",
        answer(bits=lambda bits: range(bits - 1, 0, -1)),
    ),
    Misconception(
        "more_than_k",
        "A candidate was kept only if more than k keys reach it. Exactly k are enough.",
        answer(keep=lambda count, k: count > k),
    ),
    Misconception(
        "fewer_than_k",
        "A candidate was kept if fewer than k keys reach it; at least k must.",
        answer(keep=lambda count, k: count < k),
    ),
    Misconception(
        "above_not_reached",
        "Keys above the candidate were counted. One that equals it reaches it too.",
        answer(count=lambda key, candidate: int((key > candidate).sum())),
    ),
    Misconception(
        "one_less",
        "This is one below the threshold.",
        answer(says=lambda threshold: threshold - 1),
    ),
    Misconception(
        "one_more",
        "This is one above the threshold: fewer than k keys reach it.",
        answer(says=lambda threshold: threshold + 1),
    ),
    Misconception(
        "bits_do_not_add_up",
        "Each candidate was one bit alone. A candidate is what is settled, plus the next bit.",
        answer(grow=lambda threshold, bit: 1 << bit),
    ),
    Misconception(
        "kth_smallest",
        "This is the k-th key from below; the k-th largest was asked for.",
        lambda key, k, bits: sorted(key.tolist())[k - 1],
    ),
    Misconception(
        "largest",
        "This is the largest key; k was not asked.",
        lambda key, k, bits: int(key.max()),
    ),
    Misconception(
        "equals_counted_once",
        "Equal keys were counted as one. Each is a row of its own.",
        lambda key, k, bits: sorted(set(key.tolist()), reverse=True)[
            min(k, len(set(key.tolist()))) - 1
        ],
    ),
)
