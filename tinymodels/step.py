"""What one forward pass knows besides the stream: its tokens and where they stand.

A `Step` is a value. A layer that has something for later layers hands on a changed copy, so
nothing is kept in modules or globals and two passes can never mix.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Step:
    """One chunk of T tokens whose first stands at position `start`.

    kernels: "triton" or "torch", how attention is computed; None: compiled Triton on CUDA where
    no gradient is needed, plain torch otherwise. losses: while training, what layers want to be
    trained on besides the text (an indexer's distance from attention); None: not asked for.
    """

    tokens_BT: Int[Tensor, "B T"]
    start: int = 0
    kernels: str | None = None
    losses: tuple[Tensor, ...] | None = None

    @cached_property
    def positions_T(self) -> Int[Tensor, "T"]:
        end = self.start + self.tokens_BT.shape[1]
        return torch.arange(self.start, end, device=self.tokens_BT.device)

    def impl(self, x: Tensor) -> str:
        """Which implementation to use for tensor `x` in this pass."""
        if self.kernels is not None:
            return self.kernels
        return "triton" if x.is_cuda and not x.requires_grad else "torch"
