"""Rotary positions (RoPE, arXiv 2104.09864): turn pairs of values by an angle that grows with
the position. The score of a query at p against a key at s then depends on p - s alone.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..config import Rope
from ..step import Step


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


class Turn(NamedTuple):
    """Cosine and sine of every pair's angle at T positions, and which values form pairs."""

    cos_TR: Float[Tensor, "T R/2"]
    sin_TR: Float[Tensor, "T R/2"]
    pairs: str


def turn_of(rope: Rope, positions_T: Int[Tensor, "T"], dtype: torch.dtype) -> Turn:
    """Computed in float64, rounded to `dtype` last."""
    angle_TR = angles(rope, positions_T)
    return Turn(angle_TR.cos().to(dtype), angle_TR.sin().to(dtype), rope.pairs)


def turn_of_step(step: Step, rope: Rope, dtype: torch.dtype) -> Turn:
    """That of a pass's own positions. Layers share it: `step.once(turn_of_step, rope, dtype)`."""
    return turn_of(rope, step.positions_T, dtype)


def rotate(
    x: Float[Tensor, "B T *heads R"], rope: Rope, positions_T: Int[Tensor, "T"], back: bool = False
) -> Float[Tensor, "B T *heads R"]:
    """Turn the pairs of `x` by their position's angle; `back=True` turns them the other way.

    Errors: ValueError if x's last dimension is not rope.dim, or T differs from positions.
    """
    turn = turn_of(rope, positions_T, x.dtype)
    return rotate_by(x, turn._replace(sin_TR=-turn.sin_TR) if back else turn)


def rotate_by(x: Float[Tensor, "B T *heads R"], turn: Turn) -> Float[Tensor, "B T *heads R"]:
    """Turn the pairs of `x` by angles that are there already. Errors: as `rotate`."""
    T, half = turn.cos_TR.shape
    if x.shape[-1] != 2 * half or x.shape[1] != T:
        raise ValueError(
            f"rotate: x has shape {tuple(x.shape)}; expected [B, {T}, ..., {2 * half}]"
        )
    return rotate_tail(x, turn)


def rotate_tail(
    x: Float[Tensor, "B T *heads D"], turn: Turn, back: bool = False
) -> Float[Tensor, "B T *heads D"]:
    """Turn the last numbers, as many as `turn` has angles for, and leave the others."""
    T, half = turn.cos_TR.shape
    shape = T, *[1] * (x.dim() - 3), half
    cos, sin = turn.cos_TR.view(shape), turn.sin_TR.view(shape)
    turned = _Turned.apply if x.requires_grad else _turned
    return turned(x, cos, -sin if back else sin, turn.pairs)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, pairs: str) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    first, second = _pairs(x, cos.shape[-1], pairs)
    out_first, out_second = _pairs(out, cos.shape[-1], pairs)
    out_first.mul_(cos).addcmul_(second, sin, value=-1)
    out_second.mul_(cos).addcmul_(first, sin)
    return out


class _Turned(torch.autograd.Function):
    """The gradient of a rotation is turned back by the same angle."""

    @staticmethod
    def forward(ctx, x, cos, sin, pairs):
        ctx.save_for_backward(cos, sin)
        ctx.pairs = pairs
        return _turned(x, cos, sin, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return _turned(grad, cos, -sin, ctx.pairs), None, None, None


def _pairs(x: Tensor, half: int, pairs: str) -> tuple[Tensor, Tensor]:
    """The first and the second of each pair in the last numbers."""
    start = x.shape[-1] - 2 * half
    if pairs == "adjacent":
        return x[..., start::2], x[..., start + 1 :: 2]
    return x[..., start : start + half], x[..., start + half :]
