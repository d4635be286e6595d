"""The sizes of one call to an attention kernel, to be made into tensors or into traffic."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels import backend


@dataclass(frozen=True)
class AttentionShape:
    """`tokens` new tokens against `entries` cached ones; see the kernels for the letters."""

    label: str
    batch: int
    tokens: int
    entries: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int | None = None  # the head dim of the value, if it differs
    window: int | None = None
    lengths: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float32

    def arguments(self, device="cpu", seed=0) -> dict:
        """Keyword arguments of the public function: normal random numbers."""
        draw = drawing(self.dtype, device, seed)
        lengths = self.lengths and torch.tensor(self.lengths, dtype=torch.int32, device=device)
        value_dim = self.value_dim or self.head_dim
        return dict(query_BTHD=draw(self.batch, self.tokens, self.heads, self.head_dim),
                    key_BSKD=draw(self.batch, self.entries, self.kv_heads, self.head_dim),
                    value_BSKD=draw(self.batch, self.entries, self.kv_heads, value_dim),
                    window=self.window, lengths=lengths)

    def sizes(self) -> dict:
        """Keyword arguments of a kernel's `traffic`, but for the blocks it chooses."""
        return dict(batch=self.batch, entries=self.entries, heads=self.heads,
                    kv_heads=self.kv_heads, head_dim=self.head_dim, value_dim=self.value_dim,
                    window=self.window, lengths=self.lengths, itemsize=self.dtype.itemsize)


def drawing(dtype, device="cpu", seed=0):
    """A function that draws tensors of a shape, on the device they are for: real shapes have
    billions of numbers. Where kernels are only compiled, the tensors stay unfilled: no
    memory of theirs is touched."""
    if backend.current().name == "offline":
        return lambda *shape: torch.empty(shape, dtype=dtype)
    generator = torch.Generator(device).manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, device=device).to(dtype)
