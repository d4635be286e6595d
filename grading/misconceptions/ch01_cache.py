"""Named mistakes in exercises 01.2 (append and attend) and 01.4 (bytes per token)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception
from grading.misconceptions.ch01_attention import answer as attention

ATTEND = attention()
TOP_LEFT = attention(visible=lambda new, cached: torch.ones(new, cached).tril() > 0)
NO_MASK = attention(visible=lambda new, cached: torch.ones(new, cached) > 0)


def behind(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.cat([old, new], dim=1)


def append(join: Callable = behind, attend: Callable = ATTEND) -> Callable:
    """Append and attend, with the way of joining and the attention open."""

    def append_and_attend(cache, query_BTHD, key_BTHD, value_BTHD):
        key, value = key_BTHD, value_BTHD
        if cache is not None:
            key, value = join(cache[0], key), join(cache[1], value)
        return attend(query_BTHD, key, value), (key, value)

    return append_and_attend


def forgets_to_store(cache, query, key, value):
    output, _ = append()(cache, query, key, value)
    return output, cache


def attends_old_only(cache, query, key, value):
    _, kept = append()(cache, query, key, value)
    return ATTEND(query, *(cache or kept)), kept


def attends_new_only(cache, query, key, value):
    _, kept = append()(cache, query, key, value)
    return ATTEND(query, key, value), kept


def swapped_in_cache(cache, query, key, value):
    output, (key, value) = append()(cache, query, key, value)
    return output, (value, key)


def stores_query(cache, query, key, value):
    return append()(cache, query, query, value)


class KeptOutside:
    """A cache in a variable of the function's own: one for all texts."""

    def __init__(self) -> None:
        self.cache = None

    def __call__(self, cache, query, key, value):
        output, self.cache = append()(None if cache is None else self.cache, query, key, value)
        return output, self.cache


def appends_twice(cache, query, key, value):
    _, kept = append()(cache, query, key, value)
    return append()(kept, query, key, value)


APPEND = (
    Misconception(
        "overwrites",
        "This is the answer of a cache that keeps only the newest entries: the new ones take "
        "the place of the old ones instead of standing behind them.",
        append(join=lambda old, new: new),
    ),
    Misconception(
        "forgets_to_store",
        "The cache that comes back is the one that went in: the new keys and values are not "
        "stored, so the next token cannot find them.",
        forgets_to_store,
    ),
    Misconception(
        "prepends",
        "This is the answer with the new entries in front of the old ones. Order is position: "
        "new entries go behind.",
        append(join=lambda old, new: torch.cat([new, old], dim=1)),
    ),
    Misconception(
        "attends_old_only",
        "This is the answer when the new tokens read only what was stored before them. A "
        "token also reads itself: append first, then attend.",
        attends_old_only,
    ),
    Misconception(
        "attends_new_only",
        "The cache is right, but the new tokens read only each other: attend to all the keys "
        "and values that are kept, not to the new ones alone.",
        attends_new_only,
    ),
    Misconception(
        "mask_by_row",
        "This is the answer with the mask made from row numbers: row t of a chunk stands at "
        "position S - T + t, behind what is stored, not at position t.",
        append(attend=TOP_LEFT),
    ),
    Misconception(
        "no_mask",
        "This is the answer without a mask: inside a chunk, tokens read from later ones. One "
        "token at a time hides the mistake.",
        append(attend=NO_MASK),
    ),
    Misconception(
        "swapped_in_cache",
        "Keys and values change places in the cache that comes back: return (keys, values), "
        "in that order.",
        swapped_in_cache,
    ),
    Misconception(
        "stores_query",
        "This is the answer with the query stored in place of the key. A query is used once "
        "and never kept.",
        stores_query,
    ),
    Misconception(
        "appends_twice",
        "The new entries stand in the cache twice.",
        appends_twice,
    ),
    Misconception(
        "kept_outside",
        "This is the answer when the cache is kept in a variable outside: a second text that "
        "begins in between takes its place. Use the `cache` that is passed in.",
        KeptOutside(),
    ),
    Misconception(
        "joined_along_batch",
        "torch.cat joins along axis 0, the batch, unless told otherwise; tokens are axis 1.",
        append(join=lambda old, new: torch.cat([old, new])),
    ),
    Misconception(
        "joined_along_heads",
        "The entries are joined along axis 2, the heads; tokens are axis 1.",
        append(join=lambda old, new: torch.cat([old, new], dim=2)),
    ),
)


def _bytes(rate: Callable) -> Callable:
    """rate(L, X, H, K, D, bits): layers, hidden size, query heads, kv heads, head dim, bits."""

    def bytes_per_token(layers, hidden_size, query_heads, kv_heads, head_dim, bits):
        return rate(layers, hidden_size, query_heads, kv_heads, head_dim, bits)

    return bytes_per_token


BYTES = (
    Misconception(
        "forgets_two",
        "This is half of it: a token leaves a key and a value, two rows in each layer.",
        _bytes(lambda L, X, H, K, D, bits: L * K * D * bits // 8),
    ),
    Misconception(
        "forgets_layers",
        "These are the bytes of one layer. Every layer keeps its own keys and values.",
        _bytes(lambda L, X, H, K, D, bits: 2 * K * D * bits // 8),
    ),
    Misconception(
        "query_heads",
        "This counts the query heads. Queries are not kept: several of them may share one kv "
        "head, and only kv heads are in the cache.",
        _bytes(lambda L, X, H, K, D, bits: 2 * L * H * D * bits // 8),
    ),
    Misconception(
        "hidden_size",
        "This counts the hidden size. What is kept are kv heads x head dim numbers, which may "
        "be far fewer.",
        _bytes(lambda L, X, H, K, D, bits: 2 * L * X * bits // 8),
    ),
    Misconception(
        "all_heads",
        "This counts query, key and value. The query is used once and not kept.",
        _bytes(lambda L, X, H, K, D, bits: L * (H + 2 * K) * D * bits // 8),
    ),
    Misconception(
        "bits",
        "These are bits; eight of them are one byte.",
        _bytes(lambda L, X, H, K, D, bits: 2 * L * K * D * bits),
    ),
    Misconception(
        "numbers",
        "This is how many numbers are kept; each of them takes bits / 8 bytes.",
        _bytes(lambda L, X, H, K, D, bits: 2 * L * K * D),
    ),
    Misconception(
        "rounds_bits_first",
        "bits // 8 rounds down before anything is multiplied: 4-bit numbers come out as 0 "
        "bytes. Multiply first, divide by 8 at the end.",
        _bytes(lambda L, X, H, K, D, bits: 2 * L * K * D * (bits // 8)),
    ),
    Misconception(
        "one_head",
        "These are the bytes of one kv head; each of the kv heads keeps its own.",
        _bytes(lambda L, X, H, K, D, bits: 2 * L * D * bits // 8),
    ),
    Misconception(
        "kibibytes",
        "These are units of 1,024 bytes; the answer is asked for in bytes.",
        _bytes(lambda L, X, H, K, D, bits: 2 * L * K * D * bits / 8 / 1024),
    ),
)
