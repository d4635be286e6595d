"""Where a layout is one that the kernel `quantise` knows: packing and unpacking by it.

The kernel takes rows of one field in FP8 or FP4, its scales, and at most one field in bf16. Rows
of plain bf16 have nothing to encode, and numbers of 64 bits are for proofs: both stay with torch.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from ..layouts import BF16, E2M1, E4M3, F32, PAD, UE8M0, Layout

# The smallest max |x| of a block, by the format of its values and of its scales.
_SMALL = torch.tensor(1e-4).item()
FLOORS = {
    (E2M1, E4M3): 6 * 2.0**-9,
    (E2M1, UE8M0): 6 * 2.0**-126,
    (E4M3, UE8M0): _SMALL,
    (E4M3, F32): _SMALL,
}


@cache
def row_of(layout: Layout):
    """The layout as the kernel's `Row`, or None where it has no such rows."""
    from kernels.packed_rows import Row

    fields = {f.name: f for f in layout.fields}
    coded, *rest = layout.data
    scales = fields.get(coded.scales)
    floor = FLOORS.get((coded.fmt, scales.fmt)) if scales else None
    if floor is None or len(rest) > 1 or any(f.fmt is not BF16 for f in rest) or coded.count % 2:
        return None
    rope = rest[0].count if rest else 0
    spans = layout.offsets()
    row = Row(
        name=layout.name,
        values=coded.count,
        bits=coded.fmt.bits,
        scale="f32" if scales.fmt is F32 else scales.fmt.name,
        block=coded.block,
        floor=floor,
        rope=rope,
        rope_first=bool(rest) and spans[rest[0].name] < spans[scales.name],
        pad=sum(f.count for f in layout.fields if f.fmt is PAD),
    )
    same = row.nbytes == layout.nbytes and row.scales_at == spans[scales.name][0]
    return row if same and spans[coded.name][0] == 0 else None


def usable(layout: Layout, kernels: str | None, *tensors: Tensor) -> bool:
    """Whether these tensors go through the kernel."""
    first = tensors[0]
    if kernels == "torch" or not (kernels == "triton" or first.is_cuda) or not first.numel():
        return False
    if any(x.dtype == torch.float64 for x in tensors) or row_of(layout) is None:
        return False
    from kernels import backend

    return kernels == "triton" or backend.current().runs_triton


def readable(dtype: torch.dtype) -> bool:
    """Whether the kernel unpacks to numbers of this dtype."""
    return dtype in (torch.float32, torch.bfloat16)


@contextmanager
def as_bytes(near_and_far: list[tuple], kernels: str | None) -> Iterator[None]:
    """While open, these pairs of stores (window, far rows or None) hand out rows as they lie, if
    `sparse_attention_fp4` is to be used and all of them are such rows as it reads."""
    stores = []
    if near_and_far and near_and_far[0][0].storage == "packed":
        near, _ = near_and_far[0]
        if (
            readable(near.dtype)
            and usable(near.layout, kernels, near.buffers["row"])
            and all(_attended(window.layout, far and far.layout) for window, far in near_and_far)
        ):
            stores = [store for pair in near_and_far for store in pair if store is not None]
    for store in stores:
        store.as_bytes = True
    try:
        yield
    finally:
        for store in stores:
            store.as_bytes = False


@cache
def _attended(window: Layout, far: Layout | None) -> bool:
    """V4.1's rows, of any width that the kernel takes."""
    from kernels.packed_rows import FP4, FP8

    near = row_of(window)
    if near is None or near.values % FP8.block:
        return False
    return all(
        layout is None or row_of(layout) == replace(row, name=layout.name, values=near.values)
        for layout, row in ((window, FP8), (far, FP4))
    )


def pack(layout: Layout, values: Mapping[str, Tensor]) -> Tensor:
    """Errors: ValueError for NaN, infinity and what the row cannot hold, on a CPU."""
    from kernels.quantise import pack as pack_rows

    numbers = torch.cat([values[f.name].detach() for f in layout.data], dim=-1)
    try:
        return pack_rows(numbers, row_of(layout), impl="triton")
    except ValueError as error:
        raise ValueError(f"{layout.name}: {error}") from None


def unpack(layout: Layout, rows: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    from kernels.quantise import unpack as unpack_rows

    numbers = unpack_rows(rows, row_of(layout), dtype=dtype, impl="triton")
    parts = numbers.split([f.count for f in layout.data], dim=-1)
    return {f.name: part for f, part in zip(layout.data, parts, strict=True)}
