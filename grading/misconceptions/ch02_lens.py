"""Named mistakes in exercise 02.1: the logit lens. Each takes one choice wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from grading.exercise import Misconception


def rms_norm(stream: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return stream / (stream.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def rank_of(logits: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    return (logits > own).sum(-1) + 1


def bits(logits: torch.Tensor) -> torch.Tensor:
    log = logits.log_softmax(-1)
    return -(log.exp() * log).sum(-1) / math.log(2)


def answer(
    norm: Callable = rms_norm,
    rank: Callable = rank_of,
    entropy: Callable = bits,
    give: Callable = lambda rank, entropy: (rank, entropy),
) -> Callable:
    """The logit lens with every choice open; the defaults make it right."""

    def logit_lens(stream_LBX, gain_X, head_VX, answer_B):
        logits = norm(stream_LBX, gain_X) @ head_VX.T
        own = logits[:, torch.arange(len(answer_B)), answer_B].unsqueeze(-1)
        return give(rank(logits, own), entropy(logits))

    return logit_lens


def _centred(stream, gain):
    away = stream - stream.mean(-1, keepdim=True)
    return rms_norm(away, gain)


def _argsort_once(stream_LBX, gain_X, head_VX, answer_B):
    logits = rms_norm(stream_LBX, gain_X) @ head_VX.T
    order = logits.argsort(-1, descending=True)
    return order[:, torch.arange(len(answer_B)), answer_B] + 1, bits(logits)


def _surprise(stream_LBX, gain_X, head_VX, answer_B):
    logits = rms_norm(stream_LBX, gain_X) @ head_VX.T
    place = torch.arange(len(answer_B))
    own = logits[:, place, answer_B].unsqueeze(-1)
    surprise = -logits.log_softmax(-1)[:, place, answer_B] / math.log(2)
    return rank_of(logits, own), surprise


def _zero_log_zero(logits):
    p = logits.softmax(-1)
    return -(p * p.log()).sum(-1) / math.log(2)


def _bits_along(axis: int) -> Callable:
    def entropy(logits):
        log = logits.log_softmax(axis)
        return -(log.exp() * log).sum(-1) / math.log(2)

    return entropy


LENS = (
    Misconception(
        "no_norm",
        "This is the lens without the norm: the head was trained on normed vectors, and the "
        "gain belongs to the norm.",
        answer(norm=lambda stream, gain: stream),
    ),
    Misconception(
        "gain_only",
        "This multiplies by the gain without dividing by the root of the mean square. The "
        "order of the words stays, but how sure the guess looks does not.",
        answer(norm=lambda stream, gain: stream * gain),
    ),
    Misconception(
        "no_gain",
        "This is the lens without the gain: after the division each number of the vector is "
        "multiplied by its own learned factor.",
        answer(norm=lambda stream, gain: rms_norm(stream, torch.ones_like(gain))),
    ),
    Misconception(
        "centred",
        "This takes the mean away first, as a layer norm does. This norm (RMS) only divides.",
        answer(norm=_centred),
    ),
    Misconception(
        "sum_of_squares",
        "This divides by the root of the sum of the squares; it is the root of their mean.",
        answer(
            norm=lambda stream, gain: (
                stream / (stream.square().sum(-1, keepdim=True) + 1e-6).sqrt() * gain
            )
        ),
    ),
    Misconception(
        "mean_square",
        "This divides by the mean of the squares, without the root.",
        answer(
            norm=lambda stream, gain: (
                stream / (stream.square().mean(-1, keepdim=True) + 1e-6) * gain
            )
        ),
    ),
    Misconception(
        "rank_from_zero",
        "These ranks begin at 0. The first place is rank 1: one more than the number of words "
        "with a higher logit.",
        answer(rank=lambda logits, own: rank_of(logits, own) - 1),
    ),
    Misconception(
        "counts_itself",
        "These ranks begin at 2: with >= the answer counts itself as a word that is better.",
        answer(rank=lambda logits, own: (logits >= own).sum(-1) + 1),
    ),
    Misconception(
        "rank_from_below",
        "These ranks count the words with a lower logit. Rank 1 is the likeliest word, not the "
        "least likely one.",
        answer(rank=lambda logits, own: (logits < own).sum(-1) + 1),
    ),
    Misconception(
        "argsort_once",
        "argsort gives, for each place, the word that stands there; this looks up a place by "
        "the number of a word. Count the words with a higher logit instead.",
        _argsort_once,
    ),
    Misconception(
        "nats",
        "This entropy is in nats, by the natural logarithm. In bits it is divided by log(2).",
        answer(entropy=lambda logits: bits(logits) * math.log(2)),
    ),
    Misconception(
        "sign",
        "This entropy is negative: log p is below 0, so the sum needs a minus sign.",
        answer(entropy=lambda logits: -bits(logits)),
    ),
    Misconception(
        "surprise",
        "This is -log2 of the answer's own probability, the surprise. Entropy is the mean of "
        "that over all words, and does not know the answer.",
        _surprise,
    ),
    Misconception(
        "entropy_of_layers",
        "The softmax runs over the layers. Probabilities add up to 1 over the words, the last "
        "axis.",
        answer(entropy=_bits_along(0)),
    ),
    Misconception(
        "entropy_of_texts",
        "The softmax runs over the texts. Probabilities add up to 1 over the words, the last axis.",
        answer(entropy=_bits_along(1)),
    ),
    Misconception(
        "zero_log_zero",
        "A very unlikely word has the probability 0, its logarithm is -inf, and 0 times that is "
        "not a number. log_softmax(-1) keeps the logarithm finite.",
        answer(entropy=_zero_log_zero),
    ),
    Misconception(
        "entropy_first",
        "Rank and entropy have changed places: return (rank, entropy).",
        answer(give=lambda rank, entropy: (entropy, rank)),
    ),
)
