"""Named mistakes in exercise 05.2: the bytes of a given config.json."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception

SLIDING = "sliding_attention"


def own_heads(c: dict) -> int:
    return c.get("num_key_value_heads") or c["num_attention_heads"]


def divided(c: dict) -> int:
    return c["hidden_size"] // c["num_attention_heads"]


def stated(c: dict) -> int:
    return c.get("head_dim") or divided(c)


def size(c: dict) -> int:
    return 4 if c.get("torch_dtype") == "float32" else 2


def kinds(c: dict) -> list[str]:
    return c.get("layer_types") or [SLIDING] * c["num_hidden_layers"]


def owners(c: dict) -> list[str]:
    return kinds(c)[: c["num_hidden_layers"] - (c.get("num_kv_shared_layers") or 0)]


def shortest(tokens: int, window: int) -> int:
    return min(tokens, window)


def slides(kind: str) -> bool:
    return kind == SLIDING


def answer(
    heads: Callable = own_heads,
    dim: Callable = stated,
    width: Callable = size,
    kept: Callable = owners,
    near: Callable = shortest,
    windowed: Callable = slides,
    both: int = 2,
    per_token: Callable = lambda tokens: tokens,
) -> Callable:
    """The bytes with every choice open; the defaults make them right."""

    def cache_bytes(config, tokens):
        window, tokens = config.get("sliding_window"), per_token(tokens)
        rows = 0
        for kind in kept(config):
            rows += near(tokens, window) if window is not None and windowed(kind) else tokens
        return both * rows * heads(config) * dim(config) * width(config)

    return cache_bytes


def first_ones(c: dict) -> list[str]:
    return kinds(c)[c.get("num_kv_shared_layers") or 0 :]


def borrowers(c: dict) -> list[str]:
    shared = c.get("num_kv_shared_layers") or 0
    return kinds(c)[-shared:] if shared else kinds(c)


def width_of_stream(c: dict) -> int:
    return c["hidden_size"]


CONFIG = (
    Misconception(
        "query_heads",
        "This counts the query heads. Only kv heads keep something: num_key_value_heads, where it "
        "is stated.",
        answer(heads=lambda c: c["num_attention_heads"]),
    ),
    Misconception(
        "head_dim_divided",
        "This divides the hidden size by the heads even where head_dim is stated. Where it is, it "
        "need not be that quotient.",
        answer(dim=divided),
    ),
    Misconception(
        "divided_by_kv_heads",
        "This divides the hidden size by the kv heads. Without head_dim it is hidden_size // "
        "num_attention_heads.",
        answer(dim=lambda c: c.get("head_dim") or c["hidden_size"] // own_heads(c)),
    ),
    Misconception(
        "width_of_stream",
        "This keeps a key as wide as the stream in every layer. A key has kv heads x head dim "
        "numbers.",
        answer(heads=lambda c: 1, dim=width_of_stream),
    ),
    Misconception(
        "forgets_two",
        "This is half of it: a key and a value are kept.",
        answer(both=1),
    ),
    Misconception(
        "always_two_bytes",
        "This takes two bytes a number, whatever torch_dtype says. float32 takes four.",
        answer(width=lambda c: 2),
    ),
    Misconception(
        "bits",
        "These are bits, eight times the bytes.",
        answer(width=lambda c: 8 * size(c)),
    ),
    Misconception(
        "one_layer",
        "These are the bytes of one layer.",
        answer(kept=lambda c: kinds(c)[:1]),
    ),
    Misconception(
        "one_token",
        "These are the bytes of one token; all of them are kept.",
        answer(per_token=lambda tokens: 1),
    ),
    Misconception(
        "no_window",
        "This keeps all tokens in every layer. A layer with a window keeps its newest W.",
        answer(windowed=lambda kind: False),
    ),
    Misconception(
        "window_everywhere",
        "This puts the window into every layer. layer_types says which have it.",
        answer(windowed=lambda kind: True),
    ),
    Misconception(
        "window_in_full_layers",
        "The window is in the wrong layers: \"full_attention\" keeps everything.",
        answer(windowed=lambda kind: kind != SLIDING),
    ),
    Misconception(
        "window_always_full",
        "A window holds W tokens at most. With fewer tokens than that, it holds those there are.",
        answer(near=lambda tokens, window: window),
    ),
    Misconception(
        "larger_of_both",
        "This keeps the larger of tokens and window. It is the smaller: min.",
        answer(near=max),
    ),
    Misconception(
        "sharing_ignored",
        "This counts layers that keep nothing: the last num_kv_shared_layers read an earlier one.",
        answer(kept=kinds),
    ),
    Misconception(
        "first_layers_share",
        "This leaves out the first layers. It is the last ones that read an earlier layer: nobody "
        "can read what is not yet there.",
        answer(kept=first_ones),
    ),
    Misconception(
        "borrowers_only",
        "This counts the layers that share and leaves out those that keep.",
        answer(kept=borrowers),
    ),
)  # fmt: skip
