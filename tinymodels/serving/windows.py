"""Window rows between requests: in memory alone, and only for a while.

They are large (at real size as much as three thousand tokens of V4.1's far rows), they are soon
out of date, and W tokens bring them back. So nobody writes them to a disk: whoever comes back
within `ttl` seconds goes on at once; for whoever comes later they are rebuilt (`ced.resume`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..cache import ModelCache
from .lru import Lru


@dataclass(frozen=True)
class Near:
    """All of a cache that is not far rows, at one place of a text.

    replayed: a replay made them, or went before them. fresh: no decoder (V4.1) has run before.
    """

    length: int
    rings: tuple[tuple[dict[str, torch.Tensor], int, int] | None, ...]
    opened: tuple[torch.Tensor | None, ...]
    pending: Any
    nbytes: int
    replayed: bool = False
    fresh: bool = True


def take(cache: ModelCache, replayed: bool = False, fresh: bool = True) -> Near:
    """A copy of the windows, the half-built groups, and what waits for the decoder."""
    rings = tuple(
        None
        if c.window is None
        else ({n: b.clone() for n, b in c.window.buffers.items()}, c.window.length, c.window.seen)
        for c in cache.layers
    )
    opened = tuple(None if c.open is None else c.open.clone() for c in cache.layers)
    pending = cache.pending
    if pending is not None:  # its tokens are a part of the prompt, which would all be kept
        pending = pending._replace(tokens_BT=pending.tokens_BT.clone())
    held = [b for ring in rings if ring for b in ring[0].values()]
    held += [state for state in opened if state is not None]
    held += _tensors(pending)
    nbytes = sum(t.nbytes for t in held)
    return Near(cache.length, rings, opened, pending, nbytes, replayed, fresh)


def give(cache: ModelCache, near: Near) -> None:
    """Put them into a cache that has the far rows of the same tokens.

    Errors: ValueError if it has another number of them.
    """
    if cache.length != near.length:
        raise ValueError(f"windows after {near.length} tokens; the cache has {cache.length}")
    for c, ring, opened in zip(cache.layers, near.rings, near.opened, strict=True):
        if ring is not None:
            buffers, c.window.length, c.window.seen = ring
            for name, buffer in buffers.items():
                c.window.buffers[name].copy_(buffer)
        if opened is not None:
            c.open.copy_(opened)
    cache.pending = near.pending
    cache.without_windows = False


def _tensors(pending) -> list[torch.Tensor]:
    if pending is None:
        return []
    stream = pending.stream
    parts = stream if isinstance(stream, tuple) else (stream,)
    return [pending.tokens_BT, *(x for x in parts if isinstance(x, torch.Tensor))]


class Windows:
    """Windows by the name of the prefix they follow, within a budget, `ttl` seconds long.

    clock: seconds, from wherever; a test passes one that it moves itself.
    """

    def __init__(self, budget: int, ttl: float, clock: Callable[[], float]):
        if not ttl >= 0:
            raise ValueError(f"ttl is {ttl!r}; it must be a number of seconds >= 0")
        self.lru, self.ttl, self.clock = Lru(budget), ttl, clock
        self._held: dict[str, tuple[Near, float]] = {}

    def __contains__(self, name: str) -> bool:
        self._expire()
        return name in self._held

    def get(self, name: str) -> Near | None:
        """The windows, if they are there and not too old; they are young again then."""
        self._expire()
        if name not in self._held:
            return None
        near, _ = self._held[name]
        self._held[name] = (near, self.clock())
        self.lru.touch([name])
        return near

    def put(self, name: str, near: Near) -> None:
        """Keep them, if the budget has room at all."""
        self._expire()
        self._drop(name)
        leaving = self.lru.room(near.nbytes)
        if leaving is None:
            return
        for old in leaving:
            self._drop(old)
        self.lru.add(name, near.nbytes)
        self._held[name] = (near, self.clock())

    def _expire(self) -> None:
        """Let go of the old, and of all whose age makes no sense: a clock may be set back."""
        now = self.clock()
        for name in [n for n, (_, since) in self._held.items() if not 0 <= now - since < self.ttl]:
            self._drop(name)

    def _drop(self, name: str) -> None:
        """First the windows, then what they count: an interrupt between them frees too little."""
        self._held.pop(name, None)
        self.lru.drop(name)
