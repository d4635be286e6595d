"""Cache entries as rows of bytes: `pack` writes what a layout describes, `unpack` reads it back.

    V4.1 far entry    256 B of E2M1 codes, two a byte  |  32 B of E4M3 scales   = 288 bytes

One implementation serves every generation; the layout says which fields there are, in which
format, and where their scales lie. Numbers of more than one byte are little-endian.

Is packing what was unpacked the same again? Bytes and numbers are for bfloat16, and for FP8 with
a float32 scale (packed from and read in the same dtype). With a power-of-two scale (FP8, MXFP4)
the numbers are, not always the bytes: where the largest value of a block was rounded down to
half the range, the scale halves and every code doubles to make up for it. In FP4 even a number
can move, in blocks with amax from 9/512 to 10/512: their subnormal scale was rounded up by a
third, so the second scale is smaller and cuts the largest value off. A cache packs an entry once
and keeps its bytes.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from ..formats import (
    FP4,
    FP8,
    FP8_F32,
    MXFP4,
    Scheme,
    apply_scales,
    decode,
    pack_nibbles,
    quantise,
    to_bf16,
    unpack_nibbles,
)
from ..layouts import BF16, E2M1, E4M3, F32, F64, PAD, UE8M0, Field, Format, Layout, scale_count
from . import kernel_rows

# Which scheme a field's three facts mean: its format, its scales' format and the block.
SCHEMES: dict[tuple[Format, Format, int], Scheme] = {
    (E2M1, E4M3, 16): FP4,  # V4.1 far entry
    (E2M1, UE8M0, 32): MXFP4,  # V4 and V4.1 index key
    (E4M3, UE8M0, 32): FP8,  # V4.1 window entry
    (E4M3, UE8M0, 64): FP8,  # V4 entry
    (E4M3, F32, 128): FP8_F32,  # V3.2 latent and index key
}
_FLOATS = {BF16: torch.bfloat16, F32: torch.float32, F64: torch.float64}


def pack(
    layout: Layout,
    values: Mapping[str, Float[Tensor, "*lead count"]],
    kernels: str | None = "torch",
) -> UInt8[Tensor, "*lead nbytes"]:
    """Rows of bytes from the numbers of each data field (scales and padding are made here).

    kernels: "triton" takes the kernel `quantise` for a row it knows and numbers of at most 32
    bits, the same bytes; on a GPU it does not look for bad numbers, since the answer would have
    to be waited for. "torch" never does, None only on a GPU.
    Errors: ValueError for a missing or unknown field, a last axis that is not the field's count,
    leading axes that differ, values that are not floating point, NaN, infinity or a magnitude
    that the field cannot hold, and a layout that no scheme covers. Nothing is returned then.
    """
    data = layout.data
    lead, device = _check(layout, data, values)
    if kernel_rows.usable(layout, kernels, *values.values()):
        return kernel_rows.pack(layout, values)
    parts: dict[str, Tensor] = {}
    for field in data:
        numbers = values[field.name].detach()
        try:
            parts |= _encode_field(layout, field, numbers)
        except ValueError as error:
            raise ValueError(f"{layout.name}, field {field.name!r}: {error}") from None
    for field in layout.fields:
        if field.fmt is PAD:
            parts[field.name] = torch.zeros(*lead, field.nbytes, dtype=torch.uint8, device=device)
    return torch.cat([parts[field.name] for field in layout.fields], dim=-1)


def unpack(
    layout: Layout,
    rows: UInt8[Tensor, "*lead nbytes"],
    dtype: torch.dtype = torch.float32,
    kernels: str | None = "torch",
) -> dict[str, Float[Tensor, "*lead count"]]:
    """The numbers of each data field, as new tensors of `dtype`.

    Computed in float32, or in float64 if that is asked for. kernels: as in `pack`. Errors:
    ValueError for rows that are not uint8 or not `layout.nbytes` long, a dtype that is not
    floating point.
    """
    if rows.dtype != torch.uint8 or rows.ndim == 0 or rows.shape[-1] != layout.nbytes:
        raise ValueError(
            f"rows are {rows.dtype} of shape {tuple(rows.shape)}; a row of layout "
            f"{layout.name!r} is torch.uint8 with a last axis of {layout.nbytes}"
        )
    if not dtype.is_floating_point:
        raise ValueError(f"dtype is {dtype}; numbers come back as floating point")
    if kernel_rows.readable(dtype) and kernel_rows.usable(layout, kernels, rows):
        return kernel_rows.unpack(layout, rows, dtype)
    spans = layout.offsets()
    field_bytes = {name: rows[..., start:end] for name, (start, end) in spans.items()}
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return {f.name: _decode_field(layout, f, field_bytes, wide).to(dtype) for f in layout.data}


def scheme_of(layout: Layout, field: Field) -> Scheme:
    """How this field shares scales. Errors: ValueError where `SCHEMES` has no such triple."""
    scales = next((f for f in layout.fields if f.name == field.scales), None)
    if scales is None:
        raise ValueError(f"its scales are to lie in {field.scales!r}, a field the layout lacks")
    scheme = SCHEMES.get((field.fmt, scales.fmt, field.block))
    if scheme is None:
        known = "; ".join(f"{v.name} with {s.name} per {b}" for v, s, b in SCHEMES)
        raise ValueError(
            f"no scheme for {field.fmt.name} with {scales.fmt.name} scales per {field.block}; "
            f"known are {known}"
        )
    need = scale_count(field.count, field.block)
    if scales.count != need:
        raise ValueError(f"{field.scales!r} holds {scales.count} scales; {need} are needed")
    return scheme


def _check(layout: Layout, data: tuple[Field, ...], values: Mapping[str, Tensor]):
    """Leading axes and device of all values."""
    wanted = [f.name for f in data]
    if set(values) != set(wanted):
        raise ValueError(f"{layout.name}: got fields {sorted(values)}; expected {sorted(wanted)}")
    first = values[wanted[0]]
    for field in data:
        seen = tuple(values[field.name].shape)
        want = (*first.shape[:-1], field.count)
        if seen != want:
            raise ValueError(f"{layout.name}, field {field.name!r}: shape {seen}; expected {want}")
        if not values[field.name].is_floating_point():
            raise ValueError(
                f"{layout.name}, field {field.name!r}: {values[field.name].dtype}; "
                "it must be floating point"
            )
    return first.shape[:-1], first.device


def _encode_field(layout: Layout, field: Field, numbers: Tensor) -> dict[str, Tensor]:
    """Bytes of a field, and those of its scales."""
    if field.scales is None:
        return {field.name: _encode_float(field, numbers)}
    scheme = scheme_of(layout, field)
    codes, scales = quantise(numbers, scheme, field.block)
    return {
        field.name: pack_nibbles(codes) if field.fmt is E2M1 else codes,
        field.scales: _as_bytes(scales),
    }


def _encode_float(field: Field, numbers: Tensor) -> Tensor:
    if field.fmt not in _FLOATS:
        raise ValueError(f"{field.fmt.name} values need scales; name the field that holds them")
    stored = to_bf16(numbers) if field.fmt is BF16 else numbers.to(_FLOATS[field.fmt])
    if not stored.isfinite().all():
        raise ValueError(f"values hold NaN, infinity or more than {field.fmt.name} can say")
    return _as_bytes(stored)


def _decode_field(
    layout: Layout, field: Field, parts: Mapping[str, Tensor], dtype: torch.dtype
) -> Tensor:
    if field.scales is None:
        return _as_floats(parts[field.name], field.fmt).to(dtype)
    scheme = scheme_of(layout, field)
    codes, scales = parts[field.name], parts[field.scales]
    if field.fmt is E2M1:
        codes = unpack_nibbles(codes)
    if scheme.scales is F32:
        scales = _as_floats(scales, F32)
    return apply_scales(decode(codes, field.fmt, dtype), scales, scheme, field.block)


def _as_bytes(x: Tensor) -> Tensor:
    """A copy seen as bytes. (`contiguous` can leave an odd last stride where an axis is 0 or 1.)"""
    return x.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def _as_floats(part: Tensor, fmt: Format) -> Tensor:
    """Bytes seen as numbers. A copy, since a row can start at any address."""
    return part.clone(memory_format=torch.contiguous_format).view(_FLOATS[fmt])
