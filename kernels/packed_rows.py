"""The rows of bytes that DeepSeek's caches are made of, and their twins in plain torch.

A row is codes, a scale for each block of them, and in some rows numbers in bf16 (the
part that RoPE turns). The twins hold every value of a format in a table and search for
the nearest one, in fp64; the kernels of `quantise` work on the bits instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One row: `values` numbers as codes of `bits` bits, a scale for every `block` of
    them (a short last block has one too), and `rope` numbers in bf16. `rope_first`: the bf16
    part lies before the scales."""

    name: str
    values: int
    bits: int  # 4: E2M1, 8: E4M3
    scale: str  # e4m3, ue8m0 or f32
    block: int
    floor: float  # the smallest max |x|
    rope: int = 0
    rope_first: bool = False
    pad: int = 0  # bytes of 0 at the end

    @property
    def scales(self) -> int:
        return -(-self.values // self.block)

    @property
    def numbers(self) -> int:
        return self.values + self.rope

    @property
    def nbytes(self) -> int:
        scale_bytes = self.scales * (4 if self.scale == "f32" else 1)
        return self.values * self.bits // 8 + scale_bytes + 2 * self.rope + self.pad

    @property
    def rope_at(self) -> int:
        """First byte of the bf16 part."""
        return self.values * self.bits // 8 if self.rope_first else self.nbytes - 2 * self.rope

    @property
    def scales_at(self) -> int:
        return self.values * self.bits // 8 + (2 * self.rope if self.rope_first else 0)


# Each floor is a number of fp32, so that fp32 and fp64 agree on it.
SMALL_AMAX = torch.tensor(1e-4).item()
FP4 = Row("FP4 288", 512, 4, "e4m3", 16, 6 * 2.0**-9)  # V4.1, far entry
FP8 = Row("FP8 528", 512, 8, "ue8m0", 32, SMALL_AMAX)  # V4.1, window entry
MXFP4 = Row("MXFP4 68", 128, 4, "ue8m0", 32, 6 * 2.0**-126)  # V4 and V4.1, index key
V4_ENTRY = Row("V4 584", 448, 8, "ue8m0", 64, SMALL_AMAX, rope=64, rope_first=True, pad=1)
V32_ENTRY = Row("V3.2 656", 512, 8, "f32", 128, SMALL_AMAX, rope=64)
V32_INDEX = Row("V3.2 index 132", 128, 8, "f32", 128, SMALL_AMAX)
ROWS = (FP4, FP8, MXFP4, V4_ENTRY, V32_ENTRY, V32_INDEX)


# The twins: every value of a format in a table, and a search for the nearest one.
def _table(bits: int) -> Tensor:
    """What the codes without a sign stand for, in fp64; they grow with the code."""
    code = torch.arange(8 if bits == 4 else 127, dtype=torch.float64)
    mantissa, lowest = (2, 0) if bits == 4 else (8, -6)
    exponent, fraction = torch.div(code, mantissa, rounding_mode="floor"), code % mantissa
    normal = (1 + fraction / mantissa) * 2.0 ** (exponent - 1 + lowest)
    return torch.where(exponent > 0, normal, fraction / mantissa * 2.0**lowest)


def _nearest(numbers: Tensor, bits: int) -> Tensor:
    """Codes with sign; a tie between two codes goes to the even one."""
    table = _table(bits).to(numbers.device)
    between = (table[1:] + table[:-1]) / 2
    magnitude = numbers.abs().contiguous()
    low, high = (torch.searchsorted(between, magnitude, right=side) for side in (False, True))
    code = torch.where(low % 2 == 0, low, high)
    return (code + numbers.signbit() * (8 if bits == 4 else 128)).to(torch.uint8)


def pack_twin(values, row: Row):
    """Rows of bytes in plain torch, in fp64."""
    lead = values.shape[:-1]
    whole = F.pad(values[..., :row.values].double(), (0, -row.values % row.block))
    block_LNG = whole.unflatten(-1, (-1, row.block))
    amax_LN = block_LNG.abs().amax(-1).clamp(min=row.floor)
    wanted_LN = amax_LN / (6 if row.bits == 4 else 448)
    if row.scale == "f32":
        scale_LN = wanted_LN.float()
        stored = scale_LN.contiguous().view(torch.uint8)
    elif row.scale == "e4m3":
        stored = _nearest(wanted_LN, 8)
        scale_LN = _table(8).to(values.device)[stored.long()]
    else:
        fraction, exponent = torch.frexp(wanted_LN)  # fraction in [0.5, 1)
        power = exponent - (fraction == 0.5).int()
        stored = (power + 127).to(torch.uint8)
        scale_LN = torch.ldexp(torch.ones_like(wanted_LN), power)
    codes = _nearest(block_LNG / scale_LN.double()[..., None], row.bits)
    codes = codes.flatten(-2)[..., :row.values]
    if row.bits == 4:
        codes = codes[..., 0::2] + 16 * codes[..., 1::2]
    parts = [codes, stored]
    if row.rope:
        rope = values[..., row.values:].float().to(torch.bfloat16).contiguous().view(torch.uint8)
        parts.insert(1 if row.rope_first else 2, rope)
    pad = torch.zeros(*lead, row.pad, dtype=torch.uint8, device=values.device)
    return torch.cat([*parts, pad], -1)


def unpack_twin(rows, row: Row, dtype=torch.float32):
    """The numbers of rows in plain torch: code values from a table, times their scales, in fp32."""
    codes = rows[..., :row.values * row.bits // 8]
    if row.bits == 4:
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    stored = rows[..., row.scales_at:row.scales_at + row.scales * (4 if row.scale == "f32" else 1)]
    if row.scale == "f32":
        scale_LN = stored.clone(memory_format=torch.contiguous_format).view(torch.float32)
    elif row.scale == "e4m3":
        scale_LN = _signed(8).to(rows.device)[stored.long()]
    else:
        powers = 2.0 ** (torch.arange(256, dtype=torch.float64, device=rows.device) - 127)
        scale_LN = powers.masked_fill(powers == 2.0**128, torch.nan).float()[stored.long()]
    scale_LV = scale_LN.repeat_interleave(row.block, dim=-1)[..., :row.values]
    values = (_signed(row.bits).to(rows.device)[codes.long()] * scale_LV).to(dtype)
    if not row.rope:
        return values
    rope = rows[..., row.rope_at:row.rope_at + 2 * row.rope]
    rope = rope.clone(memory_format=torch.contiguous_format).view(torch.bfloat16)
    return torch.cat([values, rope.to(dtype)], -1)


def _signed(bits: int) -> Tensor:
    """The values of all codes in fp32; E4M3's last code of each sign is NaN."""
    half = torch.cat([_table(bits), torch.full((bits // 8,), torch.nan, dtype=torch.float64)])
    return torch.cat([half, -half]).float()
