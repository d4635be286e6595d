"""The list of rows that a token reads in sparse attention: what both kernels for it share.

A list is the part of the window that the token sees, and after it the entries chosen for
it. `sparse_attention` reads rows of numbers, `sparse_attention_fp4` rows of bytes; their
arguments, the splits of a list and the count of what is loaded are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.decode_attention import LARGEST_MERGE, _merge_splits
from kernels.packed_rows import Row


@dataclass(frozen=True)
class Call:
    """The checked arguments that both forms of sparse attention have. A part that is None
    (far entries with their indices, or the window) does not exist."""

    sizes: dict[str, int]  # B T H D, and S k W (0 where there is no such part)
    entry_BSD: Tensor | None
    index_BTk: Tensor | None
    window_BWD: Tensor | None
    lengths_B: Tensor | None
    reach: int
    sink_H: Tensor | None

    def rows(self) -> dict[str, Tensor]:
        """The rows that there are, by name."""
        both = {"entry": self.entry_BSD, "window": self.window_BWD}
        return {name: rows for name, rows in both.items() if rows is not None}


def check_call(query, entry, index, window, window_lengths, reach, sink, splits,
               formats: tuple[Row, Row] | None = None) -> Call:
    """Raises ValueError (TypeError for what is no tensor) naming the argument.

    `formats` are those of entries and of the window's rows where they are bytes.
    """
    sizes = {"S": 0, "k": 0, "W": 0, **arguments.match(query=("B T H D", query))}
    if (entry is None) != (index is None):
        given, missing = ("entry", "index") if index is None else ("index", "entry")
        raise ValueError(f"{given} is given and {missing} is None; expected both or neither")
    far, near = formats or (None, None)
    if entry is not None:
        _check_index(index, query)
        _check_rows("entry", "S", entry, query, far)
        if index.shape[2] == 0 or entry.shape[1] == 0:
            entry = index = None  # nothing to choose from yet
        else:
            sizes |= {"S": entry.shape[1], "k": index.shape[2]}
            _check_values(index, sizes["S"])
            index = index.contiguous()
    if window is not None:
        _check_rows("window", "W", window, query, near)
        sizes["W"] = window.shape[1]
    B, T, W = (sizes[letter] for letter in "BTW")
    if window is None and (window_lengths is not None or reach is not None):
        raise ValueError("window_lengths or reach is given and window is None")
    if window is not None and window_lengths is None and T > W:
        raise ValueError(f"query has {T} tokens and window {W} rows; the new tokens' own rows "
                         "must be among them (T <= W)")
    arguments.none_or_at_least_1(reach=reach, splits=splits)
    lengths_B = arguments.entry_counts(window_lengths, B, W, query.device)
    if sink is not None:
        _check_sink(sink, query)
    reach = W if reach is None else min(reach, W)
    sink = None if sink is None else sink.contiguous()
    return Call(sizes, entry, index, window, lengths_B, reach, sink)


def _check_rows(name, letter, rows, query, row_format: Row | None) -> None:
    if not isinstance(rows, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(rows).__name__}")
    last, dtype, what = query.shape[3], query.dtype, "as query"
    if row_format is not None:
        last, dtype, what = row_format.nbytes, torch.uint8, f"a row {row_format.name!r}"
    if rows.ndim != 3 or (rows.shape[0], rows.shape[2]) != (query.shape[0], last):
        raise ValueError(f"{name} has shape {tuple(rows.shape)}; expected [{query.shape[0]}, "
                         f"{letter}, {last}], {what}")
    if rows.dtype != dtype:
        raise ValueError(f"{name} has dtype {rows.dtype}; expected {dtype}, {what}")
    if rows.device != query.device:
        raise ValueError(f"{name} is on {rows.device} and query on {query.device}; expected the "
                         "same device")


def _check_index(index, query) -> None:
    if not isinstance(index, Tensor) or index.dtype not in (torch.int32, torch.int64):
        kind = index.dtype if isinstance(index, Tensor) else type(index).__name__
        raise ValueError(f"index is {kind}; expected a tensor [B, T, k] of int32 or int64")
    if index.ndim != 3 or index.shape[:2] != query.shape[:2]:
        raise ValueError(f"index has shape {tuple(index.shape)}; expected "
                         f"[{query.shape[0]}, {query.shape[1]}, k], a list for each query")
    if index.device != query.device:
        raise ValueError(f"index is on {index.device} and query on {query.device}; expected the "
                         "same device")


def _check_values(index, entries: int) -> None:
    """On a CPU; elsewhere the kernel skips what is no entry."""
    if index.device.type == "cpu" and backend.current().name != "offline":
        low, high = int(index.min()), int(index.max())
        if low < -1 or high >= entries:
            raise ValueError(f"index goes from {low} to {high}; expected -1 (none) to "
                             f"{entries - 1}, the last of {entries} entries")


def _check_sink(sink, query) -> None:
    heads = query.shape[2]
    if not isinstance(sink, Tensor) or tuple(sink.shape) != (heads,):
        kind = tuple(sink.shape) if isinstance(sink, Tensor) else type(sink).__name__
        raise ValueError(f"sink is {kind}; expected a tensor of shape ({heads},), one logit a head")
    if not sink.is_floating_point() or sink.device != query.device:
        raise ValueError(f"sink has dtype {sink.dtype} and is on {sink.device}; expected floating "
                         f"point on {query.device}")


def block_sizes(dtype) -> tuple[int, int, int, int]:
    """Heads and rows of a block, warps and stages, for lists of 512 numbers a row: sizes that
    `python -m kernels compile` shows to fit without a spill.

    The output alone, 64 heads of 512 numbers in fp32, takes half of the registers of a
    processor of NVIDIA's, so a program has it to itself, and blocks of rows are small.
    """
    hip = backend.vendor() == "hip"
    if dtype == torch.float32:  # no matrix instruction of full precision
        return 16, 16, 4 if hip else 8, 1
    if hip:  # a thread has 512 registers if there are few threads
        return 64, 16, 4, 1
    return (64, 16, 8, 3) if roomy() else (32, 32, 8, 2)


def roomy() -> bool:
    """Whether a program may have 160 KB of shared memory, and not 100 (of NVIDIA's chips)."""
    return arch() in (80, 90, 100, 103)


def arch():
    """The chip that triton compiles for in this process: 90 is sm_90."""
    import triton

    return triton.runtime.driver.active.get_current_target().arch


def default_splits(queries: int, heads: int, chosen: int, reach: int, value_dim: int, blocks,
                   device) -> int:
    """Enough splits that every processor of the GPU has a program, but two blocks of the list
    for each split at least: a split reads the queries anew."""
    parts = -(-heads // blocks["BLOCK_H"])
    listed = -(-chosen // blocks["BLOCK_S"]) + -(-reach // blocks["BLOCK_S"])
    wanted = -(-backend.processors(device) // (queries * parts))
    return max(1, min(wanted, listed // 2, _most_splits(value_dim)))


def check_splits(splits, value_dim: int) -> None:
    most = _most_splits(value_dim)
    if splits is not None and splits > most:
        raise ValueError(f"splits is {splits}; one program merges at most {most} of them at a "
                         f"value of {value_dim} numbers")


def _most_splits(value_dim: int) -> int:
    return LARGEST_MERGE // arguments.power_of_two(value_dim, 16)


def parts_of(output_BTHV, splits: int) -> tuple[Tensor, Tensor | None]:
    """Where programs store: what is to be merged, in fp32, or the output itself."""
    if splits == 1:
        return output_BTHV, None
    B, T, H, V = output_BTHV.shape
    empty = output_BTHV.new_empty
    return (empty(B * T * splits, H, V, dtype=torch.float32),
            empty(B * T * splits, H, dtype=torch.float32))


def merge(partial, partial_lse, output_BTHV, splits: int) -> None:
    B, T, H, V = output_BTHV.shape
    _merge_splits[(B * T * H,)](partial, partial_lse, output_BTHV, splits, GROUP=H, VALUE_DIM=V,
                                BLOCK_N=arguments.power_of_two(splits),
                                BLOCK_V=arguments.power_of_two(V, 16))


def strides(tensor: Tensor | None, count: int) -> tuple[int, ...]:
    return (0,) * count if tensor is None else tensor.stride()


def list_traffic(*, batch=1, tokens, heads, dim, value_dim, entry_bytes, row_bytes, chosen=0,
                 found=None, rows=0, reach=None, window_lengths=None, sink=False, splits=1,
                 block=64, itemsize=2, index_itemsize=4) -> dict[str, int]:
    """Bytes loaded and stored and FLOPs, for entries and window rows of so many bytes.

    A row is read once by each block of `block` heads of a token (caches on the chip may
    answer all but the first of these reads), the query once by each split. `chosen` is the
    length of the lists, `found` how many indices in all lists together are not -1 (None:
    all). `rows`, `reach` and `window_lengths` (a list of ints) are the window. Partial
    outputs between two kernels are fp32 and counted both ways; one split has none.
    """
    queries, parts = batch * tokens, -(-heads // block)
    found = queries * chosen if found is None else found
    near = rows_seen(batch, tokens, rows, reach, window_lengths)
    partial = 4 * queries * heads * splits * (value_dim + 1) if splits > 1 else 0
    listed = queries * chosen * index_itemsize + found * entry_bytes + near * row_bytes
    read = listed * parts + queries * heads * splits * dim * itemsize + partial
    if window_lengths is not None:
        read += 4 * queries * splits * parts
    if sink:
        read += 4 * queries * heads
    return {
        "bytes_read": read,
        "bytes_written": partial + queries * heads * value_dim * itemsize,
        "flops": 2 * (found + near) * heads * (dim + value_dim),
    }


def rows_seen(batch, tokens, rows, reach=None, window_lengths=None) -> int:
    """Rows of the window that all tokens see, one added to the other."""
    reach = rows if reach is None else min(reach, rows)
    lengths = [rows] * batch if window_lengths is None else window_lengths
    return sum(min(max(0, length - tokens + token + 1), reach)
               for length in lengths for token in range(tokens))


@dataclass(frozen=True)
class SparseShape:
    """T new tokens, each with `chosen` of S entries, the last `empty` places of its list -1,
    and `rows` of a window of which it sees `reach`."""

    label: str
    batch: int
    tokens: int
    heads: int
    entries: int = 0
    chosen: int = 0
    empty: int = 0
    rows: int = 0
    reach: int | None = None
    lengths: tuple[int, ...] | None = None
    sink: bool = True
    splits: int | None = None
    dtype: torch.dtype = torch.float32

    def common(self, device, seed) -> dict:
        """Arguments that do not depend on what rows are made of."""
        lengths = self.lengths and torch.tensor(self.lengths, dtype=torch.int32, device=device)
        sink = torch.linspace(-2, 2, self.heads, device=device) if self.sink else None
        return dict(index_BTk=self._index(device, seed) if self.chosen else None,
                    window_lengths=lengths, reach=self.reach, sink_H=sink, splits=self.splits)

    def _index(self, device, seed):
        shape = self.batch, self.tokens, self.chosen
        if backend.current().name == "offline":
            return torch.empty(shape, dtype=torch.int32)
        generator = torch.Generator().manual_seed(seed + 1)
        chance = torch.rand(self.batch, self.tokens, self.entries, generator=generator)
        index = torch.full(shape, -1, dtype=torch.int32)
        found = self.chosen - self.empty
        index[..., :found] = chance.to(device).argsort(2)[..., :found].sort(2)[0].cpu()
        return index.to(device)

    def sizes(self) -> dict:
        """Keyword arguments of a kernel's `traffic`, but for rows, blocks and splits."""
        return dict(batch=self.batch, tokens=self.tokens, heads=self.heads, chosen=self.chosen,
                    found=self.batch * self.tokens * (self.chosen - self.empty), rows=self.rows,
                    reach=self.reach, window_lengths=self.lengths, sink=self.sink,
                    itemsize=self.dtype.itemsize)
