"""Named mistakes in exercise 07.1: the lightning indexer's scores."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def matches(query, key):
    return torch.einsum("btid,bsd->btis", query, key)


def added(match, weight):
    return torch.einsum("btis,bti->bts", match, weight)


def answer(
    match: Callable = matches, cut: Callable = torch.relu, add: Callable = added
) -> Callable:
    """Scores with every choice open; the defaults make them right."""

    def index_scores(query, weight, key):
        return add(cut(match(query, key)), weight)

    return index_scores


def masked(query, weight, key):
    score = answer()(query, weight, key)
    seen = torch.ones(score.shape[1:], dtype=torch.bool).tril(key.shape[1] - query.shape[1])
    return score.masked_fill(~seen, -float("inf"))


SCORES = (
    Misconception(
        "no_relu",
        "The ReLU is missing: a head whose product is negative should say nothing.",
        answer(cut=lambda x: x),
    ),
    Misconception(
        "relu_of_the_sum",
        "The ReLU comes after the sum over heads. It cuts each head's product, before the weight.",
        lambda query, weight, key: added(matches(query, key), weight).relu(),
    ),
    Misconception(
        "relu_after_weight",
        "The ReLU comes after the weight, so heads with a negative weight are cut as well, and "
        "wrongly. Cut the product first, then multiply.",
        lambda query, weight, key: (matches(query, key) * weight[..., None]).relu().sum(2),
    ),
    Misconception(
        "not_weighted",
        "The heads are added up without their weights.",
        answer(add=lambda match, weight: match.sum(2)),
    ),
    Misconception(
        "mean_of_heads",
        "This is the mean over heads; the score is their sum.",
        answer(add=lambda match, weight: added(match, weight) / weight.shape[-1]),
    ),
    Misconception(
        "softmax",
        "The scores went through a softmax. They are only compared; none is needed.",
        answer(add=lambda match, weight: added(match, weight).softmax(-1)),
    ),
    Misconception(
        "scaled",
        "The products are divided by the square root of their length. Any scale is in the weights "
        "already.",
        answer(match=lambda query, key: matches(query, key) * query.shape[-1] ** -0.5),
    ),
    Misconception(
        "absolute",
        "Negative products count as positive ones; the ReLU sets them to 0.",
        answer(cut=torch.abs),
    ),
    Misconception(
        "squared",
        "The products are squared behind the ReLU.",
        answer(cut=lambda x: x.relu() ** 2),
    ),
    Misconception(
        "best_head",
        "This is the strongest head alone; the score is the sum over all heads.",
        answer(add=lambda match, weight: (match * weight[..., None]).amax(2)),
    ),
    Misconception(
        "first_head",
        "Only the first head is asked.",
        answer(add=lambda match, weight: match[:, :, 0] * weight[:, :, :1]),
    ),
    Misconception(
        "masked",
        "Rows after the query were masked. Here every row gets its score; hiding comes with "
        "the choice (07.2).",
        masked,
    ),
    Misconception(
        "axes",
        "The axes are another order: queries come before rows, [B, T, S].",
        answer(add=lambda match, weight: added(match, weight).transpose(1, 2)),
    ),
)
