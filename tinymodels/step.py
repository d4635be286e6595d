"""What one forward pass knows besides the stream: its tokens and where they stand.

A `Step` is a value. A layer that has something for later layers hands on a changed copy, so
nothing is kept in modules or globals and two passes can never mix.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Far:
    """What a V4.1 layer publishes for those after it: entries, index keys, and a choice of them.

    owner: the layer whose entries these are. index: the store of the owner's keys, by which
    index queries are rounded as keys are; None without a cache. pool_BTS: the positions that the
    candidate source keeps for later choices.
    """

    owner: int
    ratio: int
    entry_BSD: Float[Tensor, "B S D"]
    key_BSD: Float[Tensor, "B S D"]
    index: Any = None
    choice_BTk: Int[Tensor, "B T k"] | None = None
    pool_BTS: Bool[Tensor, "B T S"] | None = None


@dataclass(frozen=True)
class Step:
    """One chunk of T tokens whose first stands at position `start`.

    kernels: "triton" takes the course's kernels wherever they can answer, "torch" nowhere, None
    only on a GPU (see `impl`). losses: while training, what layers want to be
    trained on besides the text (an indexer's distance from attention); None: not asked for.
    far: what the nearest owner published. following: the residual of the next layer's attention,
    for a kernel that makes its input in passing; None after the last layer. windows_only: a
    replay, which rebuilds windows and only reads what else is cached.
    """

    tokens_BT: Int[Tensor, "B T"]
    start: int = 0
    kernels: str | None = None
    losses: tuple[Tensor, ...] | None = None
    far: Far | None = None
    following: Any = None
    windows_only: bool = False
    made: dict = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def positions_T(self) -> Int[Tensor, "T"]:
        end = self.start + self.tokens_BT.shape[1]
        return torch.arange(self.start, end, device=self.tokens_BT.device)

    def once(self, make: Callable, *of: Hashable):
        """make(self, *of), made for the first layer that asks and shared by all others: masks,
        angles, whatever depends on positions alone."""
        key = (make, self.start, self.tokens_BT.shape[1], *of)
        if key not in self.made:
            self.made[key] = make(self, *of)
        return self.made[key]

    def impl(self, *tensors: Tensor) -> str:
        """Which implementation takes these tensors in this pass: "triton" or "torch".

        The kernels have no float64 and give no gradient: with float64, and where gradients are
        recorded (outside torch.no_grad()), it is torch, whatever `kernels` says. Errors:
        ValueError for another word in `kernels`.
        """
        if self.kernels not in (None, "triton", "torch"):
            raise ValueError(f'kernels is {self.kernels!r}; it is "triton", "torch" or None')
        if self.kernels == "torch" or not (self.kernels or tensors[0].is_cuda):
            return "torch"
        if torch.is_grad_enabled() or any(x.dtype == torch.float64 for x in tensors):
            return "torch"
        from kernels import backend

        return "triton" if self.kernels or backend.current().runs_triton else "torch"
