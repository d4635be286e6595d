"""Named mistakes in exercise 08.3: the overlapping compressor."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception
from grading.misconceptions.ch08_pool import POOL


def answer(
    halves: Callable = lambda early, own, D: (early[..., :D], own[..., D:]),
    missing: Callable = lambda gate: torch.full_like(gate, -torch.inf),
    weigh: Callable = lambda gate: gate.softmax(2),
    biased: Callable = lambda gate, bias: gate + bias,
    before: Callable = lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1),
) -> Callable:
    """Overlapping pooling with every choice open; the defaults make it right."""

    def pool_overlapping(value_BSC, gate_BSC, bias_MC):
        m, C = bias_MC.shape
        G = value_BSC.shape[1] // m
        value, gate = (x[:, : G * m].unflatten(1, (G, m)) for x in (value_BSC, gate_BSC))
        gate = biased(gate, bias_MC)
        early = before(gate)
        if missing is not None:
            early = torch.cat([missing(early[:, :1]), early[:, 1:]], 1)
        value = torch.cat(halves(before(value), value, C // 2), 2)
        gate = torch.cat(halves(early, gate, C // 2), 2)
        return (weigh(gate) * value).sum(2)

    return pool_overlapping


def rolled(x):
    return x.roll(1, 1)


def after(x):
    return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)


def next_group(value_BSC, gate_BSC, bias_MC):
    m, C = bias_MC.shape
    G = value_BSC.shape[1] // m
    value, gate = (x[:, : G * m].unflatten(1, (G, m)) for x in (value_BSC, gate_BSC))
    gate, D = gate + bias_MC, C // 2
    late = torch.cat([gate[:, 1:], torch.full_like(gate[:, :1], -torch.inf)], 1)
    values = torch.cat([after(value)[..., :D], value[..., D:]], 2)
    return (torch.cat([late[..., :D], gate[..., D:]], 2).softmax(2) * values).sum(2)


def two_softmaxes(gate):
    m = gate.shape[2] // 2
    return torch.cat([gate[:, :, :m].softmax(2).nan_to_num(0.0), gate[:, :, m:].softmax(2)], 2)


def first_left_out(value_BSC, gate_BSC, bias_MC):
    return answer()(value_BSC, gate_BSC, bias_MC)[:, 1:]


def no_overlap(value_BSC, gate_BSC, bias_MC):
    D = bias_MC.shape[1] // 2
    plain = next(m.answer for m in POOL if m.name == "half_built")
    whole = value_BSC.shape[1] // bias_MC.shape[0] * bias_MC.shape[0]
    return plain(value_BSC[:, :whole, D:], gate_BSC[:, :whole, D:], bias_MC[:, D:])


def open_group(value_BSC, gate_BSC, bias_MC):
    """The last, half-built group as well."""
    m = bias_MC.shape[0]
    extra = -value_BSC.shape[1] % m
    empty = value_BSC.new_zeros(value_BSC.shape[0], extra, value_BSC.shape[2])
    value = torch.cat([value_BSC, empty], 1)
    gate = torch.cat([gate_BSC, torch.full_like(empty, -torch.inf)], 1)
    return answer()(value, gate, bias_MC)


OVERLAP = (
    Misconception(
        "first_weighs_nothing_real",
        "The rows before group 0 take part with a gate of 0: they weigh something, of nothing. "
        "Their gate is -inf, or they are left out.",
        answer(missing=lambda gate: torch.zeros_like(gate)),
    ),
    Misconception(
        "around_the_corner",
        "Group 0 takes rows of the last group, as `roll` brings them. It has no group before it.",
        answer(before=rolled, missing=None),
    ),
    Misconception(
        "halves_swapped",
        "The halves are swapped: the group before gives its first D numbers, the own group its "
        "last D.",
        answer(halves=lambda early, own, D: (early[..., D:], own[..., :D])),
    ),
    Misconception(
        "first_half_of_both",
        "Both groups give their first D numbers; the own group gives its last D.",
        answer(halves=lambda early, own, D: (early[..., :D], own[..., :D])),
    ),
    Misconception(
        "last_half_of_both",
        "Both groups give their last D numbers; the group before gives its first D.",
        answer(halves=lambda early, own, D: (early[..., D:], own[..., D:])),
    ),
    Misconception(
        "next_group",
        "An entry pools its own group and the *next*, which is not there yet. It is the group "
        "before.",
        next_group,
    ),
    Misconception(
        "no_overlap",
        "Only the m tokens of the own group are pooled; the m before them take part too.",
        no_overlap,
    ),
    Misconception(
        "two_softmaxes",
        "Each half has a softmax of its own, so the weights add up to 2. One softmax runs over "
        "all 2 m rows.",
        answer(weigh=two_softmaxes),
    ),
    Misconception(
        "first_left_out",
        "The first group has no entry. It has one, of its own m tokens.",
        first_left_out,
    ),
    Misconception(
        "open_group",
        "There is an entry for a group that is not complete.",
        open_group,
    ),
    Misconception(
        "no_bias",
        "The gates' bias is missing.",
        answer(biased=lambda gate, bias: gate),
    ),
    Misconception(
        "bias_halves_swapped",
        "The halves of the bias are swapped: each number of a token gets the bias of its own "
        "column.",
        answer(biased=lambda gate, bias: gate + bias.roll(bias.shape[1] // 2, 1)),
    ),
    Misconception(
        "over_channels",
        "The softmax runs over the channels. It runs over the 2 m rows.",
        answer(weigh=lambda gate: gate.softmax(-1).nan_to_num(0.0)),
    ),
)
