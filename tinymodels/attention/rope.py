"""Rotary positions (RoPE, arXiv 2104.09864): turn pairs of values by an angle that grows with
the position. The score of a query at p against a key at s then depends on p - s alone.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..config import Rope


def frequencies(rope: Rope) -> Float[Tensor, "R/2"]:
    """Radians per position of each pair, in float64.

    Pair i turns by theta^(-2i/R). With YaRN (arXiv 2309.00071, section 3.2) the slow pairs turn
    `factor` times slower, the fast ones as before, those between on a ramp.
    """
    exponent = torch.arange(0, rope.dim, 2, dtype=torch.float64) / rope.dim
    freq = rope.theta**-exponent
    y = rope.yarn
    if y is None:
        return freq

    def pair_that_turns(times: float) -> float:
        """The pair that turns `times` full circles over the original context."""
        ratio = y.original_context / (times * 2 * math.pi)
        return rope.dim * math.log(ratio) / (2 * math.log(rope.theta))

    low = max(math.floor(pair_that_turns(y.beta_fast)), 0)
    high = min(math.ceil(pair_that_turns(y.beta_slow)), rope.dim - 1)
    span = max(high - low, 0.001)
    pairs = torch.arange(rope.dim // 2, dtype=torch.float64)
    slowed = ((pairs - low) / span).clamp(0, 1)
    return freq * (1 - slowed) + freq / y.factor * slowed


def angles(rope: Rope, positions_T: Int[Tensor, "T"]) -> Float[Tensor, "T R/2"]:
    """The angle of every pair at every position, in float64: large positions stay exact."""
    freq = frequencies(rope).to(positions_T.device)
    return positions_T.double()[:, None] * freq


def rotate(
    x: Float[Tensor, "B T *heads R"], rope: Rope, positions_T: Int[Tensor, "T"], back: bool = False
) -> Float[Tensor, "B T *heads R"]:
    """Turn the pairs of `x` by their position's angle; `back=True` turns them the other way.

    Errors: ValueError if x's last dimension is not rope.dim, or T differs from positions.
    """
    if x.shape[-1] != rope.dim or x.shape[1] != len(positions_T):
        raise ValueError(
            f"rotate: x has shape {tuple(x.shape)}; "
            f"expected [B, {len(positions_T)}, ..., {rope.dim}]"
        )
    angle = angles(rope, positions_T)
    if back:
        angle = -angle
    angle = angle.reshape(len(positions_T), *[1] * (x.dim() - 3), rope.dim // 2)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    if rope.pairs == "adjacent":
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x.chunk(2, dim=-1)
    turned = first * cos - second * sin, first * sin + second * cos
    if rope.pairs == "adjacent":
        return torch.stack(turned, dim=-1).flatten(-2)
    return torch.cat(turned, dim=-1)
