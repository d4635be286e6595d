"""Named mistakes in exercise 06.1: what a latent cache keeps, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def rms(latent, norm, eps):
    return latent / (latent.square().mean(-1, keepdim=True) + eps).sqrt() * norm


def layer_norm(latent, norm, eps):
    return rms(latent - latent.mean(-1, keepdim=True), norm, eps)


def behind(past, new):
    return torch.cat([past, new], dim=1)


def by_heads(latent, up):
    return torch.einsum("bsc,hdc->bshd", latent, up)


def answer(
    norm: Callable = rms,
    keep: Callable = behind,
    key: Callable = by_heads,
    value: Callable = by_heads,
    normed_when: str = "kept",
    swap: bool = False,
) -> Callable:
    """The latent cache with every choice open; the defaults make it right."""

    def latent_cache(x, past, down, weight, up_k, up_v, eps):
        new = x @ down.T
        if normed_when == "kept":
            new = norm(new, weight, eps)
        latent = keep(past, new)
        read = norm(latent, weight, eps) if normed_when == "read" else latent
        if swap:
            up_k, up_v = up_v, up_k
        return latent, key(read, up_k), value(read, up_v)

    return latent_cache


def latents_alone(*given):
    return answer()(*given)[0]


def keys_of_new(x, past, down, weight, up_k, up_v, eps):
    latent, key, value = answer()(x, past, down, weight, up_k, up_v, eps)
    new = x.shape[1]
    return latent, key[:, -new:], value[:, -new:]


def all_normed(x, past, down, weight, up_k, up_v, eps):
    latent = rms(torch.cat([past, x @ down.T], dim=1), weight, eps)
    return latent, by_heads(latent, up_k), by_heads(latent, up_v)


LATENT = (
    Misconception(
        "latents_alone",
        "These are the latents. Three tensors are asked for: the latents, the keys, the values.",
        latents_alone,
    ),
    Misconception(
        "norm_when_read",
        "The latents are kept as they come and normed when they are read. The norm belongs before: "
        "what is kept is normed once, and the old ones are normed already.",
        answer(normed_when="read"),
    ),
    Misconception(
        "no_norm",
        "The latents are not normed.",
        answer(norm=lambda latent, weight, eps: latent),
    ),
    Misconception(
        "no_norm_weight",
        "The latents are brought to one length, but the weights `norm_C` are missing.",
        answer(norm=lambda latent, weight, eps: rms(latent, 1.0, eps)),
    ),
    Misconception(
        "no_eps",
        "eps is missing: it is added to the mean of the squares, before the root.",
        answer(norm=lambda latent, weight, eps: rms(latent, weight, 0.0)),
    ),
    Misconception(
        "eps_outside",
        "eps is added after the root. It belongs under it: sqrt(mean(c²) + eps).",
        answer(
            norm=lambda latent, weight, eps: (
                latent / (latent.square().mean(-1, keepdim=True).sqrt() + eps) * weight
            )
        ),
    ),
    Misconception(
        "sum_for_mean",
        "The latents are divided by the root of the sum of their squares; the mean is asked for.",
        answer(
            norm=lambda latent, weight, eps: (
                latent / (latent.square().sum(-1, keepdim=True) + eps).sqrt() * weight
            )
        ),
    ),
    Misconception(
        "layer_norm",
        "The mean is subtracted from the latents, as in a LayerNorm. An RMS norm only divides.",
        answer(norm=layer_norm),
    ),
    Misconception(
        "norm_over_tokens",
        "The mean runs over the tokens. It runs over the numbers of one latent (the last axis): "
        "what is kept of a token does not depend on others.",
        answer(
            norm=lambda latent, weight, eps: (
                latent / (latent.square().mean(1, keepdim=True) + eps).sqrt() * weight
            )
        ),
    ),
    Misconception(
        "normed_twice",
        "The old latents are normed again. They were normed when they were kept.",
        all_normed,
    ),
    Misconception(
        "new_first",
        "The new latents stand before the old ones. The cache is in the order of the text: new "
        "ones go behind.",
        answer(keep=lambda past, new: torch.cat([new, past], dim=1)),
    ),
    Misconception(
        "past_forgotten",
        "The old latents are gone: what is kept is the old ones and the new ones.",
        answer(keep=lambda past, new: new),
    ),
    Misconception(
        "keys_of_new_only",
        "Keys and values are made of the new latents only. Nothing but latents was kept, so those "
        "of the old tokens must be made as well.",
        keys_of_new,
    ),
    Misconception(
        "swapped",
        "Keys and values have changed places: `up_k_HDC` makes the keys.",
        answer(swap=True),
    ),
    Misconception(
        "values_are_keys",
        "The values are made with the keys' matrix.",
        lambda x, past, down, weight, up_k, up_v, eps: answer()(
            x, past, down, weight, up_k, up_k, eps
        ),
    ),
    Misconception(
        "keys_are_values",
        "The keys are made with the values' matrix.",
        lambda x, past, down, weight, up_k, up_v, eps: answer()(
            x, past, down, weight, up_v, up_v, eps
        ),
    ),
)
