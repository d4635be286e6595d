"""Named mistakes in exercise 05.1: grouped heads without copying."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def side_by_side(x_BTHD: torch.Tensor, K: int) -> torch.Tensor:
    return x_BTHD.unflatten(2, (K, -1))


def taking_turns(x_BTHD: torch.Tensor, K: int) -> torch.Tensor:
    return x_BTHD.unflatten(2, (-1, K)).transpose(2, 3)


def newest(T: int, S: int) -> torch.Tensor:
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def masked_softmax(score: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return score.masked_fill(~seen, -torch.inf).softmax(-1)


def answer(
    split: Callable = side_by_side,
    see: Callable = newest,
    divide: Callable = lambda D, H: D**0.5,
    weigh: Callable = masked_softmax,
    key: Callable = lambda x: x,
    value: Callable = lambda x: x,
    join: Callable = lambda x: x.flatten(2, 3),
) -> Callable:
    """Grouped attention with every choice open; the defaults make it right."""

    def grouped_attention(query_BTHD, key_BSKD, value_BSKD):
        T, H, D = query_BTHD.shape[1:]
        S, K = key_BSKD.shape[1:3]
        query = split(query_BTHD, K)
        score = torch.einsum("btkgd,bskd->bkgts", query, key(key_BSKD)) / divide(D, H)
        weight = weigh(score, see(T, S))
        return join(torch.einsum("bkgts,bskd->btkgd", weight, value(value_BSKD)))

    return grouped_attention


def repeats(query_BTHD, key_BSKD, value_BSKD):
    group = query_BTHD.shape[2] // key_BSKD.shape[2]
    key, value = (x.repeat_interleave(group, dim=2) for x in (key_BSKD, value_BSKD))
    return answer()(query_BTHD, key, value)


def one_group(query_BTHD, key_BSKD, value_BSKD):
    first = answer()(query_BTHD, key_BSKD[:, :, :1], value_BSKD[:, :, :1])
    return first


def mask_afterwards(score: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return score.softmax(-1) * seen


def over_queries(score: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return score.masked_fill(~seen, -1e9).softmax(-2)


def over_group(score: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return score.masked_fill(~seen, -1e9).softmax(2) * seen


def heads_reversed(x: torch.Tensor) -> torch.Tensor:
    return x.flip(2)


def by_group_first(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(2, 3).flatten(2, 3)


def group_mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean(3, keepdim=True).expand_as(x).flatten(2, 3)


GROUPED = (
    Misconception(
        "repeats",
        "The values are right, but keys or values were made anew for every query head: by "
        "repeat_interleave, or by `@` between shapes that do not match, where torch stretches an "
        "axis and copies. Keep K and G as two axes and let torch.einsum do it.",
        repeats,
    ),
    Misconception(
        "taking_turns",
        "This is the answer if query head h reads kv head h % K, the heads taking turns. Heads "
        "that share stand side by side: h // G.",
        answer(split=taking_turns, join=by_group_first),
    ),
    Misconception(
        "split_g_first",
        "The query heads are split into [G, K]. The first G heads belong together, so it is [K, "
        "G].",
        answer(split=taking_turns),
    ),
    Misconception(
        "joined_g_first",
        "The attention is right, but the heads come out in another order: put K before G when you "
        "join them.",
        answer(join=by_group_first),
    ),
    Misconception(
        "one_group",
        "Every query head reads kv head 0, as in MQA. Each group has a kv head of its own.",
        one_group,
    ),
    Misconception(
        "group_mean",
        "The heads of a group all give their mean. They share keys and values, not questions: each "
        "keeps its own answer.",
        answer(join=group_mean),
    ),
    Misconception(
        "values_of_another_group",
        "The keys are right, and the values come from another kv head. A key and its value have "
        "the same place.",
        answer(value=heads_reversed),
    ),
    Misconception(
        "keys_of_another_group",
        "The values are right, and the keys come from another kv head. A key and its value have "
        "the same place.",
        answer(key=heads_reversed),
    ),
    Misconception(
        "no_mask",
        "This is the answer without a mask: with several new tokens, the earlier ones see the "
        "later ones.",
        answer(weigh=lambda score, seen: score.softmax(-1)),
    ),
    Misconception(
        "mask_at_the_start",
        "The mask begins at position 0. The T queries are the newest of S: query t stands at S - "
        "T + t, which .tril(S - T) says.",
        answer(see=lambda T, S: torch.ones(T, S, dtype=torch.bool).tril()),
    ),
    Misconception(
        "mask_afterwards",
        "The mask comes after the softmax, so the weights no longer sum to 1. Fill the scores "
        "with -inf before it.",
        answer(weigh=mask_afterwards),
    ),
    Misconception(
        "no_scale",
        "This is the answer without the division by the root of D.",
        answer(divide=lambda D, H: 1.0),
    ),
    Misconception(
        "scaled_by_d",
        "This is the answer with scores divided by D; it is the root of D.",
        answer(divide=lambda D, H: float(D)),
    ),
    Misconception(
        "scaled_by_width",
        "This is the answer with scores divided by the root of H x D, the width of all heads. Each "
        "head is scaled by its own D.",
        answer(divide=lambda D, H: (H * D) ** 0.5),
    ),
    Misconception(
        "softmax_over_queries",
        "The softmax runs over the queries. For each query the weights of the positions sum to 1: "
        "the last axis.",
        answer(weigh=over_queries),
    ),
    Misconception(
        "softmax_over_group",
        "The softmax runs over the heads of the group. For each query the weights of the positions "
        "sum to 1: the last axis.",
        answer(weigh=over_group),
    ),
)
