"""Far rows of a `ModelCache` as raw bytes, piece by piece, and back: bit for bit.

Rows that were made after a replay are as good as their windows were, and say so in a field of
their own, which the checksum covers like all others.
"""

import hashlib
import os
from collections.abc import Iterator

import numpy as np
import torch

from ..cache import ModelCache

REPLAYED = "replayed"


def fingerprint(model, storage: str) -> str:
    """What rows depend on beside the text: configuration, weights, and how they are stored.

    Parts of somebody's own are in none of these, and their code may change: each call for a model
    that has some gives another name.
    """
    digest = hashlib.sha256(f"{model.config!r}{storage}{model.dtype}".encode())
    if model.parts.own():
        digest.update(os.urandom(32))
    for name, weight in model.state_dict().items():
        digest.update(name.encode())
        digest.update(_raw(weight).tobytes())
    return digest.hexdigest()


def versions(model) -> list[tuple[int, int]]:
    """Where each weight lies and how often it was written: another list, other weights. (What is
    written through `.data` is not counted.)"""
    weights = (*model.parameters(), *model.buffers())
    return [(w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights]


def piece(
    cache: ModelCache, start: int, end: int, after_replay: bool = False
) -> dict[str, np.ndarray]:
    """The far rows of tokens `start` to `end` of the one text in the cache, as bytes.

    after_replay: they depend on windows that a replay made. Errors: ValueError if a group would
    be cut, or not all of them are cached.
    """
    if not 0 <= start < end <= cache.length:
        raise ValueError(f"tokens {start} to {end} are asked for; {cache.length} are cached")
    found = {}
    for name, buffer, ratio in _buffers(cache):
        if start % ratio or end % ratio:
            raise ValueError(f"tokens {start} to {end} cut a group of {ratio} ({name})")
        found[name] = _raw(buffer[0, start // ratio : end // ratio])
    if after_replay:
        found[REPLAYED] = np.ones(1, np.uint8)
    return found


def replayed(piece: dict[str, np.ndarray]) -> bool:
    """Whether its rows depend on windows that a replay made."""
    return REPLAYED in piece


def lay(cache: ModelCache, pieces: list[dict[str, np.ndarray]], step: int) -> None:
    """Start the cache over with these pieces, the first tokens of a text.

    Windows are empty afterwards; see `ModelCache.adopt`. Errors: ValueError for rows of another
    shape.
    """
    tokens = step * len(pieces)
    source = ModelCache(
        cache.config, 1, tokens, cache.storage, dtype=_dtype(cache), device=_device(cache)
    )
    source.advance(tokens)
    for name, buffer, ratio in _buffers(source):
        for i, rows in enumerate(pieces):
            into = buffer[0, i * step // ratio : (i + 1) * step // ratio]
            raw = torch.from_numpy(rows[name]).to(buffer.device)
            if raw.shape[0] != into.shape[0]:
                raise ValueError(f"{name} has {raw.shape[0]} rows; {into.shape[0]} belong here")
            into.copy_(raw.view(into.dtype))
    cache.adopt(source, tokens)


def _buffers(cache: ModelCache) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Each buffer of far rows: a name, [1, capacity, numbers], tokens a row."""
    for c in cache.layers:
        for kind in ("main", "index"):
            store, planned = getattr(c, kind), getattr(c.plan, kind)
            if store is not None:
                for field, buffer in store.buffers.items():
                    yield f"layer{c.plan.layer}.{kind}.{field}", buffer, planned.ratio


def _raw(numbers: torch.Tensor) -> np.ndarray:
    """uint8[rows, bytes], whatever the numbers are."""
    flat = numbers.detach().cpu().contiguous()
    return flat.reshape(flat.shape[0], -1).view(torch.uint8).numpy().copy()


def _dtype(cache: ModelCache) -> torch.dtype:
    return next(store.dtype for c in cache.layers for store in c.stores())


def _device(cache: ModelCache) -> torch.device:
    return next(store.device for c in cache.layers for store in c.stores())
