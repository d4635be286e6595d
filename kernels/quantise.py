"""Cache entries to rows of bytes and back: what turns 512 numbers into 288 bytes.

A block of values shares a scale, and the scale is stored beside the codes. With L the
largest value of the format (6 for E2M1, 448 for E4M3):

    scale = round_scale(max |x| / L)       E4M3: nearest; UE8M0: the power of two above
    code = nearest(x / scale)              the scale as stored; ties to the even code
    row = codes | scales                   V4's and V3.2's rows hold a bf16 part as well

How a code is made from a number, and a number from a code, is in `kernels.small_floats`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.packed_rows import FP4, ROWS, V4_ENTRY, Row, pack_twin, unpack_twin
from kernels.small_floats import e2m1_code, e2m1_value, e4m3_code, e4m3_value, odd

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
UNPACKED = (torch.float32, torch.bfloat16)  # fp16 cannot hold every value of a row
LIMIT = 2.0**127  # no code stands for more


def pack(values: Float[Tensor, "*lead D"], row: Row, *,
         impl: str | None = None) -> UInt8[Tensor, "*lead nbytes"]:
    """Rows of bytes. The last axis holds the values and after them the bf16 numbers.

    Raises ValueError naming the argument, its shape and what was expected; on a CPU also
    for NaN, infinity and magnitudes above 2^127 (a GPU would have to wait for the
    answer; what it stores for such blocks is not defined).
    """
    _last_axis("values", values, row.numbers, row)
    if not values.is_floating_point():
        raise ValueError(f"values has dtype {values.dtype}; expected a floating-point dtype")
    _stands_for(values)
    if not backend.use_triton(impl, DTYPES, values=values):
        return pack_twin(values, row)
    arguments.in_32_bits(1, values=values)
    flat_ND = values.reshape(-1, row.numbers)
    rows_NY = torch.empty(flat_ND.shape[0], row.nbytes, dtype=torch.uint8, device=values.device)
    options = _options(row)
    _pack[(-(-flat_ND.shape[0] // options["BLOCK_R"]),)](
        flat_ND, rows_NY, flat_ND.shape[0], *flat_ND.stride(), FLOOR=row.floor, PAD=row.pad,
        **options)
    return rows_NY.view(*values.shape[:-1], row.nbytes)


def unpack(rows: UInt8[Tensor, "*lead nbytes"], row: Row, *, dtype: torch.dtype = torch.float32,
           impl: str | None = None) -> Float[Tensor, "*lead D"]:
    """The numbers of rows, in fp32 or bf16; each is a product in fp32, rounded to `dtype`.

    Raises ValueError naming the argument, its shape and what was expected.
    """
    _last_axis("rows", rows, row.nbytes, row)
    if rows.dtype != torch.uint8:
        raise ValueError(f"rows has dtype {rows.dtype}; expected torch.uint8")
    if dtype not in UNPACKED:
        raise ValueError(f"dtype is {dtype}; expected torch.float32 or torch.bfloat16")
    if not backend.use_triton(impl, (torch.uint8,), rows=rows):
        return unpack_twin(rows, row, dtype)
    arguments.in_32_bits(1, rows=rows)
    flat_NY = rows.reshape(-1, row.nbytes)
    values_ND = torch.empty(flat_NY.shape[0], row.numbers, dtype=dtype, device=rows.device)
    options = _options(row)
    _unpack[(-(-flat_NY.shape[0] // options["BLOCK_R"]),)](
        flat_NY, values_ND, flat_NY.shape[0], *flat_NY.stride(), **options)
    return values_ND.view(*rows.shape[:-1], row.numbers)


def _stands_for(values) -> None:
    if values.device.type == "cpu" and backend.current().name != "offline":
        if not (values.abs() <= LIMIT).all():  # not: false for NaN, too
            raise ValueError("values hold NaN, infinity or more than 2^127; "
                             "no code stands for that")


def _last_axis(name, tensor, size, row) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.ndim == 0 or tensor.shape[-1] != size or tensor.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; a row {row.name!r} takes a last "
                         f"axis of {size}, and at least one row")


# The kernels. Fixed sizes come as constexpr, so that offsets fold into the addresses.
@triton.jit
def _pack(
    values, rows, count, values_n, values_d,
    FLOOR: tl.constexpr, PAD: tl.constexpr,
    VALUES: tl.constexpr, BITS: tl.constexpr, SCALE: tl.constexpr, SCALES: tl.constexpr,
    GROUP: tl.constexpr, ROPE: tl.constexpr, SCALES_AT: tl.constexpr, ROPE_AT: tl.constexpr,
    ROW: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr,
):
    """One program: BLOCK_R rows, each with all its blocks of values."""
    row_R = (tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    block_N = tl.arange(0, BLOCK_N)
    stored_RN = (row_R < count)[:, None] & (block_N < SCALES)[None, :]
    at_NG = block_N[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there_RNG = stored_RN[:, :, None]
    if VALUES % GROUP:  # the last block is short
        there_RNG = there_RNG & (at_NG < VALUES)[None, :, :]
    source_RNG = values + row_R[:, None, None] * values_n + at_NG[None, :, :] * values_d
    number_RNG = tl.load(source_RNG, mask=there_RNG, other=0.0).to(tl.float32)
    bits_RNG = number_RNG.to(tl.int32, bitcast=True)
    magnitude_RNG = (bits_RNG & 0x7FFFFFFF).to(tl.float32, bitcast=True)
    sign_RNG = (bits_RNG >> 31) & 1
    amax_RN = tl.maximum(tl.max(magnitude_RNG, 2), FLOOR)

    if SCALE == "ue8m0":
        bits_RN = amax_RN.to(tl.int32, bitcast=True)
        if BITS == 4:  # 6 = 1.5 * 2**2: the next power of two above amax / 6
            scale_RN = (bits_RN >> 23) - 2 + ((bits_RN & 0x7FFFFF) > 0x400000).to(tl.int32)
            number_RN = (scale_RN << 23).to(tl.float32, bitcast=True)
        else:  # 448 = 1.75 * 2**8; the inverse, because it is multiplied by
            scale_RN = (bits_RN >> 23) - 8 + ((bits_RN & 0x7FFFFF) > 0x600000).to(tl.int32)
            number_RN = ((254 - scale_RN) << 23).to(tl.float32, bitcast=True)
    elif SCALE == "e4m3":
        scale_RN = e4m3_code(tl.div_rn(amax_RN, 6.0))
        number_RN = e4m3_value(scale_RN)
    else:
        number_RN = tl.div_rn(amax_RN, 448.0)
        scale_RN = number_RN.to(tl.int32, bitcast=True)

    target_R = rows + row_R * ROW
    if BITS == 4:
        code_RNG = e2m1_code(magnitude_RNG, number_RN[:, :, None])
        code_RNG |= sign_RNG << 3
        low, high = tl.split(tl.reshape(code_RNG, [BLOCK_R, BLOCK_N, GROUP // 2, 2]))
        byte_NG = block_N[:, None] * (GROUP // 2) + tl.arange(0, GROUP // 2)[None, :]
        there_RNY = stored_RN[:, :, None]
        if VALUES % GROUP:
            there_RNY = there_RNY & (byte_NG < VALUES // 2)[None, :, :]
        tl.store(target_R[:, None, None] + byte_NG[None, :, :], (low | (high << 4)).to(tl.uint8),
                 mask=there_RNY)
    else:
        if SCALE == "ue8m0":
            code_RNG = e4m3_code(magnitude_RNG * number_RN[:, :, None])
        else:
            # A rounded quotient could look like a tie. In fp64 one bit is kept that says so.
            quotient_RNG = magnitude_RNG.to(tl.float64) / number_RN.to(tl.float64)[:, :, None]
            code_RNG = e4m3_code(odd(quotient_RNG))
        tl.store(target_R[:, None, None] + at_NG[None, :, :],
                 (code_RNG | (sign_RNG << 7)).to(tl.uint8), mask=there_RNG)

    scale_at_RN = target_R[:, None] + SCALES_AT
    if SCALE == "f32":
        for byte in tl.static_range(4):  # a row may start anywhere, so byte by byte
            tl.store(scale_at_RN + 4 * block_N[None, :] + byte,
                     (scale_RN >> (8 * byte)).to(tl.uint8), mask=stored_RN)
    else:
        tl.store(scale_at_RN + block_N[None, :], scale_RN.to(tl.uint8), mask=stored_RN)
    if ROPE:
        rope_P = tl.arange(0, BLOCK_P)
        there_RP = (row_R < count)[:, None] & (rope_P < ROPE)[None, :]
        source_RP = values + row_R[:, None] * values_n + (VALUES + rope_P)[None, :] * values_d
        rope_RP = tl.load(source_RP, mask=there_RP, other=0.0).to(tl.float32)
        rope_RP = rope_RP.to(tl.int32, bitcast=True)
        kept_RP = rope_RP & 0x7FFFFFFF
        kept_RP = (kept_RP + 0x7FFF + ((kept_RP >> 16) & 1)) >> 16  # to bf16, ties to even
        rope_at_RP = target_R[:, None] + ROPE_AT + 2 * rope_P[None, :]
        tl.store(rope_at_RP, kept_RP.to(tl.uint8), mask=there_RP)
        tl.store(rope_at_RP + 1, ((kept_RP >> 8) | ((rope_RP >> 31) & 1) << 7).to(tl.uint8),
                 mask=there_RP)
    for byte in tl.static_range(PAD):
        tl.store(target_R + ROW - PAD + byte, tl.zeros([BLOCK_R], tl.uint8), mask=row_R < count)


@triton.jit
def _unpack(
    rows, values, count, rows_n, rows_y,
    VALUES: tl.constexpr, BITS: tl.constexpr, SCALE: tl.constexpr, SCALES: tl.constexpr,
    GROUP: tl.constexpr, ROPE: tl.constexpr, SCALES_AT: tl.constexpr, ROPE_AT: tl.constexpr,
    ROW: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr,
):
    """One program: BLOCK_R rows, each with all its blocks of values."""
    row_R = (tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)
    block_N = tl.arange(0, BLOCK_N)
    stored_RN = (row_R < count)[:, None] & (block_N < SCALES)[None, :]
    source_R = rows + row_R * rows_n
    scale_RN = tl.zeros([BLOCK_R, BLOCK_N], tl.int32)
    width: tl.constexpr = 4 if SCALE == "f32" else 1
    for byte in tl.static_range(width):
        at_N = (SCALES_AT + width * block_N + byte) * rows_y
        part_RN = tl.load(source_R[:, None] + at_N[None, :], mask=stored_RN, other=0)
        scale_RN |= part_RN.to(tl.int32) << (8 * byte)
    if SCALE == "ue8m0":  # code 0 is below the normal numbers of fp32, and code 255 is NaN
        scale_RN = tl.where(scale_RN == 0, 0x400000, scale_RN << 23)
        scale_RN = tl.where(scale_RN == 0x7F800000, 0x7FC00000, scale_RN)
    if SCALE == "e4m3":
        number_RN = e4m3_value(scale_RN)
    else:
        number_RN = scale_RN.to(tl.float32, bitcast=True)

    at_NG = block_N[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there_RNG = stored_RN[:, :, None]
    if VALUES % GROUP:  # the last block is short
        there_RNG = there_RNG & (at_NG < VALUES)[None, :, :]
    if BITS == 4:
        byte_NG = block_N[:, None] * (GROUP // 2) + tl.arange(0, GROUP // 2)[None, :]
        there_RNY = stored_RN[:, :, None]
        if VALUES % GROUP:
            there_RNY = there_RNY & (byte_NG < VALUES // 2)[None, :, :]
        code_RNG = tl.load(source_R[:, None, None] + byte_NG[None, :, :] * rows_y,
                           mask=there_RNY, other=0).to(tl.int32)
        both = tl.join(e2m1_value(code_RNG & 15), e2m1_value(code_RNG >> 4))
        value_RNG = tl.reshape(both, [BLOCK_R, BLOCK_N, GROUP])
    else:
        code_RNG = tl.load(source_R[:, None, None] + at_NG[None, :, :] * rows_y,
                           mask=there_RNG, other=0).to(tl.int32)
        value_RNG = e4m3_value(code_RNG)
    target_R = values + row_R * (VALUES + ROPE)
    tl.store(target_R[:, None, None] + at_NG[None, :, :],
             (value_RNG * number_RN[:, :, None]).to(values.dtype.element_ty), mask=there_RNG)
    if ROPE:
        rope_P = tl.arange(0, BLOCK_P)
        there_RP = (row_R < count)[:, None] & (rope_P < ROPE)[None, :]
        byte_RP = source_R[:, None] + (ROPE_AT + 2 * rope_P)[None, :] * rows_y
        low = tl.load(byte_RP, mask=there_RP, other=0).to(tl.int32)
        high = tl.load(byte_RP + rows_y, mask=there_RP, other=0).to(tl.int32)
        rope_RP = ((high << 24) | (low << 16)).to(tl.float32, bitcast=True)
        tl.store(target_R[:, None] + VALUES + rope_P[None, :],
                 rope_RP.to(values.dtype.element_ty), mask=there_RP)


def _options(row: Row) -> dict:
    """Sizes of a row, and how many a program takes: more in the interpreter."""
    block_n = arguments.power_of_two(row.scales)
    held = 2_048 if row.values % row.block == 0 else 1_024  # a short block costs registers
    if backend.current().name == "interpret":
        held = 32_768
    return dict(VALUES=row.values, BITS=row.bits, SCALE=row.scale, SCALES=row.scales,
                GROUP=row.block, ROPE=row.rope, SCALES_AT=row.scales_at, ROPE_AT=row.rope_at,
                ROW=row.nbytes, BLOCK_R=max(1, held // (block_n * row.block)), BLOCK_N=block_n,
                BLOCK_P=arguments.power_of_two(max(row.rope, 1)))


def traffic(*, rows: int, row: Row, itemsize: int = 2, packing: bool = True) -> dict[str, int]:
    """Bytes loaded and stored: every number once and every byte once. Padding is written,
    not read. `itemsize` is bytes per number outside the row."""
    numbers, stored = rows * row.numbers * itemsize, rows * row.nbytes
    if packing:
        return {"bytes_read": numbers, "bytes_written": stored, "flops": 0}
    return {"bytes_read": stored - rows * row.pad, "bytes_written": numbers, "flops": 0}


pack.traffic = unpack.traffic = traffic  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape:
    """A number of rows, packed or unpacked; `dtype` is that of the numbers."""

    label: str
    function: Callable
    row: Row
    rows: int
    dtype: torch.dtype = torch.float32

    def arguments(self, device="cpu", seed=0) -> dict:
        numbers = drawing(self.dtype, device, seed)(self.rows, self.row.numbers)
        if self.function is pack:
            return dict(values=numbers, row=self.row)
        if backend.current().name == "offline":
            packed = torch.empty(self.rows, self.row.nbytes, dtype=torch.uint8)
        else:
            packed = pack_twin(numbers, self.row)
        return dict(rows=packed, row=self.row, dtype=self.dtype)


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape."""
    return traffic(rows=shape.rows, row=shape.row, itemsize=shape.dtype.itemsize,
                   packing=shape.function is pack)


def _shapes(rows: int, dtype: torch.dtype) -> tuple[Shape, ...]:
    return tuple(Shape(f"{function.__name__} {row.name} x {rows:,}", function, row, rows, dtype)
                 for row in ROWS for function in (pack, unpack))


SHORT = replace(V4_ENTRY, name="V4, 3 blocks, the last short", values=136, rope=10, pad=5)

SMALL = (*_shapes(77, torch.float32), Shape("pack with a short block", pack, SHORT, 7),
         Shape("unpack with a short block", unpack, SHORT, 7),
         Shape("pack FP4 288, bf16", pack, FP4, 5, torch.bfloat16))
REAL = (*_shapes(65_536, torch.bfloat16), Shape("pack FP4 288, fp32", pack, FP4, 65_536),
        Shape("unpack FP4 288, fp32", unpack, FP4, 65_536), Shape("one row", pack, FP4, 1),
        Shape("pack with a short block", pack, SHORT, 4_096),
        Shape("unpack with a short block", unpack, SHORT, 4_096))
