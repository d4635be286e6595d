"""A stand-in for a language model that counts what is asked of it.

It has the calls of tinymodels' Transformer, `new_cache` and `model(tokens, cache)`, and no
weights: the next token is a fixed function of every token before it and of its place, so
one token too few, too many or out of order changes what follows.
"""

from __future__ import annotations

import numpy as np
import torch

VOCABULARY = 97
_MODULUS = 10_007


class CountingCache:
    """The tokens seen so far: what a real cache knows, without the arithmetic."""

    def __init__(self, batch: int, capacity: int) -> None:
        self.tokens_BS = torch.zeros(batch, 0, dtype=torch.int64)
        self.capacity = capacity


class CountingModel:
    """Counts calls, tokens run (of one text), and entries kept beyond a cache's capacity."""

    def __init__(self) -> None:
        self.calls = 0
        self.tokens_run = 0
        self.beyond_capacity = 0

    def new_cache(self, batch: int, capacity: int) -> CountingCache:
        return CountingCache(batch, capacity)

    def __call__(self, tokens_BT: torch.Tensor, cache: CountingCache | None = None) -> torch.Tensor:
        """[B, T] whole numbers -> logits [B, T, V]; with a cache, T tokens after those in it."""
        if not isinstance(tokens_BT, torch.Tensor) or tokens_BT.ndim != 2:
            shape = list(getattr(tokens_BT, "shape", [])) or type(tokens_BT).__name__
            raise ValueError(f"tokens must be a tensor [B, T], two axes; got {shape}")
        if tokens_BT.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"tokens must be whole numbers (int64); got {tokens_BT.dtype}")
        before = 0
        if cache is not None:
            before = cache.tokens_BS.shape[1]
            cache.tokens_BS = torch.cat([cache.tokens_BS, tokens_BT.long()], dim=1)
            self.beyond_capacity = max(
                self.beyond_capacity, cache.tokens_BS.shape[1] - cache.capacity
            )
        self.calls += 1
        self.tokens_run += tokens_BT.shape[1]
        whole_BS = tokens_BT if cache is None else cache.tokens_BS
        return torch.tensor(logits(whole_BS.numpy())[:, before:], dtype=torch.float32)


def logits(tokens_BS: np.ndarray) -> np.ndarray:
    """Logits [B, S, V] of every position, from all the tokens up to it."""
    batch, length = tokens_BS.shape
    word_V = np.arange(VOCABULARY)
    state_B = np.full(batch, 5, dtype=np.int64)
    output = np.empty((batch, length, VOCABULARY))
    for s in range(length):
        state_B = (state_B * 31 + (tokens_BS[:, s] + 1) * (s + 7)) % _MODULUS
        mixed_BV = (state_B[:, None] * (word_V * word_V + 3 * word_V + 5)) % _MODULUS
        output[:, s] = mixed_BV / 1000 + word_V * 1e-4  # the last term: no two are equal
    return output


def greedy(prompt_BT: np.ndarray, count: int) -> np.ndarray:
    """The `count` tokens after the prompt [B, count], the plainest way: all anew each time."""
    tokens_BS = np.asarray(prompt_BT, np.int64)
    for _ in range(count):
        newest_B = logits(tokens_BS)[:, -1].argmax(-1)
        tokens_BS = np.concatenate([tokens_BS, newest_B[:, None]], 1)
    return tokens_BS[:, prompt_BT.shape[1] :]
