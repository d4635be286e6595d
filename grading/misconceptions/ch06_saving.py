"""Named mistakes in exercise 06.4: what a latent cache saves."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def answer(
    old: Callable = lambda L, K, D: L * 2 * K * D * 2,
    new: Callable = lambda L, C, R, bits: L * (C + R) * bits / 8,
    says: Callable = lambda old, new: (new, 100 * (1 - new / old)),
) -> Callable:
    """The sum with every choice open; the defaults make it right."""

    def saving(old_layers, old_kv_heads, old_dim, layers, latent, rope, bits):
        return says(old(old_layers, old_kv_heads, old_dim), new(layers, latent, rope, bits))

    return saving


def old_in_new_bits(old_layers, old_kv_heads, old_dim, layers, latent, rope, bits):
    before, after = old_layers * 2 * old_kv_heads * old_dim, layers * (latent + rope)
    return after * bits / 8, 100 * (1 - after / before)


def layers_of_the_old(old_layers, old_kv_heads, old_dim, layers, latent, rope, bits):
    return answer()(old_layers, old_kv_heads, old_dim, old_layers, latent, rope, bits)


def for_each_head(old_layers, old_kv_heads, old_dim, layers, latent, rope, bits):
    return answer()(old_layers, old_kv_heads, old_dim, layers * old_kv_heads, latent, rope, bits)


SAVING = (
    Misconception(
        "bytes_alone",
        "A pair is asked for: the bytes of the new model, and the saving in percent.",
        answer(says=lambda old, new: new),
    ),
    Misconception(
        "percent_alone",
        "A pair is asked for: the bytes of the new model, and the saving in percent. This is the "
        "saving.",
        answer(says=lambda old, new: 100 * (1 - new / old)),
    ),
    Misconception(
        "what_is_left",
        "The percentage is what is left; how much *less* it is was asked for.",
        answer(says=lambda old, new: (new, 100 * new / old)),
    ),
    Misconception(
        "share",
        "The saving is a share between 0 and 1; percents are asked for.",
        answer(says=lambda old, new: (new, 1 - new / old)),
    ),
    Misconception(
        "swapped",
        "The pair is the other way round: first the bytes, then the percents.",
        answer(says=lambda old, new: (100 * (1 - new / old), new)),
    ),
    Misconception(
        "of_the_new",
        "The difference is divided by the new bytes. A saving is a share of the old ones.",
        answer(says=lambda old, new: (new, 100 * (old - new) / new)),
    ),
    Misconception(
        "keys_and_values",
        "The latent is counted twice, as key and as value. It is kept once: both are made of it.",
        answer(new=lambda L, C, R, bits: L * 2 * (C + R) * bits / 8),
    ),
    Misconception(
        "latent_twice",
        "The latent is counted twice, as key and as value, and the rope key once. The latent is "
        "kept once too.",
        answer(new=lambda L, C, R, bits: L * (2 * C + R) * bits / 8),
    ),
    Misconception(
        "no_rope",
        "The rope key is missing: it is kept beside the latent.",
        answer(new=lambda L, C, R, bits: L * C * bits / 8),
    ),
    Misconception(
        "for_each_head",
        "The latent is multiplied by the number of heads. All heads share it.",
        for_each_head,
    ),
    Misconception(
        "bits_as_bytes",
        "Bits were taken for bytes: divide by 8.",
        answer(new=lambda L, C, R, bits: L * (C + R) * bits),
    ),
    Misconception(
        "always_16_bits",
        "The new numbers are counted in 16 bits; they have `bits` bits each.",
        answer(new=lambda L, C, R, bits: L * (C + R) * 2),
    ),
    Misconception(
        "old_in_new_bits",
        "The old cache is counted in `bits` bits as well. It has 16 bits a number, or the width "
        "would drop out of the comparison.",
        old_in_new_bits,
    ),
    Misconception(
        "keys_only",
        "The old model's values are missing: it keeps a key and a value for each head.",
        answer(old=lambda L, K, D: L * K * D * 2),
    ),
    Misconception(
        "layers_of_the_old",
        "The new model is counted with the layers of the old one.",
        layers_of_the_old,
    ),
    Misconception(
        "one_layer",
        "This is one layer of the new model against all of the old one's.",
        answer(new=lambda L, C, R, bits: (C + R) * bits / 8),
    ),
)
