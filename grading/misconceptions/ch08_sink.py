"""Named mistakes in exercise 08.4: a softmax with a sink."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def with_sink(score, sink):
    sink = sink[:, None].expand(*score.shape[:-1], 1)
    return torch.cat([score, sink], -1).softmax(-1)[..., :-1]


def answer(
    weigh: Callable = with_sink,
    scale: Callable = lambda D: D**-0.5,
    hide: Callable = lambda score, visible: score.masked_fill(~visible[:, None], -torch.inf),
    late: Callable = lambda weight, visible: weight,
) -> Callable:
    """Attention with every choice open; the defaults make it right."""

    def attend_with_sink(query_BTHD, row_BSD, visible_TS, sink_H):
        score = torch.einsum("bthd,bsd->bths", query_BTHD, row_BSD) * scale(query_BTHD.shape[-1])
        weight = late(weigh(hide(score, visible_TS), sink_H), visible_TS)
        return torch.einsum("bths,bsd->bthd", weight, row_BSD)

    return attend_with_sink


def no_nan(weight):
    return weight.nan_to_num(0.0)


def sink_as_number(score, sink):
    """exp(score) over sink + the sum, the sink not exponentiated."""
    top = score.amax(-1, keepdim=True).nan_to_num(0.0, neginf=0.0)
    weight = (score - top).exp()
    return weight / (weight.sum(-1, keepdim=True) + sink[:, None] * (-top).exp())


def bare_exponentials(score, sink):
    weight = score.exp()
    return weight / (weight.sum(-1, keepdim=True) + sink[:, None].exp())


def first_row(score, sink):
    sink = sink[:, None].expand(*score.shape[:-1], 1)
    return torch.cat([sink, score], -1).softmax(-1)[..., :-1]


def sink_scaled(query_BTHD, row_BSD, visible_TS, sink_H):
    return answer()(query_BTHD, row_BSD, visible_TS, sink_H * query_BTHD.shape[-1] ** -0.5)


def for_each_row(score, sink):
    """A sink beside every row."""
    sink = sink[:, None].expand(*score.shape[:-1], score.shape[-1])
    return torch.cat([score, sink], -1).softmax(-1)[..., : score.shape[-1]]


SINK = (
    Misconception(
        "no_sink",
        "The sink takes no part: the weights of the rows add up to 1, whatever they are worth. "
        "(They do so too if the sink is added to every score, or if its share is divided out "
        "again.)",
        answer(weigh=lambda score, sink: no_nan(score.softmax(-1))),
    ),
    Misconception(
        "zero_sink",
        "A score of 0 stands for the sink. Each head has a score of its own, `sink_H`.",
        answer(weigh=lambda score, sink: with_sink(score, torch.zeros_like(sink))),
    ),
    Misconception(
        "same_for_all_heads",
        "All heads have the first head's sink. Each has its own.",
        answer(weigh=lambda score, sink: with_sink(score, sink[:1].expand_as(sink))),
    ),
    Misconception(
        "sink_not_a_score",
        "The sink was added to the sum as it is. It is a score: exp(sink) is added.",
        answer(weigh=sink_as_number),
    ),
    Misconception(
        "bare_exponentials",
        "Right for small scores. exp of a score of 100 is more than a float32 holds, and infinity "
        "over infinity is NaN: take the largest away first, as torch.softmax does.",
        answer(weigh=bare_exponentials),
    ),
    Misconception(
        "sink_scaled",
        "The sink was divided by the root of D. Only query · row is.",
        sink_scaled,
    ),
    Misconception(
        "sink_beside_every_row",
        "The sink takes part once for every row. It is one more score for each head.",
        answer(weigh=for_each_row),
    ),
    Misconception(
        "wrong_one_dropped",
        "The sink stands in front, and the last weight was taken away instead of it.",
        answer(weigh=first_row),
    ),
    Misconception(
        "no_mask",
        "Rows that are not visible take part.",
        answer(hide=lambda score, visible: score),
    ),
    Misconception(
        "masked_late",
        "The mask comes after the softmax: hidden rows have taken their weight away. Set their "
        "scores to -inf before it.",
        answer(
            hide=lambda score, visible: score,
            late=lambda weight, visible: weight * visible[:, None],
        ),
    ),
    Misconception(
        "mask_upside_down",
        "The mask is upside down: True is what a query sees.",
        answer(hide=lambda score, visible: score.masked_fill(visible[:, None], -torch.inf)),
    ),
    Misconception(
        "not_scaled",
        "The scores are not divided by the root of D.",
        answer(scale=lambda D: 1.0),
    ),
    Misconception(
        "nan_where_nothing",
        "A query that sees no row gives NaN. With the sink among the scores there is always one "
        "that is finite.",
        answer(
            weigh=lambda score, sink: (
                score.softmax(-1)
                * (1 - with_sink(score, sink).sum(-1, keepdim=True)).mul(-1).add(1)
            )
        ),
    ),
)
