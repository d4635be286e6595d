"""Triton in four small kernels: copy, row sum, softmax, attention over blocks.

A kernel is a function that a GPU runs many times at once. Each run is a *program*, and
`tl.program_id(0)` tells it which one it is. A program works on whole blocks of numbers,
`tl.arange(0, BLOCK)` is such a block, and the size of a block is a power of two known when
the kernel is compiled (`tl.constexpr`). A tensor comes in as the address of its first
number; address + offsets gives a block of addresses, which `tl.load` and `tl.store` take.

In the interpreter the programs run one after another as ordinary Python: put a `print`
or a `breakpoint()` into a kernel and step through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton

if TYPE_CHECKING:
    from jaxtyping import Float

DTYPES = (torch.float32,)


# 1. Copy with a mask: which numbers are mine, and which of them exist?
@triton.jit
def _copy(source, target, length, BLOCK: tl.constexpr):
    program = tl.program_id(0)  # 0, 1, 2, ...: which block of the vector is mine
    at = program * BLOCK + tl.arange(0, BLOCK)  # the positions of my numbers
    exists = at < length  # the last block may reach beyond the end
    numbers = tl.load(source + at, mask=exists, other=0.0)
    tl.store(target + at, numbers, mask=exists)


def copy(source_N: Float[Tensor, " N"], *, block: int = 8, impl: str | None = None):
    """A copy of a vector, `block` numbers a program."""
    length = _vector(source_N)
    _power_of_two(block)
    if not backend.use_triton(impl, DTYPES, source=source_N):
        return source_N.clone()
    source_N = source_N.contiguous()
    target_N = torch.empty_like(source_N)
    _copy[(-(-length // block),)](source_N, target_N, length, BLOCK=block)
    return target_N


# 2. Row sum: many numbers in, one out.
@triton.jit
def _row_sum(table, sums, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)  # one program a row
    column = tl.arange(0, BLOCK)
    numbers = tl.load(table + row * columns + column, mask=column < columns, other=0.0)
    tl.store(sums + row, tl.sum(numbers, 0))  # the missing numbers count 0


def row_sum(table_RC: Float[Tensor, "R C"], *, impl: str | None = None):
    """The sum of each row."""
    rows, columns = _table(table_RC)
    if not backend.use_triton(impl, DTYPES, table=table_RC):
        return table_RC.sum(1)
    sums_R = table_RC.new_empty(rows)
    block = arguments.power_of_two(columns)
    _row_sum[(rows,)](table_RC.contiguous(), sums_R, columns, BLOCK=block)
    return sums_R


# 3. Softmax: read a row once, keep it in registers, write it once.
@triton.jit
def _softmax(table, result, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    exists = column < columns
    # The missing scores are -inf, so that they never win and weigh exp(-inf) = 0.
    score = tl.load(table + row * columns + column, mask=exists, other=-float("inf"))
    weight = tl.exp(score - tl.max(score, 0))  # the largest becomes exp(0) = 1: no overflow
    tl.store(result + row * columns + column, weight / tl.sum(weight, 0), mask=exists)


def softmax(table_RC: Float[Tensor, "R C"], *, impl: str | None = None):
    """Softmax of each row."""
    rows, columns = _table(table_RC)
    if not backend.use_triton(impl, DTYPES, table=table_RC):
        return torch.softmax(table_RC, 1)
    result_RC = torch.empty_like(table_RC, memory_format=torch.contiguous_format)
    block = arguments.power_of_two(columns)
    _softmax[(rows,)](table_RC.contiguous(), result_RC, columns, BLOCK=block)
    return result_RC


# 4. Attention over blocks: a softmax that never sees the whole row.
@triton.jit
def _attend(query, key, value, output, scale, entries,
            DIM: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr):
    dim = tl.arange(0, BLOCK_D)
    query_D = tl.load(query + dim, mask=dim < DIM, other=0.0)
    highest = -float("inf")  # the highest score so far
    total = 0.0  # sum of exp(score - highest) so far
    output_D = tl.zeros([BLOCK_D], tl.float32)  # sum of exp(score - highest) * value so far
    for start in range(0, entries, BLOCK_S):
        entry = start + tl.arange(0, BLOCK_S)
        at = entry[:, None] * DIM + dim[None, :]  # a block of rows, as a table of positions
        exists = (entry[:, None] < entries) & (dim[None, :] < DIM)
        key_SD = tl.load(key + at, mask=exists, other=0.0)
        value_SD = tl.load(value + at, mask=exists, other=0.0)
        score_S = tl.sum(key_SD * query_D[None, :], 1) * scale
        score_S = tl.where(entry < entries, score_S, -float("inf"))
        higher = tl.maximum(highest, tl.max(score_S, 0))
        shrink = tl.exp(highest - higher)  # what was summed so far used the old maximum
        weight_S = tl.exp(score_S - higher)
        total = total * shrink + tl.sum(weight_S, 0)
        output_D = output_D * shrink + tl.sum(weight_S[:, None] * value_SD, 0)
        highest = higher
    tl.store(output + dim, output_D / total, mask=dim < DIM)


def attend(query_D: Float[Tensor, " D"], key_SD: Float[Tensor, "S D"],
           value_SD: Float[Tensor, "S D"], *, block: int = 16, impl: str | None = None):
    """One query over S entries, `block` entries at a time: softmax(q . k / sqrt(D)) v."""
    sizes = arguments.match(query=("D", query_D), key=("S D", key_SD), value=("S D", value_SD))
    _power_of_two(block)
    scale = 1 / math.sqrt(sizes["D"])
    if not backend.use_triton(impl, DTYPES, query=query_D, key=key_SD, value=value_SD):
        return torch.softmax(key_SD @ query_D * scale, 0) @ value_SD
    output_D = torch.empty_like(query_D, memory_format=torch.contiguous_format)
    _attend[(1,)](query_D.contiguous(), key_SD.contiguous(), value_SD.contiguous(), output_D,
                  scale, sizes["S"], DIM=sizes["D"], BLOCK_S=block,
                  BLOCK_D=arguments.power_of_two(sizes["D"]))
    return output_D


def _vector(source_N) -> int:
    return arguments.match(source=("N", source_N))["N"]


def _table(table_RC) -> tuple[int, int]:
    sizes = arguments.match(table=("R C", table_RC))
    return sizes["R"], sizes["C"]


def _power_of_two(block) -> None:
    if not isinstance(block, int) or block < 1 or block & (block - 1):
        raise ValueError(f"block is {block!r}; expected a power of two, such as 8 or 16")


@dataclass(frozen=True)
class Shape:
    """One call of one of the four: the shapes of its tensors by name."""

    label: str
    function: Callable
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    dtype: torch.dtype = torch.float32

    def arguments(self, device="cpu", seed=0) -> dict:
        draw = drawing(self.dtype, device, seed)
        return {name: draw(*shape) for name, shape in self.tensors}


def expected(shape: Shape) -> dict[str, int]:
    """Each kernel reads its inputs once and writes its output once."""
    sizes = [math.prod(size) for _, size in shape.tensors]
    written, flops = {
        copy: (sizes[0], 0),
        row_sum: (shape.tensors[0][1][0], sizes[0]),
        softmax: (sizes[0], 0),
        attend: (sizes[0], 2 * sum(sizes[1:])),
    }[shape.function]
    return {"bytes_read": 4 * sum(sizes), "bytes_written": 4 * written, "flops": flops}


def _shapes(length, rows, columns, entries, dim):
    table = (("table_RC", (rows, columns)),)
    return (
        Shape("copy", copy, (("source_N", (length,)),)),
        Shape("row_sum", row_sum, table),
        Shape("softmax", softmax, table),
        Shape("attend", attend, (("query_D", (dim,)), ("key_SD", (entries, dim)),
                                 ("value_SD", (entries, dim)))),
    )


SMALL = _shapes(length=30, rows=5, columns=11, entries=37, dim=24)
REAL = _shapes(length=1_000_000, rows=4_096, columns=1_000, entries=4_096, dim=96)
