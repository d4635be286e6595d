"""The bytes of one cache row, computed another way: numpy float64, every code tried."""

from math import frexp

import numpy as np
import torch

from tinymodels.layouts import BF16, E2M1, E4M3, F32, PAD


def magnitudes(fmt):
    if fmt is E2M1:
        return np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    subnormal = [m / 512 for m in range(8)]
    return np.array(subnormal + [(8 + m) * 2.0**e for e in range(-9, 6) for m in range(8)])[:127]


def nearest_code(x, fmt):
    """Try every code: the nearest one, of two equally near ones the even."""
    grid = magnitudes(fmt)
    distance = np.abs(np.abs(x)[..., None] - grid)
    tied = distance == distance.min(-1, keepdims=True)
    code = np.where(tied, np.arange(len(grid)) * 1.0 + (np.arange(len(grid)) % 2) * 1000, np.inf)
    return code.argmin(-1) + (len(grid) + len(grid) % 2) * np.signbit(x)


def block_scale(amax, fmt, scale_fmt):
    """(scale, its bytes) of one block, in Python floats."""
    top = 6.0 if fmt is E2M1 else 448.0
    if scale_fmt is E4M3:
        code = int(nearest_code(np.array(max(amax, 6 / 512) / 6), E4M3))
        return magnitudes(E4M3)[code], bytes([code])
    if scale_fmt is F32:
        scale = np.float32(max(amax, 1e-4) / 448)
        return float(scale), scale.tobytes()
    amax = max(amax, 6 * 2.0**-126 if fmt is E2M1 else 1e-4)
    power = frexp(amax)[1] - 12  # well below; climb until everything fits
    while top * 2.0**power < amax:
        power += 1
    return 2.0**power, bytes([power + 127])


def expected_row(layout, values):
    """One row's bytes, field by field, block by block."""
    parts = {"pad": bytes(sum(f.count for f in layout.fields if f.fmt is PAD))}
    for f in layout.fields:
        if f.name not in values:
            continue
        x = values[f.name].double().numpy()
        if f.scales is None:
            assert f.fmt is BF16
            parts[f.name] = values[f.name].bfloat16().view(torch.int16).numpy().tobytes()
            continue
        scale_fmt = next(s.fmt for s in layout.fields if s.name == f.scales)
        codes, scales = [], b""
        for start in range(0, f.count, f.block):
            part = x[start : start + f.block]
            scale, stored = block_scale(np.abs(part).max(), f.fmt, scale_fmt)
            codes += nearest_code(part / scale, f.fmt).tolist()
            scales += stored
        if f.fmt is E2M1:
            codes = [low + 16 * high for low, high in zip(codes[::2], codes[1::2])]
        parts[f.name], parts[f.scales] = bytes(codes), scales
    return b"".join(parts[f.name] for f in layout.fields)
