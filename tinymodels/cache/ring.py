"""A window of rows: the newest W, each written over the one that is W positions older.

Memory stays constant however long the text grows. The row of position p lies in slot p mod W.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ..layouts import Layout
from .rows import Rows, Storage


class Ring(Rows):
    """Rows whose `capacity` is the window. `length` counts the rows in use, `seen` is the position
    of the next one."""

    def __init__(
        self,
        layout: Layout,
        batch: int,
        window: int,
        storage: Storage = "packed",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        super().__init__(layout, batch, window, storage, dtype, device)
        self.seen = 0

    def extend(self, new: dict[str, Float[Tensor, "B T _"]]) -> dict[str, Float[Tensor, "B S _"]]:
        """Store the newest rows; return the kept ones and all T new ones, oldest first.

        The T queries of a chunk need rows that this chunk pushes out, so S can exceed the window.
        """
        count = self._check(new)
        old = self.in_order()
        fresh = self.encode(new)
        kept = {name: torch.cat([old[name], fresh[name]], dim=1) for name in fresh}
        newest = min(count, self.capacity)
        positions = torch.arange(self.seen + count - newest, self.seen + count)
        slots = (positions % self.capacity).to(next(iter(fresh.values())).device)
        for name, buffer in self.buffers.items():
            buffer[:, slots] = fresh[name][:, count - newest :]
        self.advance(count)
        return self.decode(kept)

    def read(self) -> dict[str, Float[Tensor, "B S _"]]:
        """The rows in use, oldest first, as numbers."""
        return self.decode(self.in_order())

    def in_order(self) -> dict[str, Tensor]:
        """The rows in use as stored, oldest first."""
        slots = torch.arange(self.seen - self.length, self.seen) % self.capacity
        return {name: b[:, slots.to(b.device)] for name, b in self.buffers.items()}

    def advance(self, rows: int) -> None:
        self.seen += rows
        self.length = min(self.length + rows, self.capacity)

    def restart(self, position: int) -> None:
        """Forget all rows; the next one is that of token `position`."""
        self.reset()
        self.seen = position

    def reset(self) -> None:
        super().reset()
        self.seen = 0

    def _check_room(self, count: int) -> None:
        """A ring always has room."""
