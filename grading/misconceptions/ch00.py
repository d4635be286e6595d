"""Named mistakes in exercise 00.1: logits to probabilities to the likeliest token."""

from __future__ import annotations

import torch

from grading.exercise import Misconception


def answer(probabilities, token=lambda probabilities_BV: probabilities_BV.argmax(-1)):
    def next_token(logits_BV, temperature):
        probabilities_BV = probabilities(logits_BV, temperature)
        return probabilities_BV, token(probabilities_BV)

    return next_token


def right(logits_BV: torch.Tensor, temperature: float) -> torch.Tensor:
    return (logits_BV / temperature).softmax(-1)


NEXT_TOKEN = (
    Misconception(
        "temperature_forgotten",
        "This is the answer at temperature 1: the logits are not divided by the temperature.",
        answer(lambda logits, temperature: logits.softmax(-1)),
    ),
    Misconception(
        "temperature_multiplied",
        "This is the answer with the logits multiplied by the temperature. Divide: a high "
        "temperature makes the choice more even.",
        answer(lambda logits, temperature: (logits * temperature).softmax(-1)),
    ),
    Misconception(
        "temperature_after",
        "This is the answer with the probabilities divided by the temperature, after the "
        "softmax: they no longer sum to 1. Divide the logits.",
        answer(lambda logits, temperature: logits.softmax(-1) / temperature),
    ),
    Misconception(
        "softmax_over_batch",
        "This is the answer with the softmax over the batch. Each row is a prompt of its own; "
        "the probabilities over the vocabulary, the last axis, sum to 1.",
        answer(lambda logits, temperature: (logits / temperature).softmax(0)),
    ),
    Misconception(
        "log_probabilities",
        "These are logarithms of the probabilities (log_softmax); softmax gives the "
        "probabilities themselves.",
        answer(lambda logits, temperature: (logits / temperature).log_softmax(-1)),
    ),
    Misconception(
        "no_exponential",
        "This is the answer with the logits divided by their sum. Logits may be negative: "
        "softmax takes exp() of each first.",
        answer(lambda logits, temperature: logits / logits.sum(-1, keepdim=True)),
    ),
    Misconception(
        "argmin",
        "The probabilities are right; the token is the least likely one. argmax, not argmin.",
        answer(right, lambda probabilities_BV: probabilities_BV.argmin(-1)),
    ),
    Misconception(
        "argmax_over_batch",
        "The probabilities are right; the largest was sought over the batch. One token for each "
        "prompt: search along the vocabulary, the last axis.",
        answer(right, lambda probabilities_BV: probabilities_BV.argmax(0)),
    ),
    Misconception(
        "probability_not_token",
        "The probabilities are right; in place of the token came its probability. argmax says "
        "where the largest stands, max how large it is.",
        answer(right, lambda probabilities_BV: probabilities_BV.amax(-1)),
    ),
)
