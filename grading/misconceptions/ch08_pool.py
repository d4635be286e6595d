"""Named mistakes in exercise 08.2: plain pooling."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def answer(
    weigh: Callable = lambda gate: gate.softmax(2),
    biased: Callable = lambda gate, bias: gate + bias,
    pool: Callable = lambda weight, value: (weight * value).sum(2),
    whole: Callable = lambda S, m: S // m,
) -> Callable:
    """Pooling with every choice open; the defaults make it right."""

    def pool_groups(value_BSD, gate_BSD, bias_MD):
        m = bias_MD.shape[0]
        G = whole(value_BSD.shape[1], m)
        value = value_BSD[:, : G * m].unflatten(1, (G, m))
        gate = biased(gate_BSD[:, : G * m].unflatten(1, (G, m)), bias_MD)
        return pool(weigh(gate), value)

    return pool_groups


def half_built(value_BSD, gate_BSD, bias_MD):
    m, entries = bias_MD.shape[0], []
    for value, gate in zip(value_BSD.split(m, 1), gate_BSD.split(m, 1)):
        entries.append(((gate + bias_MD[: gate.shape[1]]).softmax(1) * value).sum(1))
    return torch.stack(entries, 1)


def from_the_end(value_BSD, gate_BSD, bias_MD):
    skipped = value_BSD.shape[1] % bias_MD.shape[0]
    return answer()(value_BSD[:, skipped:], gate_BSD[:, skipped:], bias_MD)


def strided(value_BSD, gate_BSD, bias_MD):
    m = bias_MD.shape[0]
    G = value_BSD.shape[1] // m
    value, gate = (
        x[:, : G * m].unflatten(1, (m, G)).transpose(1, 2) for x in (value_BSD, gate_BSD)
    )
    return ((gate + bias_MD).softmax(2) * value).sum(2)


POOL = (
    Misconception(
        "half_built",
        "There is an entry for a group that is not complete. Its tokens have to wait.",
        half_built,
    ),
    Misconception(
        "from_the_end",
        "Groups are counted from the end. The first group begins at position 0; what is left "
        "over at the end waits.",
        from_the_end,
    ),
    Misconception(
        "strided",
        "A group is m tokens next to each other; these lie far apart (unflatten the tokens to "
        "(G, m), not to (m, G)).",
        strided,
    ),
    Misconception(
        "no_bias",
        "The gates' bias is missing, or it is the same for all tokens of a group: then the "
        "softmax drops it.",
        answer(biased=lambda gate, bias: gate),
    ),
    Misconception(
        "bias_reversed",
        "The bias is turned round: the first row belongs to the first token of a group.",
        answer(biased=lambda gate, bias: gate + bias.flip(0)),
    ),
    Misconception(
        "bias_on_weights",
        "The bias is added to the weights, after the softmax. It belongs to the gates.",
        answer(
            weigh=lambda pair: pair[0].softmax(2) + pair[1], biased=lambda gate, bias: (gate, bias)
        ),
    ),
    Misconception(
        "over_channels",
        "The softmax runs over the channels. It runs over the tokens of a group.",
        answer(weigh=lambda gate: gate.softmax(-1)),
    ),
    Misconception(
        "over_groups",
        "The softmax runs over the groups. It runs over the tokens within each of them.",
        answer(weigh=lambda gate: gate.softmax(1)),
    ),
    Misconception(
        "one_weight_a_token",
        "Each token has one weight for all of its channels. Every channel has its own.",
        answer(weigh=lambda gate: gate.mean(-1, keepdim=True).softmax(2)),
    ),
    Misconception(
        "sigmoid",
        "The gates went through a sigmoid. It is a softmax: the weights of a group add up to 1.",
        answer(weigh=lambda gate: gate.sigmoid()),
    ),
    Misconception(
        "mean_of_values",
        "This is the mean of the values; the gates weigh them.",
        answer(pool=lambda weight, value: value.mean(2)),
    ),
    Misconception(
        "mean_of_weighed",
        "The weighed values are averaged. Their weights add up to 1 already: sum them.",
        answer(pool=lambda weight, value: (weight * value).mean(2)),
    ),
    Misconception(
        "no_softmax",
        "The gates themselves are the weights here; they go through a softmax first.",
        answer(weigh=lambda gate: gate),
    ),
)
