"""Named mistakes in exercise 06.3: attention to a latent cache without keys and values."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def onto_query(nope, up_k):
    return torch.einsum("bthd,hdc->bthc", nope, up_k)


def both(content, near, scale):
    return (content + near) * scale


def mask(score, visible):
    return score.masked_fill(~visible, -float("inf"))


def softmax(score, visible):
    return mask(score, visible).softmax(-1)


def behind_the_sum(mixed, up_v):
    return torch.einsum("bthc,hvc->bthv", mixed, up_v)


def answer(
    absorb: Callable = onto_query,
    join: Callable = both,
    weigh: Callable = softmax,
    finish: Callable = behind_the_sum,
) -> Callable:
    """Absorbed attention with every choice open; the defaults make it right."""

    def absorbed_attention(nope, rope, latent, rope_key, up_k, up_v, scale, visible):
        content = torch.einsum("bthc,bsc->bhts", absorb(nope, up_k), latent)
        near = torch.einsum("bthr,bsr->bhts", rope, rope_key)
        weight = weigh(join(content, near, scale), visible)
        return finish(torch.einsum("bhts,bsc->bthc", weight, latent), up_v)

    return absorbed_attention


def expanded(nope, rope, latent, rope_key, up_k, up_v, scale, visible):
    key = torch.einsum("bsc,hdc->bshd", latent, up_k)
    value = torch.einsum("bsc,hvc->bshv", latent, up_v)
    score = torch.einsum("bthd,bshd->bhts", nope, key)
    score = (score + torch.einsum("bthr,bsr->bhts", rope, rope_key)) * scale
    return torch.einsum("bhts,bshv->bthv", softmax(score, visible), value)


def one_head(nope, up_k):
    """The first head's matrix for all heads."""
    return torch.einsum("bthd,dc->bthc", nope, up_k[0])


def one_head_out(mixed, up_v):
    return torch.einsum("bthc,vc->bthv", mixed, up_v[0])


def masked_late(score, visible):
    return score.softmax(-1) * visible


def mask_upside_down(score, visible):
    hidden = torch.where(visible.all(-1, keepdim=True), True, ~visible)
    return softmax(score, hidden)


ABSORB = (
    Misconception(
        "expanded",
        "The right answer, but keys or values of all heads were made on the way. Multiply the "
        "query by `up_k_HDC` instead of the latents, and the sum of latents by `up_v_HVC`: then "
        "nothing larger than the cache is made.",
        expanded,
    ),
    Misconception(
        "latent_left",
        "These are the sums of latents. A head's output is `up_v_HVC` times its sum.",
        answer(finish=lambda mixed, up_v: mixed),
    ),
    Misconception(
        "keys_matrix_out",
        "The sums of latents are multiplied by the keys' matrix; the outputs are values.",
        lambda nope, rope, latent, rope_key, up_k, up_v, scale, visible: answer()(
            nope, rope, latent, rope_key, up_k, up_k, scale, visible
        ),
    ),
    Misconception(
        "one_head_in",
        "Every head's query is multiplied by the first head's `up_k_HDC`. Each head has its own.",
        answer(absorb=one_head),
    ),
    Misconception(
        "one_head_out",
        "Every head's sum is multiplied by the first head's `up_v_HVC`. Each head has its own.",
        answer(finish=one_head_out),
    ),
    Misconception(
        "no_position",
        "The rope pieces are missing: the score is the sum of both products.",
        answer(join=lambda content, near, scale: content * scale),
    ),
    Misconception(
        "no_content",
        "The product with the latents is missing from the score.",
        answer(join=lambda content, near, scale: near * scale),
    ),
    Misconception(
        "not_scaled",
        "The scores are not multiplied by `scale`.",
        answer(join=lambda content, near, scale: content + near),
    ),
    Misconception(
        "content_scaled_only",
        "`scale` multiplies the product with the latents only; it belongs to the sum of both.",
        answer(join=lambda content, near, scale: content * scale + near),
    ),
    Misconception(
        "position_scaled_only",
        "`scale` multiplies the rope product only; it belongs to the sum of both.",
        answer(join=lambda content, near, scale: content + near * scale),
    ),
    Misconception(
        "divided_by_scale",
        "The scores are divided by `scale`. It is a factor: multiply.",
        answer(join=lambda content, near, scale: (content + near) / scale),
    ),
    Misconception(
        "no_mask",
        "Entries that are not visible take part. `visible_TS` is True where a query may look.",
        answer(weigh=lambda score, visible: score.softmax(-1)),
    ),
    Misconception(
        "masked_late",
        "The mask comes after the softmax: what is left no longer sums to 1. Set hidden scores to "
        "-inf before it.",
        answer(weigh=masked_late),
    ),
    Misconception(
        "mask_upside_down",
        "The mask is upside down: True is what a query may see.",
        answer(weigh=mask_upside_down),
    ),
    Misconception(
        "softmax_over_queries",
        "The softmax runs over the queries. It runs over the entries, the last axis.",
        answer(
            weigh=lambda score, visible: (
                mask(score, visible).nan_to_num(0.0, neginf=-1e30).softmax(-2)
            )
        ),
    ),
    Misconception(
        "softmax_over_heads",
        "The softmax runs over the heads. It runs over the entries, the last axis.",
        answer(weigh=lambda score, visible: score.softmax(1) * visible),
    ),
    Misconception(
        "no_softmax",
        "The scores are used as weights; they go through a softmax first.",
        answer(weigh=lambda score, visible: score * visible),
    ),
)
