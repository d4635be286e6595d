"""V4.1's rows of 288 and 528 bytes become numbers in a program's registers.

Codes become numbers by moving bits, without a table and without the 8-bit floats of newer
chips. A code's exponent and fraction are put where fp16 has its own; there they mean the
same number, only smaller by a power of two, subnormals too:

    E2M1  s ee m         ->  fp16  s 000ee m000000000         the number * 2**-14
    E4M3  s eeee mmm     ->  fp16  s 0eeee mmm0000000         the number * 2**-8

The product with a scale is exact. E2M1 has 2 significant bits and E4M3 4: 6 bits, and bf16
holds 8. So the matrix unit works on exactly the numbers that the bytes stand for.
"""

from __future__ import annotations

from kernels.backend import tl, triton


@triton.jit
def _e2m1_small(code):
    """The number of an E2M1 code, times 2**-14, in fp16."""
    return ((code & 8) << 12 | (code & 7) << 9).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def _e4m3_small(code):
    """The number of an E4M3 code, times 2**-8, in fp16; that of NaN (127 and 255) is 1.875."""
    return ((code & 128) << 8 | (code & 127) << 7).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def _ue8m0(code):
    """2**(code - 127) in fp32; code 0 is below its normal numbers, and code 255 is NaN."""
    bits = tl.where(code == 0, 0x400000, code << 23)
    return tl.where(code == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@triton.jit
def _scaled(number_SP, scale_SN, dtype: tl.constexpr):
    """Each number times the scale of its group."""
    BLOCK_S: tl.constexpr = number_SP.shape[0]
    PAIRS: tl.constexpr = number_SP.shape[1]
    GROUPS: tl.constexpr = scale_SN.shape[1]
    number_SNG = tl.reshape(number_SP.to(tl.float32), [BLOCK_S, GROUPS, PAIRS // GROUPS])
    return tl.reshape(number_SNG * scale_SN[:, :, None], [BLOCK_S, PAIRS]).to(dtype)


@triton.jit
def read_fp4(row_S, row_y, there_S, dtype: tl.constexpr, DIM: tl.constexpr,
             BLOCK_D: tl.constexpr):
    """Far entries at these addresses, codes | scales: their even numbers and their odd ones."""
    byte_P, scale_N = tl.arange(0, BLOCK_D // 2), tl.arange(0, BLOCK_D // 16)
    code_SP = tl.load(row_S[:, None] + byte_P[None, :] * row_y,
                      mask=there_S[:, None] & (byte_P[None, :] < DIM // 2), other=0).to(tl.int32)
    scale_SN = tl.load(row_S[:, None] + (DIM // 2 + scale_N[None, :]) * row_y,
                       mask=there_S[:, None] & (scale_N[None, :] < DIM // 16), other=0)
    scale_SN = scale_SN.to(tl.int32)
    scale_SN = tl.where((scale_SN & 127) == 127, float("nan"),
                        _e4m3_small(scale_SN).to(tl.float32) * (256.0 * 16384.0))
    return (_scaled(_e2m1_small(code_SP & 15), scale_SN, dtype),
            _scaled(_e2m1_small(code_SP >> 4), scale_SN, dtype))


@triton.jit
def read_fp8(row_S, row_z, there_S, dtype: tl.constexpr, DIM: tl.constexpr,
             BLOCK_D: tl.constexpr):
    """Rows of the window at these addresses, codes | scales: even numbers and odd ones."""
    byte_D, scale_N = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_D // 32)
    code_SD = tl.load(row_S[:, None] + byte_D[None, :] * row_z,
                      mask=there_S[:, None] & (byte_D[None, :] < DIM), other=0)
    scale_SN = tl.load(row_S[:, None] + (DIM + scale_N[None, :]) * row_z,
                       mask=there_S[:, None] & (scale_N[None, :] < DIM // 32), other=0)
    code_SD = code_SD.to(tl.int32)
    # A NaN among the codes makes the row's score NaN, so it may as well be all of the row.
    worst_S1 = tl.max(code_SD & 127, 1)[:, None]
    scale_SN = tl.where(worst_S1 == 127, float("nan"), _ue8m0(scale_SN.to(tl.int32)))
    even_SP, odd_SP = tl.split(tl.reshape(code_SD, [row_S.shape[0], BLOCK_D // 2, 2]))
    return (_scaled(_e4m3_small(even_SP).to(tl.float32) * 256.0, scale_SN, dtype),
            _scaled(_e4m3_small(odd_SP).to(tl.float32) * 256.0, scale_SN, dtype))
