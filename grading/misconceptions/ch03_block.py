"""Named mistakes in exercise 03.1: a pre-norm block."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def rms(x, weight, eps):
    return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def block(norm: Callable = rms, add: Callable | None = None) -> Callable:
    """A block with its norm, and with how one sublayer is read and added, left open.

    add(x, sublayer, normed) -> the stream after one sublayer; `normed` norms for it.
    """

    def usual(x, sublayer, normed):
        return x + sublayer(normed(x))

    step = add or usual

    def pre_norm_block(x_BTX, attention, ffn, attention_weight_X, ffn_weight_X, eps):
        x = step(x_BTX, attention, lambda y: norm(y, attention_weight_X, eps))
        return step(x, ffn, lambda y: norm(y, ffn_weight_X, eps))

    return pre_norm_block


def side_by_side(x, attention, ffn, attention_weight, ffn_weight, eps):
    found = attention(rms(x, attention_weight, eps))
    return x + found + ffn(rms(x, ffn_weight, eps))


def one_norm_for_both(x, attention, ffn, attention_weight, ffn_weight, eps):
    normed = rms(x, attention_weight, eps)
    x = x + attention(normed)
    return x + ffn(normed)


def one_weight(x, attention, ffn, attention_weight, ffn_weight, eps):
    return block()(x, attention, ffn, attention_weight, attention_weight, eps)


def weights_swapped(x, attention, ffn, attention_weight, ffn_weight, eps):
    return block()(x, attention, ffn, ffn_weight, attention_weight, eps)


def ffn_first(x, attention, ffn, attention_weight, ffn_weight, eps):
    return block()(x, ffn, attention, ffn_weight, attention_weight, eps)


def second_forgets_attention(x, attention, ffn, attention_weight, ffn_weight, eps):
    after = x + attention(rms(x, attention_weight, eps))
    return x + ffn(rms(after, ffn_weight, eps))


def in_place(x, attention, ffn, attention_weight, ffn_weight, eps):
    x += attention(rms(x, attention_weight, eps))
    x += ffn(rms(x, ffn_weight, eps))
    return x


def _layer_norm(x, weight, eps):
    centred = x - x.mean(-1, keepdim=True)
    return rms(centred, weight, eps)


def _over(*axes: int) -> Callable:
    return lambda x, weight, eps: weight * x / (x.square().mean(axes, keepdim=True) + eps).sqrt()


BLOCK = (
    Misconception(
        "post_norm",
        "This is the answer of a post-norm block: the norm is applied to the sum. In pre-norm "
        "only what the sublayer reads is normed, and the stream itself is not.",
        block(add=lambda x, sublayer, normed: normed(x + sublayer(x))),
    ),
    Misconception(
        "nothing_added",
        "This is the answer when a sublayer's output takes the place of the stream. It is "
        "added: x + sublayer(norm(x)).",
        block(add=lambda x, sublayer, normed: sublayer(normed(x))),
    ),
    Misconception(
        "no_norm",
        "This is the answer without any norm: the sublayers read the stream as it is.",
        block(norm=lambda x, weight, eps: x),
    ),
    Misconception(
        "added_to_the_normed",
        "This is the answer when a sublayer's output is added to the normed stream. It is "
        "added to the stream itself; the normed one is only for reading.",
        block(add=lambda x, sublayer, normed: normed(x) + sublayer(normed(x))),
    ),
    Misconception(
        "norm_of_the_output",
        "This is the answer with the norm on what the sublayer found, x + norm(sublayer(x)); "
        "it belongs on what the sublayer reads.",
        block(add=lambda x, sublayer, normed: x + normed(sublayer(x))),
    ),
    Misconception(
        "side_by_side",
        "This is the answer when both sublayers read the stream that came in. The FFN reads "
        "the stream to which attention has already added.",
        side_by_side,
    ),
    Misconception(
        "one_norm_for_both",
        "This is the answer when the FFN reads what was normed for attention. It reads the "
        "stream anew, through its own norm.",
        one_norm_for_both,
    ),
    Misconception(
        "second_forgets_attention",
        "This is the answer when the FFN's output is added to the stream that came in: what "
        "attention added is lost.",
        second_forgets_attention,
    ),
    Misconception(
        "one_weight",
        "This is the answer with attention's norm weight used twice; the FFN has its own.",
        one_weight,
    ),
    Misconception(
        "weights_swapped",
        "The two norm weights have changed places.",
        weights_swapped,
    ),
    Misconception(
        "ffn_first",
        "This is the answer with the FFN before attention: a layer looks back first, then "
        "works in place.",
        ffn_first,
    ),
    Misconception(
        "layer_norm",
        "This is the answer of LayerNorm, which takes the mean away first. RMSNorm leaves the "
        "mean where it is.",
        block(norm=_layer_norm),
    ),
    Misconception(
        "no_root",
        "This is the answer without the square root: the stream is divided by its mean square.",
        block(norm=lambda x, w, eps: w * x / (x.square().mean(-1, keepdim=True) + eps)),
    ),
    Misconception(
        "eps_outside_the_root",
        "This is the answer with eps added after the square root; it is added to the mean "
        "square, under the root. It shows where the stream is small.",
        block(norm=lambda x, w, eps: w * x / (x.square().mean(-1, keepdim=True).sqrt() + eps)),
    ),
    Misconception(
        "no_eps",
        "This is the answer without eps. It shows where the stream is small.",
        block(norm=lambda x, w, eps: w * x / x.square().mean(-1, keepdim=True).sqrt()),
    ),
    Misconception(
        "sum_for_mean",
        "This is the answer with the sum of the squares in place of their mean: every token "
        "comes out with length 1, not with numbers of size 1.",
        block(norm=lambda x, w, eps: w * x / (x.square().sum(-1, keepdim=True) + eps).sqrt()),
    ),
    Misconception(
        "norm_over_tokens",
        "This is the answer with the mean taken over the tokens. Each token is normed alone, "
        "over its own numbers: the last axis.",
        block(norm=_over(1)),
    ),
    Misconception(
        "norm_over_all",
        "This is the answer with one mean for all texts and tokens. Each token is normed alone.",
        block(norm=_over(0, 1, 2)),
    ),
    Misconception(
        "no_weight",
        "This is the answer without the norm's weight.",
        block(norm=lambda x, w, eps: rms(x, 1.0, eps)),
    ),
    Misconception(
        "divided_by_weight",
        "This is the answer with the normed stream divided by the weight; it is multiplied.",
        block(norm=lambda x, w, eps: rms(x, 1.0, eps) / w),
    ),
    Misconception(
        "in_place",
        "The result is right, but `x += ...` changes the tensor that the caller still holds; "
        "write x = x + ... .",
        in_place,
    ),
)
