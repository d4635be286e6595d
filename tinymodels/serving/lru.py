"""Within a budget of bytes, who was not asked for the longest has to go (LRU).

Pieces of one text hang together: without the first, the others cannot be found. So when a chain
is used, its last piece counts as used first and its first one last. Then whoever is next to go
has nobody who depends on it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

Name: TypeAlias = Any  # whatever can be a key: the digest of a chunk, the number of a block


class Lru:
    """Names with their sizes in bytes, the least recently used first. `used` never exceeds
    `budget`, not even for a moment: room is made before anything comes in."""

    def __init__(self, budget: int):
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
            raise ValueError(f"budget is {budget!r}; it must be a number of bytes >= 0")
        self.budget, self.used = budget, 0
        self._sizes: OrderedDict[Name, int] = OrderedDict()

    def __contains__(self, name: Name) -> bool:
        return name in self._sizes

    def __iter__(self) -> Iterator[Name]:
        """The next to go first."""
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def held(self, chain: Iterable[Name]) -> int:
        """How many pieces of a chain are there without a gap, from the first."""
        count = 0
        for name in chain:
            if name not in self._sizes:
                break
            count += 1
        return count

    def touch(self, chain: list[Name]) -> None:
        """A chain was used: its first piece is now the most recent."""
        for name in reversed(chain):
            self._sizes.move_to_end(name)

    def room(self, size: int, keep: Iterable[Name] = ()) -> list[Name] | None:
        """Who has to go so that `size` bytes fit, in order; None if they cannot.

        keep: names that have to stay, as what comes in depends on them.
        """
        free, leaving = self.budget - self.used, []
        keep = keep if isinstance(keep, set | frozenset) else frozenset(keep)
        for name, held in self._sizes.items():
            if free >= size:
                break
            if name not in keep:
                leaving.append(name)
                free += held
        return leaving if free >= size else None

    def add(self, name: Name, size: int) -> None:
        """As the most recent. Errors: ValueError if it is there, or there is no room."""
        if name in self._sizes:
            raise ValueError(f"{name} is held already")
        if self.used + size > self.budget:
            raise ValueError(
                f"{size} bytes do not fit: {self.used} of {self.budget} are used; make room first"
            )
        self._sizes[name] = size
        self.used += size

    def drop(self, name: Name) -> int:
        """Its size; 0 if it was not there."""
        if name not in self._sizes:
            return 0
        size = self._sizes[name]
        del self._sizes[name]  # as in add(): no call between the two, so no interrupt either
        self.used -= size
        return size
