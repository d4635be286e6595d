"""The caches of exercise 13.7: right ones, built in different ways, and six broken ones.

A cache keeps a window of the newest rows, turned to their positions, and an entry for every
`group` tokens, their mean. What is right is a function of the text alone.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from tinymodels.attention.rope import rotate
from tinymodels.config import Rope

FAULTS = (
    "a stale position", "no reset", "a leaked batch row", "a window off by one",
    "a scale on the wrong axis", "a group that closes too early",
)  # fmt: skip


def _text(x_BTD: Tensor, batch: int, dim: int) -> Tensor:
    if not isinstance(x_BTD, Tensor) or x_BTD.ndim != 3 or x_BTD.shape[::2] != (batch, dim):
        shape = list(getattr(x_BTD, "shape", [])) or type(x_BTD).__name__
        raise ValueError(f"append takes tokens [{batch}, T, {dim}]; got {shape}")
    return x_BTD.detach().clone()


class Plain:
    """Keeps the text and computes everything anew: slow, and hard to get wrong."""

    def __init__(self, batch: int, dim: int, window: int, group: int):
        if dim % 2 or window < 2 or group < 1:
            raise ValueError(
                f"dim must be even, window at least 2: got dim={dim}, window={window}, "
                f"group={group}"
            )
        self.batch, self.dim, self.window, self.group = batch, dim, window, group
        self.rope = Rope(dim)
        self.reset()

    def reset(self) -> None:
        self.text = torch.zeros(self.batch, 0, self.dim)

    def select(self, order_B: Tensor) -> None:
        self.text = self.text[torch.as_tensor(order_B)]

    def append(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        self.text = torch.cat([self.text, _text(x_BTD, self.batch, self.dim)], 1)
        turned = rotate(self.text, self.rope, torch.arange(self.text.shape[1]))
        count = self.text.shape[1] // self.group
        whole = self.text[:, : count * self.group]
        return turned[:, -self.window :].clone(), whole.unflatten(1, (count, self.group)).mean(2)


class Careful(Plain):
    """Keeps only what it needs, token by token; each fault is a switch.

    bits: rows are kept in 8 bits with a scale for each row. dice: they are rounded up or down
    by chance, the nearer the likelier (stochastic rounding).
    """

    def __init__(self, fault: str = "", bits: bool = False, dice: bool = False, **sizes: int):
        self.fault, self.bits, self.dice = fault, bits or fault == FAULTS[4], dice
        self.position, self.sums = 0, None
        super().__init__(**sizes)

    def reset(self) -> None:
        self.rows: list[Tensor] = []
        self.entries: list[Tensor] = []
        if self.fault == FAULTS[1] and self.sums is not None:
            return  # the half-built group and the position of the old text stay
        self.position, self.waiting = 0, 0
        self.sums = torch.zeros(self.batch, self.dim)

    def select(self, order_B: Tensor) -> None:
        order = torch.as_tensor(order_B).tolist()
        for tensor in (*self.rows, *self.entries, self.sums):
            if self.fault == FAULTS[2]:
                for i, b in enumerate(order):
                    tensor[i] = tensor[b]
            else:
                tensor.copy_(tensor[order])

    def append(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        x_BTD = _text(x_BTD, self.batch, self.dim)
        if self.fault == FAULTS[0]:
            self.position = 0
        at = torch.arange(self.position, self.position + x_BTD.shape[1])
        self.rows += self._kept(rotate(x_BTD, self.rope, at)).unbind(1)
        self.position += x_BTD.shape[1]
        size = self.window + (self.fault == FAULTS[3])
        self.rows = [row.clone() for row in self.rows[-size:]]
        for x_BD in x_BTD.unbind(1):
            self.sums, self.waiting = self.sums + x_BD, self.waiting + 1
            if self.waiting == self.group:
                self._close()
        if self.fault == FAULTS[5] and self.waiting:
            self._close()
        return self._stacked(self.rows), self._stacked(self.entries)

    def _close(self) -> None:
        self.entries.append(self.sums / self.waiting)
        self.sums, self.waiting = torch.zeros(self.batch, self.dim), 0

    def _kept(self, row_BTD: Tensor) -> Tensor:
        if not self.bits:
            return row_BTD
        axes = (1, 2) if self.fault == FAULTS[4] else (2,)
        scale = row_BTD.abs().amax(axes, keepdim=True).clamp(min=1e-30) / 127
        code = row_BTD / scale
        code = (code + torch.rand(code.shape)).floor() if self.dice else code.round()
        return code * scale

    def _stacked(self, rows: list[Tensor]) -> Tensor:
        return torch.stack(rows, 1) if rows else torch.zeros(self.batch, 0, self.dim)


RIGHT = (Plain, Careful, partial(Careful, bits=True), partial(Careful, bits=True, dice=True))


def broken(fault: str):
    """The maker of the cache with this fault."""
    return partial(Careful, fault)
