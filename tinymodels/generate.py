"""Writing: one token at a time, each chosen from the probabilities that the model gives.

The prompt is read in one pass (prefill). From then on each step runs the newest token alone and
reads the rest from the cache (decode).
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .cache import ModelCache
from .cache.rows import Storage


def next_token_probabilities(
    logits_BV: Float[Tensor, "B V"], temperature: float = 1.0, top_p: float = 1.0
) -> Float[Tensor, "B V"]:
    """What the next token is drawn from.

    temperature: below 1 sharpens, 0 leaves only the likeliest (the lowest id wins a tie). top_p:
    keep the fewest likeliest tokens whose probabilities reach top_p (arXiv 1904.09751).
    Errors: ValueError for temperature < 0 or top_p outside (0, 1].
    """
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is {value!r}; it must be a number")
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}; it must be >= 0 (0 takes the likeliest)")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}; it must be above 0 and at most 1 (1 keeps all tokens)")
    if temperature == 0:
        best_B = logits_BV.argmax(-1)
        return torch.zeros_like(logits_BV).scatter(-1, best_B[:, None], 1.0)
    # Less than the largest first: however small the temperature, nothing overflows.
    below_BV = logits_BV.double() - logits_BV.double().amax(-1, keepdim=True)
    probs_BV = torch.softmax(below_BV / max(temperature, 1e-300), dim=-1).to(logits_BV.dtype)
    if top_p == 1:
        return probs_BV
    ordered_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    before_BV = ordered_BV.cumsum(-1) - ordered_BV
    ordered_BV = ordered_BV.masked_fill(before_BV >= top_p, 0.0)
    kept_BV = torch.zeros_like(probs_BV).scatter(-1, order_BV, ordered_BV)
    return kept_BV / kept_BV.sum(-1, keepdim=True)


def stream(
    model,
    prompt_BT: Int[Tensor, "B T"],
    new: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    storage: Storage = "packed",
    cache: ModelCache | None = None,
) -> Iterator[Int[Tensor, "B"]]:
    """Yield the next token of each sequence, `new` times.

    A given cache is continued: its tokens come before the prompt. Randomness comes from `seed`
    alone. Errors: ValueError for an empty prompt, new < 0, or a cache without room; before
    anything is written.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f"seed is {seed!r}; it must be an integer")
    if isinstance(new, bool) or not isinstance(new, int) or new < 0:
        raise ValueError(f"new is {new!r}; it must be an integer >= 0")
    model.check_tokens(prompt_BT)
    batch, length = prompt_BT.shape
    next_token_probabilities(torch.zeros(1, 2), temperature, top_p)  # refuse bad settings now
    if cache is None:
        cache = model.new_cache(batch, length + max(new - 1, 0), storage)
    model.check_cache(cache)
    cache.check_room(batch, length + max(new - 1, 0))
    return _stream(model, prompt_BT, new, temperature, top_p, seed, cache)


def _stream(model, prompt_BT, new, temperature, top_p, seed, cache):
    draw = torch.Generator().manual_seed(seed)
    chunk_BT = prompt_BT
    for step in range(new):
        logits_BV = model.prefill(chunk_BT, cache) if step == 0 else model(chunk_BT, cache)[:, -1]
        probs_BV = next_token_probabilities(logits_BV.float().cpu(), temperature, top_p)
        token_B = torch.multinomial(probs_BV, 1, generator=draw)[:, 0].to(prompt_BT.device)
        yield token_B
        chunk_BT = token_B[:, None]


def generate(model, prompt_BT: Int[Tensor, "B T"], new: int, **how) -> Int[Tensor, "B T+new"]:
    """The prompt and `new` tokens after it. Settings as in `stream`."""
    written = stream(model, prompt_BT, new, **how)
    return torch.cat([prompt_BT, *(t[:, None].to(prompt_BT.dtype) for t in written)], dim=1)


def generate_without_cache(
    model, prompt_BT: Int[Tensor, "B T"], new: int
) -> Int[Tensor, "B T+new"]:
    """The same greedy text the slow way: every step runs the whole text again."""
    tokens_BT = prompt_BT
    with torch.no_grad():
        for _ in range(new):
            token_B = model(tokens_BT)[:, -1].argmax(-1)
            tokens_BT = torch.cat([tokens_BT, token_B[:, None].to(tokens_BT.dtype)], dim=1)
    return tokens_BT
