"""Random choices that come out the same on every machine and every Python.

Only `random.Random.random()` promises one sequence for ever; how `choice` and `shuffle` turn it
into a choice has changed between Python releases. So the choices here are made from it directly.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Dice:
    """A stream of choices named by its seed: `Dice("text", 0, 17)` is always the same stream."""

    def __init__(self, *seed: str | int):
        self._random = random.Random("/".join(str(part) for part in seed)).random

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        if n < 1:
            raise ValueError(f"Dice.below({n}): n must be at least 1")
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self._random() < probability

    def choice(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """`count` different items, in random order."""
        if count > len(items):
            raise ValueError(f"Dice.sample: {count} items asked from {len(items)}")
        pool = list(items)
        for i in range(count):
            j = i + self.below(len(pool) - i)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """All items, in random order."""
        return self.sample(items, len(items))
