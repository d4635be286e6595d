"""Groups to entries: m tokens become one, weighed for each channel by itself.

Every token has a value and a gate of D channels. Entry j pools the m tokens of group j:

    entry_j,d = sum_r softmax_r(gate_jm+r,d + bias_r,d) * value_jm+r,d         r = 0 .. m - 1

V4.1 has m = 2 and no bias, V4's HCA m = 128 and a bias for each place in the group. V4's
CSA (m = 4) overlaps: a token has 2 D channels, the first D for the group after its own
and the last D for its own, so entry j pools 2 m rows. The first group of a text has none
before it: those rows weigh nothing, and m are left.

Nothing is multiplied in bulk here, so the time is that of reading value and gate once.
A program takes whole groups, and the rows before a group are read again by the group
they lie before, but other channels of them: no number is read twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton

if TYPE_CHECKING:
    from jaxtyping import Float

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_GROUP = 128  # rows that one entry pools, its neighbour's not counted


def group_pool(
    value_BSC: Float[Tensor, "B S C"],
    gate_BSC: Float[Tensor, "B S C"],
    ratio: int,
    *,
    bias_MC: Float[Tensor, "M C"] | None = None,
    overlap: bool = False,
    after_another: bool = False,
    impl: str | None = None,
) -> Float[Tensor, "B G D"]:
    """One entry for each whole group of `ratio` tokens, before its norm and its RoPE.

    Args:
        value_BSC, gate_BSC: S tokens from the first of a group on, any strides. C is D,
            or 2 D with overlap. Tokens of an unfinished group at the end are not read.
        ratio: tokens in a group, 1 to 128.
        bias_MC: added to the gates, by the token's place in its group.
        overlap: pool of the group before the first D channels, of its own the last D.
        after_another: the tokens begin with a group that only serves the next one, as it
            does when a text continues; needs overlap.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Returns G = S // ratio entries (one less with after_another) in the value's dtype;
    sums are in fp32. Raises ValueError naming the argument, its shape and what was
    expected.
    """
    sizes = arguments.match(value=("B S C", value_BSC), gate=("B S C", gate_BSC))
    groups = _check(sizes, ratio, overlap, after_another)
    tensors = {"value": value_BSC, "gate": gate_BSC}
    if bias_MC is not None:
        arguments.match(value=("B S C", value_BSC), bias=("M C", bias_MC))
        if bias_MC.shape[0] != ratio:
            raise ValueError(f"bias has shape {tuple(bias_MC.shape)}; expected {ratio} rows, one "
                             "for each place in a group")
        tensors["bias"] = bias_MC
    if not backend.use_triton(impl, DTYPES, **tensors):
        return twin(value_BSC, gate_BSC, ratio, bias_MC, overlap, after_another)
    arguments.in_32_bits(1, **tensors)
    width = sizes["C"] // 2 if overlap else sizes["C"]
    entry_BGD = value_BSC.new_empty(sizes["B"], groups, width)
    blocks = _blocks(groups, ratio, width, overlap)
    channels = -(-width // blocks["BLOCK_D"])
    bias_strides = (0, 0) if bias_MC is None else bias_MC.stride()
    _pool[(sizes["B"] * -(-groups // blocks["BLOCK_G"]) * channels,)](
        value_BSC, gate_BSC, bias_MC, entry_BGD, groups, *value_BSC.stride(),
        *gate_BSC.stride(), *bias_strides, RATIO=ratio, WIDTH=width, OVERLAP=overlap,
        SKIPPED=int(after_another), **blocks)
    return entry_BGD


def _check(sizes, ratio, overlap, after_another) -> int:
    """How many entries there will be."""
    if isinstance(ratio, bool) or not isinstance(ratio, int) or not 1 <= ratio <= LARGEST_GROUP:
        raise ValueError(f"ratio is {ratio!r}; expected a whole number from 1 to {LARGEST_GROUP}")
    if after_another and not overlap:
        raise ValueError("after_another is True without overlap; only groups that overlap pool "
                         "of the one before")
    if overlap and sizes["C"] % 2:
        raise ValueError(f"value has {sizes['C']} channels; with overlap expected an even number: "
                         "half for the next group, half for its own")
    groups = sizes["S"] // ratio - int(after_another)
    if groups < 1:
        raise ValueError(f"value has {sizes['S']} tokens; expected at least "
                         f"{ratio * (1 + int(after_another))}, so that a group of {ratio} is whole")
    return groups


def twin(value_BSC, gate_BSC, ratio, bias_MC=None, overlap=False, after_another=False):
    """The same in plain torch, in fp32 or wider."""
    wide = torch.promote_types(value_BSC.dtype, torch.float32)
    whole = value_BSC.shape[1] // ratio
    value_BGMC, gate_BGMC = (x[:, :whole * ratio].unflatten(1, (whole, ratio)).to(wide)
                             for x in (value_BSC, gate_BSC))
    if bias_MC is not None:
        gate_BGMC = gate_BGMC + bias_MC.to(wide)
    if overlap:
        width = value_BSC.shape[2] // 2
        # Group j beside the group before it, both in their own half of the channels.
        value_BGMC = torch.cat([value_BGMC[..., :width].roll(1, 1), value_BGMC[..., width:]], 2)
        early_BGMD = gate_BGMC[..., :width].roll(1, 1)
        early_BGMD[:, 0] = -torch.inf
        gate_BGMC = torch.cat([early_BGMD, gate_BGMC[..., width:]], 2)
        # Nothing lies before group 0, and what rolled in there may be NaN: 0 * NaN is NaN.
        value_BGMC[:, 0, :ratio] = 0
    entry_BGD = (gate_BGMC.softmax(2) * value_BGMC).sum(2)
    return entry_BGD[:, int(after_another):].to(value_BSC.dtype)


@triton.jit
def _pool(
    value, gate, bias, entry, groups,
    value_b, value_s, value_c, gate_b, gate_s, gate_c, bias_m, bias_c,
    RATIO: tl.constexpr, WIDTH: tl.constexpr, OVERLAP: tl.constexpr, SKIPPED: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """One program: BLOCK_G groups of one sequence, BLOCK_D channels."""
    program = tl.program_id(0)  # (batch * blocks of groups + block) * blocks of channels + block
    channel_blocks: tl.constexpr = (WIDTH + BLOCK_D - 1) // BLOCK_D
    group_blocks = tl.cdiv(groups, BLOCK_G)
    batch = (program // channel_blocks // group_blocks).to(tl.int64)  # 64 bits: long caches
    group_G = program // channel_blocks % group_blocks * BLOCK_G + tl.arange(0, BLOCK_G)
    channel_D = program % channel_blocks * BLOCK_D + tl.arange(0, BLOCK_D)
    row_R = tl.arange(0, BLOCK_R)
    real_G = group_G < groups
    real_D = channel_D < WIDTH

    # The rows of an entry are tokens in a line: with overlap they begin one group earlier,
    # and the tokens of its own group give their last channels.
    rows: tl.constexpr = 2 * RATIO if OVERLAP else RATIO
    token_GR = (group_G[:, None] + SKIPPED - (1 if OVERLAP else 0)) * RATIO + row_R[None, :]
    there_GR = real_G[:, None] & (row_R < rows)[None, :] & (token_GR >= 0)
    there_GRD = there_GR[:, :, None] & real_D[None, None, :]
    channel_RD = channel_D[None, :]
    if OVERLAP:
        channel_RD = channel_RD + (row_R >= RATIO).to(tl.int32)[:, None] * WIDTH
    token_at = token_GR.to(tl.int64)[:, :, None]
    gate_GRD = tl.load(gate + batch * gate_b + token_at * gate_s + channel_RD[None, :, :] * gate_c,
                       mask=there_GRD, other=0.0).to(tl.float32)
    if bias is not None:
        bias_RD = tl.load(bias + (row_R % RATIO)[:, None] * bias_m + channel_RD * bias_c,
                          mask=(row_R < rows)[:, None] & real_D[None, :], other=0.0)
        gate_GRD += bias_RD.to(tl.float32)[None, :, :]
    gate_GRD = tl.where(there_GRD, gate_GRD, -float("inf"))
    highest_GD = tl.max(gate_GRD, 1)
    # A block may reach beyond the last group: -inf minus -inf is NaN, so 0 stands there.
    highest_GD = tl.where(highest_GD == -float("inf"), 0.0, highest_GD)
    weight_GRD = tl.exp(gate_GRD - highest_GD[:, None, :])
    total_GD = tl.sum(weight_GRD, 1)
    value_GRD = tl.load(value + batch * value_b + token_at * value_s
                        + channel_RD[None, :, :] * value_c, mask=there_GRD, other=0.0)
    sum_GD = tl.sum(weight_GRD * value_GRD.to(tl.float32), 1)
    entry_GD = sum_GD / tl.where(total_GD > 0, total_GD, 1.0)
    entry_at = (batch * groups + group_G)[:, None] * WIDTH + channel_D[None, :]
    tl.store(entry + entry_at, entry_GD.to(entry.dtype.element_ty),
             mask=real_G[:, None] & real_D[None, :])


def _blocks(groups, ratio, width, overlap):
    """Block sizes: few large ones in the interpreter, where each operation costs alike."""
    block_r = arguments.power_of_two(2 * ratio if overlap else ratio)
    if backend.current().name == "interpret":
        held, block_d = 65_536, arguments.power_of_two(width)
    else:
        held, block_d = 4_096, min(arguments.power_of_two(width), 128 if block_r <= 16 else 32)
    block_g = min(arguments.power_of_two(groups), max(1, held // (block_r * block_d)))
    return dict(BLOCK_G=block_g, BLOCK_R=block_r, BLOCK_D=block_d)


def traffic(*, batch=1, tokens, ratio, width, overlap=False, after_another=False, bias=False,
            block=1, itemsize=4) -> dict[str, int]:
    """Bytes loaded and stored: value and gate of every row that an entry pools, once.

    `width` is D; `block` is how many groups a program takes, which the bias is read once
    for; `itemsize` is bytes per number. FLOPs: an exponential is not one, and a weighted
    sum has two a number.
    """
    groups = tokens // ratio - int(after_another)
    pooled = groups * ratio
    if overlap:
        pooled += (groups - (0 if after_another else 1)) * ratio
    rows = 2 * ratio if overlap else ratio
    read = 2 * batch * pooled * width
    if bias:
        read += batch * -(-groups // block) * rows * width
    return {"bytes_read": read * itemsize, "bytes_written": batch * groups * width * itemsize,
            "flops": 2 * batch * pooled * width}


group_pool.traffic = traffic  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape:
    """The sizes of one call. `width` is D, the channels of an entry."""

    label: str
    batch: int
    tokens: int
    ratio: int
    width: int
    overlap: bool = False
    after_another: bool = False
    bias: bool = False
    dtype: torch.dtype = torch.float32

    def arguments(self, device="cpu", seed=0) -> dict:
        draw = drawing(self.dtype, device, seed)
        channels = self.width * (2 if self.overlap else 1)
        return dict(value_BSC=draw(self.batch, self.tokens, channels),
                    gate_BSC=draw(self.batch, self.tokens, channels), ratio=self.ratio,
                    bias_MC=draw(self.ratio, channels) if self.bias else None,
                    overlap=self.overlap, after_another=self.after_another)


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the blocks that would be chosen here."""
    groups = shape.tokens // shape.ratio - int(shape.after_another)
    blocks = _blocks(groups, shape.ratio, shape.width, shape.overlap)
    return traffic(batch=shape.batch, tokens=shape.tokens, ratio=shape.ratio, width=shape.width,
                   overlap=shape.overlap, after_another=shape.after_another, bias=shape.bias,
                   block=blocks["BLOCK_G"], itemsize=shape.dtype.itemsize)


SMALL = (
    Shape("m = 2", 3, 41, 2, 40),
    Shape("m = 4, overlap", 2, 39, 4, 96, overlap=True, bias=True),
    Shape("m = 4, text continues", 2, 13, 4, 24, overlap=True, after_another=True, bias=True),
    Shape("m = 128", 2, 300, 128, 72, bias=True),
    Shape("m = 3, bf16", 2, 40, 3, 40, bias=True, dtype=torch.bfloat16),
)

REAL = (
    Shape("v4.1-flash m = 2", 1, 16_384, 2, 512),
    Shape("v4.1-flash m = 2", 1, 16_384, 2, 512, dtype=torch.bfloat16),
    Shape("v4.1-flash decode", 16, 2, 2, 512),
    Shape("v4 CSA m = 4", 1, 16_384, 4, 512, overlap=True, bias=True),
    Shape("v4 CSA, text continues", 1, 4_100, 4, 512, overlap=True, after_another=True, bias=True),
    Shape("v4 index key m = 4", 1, 16_384, 4, 128, overlap=True, bias=True),
    Shape("v4 HCA m = 128", 1, 16_384, 128, 512, bias=True),
    Shape("v4 HCA decode", 16, 128, 128, 512, bias=True),
)
