"""The feed-forward network: each token alone, the same weights for all, nothing remembered.

y = W_down (silu(W_gate x) * W_up x)                             (SwiGLU, arXiv 2002.05202)
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .config import Dense
from .parts import Parts


class FeedForward(nn.Module):
    def __init__(self, width: int, config: Dense, parts: Parts):
        super().__init__()
        if not config.gated:
            raise ValueError("FeedForward: only the gated form (SwiGLU) is built; set gated=True")
        self.limit, self.parts = config.limit, parts
        self.gate = nn.Linear(width, config.width, bias=config.bias)
        self.up = nn.Linear(width, config.width, bias=config.bias)
        self.down = nn.Linear(config.width, width, bias=config.bias)

    def forward(self, x_BTX: Float[Tensor, "*B X"]) -> Float[Tensor, "*B X"]:
        return self.down(self.parts.swiglu(self.gate(x_BTX), self.up(x_BTX), self.limit))


def swiglu(
    gate: Float[Tensor, "*B F"], up: Float[Tensor, "*B F"], limit: float | None = None
) -> Float[Tensor, "*B F"]:
    """silu(gate) * up. With a limit (V4), first gate <= limit and -limit <= up <= limit."""
    if limit is not None:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return F.silu(gate) * up
