"""Number formats that triton's interpreter gets wrong, put right.

numpy has neither bf16 nor 8-bit floats, so the interpreter keeps their bit patterns in
integers. Its own arithmetic then works on the patterns as if they were integers, its
cast from fp32 to bf16 cuts off instead of rounding, and its cast to e4m3 loses the carry
out of the mantissa. Here bf16 is widened to fp32, worked on, and rounded to nearest even.
"""

from __future__ import annotations

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as stock

Handle = stock.TensorHandle


def bf16_to_fp32(codes: np.ndarray) -> np.ndarray:
    """bf16 bit patterns (uint16) to fp32 values; exact."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def fp32_to_bf16(values: np.ndarray) -> np.ndarray:
    """fp32 values to bf16 bit patterns (uint16), to nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16))


def fp32_to_e4m3(values: np.ndarray) -> np.ndarray:
    """fp32 values to e4m3 codes (uint8), to nearest even; beyond 448 becomes 448."""
    tensor = torch.from_numpy(np.array(values, np.float32))
    codes = tensor.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return codes.view(torch.uint8).numpy()


def _is_bf16(*handles) -> bool:
    return any(handle.dtype.scalar == tl.bfloat16 for handle in handles)


def _widen(handle):
    return Handle(bf16_to_fp32(handle.data), tl.float32) if _is_bf16(handle) else handle


def _narrow(handle):
    """fp32 back to bf16; what is no fp32 (the result of a comparison) stays."""
    if handle.data.dtype != np.float32:
        return Handle(handle.data, tl.int1)
    return Handle(fp32_to_bf16(handle.data), tl.bfloat16)


class CastingBuilder(stock.InterpreterBuilder):
    """The interpreter's builder with bf16 and e4m3 arithmetic that is right."""

    def create_dot(self, a, b, d, *rest):
        return super().create_dot(_widen(a), _widen(b), d, *rest)

    def binary_op(self, lhs, rhs, op):
        if not _is_bf16(lhs, rhs):
            return super().binary_op(lhs, rhs, op)
        return _narrow(Handle(op(_widen(lhs).data, _widen(rhs).data), tl.float32))

    def unary_op(self, arg, op):
        if not _is_bf16(arg):
            return super().unary_op(arg, op)
        return _narrow(Handle(op(_widen(arg).data), tl.float32))

    def create_rsqrt(self, arg):
        return self.unary_op(arg, lambda x: 1 / np.sqrt(x))

    def create_fma(self, x, y, z):
        if not _is_bf16(x, y, z):
            return super().create_fma(x, y, z)
        return _narrow(super().create_fma(_widen(x), _widen(y), _widen(z)))

    def create_clampf(self, arg, lo, hi, propagate_nans):
        if not _is_bf16(arg, lo, hi):
            return super().create_clampf(arg, lo, hi, propagate_nans)
        return _narrow(super().create_clampf(_widen(arg), _widen(lo), _widen(hi), propagate_nans))

    def cast_impl(self, src, dst_type):
        source = _widen(src)
        if dst_type.scalar == tl.bfloat16:
            return Handle(fp32_to_bf16(source.data.astype(np.float32)), tl.bfloat16)
        return super().cast_impl(source, dst_type)

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        if _is_bf16(src) or dst_type.scalar == tl.bfloat16:
            if src.dtype.scalar.primitive_bitwidth == 8:
                src = super().create_fp_to_fp(src, tl.float32, rounding_mode)
            elif dst_type.scalar.primitive_bitwidth == 8:
                return self.create_fp_to_fp(_widen(src), dst_type, rounding_mode)
            return self.cast_impl(src, dst_type)
        if dst_type.scalar == tl.float8e4nv and src.dtype.scalar in (tl.float32, tl.float16):
            return Handle(fp32_to_e4m3(src.data), tl.float8e4nv)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)


class _Widening:
    """Reduces bf16 in fp32 and rounds the result once. (A GPU may round in between.)"""

    def apply_impl(self, input):
        narrow = [tensor.dtype == tl.bfloat16 for tensor in input]
        if not any(narrow):
            return super().apply_impl(input)
        results = super().apply_impl(tuple(map(_wide_tensor, input)))
        if not isinstance(results, (tuple, list)):
            results = (results,)
        return [_narrow_tensor(result) if index < len(narrow) and narrow[index] else result
                for index, result in enumerate(results)]


class CastingReduce(_Widening, stock.ReduceOps):
    pass


class CastingScan(_Widening, stock.ScanOps):
    pass


def _retyped(tensor, handle):
    shape = list(tensor.shape)
    kind = tl.block_type(handle.dtype, shape) if shape else handle.dtype
    return tl.core.tensor(handle, kind)


def _wide_tensor(tensor):
    return _retyped(tensor, _widen(tensor.handle)) if tensor.dtype == tl.bfloat16 else tensor


def _narrow_tensor(tensor):
    return _retyped(tensor, _narrow(tensor.handle))
