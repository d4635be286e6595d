"""Checks of a kernel's arguments: an error names the argument, its shape and what is right."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import backend


def match(**arguments: tuple[str, Tensor]) -> dict[str, int]:
    """Check shapes against each other: `match(query=("B T H D", q), key=("B S K D", k))`.

    Returns the size of each letter. A letter has one size in all arguments. Raises
    ValueError (TypeError for what is no tensor) naming the argument and its shape. All
    arguments must have one dtype and lie on one device.
    """
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for name, (pattern, tensor) in arguments.items():
        letters = pattern.split()
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor [{', '.join(letters)}], "
                            f"not {type(tensor).__name__}")
        shape = tuple(tensor.shape)
        if len(shape) != len(letters):
            raise ValueError(f"{name} has shape {shape}, {len(shape)} dimensions; "
                             f"expected {len(letters)}: [{', '.join(letters)}]")
        for letter, size in zip(letters, shape):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"{name} has shape {shape} for [{', '.join(letters)}]; {letter} "
                                 f"is {size} there and {sizes[letter]} in {origin[letter]}")
            origin.setdefault(letter, name)
            if size == 0:
                raise ValueError(f"{name} has shape {shape}: {letter} is 0, expected at least 1")
    _same_kind({name: tensor for name, (_, tensor) in arguments.items()})
    return sizes


def _same_kind(tensors: dict[str, Tensor]) -> None:
    first, reference = next(iter(tensors.items()))
    if not reference.is_floating_point():
        raise ValueError(f"{first} has dtype {reference.dtype}; expected a floating-point dtype")
    for name, tensor in tensors.items():
        if tensor.dtype != reference.dtype:
            raise ValueError(f"{name} has dtype {tensor.dtype} and {first} has "
                             f"{reference.dtype}; expected the same")
        if tensor.device != reference.device:
            raise ValueError(f"{name} is on {tensor.device} and {first} on {reference.device}; "
                             "expected the same device")


def group_size(heads: int, kv_heads: int) -> int:
    """Query heads per kv head. Raises ValueError if that is no whole number."""
    if heads % kv_heads:
        raise ValueError(f"query has {heads} heads and key {kv_heads}; "
                         "the query heads must be a multiple of the kv heads")
    return heads // kv_heads


def head_dims(largest: int, **dims: int) -> None:
    """Raises ValueError if a head dim is above what the kernel can hold."""
    for name, size in dims.items():
        if size > largest:
            raise ValueError(f"{name} has head dim {size}; expected at most {largest}")


def none_or_at_least_1(**numbers: int | None) -> None:
    """Raises ValueError for what is neither None nor a whole number of at least 1."""
    for name, number in numbers.items():
        whole = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and not (whole and number >= 1):
            raise ValueError(f"{name} is {number!r}; expected None or a whole number of at least 1")


def number(**named) -> float:
    """`number(scale=scale)` as a float. Raises ValueError if it is none."""
    (name, value), = named.items()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; expected a number") from None


def in_32_bits(axes: int, **tensors: Tensor) -> None:
    """Kernels count 64 bits from row to row, and 32 bits within a row (its last axes): wider
    offsets there would take registers in every inner loop. Raises ValueError for a view whose
    rows are spread over 2**31 elements."""
    for name, tensor in tensors.items():
        last = list(zip(tensor.shape, tensor.stride()))[-axes:]
        if sum((size - 1) * stride for size, stride in last) >= 2**31:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)} and strides "
                             f"{tensor.stride()}; expected a row of it, its last {axes} axes, "
                             'within 2**31 elements: use .contiguous(), or impl="torch"')


def entry_counts(lengths: Tensor | None, batch: int, entries: int, device) -> Tensor | None:
    """Valid entries of each row, as int32 on the device; None means all of them.

    Values are checked where that costs nothing, on a CPU; elsewhere the kernel clamps.
    """
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor) or lengths.dtype not in (torch.int32, torch.int64):
        kind = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
        raise ValueError(f"lengths is {kind}; expected a tensor of int32 or int64 and of shape "
                         f"({batch},)")
    if tuple(lengths.shape) != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}; expected ({batch},)")
    if lengths.device != device:
        raise ValueError(f"lengths is on {lengths.device}; expected {device}")
    if lengths.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > entries:
            raise ValueError(f"lengths goes from {low} to {high}; expected 0 to {entries}, "
                             "the entries that key has")
    return lengths.to(torch.int32).contiguous()


def power_of_two(size: int, smallest: int = 1) -> int:
    """The next power of two; triton's blocks have such sizes."""
    return max(smallest, 1 << (size - 1).bit_length())


def at_least_1(**numbers: int) -> None:
    """Raises ValueError for what is no whole number of at least 1."""
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{name} is {number!r}; expected a whole number of at least 1")


def block_list(blocks_BTJ: Tensor, score_BTS: Tensor, block: int) -> None:
    """Candidate blocks of `block` entries. Raises ValueError naming what is wrong."""
    B, T, S = score_BTS.shape
    if not isinstance(blocks_BTJ, Tensor) or blocks_BTJ.dtype != torch.int32:
        kind = blocks_BTJ.dtype if isinstance(blocks_BTJ, Tensor) else type(blocks_BTJ).__name__
        raise ValueError(f"blocks is {kind}; expected a tensor of int32 [B, T, J], such as "
                         "candidate_blocks gives")
    most = -(-S // block)
    if blocks_BTJ.ndim != 3 or blocks_BTJ.shape[:2] != (B, T) or not (
            1 <= blocks_BTJ.shape[2] <= most):
        raise ValueError(f"blocks has shape {tuple(blocks_BTJ.shape)}; expected ({B}, {T}, J) with "
                         f"J from 1 to {most}, the blocks of {block} among {S} entries")
    if blocks_BTJ.device != score_BTS.device:
        raise ValueError(f"blocks is on {blocks_BTJ.device}; expected {score_BTS.device}")
    if blocks_BTJ.device.type == "cpu" and backend.current().name != "offline":
        low, high = int(blocks_BTJ.min()), int(blocks_BTJ.max())
        if low < -1 or high >= most:
            raise ValueError(f"blocks goes from {low} to {high}; expected -1 to {most - 1}")
