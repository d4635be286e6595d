"""Named mistakes in exercise 01.5: softmax over blocks, each seen once."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception

INFINITE = float("inf")


def _keep(total: torch.Tensor, rescale: torch.Tensor) -> torch.Tensor:
    return total


def _scale(total: torch.Tensor, rescale: torch.Tensor) -> torch.Tensor:
    return total * rescale


def answer(
    accumulator_step: Callable = _scale,
    denominator_step: Callable = _scale,
    start: float = -INFINITE,
    guarded: bool = True,
    upside_down: bool = False,
    largest: Callable = torch.maximum,
    divide: bool = True,
) -> Callable:
    """Online softmax with every choice open; the defaults make it right."""

    def online_softmax(blocks):
        maximum_N = None
        for score_NM, value_NMD in blocks:
            if maximum_N is None:
                rows = score_NM.shape[0]
                maximum_N, denominator_N = torch.full((rows,), start), torch.zeros(rows)
                accumulator_ND = torch.zeros(rows, value_NMD.shape[-1])
            new_N = largest(maximum_N, score_NM.amax(-1))
            base_N = torch.where(new_N == -INFINITE, 0.0, new_N) if guarded else new_N
            weight_NM = torch.exp(score_NM - base_N[:, None])
            rescale_N = torch.exp(maximum_N - base_N)
            if upside_down:
                rescale_N = torch.where(rescale_N > 0, 1 / rescale_N, 0.0)
            summed_ND = torch.einsum("nm,nmd->nd", weight_NM, value_NMD)
            accumulator_ND = accumulator_step(accumulator_ND, rescale_N[:, None]) + summed_ND
            denominator_N = denominator_step(denominator_N, rescale_N) + weight_NM.sum(-1)
            maximum_N = new_N
        if not divide:
            return accumulator_ND
        safe_N = torch.where(denominator_N == 0, 1.0, denominator_N) if guarded else denominator_N
        return accumulator_ND / safe_N[:, None]

    return online_softmax


def _per_block(score_NM: torch.Tensor, value_NMD: torch.Tensor) -> torch.Tensor:
    return torch.einsum("nm,nmd->nd", score_NM.softmax(-1), value_NMD)


def summed(blocks):
    return sum(_per_block(score, value) for score, value in blocks)


def averaged(blocks):
    outputs = [_per_block(score, value) for score, value in blocks]
    return sum(outputs) / len(outputs)


def collected(blocks):
    pairs = list(blocks)
    return _per_block(torch.cat([s for s, _ in pairs], 1), torch.cat([v for _, v in pairs], 1))


def _no_maximum(blocks):
    accumulator, denominator = 0.0, 0.0
    for score_NM, value_NMD in blocks:
        weight_NM = torch.exp(score_NM)
        accumulator = accumulator + torch.einsum("nm,nmd->nd", weight_NM, value_NMD)
        denominator = denominator + weight_NM.sum(-1)
    return accumulator / torch.where(denominator == 0, 1.0, denominator)[:, None]


ONLINE = (
    Misconception(
        "accumulator_not_rescaled",
        "This is the answer when the weighted sum is not rescaled. When the maximum grows, "
        "what was summed so far is too large by exp(old - new) as well.",
        answer(accumulator_step=_keep),
    ),
    Misconception(
        "denominator_not_rescaled",
        "This is the answer when the sum of the weights is not rescaled. It was made with the "
        "old maximum, like the weighted sum: both take the same factor.",
        answer(denominator_step=_keep),
    ),
    Misconception(
        "nothing_rescaled",
        "This is the answer when nothing is rescaled: blocks seen under different maxima are "
        "added as if they had the same.",
        answer(accumulator_step=_keep, denominator_step=_keep),
    ),
    Misconception(
        "rescale_upside_down",
        "This is the answer with the factor upside down: it is exp(old maximum - new "
        "maximum), at most 1.",
        answer(upside_down=True),
    ),
    Misconception(
        "infinity_minus_infinity",
        "Where a row has seen only masked scores, the maximum is still -inf, and -inf minus "
        "-inf is NaN. Subtract 0 there instead.",
        answer(guarded=False),
    ),
    Misconception(
        "starts_at_zero",
        "This is the answer when the running maximum starts at 0: if all the scores are far "
        "below, every exp() is 0. Start at -inf.",
        answer(start=0.0),
    ),
    Misconception(
        "no_maximum",
        "This is the answer without subtracting a maximum: right for small scores, but "
        "exp(89) no longer fits in float32.",
        _no_maximum,
    ),
    Misconception(
        "newest_maximum",
        "This is the answer with each block's own maximum in place of the largest so far. The "
        "running maximum never falls.",
        answer(largest=lambda running, block: block),
    ),
    Misconception(
        "not_divided",
        "This is the weighted sum before the division by the sum of the weights.",
        answer(divide=False),
    ),
    Misconception(
        "blocks_summed",
        "This is the sum of each block's own softmax: every block counts in full, whatever "
        "its scores are.",
        summed,
    ),
    Misconception(
        "blocks_averaged",
        "This is the mean of each block's own softmax: every block counts the same, whatever "
        "its scores are.",
        averaged,
    ),
    Misconception(
        "blocks_kept",
        "A block is overwritten when the next one comes, as in a chip's small memory; blocks "
        "that were put aside hold nothing any more. Use each one at once.",
        collected,
    ),
)
