"""Inputs for checks: seeded, with sizes that are all different and no powers of two.

Equal sizes hide a swapped axis (a 4 x 4 matrix transposed is still 4 x 4); powers of
two hide a forgotten remainder. So sizes are drawn from what is left.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

_SIZES = (3, 5, 6, 7, 9, 10, 11, 12, 13)


class Draw:
    """A stream of inputs that depends on `seed` and `key` alone (stateful: it advances)."""

    def __init__(self, seed: int, key: str = "") -> None:
        digest = hashlib.sha256(f"{seed}/{key}".encode()).digest()
        self.random = np.random.default_rng(list(digest[:16]))

    def sizes(self, count: int) -> list[int]:
        """`count` different sizes (3 to 13, no power of two), in random order."""
        return [int(size) for size in self.random.permutation(_SIZES)[:count]]

    def integer(self, low: int, high: int) -> int:
        """A whole number, low <= n <= high."""
        return int(self.random.integers(low, high + 1))

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        import torch

        values = self.random.standard_normal(shape) * scale
        return torch.tensor(values, dtype=torch.float32)

    def tokens(self, *shape: int, vocabulary: int) -> Tensor:
        import torch

        return torch.tensor(self.random.integers(0, vocabulary, shape), dtype=torch.int64)


CHECK_SEEDS = (0, 1, 2)


def student_seeds(student: str, count: int = 3) -> tuple[int, ...]:
    """The seeds a student is graded on: others than check()'s, the same at every grading."""
    digest = hashlib.sha256(f"student:{student}".encode()).digest()
    return tuple(1000 + int.from_bytes(digest[4 * i : 4 * i + 4], "big") for i in range(count))
