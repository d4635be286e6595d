"""Rows that grow: a layer's far memory, one row a token, kept for as long as the sequence lives.

Packed storage is `uint8[batch, capacity, entry_bytes]`: what is kept is bytes, and bytes are
what is counted. Float storage keeps the same numbers unrounded, for proofs in float64.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..layouts import Layout
from .packing import pack, unpack

Storage = Literal["packed", "float32", "float64"]
FLOATS = {"float32": torch.float32, "float64": torch.float64}


class Rows:
    """Up to `capacity` rows for each of `batch` sequences of equal length.

    dtype is what `read` returns; float storage returns its own. kernels: how packed rows are
    made and read, see `packing.pack`. as_bytes: packed rows are returned as they lie, under the
    name "row", for a kernel that reads those. Errors: ValueError for an unknown storage.
    """

    def __init__(
        self,
        layout: Layout,
        batch: int,
        capacity: int,
        storage: Storage = "packed",
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        if storage != "packed" and storage not in FLOATS:
            raise ValueError(f"storage is {storage!r}; it must be 'packed', 'float32' or 'float64'")
        self.layout, self.batch, self.capacity = layout, batch, capacity
        self.storage, self.length = storage, 0
        self.kernels: str | None = None
        self.as_bytes = False
        self.dtype = FLOATS.get(storage, dtype)
        self.fields = {f.name: f.count for f in layout.data}
        if storage == "packed":
            sizes, kept = {"row": layout.nbytes}, torch.uint8
        else:
            sizes, kept = self.fields, self.dtype
        self.buffers = {
            name: torch.zeros(batch, capacity, size, dtype=kept, device=device)
            for name, size in sizes.items()
        }

    def extend(self, new: dict[str, Float[Tensor, "B T _"]]) -> dict[str, Float[Tensor, "B S _"]]:
        """Store the new rows behind the old ones and return all of them.

        Errors: ValueError if a field is missing or misshapen, or the rows would not fit;
        nothing is stored then.
        """
        count = self._check(new)
        for name, rows in self.encode(new).items():
            self.buffers[name][:, self.length : self.length + count] = rows
        self.length += count
        return self.read()

    def read(self) -> dict[str, Float[Tensor, "B S _"]]:
        """All rows so far, as numbers."""
        return self.decode({name: b[:, : self.length] for name, b in self.buffers.items()})

    def packed(self) -> Tensor:
        """The rows as they lie in memory: uint8[batch, length, entry_bytes]."""
        if self.storage != "packed":
            raise ValueError(f"these rows are stored as {self.storage}, not as packed bytes")
        return self.buffers["row"][:, : self.length]

    def encode(self, numbers: dict[str, Tensor]) -> dict[str, Tensor]:
        """Numbers to what is stored."""
        numbers = {name: x.detach() for name, x in numbers.items()}
        if self.storage == "packed":
            return {"row": pack(self.layout, numbers, self.kernels)}
        return {name: x.to(self.dtype) for name, x in numbers.items()}

    def decode(self, stored: dict[str, Tensor]) -> dict[str, Tensor]:
        """What is stored back to numbers, if it is numbers that are wanted."""
        if "row" not in stored or self.as_bytes:
            return stored
        return unpack(self.layout, stored["row"], self.dtype, self.kernels)

    def as_stored(self, numbers: dict[str, Tensor]) -> dict[str, Tensor]:
        """What would come back if these numbers were rows: rounded as rows are, kept nowhere."""
        return self.decode(self.encode(numbers))

    @property
    def device(self) -> torch.device:
        return next(iter(self.buffers.values())).device

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, taken from the storage itself."""
        return sum(b.shape[-1] * b.element_size() for b in self.buffers.values())

    @property
    def nbytes(self) -> int:
        """Bytes in use, all sequences together; spare capacity not counted."""
        return sum(b[:, : self.length].nbytes for b in self.buffers.values())

    def advance(self, rows: int) -> None:
        """Count the next `rows` rows as used without writing them (they hold zeros)."""
        self._check_room(rows)
        self.length += rows

    def adopt(self, other: "Rows", rows: int) -> None:
        """Start over with the first `rows` rows of another store of this layout, bit for bit."""
        self.reset()
        for name, buffer in self.buffers.items():
            buffer[:, :rows] = other.buffers[name][:, :rows]
        self.length = rows

    def reset(self) -> None:
        """Forget everything: a reset cache is as clean as a new one."""
        self.length = 0
        for b in self.buffers.values():
            b.zero_()

    def _check(self, new: dict[str, Tensor]) -> int:
        if set(new) != set(self.fields):
            raise ValueError(f"rows have fields {sorted(new)}; expected {sorted(self.fields)}")
        count = next(iter(new.values())).shape[1]
        for name, size in self.fields.items():
            seen, want = tuple(new[name].shape), (self.batch, count, size)
            if seen != want:
                raise ValueError(f"field {name!r} has shape {seen}; expected {want}")
        self._check_room(count)
        return count

    def _check_room(self, count: int) -> None:
        if self.length + count > self.capacity:
            raise ValueError(
                f"{count} new rows do not fit: {self.length} of {self.capacity} are in use; "
                "make the cache with a larger capacity"
            )
