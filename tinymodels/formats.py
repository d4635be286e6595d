"""The small number formats that a cache is stored in, bit for bit, in plain torch.

    E2M1     4 bits   0, .5, 1, 1.5, 2, 3, 4, 6 and a sign
    E4M3     8 bits   FN variant: up to 448, no infinity, code 0x7f is NaN
    UE8M0    8 bits   2^(code - 127), code 255 is NaN; only ever a scale

Rounding is to nearest, a tie goes to the even code, what is too large becomes the largest value,
and zero keeps its sign. Float64 input is rounded once, from float64: it never passes through
float32 on the way. Narrower input is widened to float32 first, which changes nothing.

Four bits cannot say 0.02 or 200, so a block of values shares a scale: `quantise` and
`dequantise` do that for every scheme a DeepSeek cache uses. NaN and infinity are refused.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import frexp, ldexp, nan

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from .layouts import BF16, E2M1, E4M3, F32, UE8M0, Format

LIMIT = 2.0**127  # larger magnitudes are refused: after rounding they might not fit float32


@dataclass(frozen=True)
class _Mini:
    """A sign, `mantissa` bits and an exponent that starts at `lowest`. top: the largest code."""

    mantissa: int
    lowest: int
    top: int
    sign: int  # the bit that holds it


_MINI = {E2M1: _Mini(1, 0, 0x7, 0x8), E4M3: _Mini(3, -6, 0x7E, 0x80)}
_BF16 = _Mini(7, -126, 0x7F80, 0x8000)  # top is infinity, as IEEE rounding has it


# ---------------------------------------------------------------- one number


def encode(values: Float[Tensor, "*n"], fmt: Format) -> UInt8[Tensor, "*n"]:
    """Codes of the nearest values of `fmt`; for UE8M0, of the next power of two at or above.

    An E2M1 code fills the low four bits of its byte. Errors: ValueError for NaN or infinity, a
    UE8M0 value that is not positive, an input that is not floating point, another format.
    """
    values = _widen(values)
    _refuse(values.abs().amax() if values.numel() else values, "values")
    if fmt is UE8M0:
        if (values <= 0).any():
            raise ValueError("values to encode as ue8m0 must be > 0: a power of two has no sign")
        return _exponent(values, 1.0)
    return _nearest(values, _mini(fmt)).to(torch.uint8)


def decode(
    codes: UInt8[Tensor, "*n"], fmt: Format, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*n"]:
    """The values that codes stand for, exact in float32 and float64.

    Errors: ValueError for codes that are not uint8, an E2M1 code above 15, another format.
    """
    if codes.dtype != torch.uint8:
        raise ValueError(f"codes are {codes.dtype}; they must be torch.uint8")
    table = _table(fmt, dtype, codes.device)
    if fmt is E2M1 and codes.numel() and codes.max() > 15:
        raise ValueError("an e2m1 code is above 15; unpack nibbles before decoding them")
    return table.index_select(0, codes.reshape(-1).int()).view(codes.shape)


def round_to(values: Float[Tensor, "*n"], fmt: Format) -> Float[Tensor, "*n"]:
    """The nearest values of `fmt`, in the input's own dtype."""
    return decode(encode(values, fmt), fmt, values.dtype)


