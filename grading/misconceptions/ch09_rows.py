"""Named mistakes in exercise 09.1: the decoder's far memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def turn(x_BTD: torch.Tensor, rope: int, start: int, part: str = "tail", way: int = 1):
    from tinymodels.attention.rope import rotate
    from tinymodels.config import Rope

    at = way * torch.arange(start, start + x_BTD.shape[1])
    if part == "all":
        even = x_BTD.shape[-1] // 2 * 2
        return torch.cat([rotate(x_BTD[..., :even], Rope(even), at), x_BTD[..., even:]], dim=-1)
    if part == "head":
        return torch.cat([rotate(x_BTD[..., :rope], Rope(rope), at), x_BTD[..., rope:]], dim=-1)
    return torch.cat([x_BTD[..., :-rope], rotate(x_BTD[..., -rope:], Rope(rope), at)], dim=-1)


def normed(x_BTD: torch.Tensor, weight_D: torch.Tensor, eps: float) -> torch.Tensor:
    return x_BTD / (x_BTD.square().mean(-1, keepdim=True) + eps).sqrt() * weight_D


def no_turn(x_BTD, rope, start):
    return x_BTD


def answer(
    takes: Callable = lambda encoder, e, L: encoder - 1,
    matrix: Callable = lambda e: e,
    norm: Callable = normed,
    rotated: Callable = turn,
    turned_first: bool = False,
) -> Callable:
    """Rows with every choice open; the defaults make them right."""

    def decoder_rows(stream_LBTX, encoder, kv_EDX, norm_ED, rope, start, eps):
        rows = []
        for e in range(len(kv_EDX)):
            x_BTX = stream_LBTX[takes(encoder, e, len(stream_LBTX))]
            row = x_BTX @ kv_EDX[matrix(e)].T
            if turned_first:
                rows.append(norm(rotated(row, rope, start), norm_ED[matrix(e)], eps))
            else:
                rows.append(rotated(norm(row, norm_ED[matrix(e)], eps), rope, start))
        return torch.stack(rows)

    return decoder_rows


ROWS = (
    Misconception(
        "own_stream",
        "Each decoder layer's rows are made of the stream that enters that layer. So it was before "
        "CED; here all are made of the one stream that leaves the encoder.",
        answer(takes=lambda encoder, e, L: encoder + e - 1),
    ),
    Misconception(
        "own_output",
        "Each decoder layer's rows are made of what leaves that layer. They are all made of what "
        "leaves the encoder, before the decoder has run at all.",
        answer(takes=lambda encoder, e, L: encoder + e),
    ),
    Misconception(
        "last_state",
        "The rows are made of what leaves the last layer of all. The decoder has not run yet when "
        "they are made: take what leaves the encoder.",
        answer(takes=lambda encoder, e, L: L - 1),
    ),
    Misconception(
        "one_late",
        "The rows are made of what leaves the first decoder layer. The encoder is layers 0 to "
        "encoder - 1; its last one is encoder - 1.",
        answer(takes=lambda encoder, e, L: encoder),
    ),
    Misconception(
        "one_early",
        "The rows are made of what leaves the last encoder layer but one.",
        answer(takes=lambda encoder, e, L: encoder - 2),
    ),
    Misconception(
        "first_state",
        "The rows are made of what leaves layer 0. The whole encoder comes first.",
        answer(takes=lambda encoder, e, L: 0),
    ),
    Misconception(
        "same_layer_below",
        "Decoder layer e reads what leaves encoder layer e. All of them read the encoder's last "
        "state.",
        answer(takes=lambda encoder, e, L: e),
    ),
    Misconception(
        "one_matrix",
        "All decoder layers use the first one's matrix and norm. In this exercise each has its "
        "own.",
        answer(matrix=lambda e: 0),
    ),
    Misconception(
        "no_norm",
        "The rows are not brought to one length: the RMS norm is missing.",
        answer(norm=lambda x, weight, eps: x),
    ),
    Misconception(
        "no_norm_weight",
        "The norm's weights are missing: multiply by norm_ED[e] after the division.",
        answer(norm=lambda x, weight, eps: normed(x, torch.ones_like(weight), eps)),
    ),
    Misconception(
        "no_eps",
        "eps is missing: it is added to the mean of the squares.",
        answer(norm=lambda x, weight, eps: normed(x, weight, 0.0)),
    ),
    Misconception(
        "eps_outside",
        "eps is added to the root. It is added to the mean of the squares, before the root.",
        answer(norm=lambda x, w, eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * w),
    ),
    Misconception(
        "sum_for_mean",
        "The norm divides by the root of the sum of the squares; it is the root of their mean.",
        answer(norm=lambda x, w, eps: x / (x.square().sum(-1, keepdim=True) + eps).sqrt() * w),
    ),
    Misconception(
        "norm_over_tokens",
        "The mean of the squares runs over the tokens. Each row is normed by itself, over its D "
        "numbers.",
        answer(norm=lambda x, w, eps: x / (x.square().mean(1, keepdim=True) + eps).sqrt() * w),
    ),
    Misconception(
        "not_turned",
        "No position: the last `rope` numbers of each row are turned by where its token stands.",
        answer(rotated=no_turn),
    ),
    Misconception(
        "from_zero",
        "The tokens are turned as if the first of them stood at position 0. It stands at `start`.",
        answer(rotated=lambda x, rope, start: turn(x, rope, 0)),
    ),
    Misconception(
        "one_place_late",
        "Every token is turned as if it stood one position later.",
        answer(rotated=lambda x, rope, start: turn(x, rope, start + 1)),
    ),
    Misconception(
        "head_turned",
        "The first `rope` numbers of a row are turned. It is the last ones.",
        answer(rotated=lambda x, rope, start: turn(x, rope, start, "head")),
    ),
    Misconception(
        "all_turned",
        "All numbers of a row are turned; only the last `rope` are.",
        answer(rotated=lambda x, rope, start: turn(x, rope, start, "all")),
    ),
    Misconception(
        "turned_back",
        "The rows are turned the other way round.",
        answer(rotated=lambda x, rope, start: turn(x, rope, start, way=-1)),
    ),
    Misconception(
        "turned_before_norm",
        "The rows are turned before the norm; then the norm's weights fall on turned numbers. Norm "
        "first, turn last.",
        answer(turned_first=True),
    ),
)
