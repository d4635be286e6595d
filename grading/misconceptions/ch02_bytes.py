"""Named mistakes in exercise 02.2: the bytes of a cache, layer by layer."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def own_heads(heads: list[int], source: list[int]) -> int:
    return sum(h for i, h in enumerate(heads) if source[i] == i)


def answer(
    kept: Callable = own_heads,
    row: Callable = lambda dim, bits: 2 * dim * bits,
    held: Callable = lambda tokens, batch: tokens * batch,
    per_byte: int = 8,
) -> Callable:
    """The bytes with every choice open; the defaults make them right."""

    def cache_bytes(kv_heads, source, head_dim, tokens, batch, bits_per_number):
        bits = kept(kv_heads, source) * row(head_dim, bits_per_number) * held(tokens, batch)
        return bits // per_byte

    return cache_bytes


def _owners(source: list[int]) -> int:
    return len(set(source))


def _rounds_first(kv_heads, source, head_dim, tokens, batch, bits):
    return 2 * own_heads(kv_heads, source) * head_dim * tokens * batch * (bits // 8)


BYTES = (
    Misconception(
        "one_layer",
        "These are the bytes of the first layer alone. Every layer keeps keys and values of its "
        "own.",
        answer(kept=lambda heads, source: heads[0]),
    ),
    Misconception(
        "all_layers",
        "This counts every layer. One that reads another layer's keys and values keeps none.",
        answer(kept=lambda heads, source: sum(heads)),
    ),
    Misconception(
        "heads_of_the_source",
        "This adds up what each layer *reads*. What is kept by one layer and read by three is "
        "kept once.",
        answer(kept=lambda heads, source: sum(heads[s] for s in source)),
    ),
    Misconception(
        "borrowers",
        "This counts the layers that borrow; those are the ones that keep nothing.",
        answer(kept=lambda heads, source: sum(h for i, h in enumerate(heads) if source[i] != i)),
    ),
    Misconception(
        "first_times_layers",
        "This takes every layer to be like the first. Layers may have different numbers of kv "
        "heads.",
        answer(kept=lambda heads, source: heads[0] * len(heads)),
    ),
    Misconception(
        "first_times_owners",
        "This takes every layer that keeps something to be like the first. Layers may have "
        "different numbers of kv heads.",
        answer(kept=lambda heads, source: heads[0] * _owners(source)),
    ),
    Misconception(
        "most_times_owners",
        "This gives every layer as many kv heads as the largest has.",
        answer(kept=lambda heads, source: max(heads) * _owners(source)),
    ),
    Misconception(
        "layers_only",
        "This counts layers and forgets their kv heads: each head keeps a key and a value.",
        answer(kept=lambda heads, source: _owners(source)),
    ),
    Misconception(
        "forgets_two",
        "This is half of it: a key and a value are kept.",
        answer(row=lambda dim, bits: dim * bits),
    ),
    Misconception(
        "forgets_batch",
        "These are the bytes of one text; each of the batch keeps its own.",
        answer(held=lambda tokens, batch: tokens),
    ),
    Misconception(
        "forgets_tokens",
        "These are the bytes of one token; each of them is kept.",
        answer(held=lambda tokens, batch: batch),
    ),
    Misconception(
        "batch_added",
        "Tokens and batch are added; each text has that many tokens, so they are multiplied.",
        answer(held=lambda tokens, batch: tokens + batch),
    ),
    Misconception(
        "bits",
        "These are bits; eight of them are one byte.",
        answer(per_byte=1),
    ),
    Misconception(
        "numbers",
        "This is how many numbers are kept; each of them takes bits / 8 bytes.",
        answer(row=lambda dim, bits: 2 * dim * 8),
    ),
    Misconception(
        "rounds_bits_first",
        "bits // 8 rounds down before anything is multiplied: 4-bit numbers come out as 0 "
        "bytes. Multiply first, divide by 8 at the end.",
        _rounds_first,
    ),
)