def to_bf16(values: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Nearest bfloat16, rounded once. (torch's own cast from float64 passes through float32.)"""
    if values.dtype != torch.float64:
        return values.to(torch.bfloat16)
    bits = _nearest(values, _BF16)
    return bits.to(torch.int16).view(torch.bfloat16)


def pack_nibbles(codes: UInt8[Tensor, "*b n"]) -> UInt8[Tensor, "*b n/2"]:
    """Two E2M1 codes a byte: the even element in the low nibble. n must be even."""
    if codes.shape[-1] % 2:
        raise ValueError(f"{codes.shape[-1]} codes do not fill whole bytes; give an even number")
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_nibbles(packed: UInt8[Tensor, "*b n/2"]) -> UInt8[Tensor, "*b n"]:
    """E2M1 codes from bytes, low nibble first."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


# ---------------------------------------------------------------- a block and its scale


@dataclass(frozen=True)
class Scheme:
    """How a block of values in one format shares a scale in another.

    The scale maps the block's largest magnitude (`floor`, if that is larger) to the largest
    value of the format: amax / 6 or amax / 448. The rule that stores it follows from its format:

        E4M3    the nearest value, at most 448; values too large for it are cut off
        UE8M0   the next power of two at or above, so that nothing is cut off
        F32     float32 as it is, or that power of two if `power_of_two` is set
    """

    name: str
    values: Format
    scales: Format
    floor: float
    power_of_two: bool = False

    @property
    def largest(self) -> float:
        return 6.0 if self.values is E2M1 else 448.0


FP4 = Scheme("FP4", E2M1, E4M3, floor=6 * 2.0**-9)  # V4.1 far entries, blocks of 16
MXFP4 = Scheme("MXFP4", E2M1, UE8M0, floor=6 * 2.0**-126)  # index keys, blocks of 32
FP8 = Scheme("FP8", E4M3, UE8M0, floor=1e-4)  # V4 (blocks of 64), V4.1's window (of 32)
FP8_F32 = Scheme("FP8, fp32 scale", E4M3, F32, floor=1e-4)  # V3.2, blocks of 128
FP8_F32_POW2 = Scheme("FP8, fp32 power of two", E4M3, F32, floor=1e-4, power_of_two=True)


def quantise(
    values: Float[Tensor, "*b n"], scheme: Scheme, block: int
) -> tuple[UInt8[Tensor, "*b n"], Tensor]:
    """Codes, and one stored scale for every `block` values (a short last block has one too).

    Scales are uint8 codes, or float32 where the scheme stores float32. Values are divided by the
    scale *as stored*: divide by the unrounded one and what comes back is off by its rounding.
    Errors: ValueError for NaN, infinity, a magnitude above 2^127, a block below 1.
    """
    blocks = _in_blocks(_widen(values.detach()), block)
    amax = blocks.abs().amax(-1)
    _refuse(amax, "values")
    scales = _scales(amax.clamp(min=scheme.floor), scheme)
    # Could the quotient land on a tie t only because it was rounded itself? Not if the scale s has
    # 4 bits or fewer: t*s is then a float32, and its neighbours divided by s lie more than half
    # an ulp from t. With a float32 scale it could, so that quotient is taken in float64.
    if scheme.scales is F32:
        blocks = blocks.double()
    quotient = blocks / scale_values(scales, scheme, blocks.dtype).unsqueeze(-1)
    codes = _nearest(quotient, _mini(scheme.values)).to(torch.uint8)
    return codes.flatten(-2)[..., : values.shape[-1]], scales


def dequantise(
    codes: UInt8[Tensor, "*b n"],
    scales: Tensor,
    scheme: Scheme,
    block: int,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "*b n"]:
    """Code values times their scales. Exact in float32 and float64, but for a float32 scale
    that is no power of two: that product is rounded once in float32."""
    return apply_scales(decode(codes, scheme.values, dtype), scales, scheme, block)


def apply_scales(
    values: Float[Tensor, "*b n"], scales: Tensor, scheme: Scheme, block: int
) -> Float[Tensor, "*b n"]:
    """Values as decoded times the scales of their blocks."""
    blocks = _in_blocks(values, block)
    product = blocks * scale_values(scales, scheme, values.dtype).unsqueeze(-1)
    return product.flatten(-2)[..., : values.shape[-1]]


def scale_values(scales: Tensor, scheme: Scheme, dtype: torch.dtype) -> Tensor:
    """Stored scales as numbers."""
    return scales.to(dtype) if scheme.scales is F32 else decode(scales, scheme.scales, dtype)


def round_trip(values: Float[Tensor, "*b n"], scheme: Scheme, block: int) -> Float[Tensor, "*b n"]:
    """What comes back after storing: `dequantise(quantise(values))`, in the input's dtype."""
    codes, scales = quantise(values, scheme, block)
    wide = _widen(values).dtype
    return dequantise(codes, scales, scheme, block, wide).to(values.dtype)


def fake_quantise(
    values: Float[Tensor, "*b n"], scheme: Scheme, block: int
) -> Float[Tensor, "*b n"]:
    """`round_trip` for training: the gradient passes straight through the rounding.

    It is 1 where the value lies within the block's range and 0 where it was cut off
    (straight-through estimator, arXiv 1308.3432).
    """
    return _StraightThrough.apply(values, scheme, block)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, scheme, block):
        codes, scales = quantise(values, scheme, block)
        wide = _widen(values)
        largest = scheme.largest * scale_values(scales, scheme, torch.float64)
        inside = _in_blocks(wide.double(), block).abs() <= largest.unsqueeze(-1)
        ctx.save_for_backward(inside.flatten(-2)[..., : values.shape[-1]])
        return dequantise(codes, scales, scheme, block, wide.dtype).to(values.dtype)

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None


# ---------------------------------------------------------------- bits


def _nearest(values: Tensor, mini: _Mini) -> Tensor:
    """Codes (int32) of the nearest values. Codes of growing magnitudes count up by one, so a
    mantissa that rounds up to the next power of two carries into the exponent by itself."""
    magnitude = values.abs()
    fraction, exponent = torch.frexp(magnitude)  # magnitude = fraction * 2^exponent, in [.5, 1)
    normal = magnitude >= 2.0**mini.lowest
    on_grid = torch.where(
        normal,
        fraction * 2.0 ** (mini.mantissa + 1),
        magnitude * 2.0 ** (mini.mantissa - mini.lowest),  # subnormal: the grid stays fixed
    )
    step = torch.where(normal, exponent - (mini.lowest + 1), 0)
    codes = on_grid.round().int() + (step << mini.mantissa)  # round: ties to even
    return codes.clamp(max=mini.top) | (values.signbit().int() * mini.sign)


def _scales(amax: Tensor, scheme: Scheme) -> Tensor:
    """Stored scales of blocks with these largest magnitudes."""
    if scheme.scales is UE8M0:
        return _exponent(amax, scheme.largest)
    if scheme.power_of_two:
        return decode(_exponent(amax, scheme.largest), UE8M0, torch.float32)
    if scheme.scales is F32:
        return (amax / scheme.largest).float()
    return _nearest(amax / scheme.largest, _mini(scheme.scales)).to(torch.uint8)


def _exponent(amax: Tensor, largest: float) -> Tensor:
    """UE8M0 code of 2^ceil(log2(amax / largest)), by comparing fractions: no logarithm, no
    quotient, so nothing is rounded."""
    fraction, exponent = torch.frexp(amax)
    top_fraction, top_exponent = frexp(largest)
    power = exponent - top_exponent + (fraction > top_fraction).int()
    return (power + 127).clamp(0, 254).to(torch.uint8)


@lru_cache(maxsize=64)
def _table(fmt: Format, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The value of every code, read only."""
    if fmt is UE8M0:
        values = [ldexp(1.0, code - 127) for code in range(255)] + [nan]
    else:
        half = [_magnitude(code, _mini(fmt)) for code in range(_mini(fmt).sign)]
        values = half + [-x for x in half]
    with torch.inference_mode(False):  # kept for later calls, which may want gradients
        return torch.tensor(values, dtype=torch.float64).to(device=device, dtype=dtype)


def _magnitude(code: int, mini: _Mini) -> float:
    exponent, fraction = divmod(code, 1 << mini.mantissa)
    if code > mini.top:
        return nan
    if exponent == 0:  # subnormal: no leading one, the exponent of the smallest normal
        return ldexp(fraction, mini.lowest - mini.mantissa)
    units = fraction + (1 << mini.mantissa)
    return ldexp(units, exponent - 1 + mini.lowest - mini.mantissa)


def _mini(fmt: Format) -> _Mini:
    if fmt not in _MINI:
        named = "bf16 has to_bf16" if fmt is BF16 else "known are e2m1, e4m3 and ue8m0"
        raise ValueError(f"no codes for format {fmt.name}; {named}")
    return _MINI[fmt]


def _widen(values: Tensor) -> Tensor:
    if not values.is_floating_point():
        raise ValueError(f"values are {values.dtype}; they must be floating point")
    return values if values.dtype == torch.float64 else values.float()


def _refuse(amax: Tensor, what: str) -> None:
    if not (amax <= LIMIT).all():  # false for NaN, too
        raise ValueError(f"{what} hold NaN, infinity or more than 2^127; no code stands for that")


def _in_blocks(values: Tensor, block: int) -> Tensor:
    """[..., n] -> [..., blocks, block], the last one filled up with zeros."""
    if block < 1:
        raise ValueError(f"block is {block}; it must be >= 1")
    short = -values.shape[-1] % block
    return (F.pad(values, (0, short)) if short else values).unflatten(-1, (-1, block))
