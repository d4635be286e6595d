"""Numbers of 4 and 8 bits from the bits of fp32, and back, inside a kernel.

Nothing here needs 8-bit floats of the GPU, which older chips lack: codes are whole
numbers, made from the bits of fp32 or by comparison. An E2M1 code is the count of
thresholds that |x| passes: 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5 times the scale. A scale
has four bits at most, so these products are exact, and a tie is a tie.
"""

from __future__ import annotations

from kernels.backend import tl, triton


@triton.jit
def e4m3_code(number):
    """Codes of the nearest E4M3 values to fp32 numbers >= 0; beyond 448 becomes 448."""
    bits = number.to(tl.int32, bitcast=True)
    # Keep 3 of 23 bits of the fraction: half of what goes is added, a tie only if it is odd.
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2**-6 the step is 2**-9, and so is the step of fp32 above 2**14.
    subnormal = (number + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    return tl.minimum(tl.where(number < 0.015625, subnormal, normal), 0x7E)


@triton.jit
def e2m1_code(number, scale):
    """Codes of the nearest E2M1 values to number / scale: how many thresholds lie below."""
    # At a threshold the even code wins: it is the lower one at every other threshold.
    down = ((number > 0.25 * scale).to(tl.int32) + (number > 1.25 * scale).to(tl.int32)
            + (number > 2.5 * scale).to(tl.int32) + (number > 5.0 * scale).to(tl.int32))
    up = ((number >= 0.75 * scale).to(tl.int32) + (number >= 1.75 * scale).to(tl.int32)
          + (number >= 3.5 * scale).to(tl.int32))
    return down + up


@triton.jit
def e4m3_value(code):
    magnitude = code & 0x7F
    normal = ((magnitude << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    value = tl.where(magnitude < 8, magnitude.to(tl.float32) * 0.001953125, normal)
    value = tl.where(magnitude == 0x7F, float("nan"), value)
    return tl.where(code >= 128, -value, value)


@triton.jit
def e2m1_value(code):
    magnitude = code & 7
    normal = (((magnitude >> 1) + 126) << 23) | ((magnitude & 1) << 22)
    value = tl.where(magnitude < 2, magnitude.to(tl.float32) * 0.5,
                     normal.to(tl.float32, bitcast=True))
    return tl.where(code >= 8, -value, value)


@triton.jit
def odd(number):
    """fp64 to fp32, cut off instead of rounded, the last bit set if anything was cut."""
    bits = number.to(tl.int64, bitcast=True)
    cut = (bits & 0x1FFFFFFF) != 0
    whole = (bits & ~0x1FFFFFFF).to(tl.float64, bitcast=True).to(tl.float32)
    return (whole.to(tl.int32, bitcast=True) | cut.to(tl.int32)).to(tl.float32, bitcast=True)
