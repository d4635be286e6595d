"""Named mistakes in exercise 01.1: attention of T new tokens over S cached ones.

All but a few differ from the right answer in one choice. So one function makes them, and
each mistake says which choice it takes: that is the mistake, readable at a glance.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception

INFINITE = float("inf")


def last_t_of_s(new: int, cached: int) -> torch.Tensor:
    """True where query row t may read column s: the new tokens are the last of all S."""
    row_T1 = torch.arange(new)[:, None] + (cached - new)
    return torch.arange(cached)[None, :] <= row_T1


def right_scale(score: torch.Tensor, dim: int) -> torch.Tensor:
    return score / dim**0.5


def answer(
    scale: Callable = right_scale,
    visible: Callable = last_t_of_s,
    softmax_axis: int = -1,
    blocked: float = -INFINITE,
    mask_after: bool = False,
    split: Callable = lambda x: x.transpose(1, 2),
    join: Callable = lambda x: x.transpose(1, 2),
    swap_kv: Callable = lambda key, value: (key, value),
) -> Callable:
    """Causal attention with every choice open; the defaults make it right."""

    def causal_attention(query_BTHD, key_BSHD, value_BSHD):
        key_BSHD, value_BSHD = swap_kv(key_BSHD, value_BSHD)
        query, key, value = split(query_BTHD), split(key_BSHD), split(value_BSHD)
        score = scale(query @ key.transpose(-2, -1), query_BTHD.shape[-1])
        may_see = visible(query_BTHD.shape[1], key_BSHD.shape[1])
        if not mask_after:
            score = score.masked_fill(~may_see, blocked)
        weight = score.softmax(softmax_axis)
        if mask_after:
            weight = weight * may_see
        return join(weight @ value)

    return causal_attention


def _reshaped(x_BTHD: torch.Tensor) -> torch.Tensor:
    batch, tokens, heads, dim = x_BTHD.shape
    return x_BTHD.reshape(batch, heads, tokens, dim)


def _joined_by_reshape(x_BHTD: torch.Tensor) -> torch.Tensor:
    batch, heads, tokens, dim = x_BHTD.shape
    return x_BHTD.reshape(batch, tokens, heads, dim)


def _mask(lower: Callable) -> Callable:
    return lambda new, cached: lower(torch.ones(new, cached, dtype=torch.bool))


ATTENTION = (
    Misconception(
        "no_scale",
        "This is the answer without the 1/sqrt(d): the scores are not divided by the square "
        "root of the head dim, so the softmax is too sharp.",
        answer(scale=lambda score, dim: score),
    ),
    Misconception(
        "scale_by_d",
        "This is the answer with the scores divided by the head dim d itself; it is the "
        "square root of d.",
        answer(scale=lambda score, dim: score / dim),
    ),
    Misconception(
        "scale_times_sqrt_d",
        "This is the answer with the scores multiplied by sqrt(d); they are divided by it.",
        answer(scale=lambda score, dim: score * dim**0.5),
    ),
    Misconception(
        "softmax_over_queries",
        "This is the answer with the softmax over the queries. For each query the weights "
        "over the keys must sum to 1: the last axis of the scores.",
        answer(softmax_axis=-2),
    ),
    Misconception(
        "softmax_over_heads",
        "This is the answer with the softmax over the heads. Each head decides for itself; "
        "its weights over the keys sum to 1.",
        answer(softmax_axis=1),
    ),
    Misconception(
        "no_mask",
        "This is the answer without the causal mask: tokens read from tokens that come later.",
        answer(visible=_mask(lambda ones: ones)),
    ),
    Misconception(
        "mask_top_left",
        "This is the answer with the mask aligned at the top left: right when T = S, but the "
        "first of T new tokens stands at position S - T, not at position 0.",
        answer(visible=_mask(torch.tril)),
    ),
    Misconception(
        "mask_sees_next",
        "This is the answer with the mask one too far to the right: each token also reads the "
        "token after it.",
        answer(visible=lambda new, cached: torch.ones(new, cached).tril(cached - new + 1) > 0),
    ),
    Misconception(
        "mask_hides_itself",
        "This is the answer with the mask one too far to the left: a token may read itself, "
        "not only those before it. (The very first token is left with nothing: NaN.)",
        answer(visible=lambda new, cached: torch.ones(new, cached).tril(cached - new - 1) > 0),
    ),
    Misconception(
        "mask_reversed",
        "This is the answer with the mask the wrong way round: each token reads what comes "
        "after it instead of what came before.",
        answer(visible=lambda new, cached: torch.ones(new, cached).triu(cached - new) > 0),
    ),
    Misconception(
        "masked_with_zero",
        "This is the answer with masked scores set to 0. A score of 0 still gets a weight, "
        "exp(0) = 1; only -inf gets none.",
        answer(blocked=0.0),
    ),
    Misconception(
        "mask_after_softmax",
        "This is the answer with the mask applied after the softmax: the weights that are "
        "left no longer sum to 1. Mask the scores, then take the softmax.",
        answer(mask_after=True),
    ),
    Misconception(
        "value_from_key",
        "This is the answer with the keys in place of the values: keys say where to look, "
        "values are what is read there.",
        answer(swap_kv=lambda key, value: (key, key)),
    ),
    Misconception(
        "key_and_value_swapped",
        "This is the answer with key and value exchanged: scores come from query and key, and "
        "the weights sum up the values.",
        answer(swap_kv=lambda key, value: (value, key)),
    ),
    Misconception(
        "heads_by_reshape",
        "This is the answer with heads split by reshape alone: that cuts the numbers at other "
        "places and mixes tokens with heads. Axes are moved with transpose(1, 2).",
        answer(split=_reshaped),
    ),
    Misconception(
        "joined_by_reshape",
        "This is the answer with the heads put back by reshape alone; undo the transpose "
        "with another transpose(1, 2).",
        answer(join=_joined_by_reshape),
    ),
    Misconception(
        "heads_left_first",
        "This is the right answer with its axes in the order batch, heads, tokens, dim; move "
        "the heads back behind the tokens.",
        answer(join=lambda x: x),
    ),
)
