"""Named mistakes in exercise 07.5: two lines of the gather kernel.

A mistake is a pair of lines, put into the same text that the learner's lines stand in.
`tests/grading` holds this text and the exercise's against each other.
"""

from __future__ import annotations

import functools
import linecache
from dataclasses import dataclass
from typing import Any

from grading.exercise import Misconception

KERNEL = """
@triton.jit
def gather_decode(
    query_ptr, entry_ptr, index_ptr, output_ptr, S, K, scale,
    H: tl.constexpr, D: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):
    b = tl.program_id(0)
    h = tl.arange(0, BLOCK_H)[:, None]
    d = tl.arange(0, BLOCK_D)[None, :]
    query_at = (b * H + h) * D + d
    query_HD = tl.load(query_ptr + query_at, mask=(h < H) & (d < D), other=0.0)
    maximum_H = tl.full([BLOCK_H], -float("inf"), tl.float32)
    denominator_H = tl.zeros([BLOCK_H], tl.float32)
    sum_HD = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    for start in range(0, K, BLOCK_K):
        place_K = start + tl.arange(0, BLOCK_K)
        {row}
        there_K = row_K >= 0
        {entry}
        score_HK = tl.dot(query_HD, tl.trans(entry_KD), input_precision="ieee") * scale
        score_HK = tl.where(there_K[None, :], score_HK, -float("inf"))
        new_maximum_H = tl.maximum(maximum_H, tl.max(score_HK, axis=1))
        weight_HK = tl.exp(score_HK - new_maximum_H[:, None])
        rescale_H = tl.exp(maximum_H - new_maximum_H)
        denominator_H = denominator_H * rescale_H + tl.sum(weight_HK, axis=1)
        block_HD = tl.dot(weight_HK, entry_KD, input_precision="ieee")
        sum_HD = sum_HD * rescale_H[:, None] + block_HD
        maximum_H = new_maximum_H
    output_HD = sum_HD / denominator_H[:, None]
    tl.store(output_ptr + query_at, output_HD, mask=(h < H) & (d < D))
"""

ROW = "row_K = tl.load(index_ptr + b * K + place_K, mask=place_K < K, other=-1)"


def _entry(address: str, mask: str = "there_K[:, None] & (d < D)") -> str:
    return f"entry_KD = tl.load(entry_ptr + {address}, mask={mask}, other=0.0)"


ENTRY = _entry("(b * S + row_K)[:, None] * D + d")


@dataclass(frozen=True)
class GatherLines:
    """The two lines; `build` makes them a kernel, when triton is there to make it."""

    row: str = ROW
    entry: str = ENTRY

    @functools.lru_cache(maxsize=32)  # noqa: B019 - a handful of frozen values
    def build(self) -> Any:
        from kernels.backend import tl, triton

        source = KERNEL.strip().format(row=self.row, entry=self.entry) + "\n"
        filename = f"<gather kernel {abs(hash(source))}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        namespace = {"triton": triton, "tl": tl, "__name__": __name__}
        exec(compile(source, filename, "exec"), namespace)
        return namespace["gather_decode"]


KERNEL_LINES = (
    Misconception(
        "no_choice",
        "The list was not read: these are the first K entries. A row is what stands in the list at "
        "its place.",
        GatherLines(row="row_K = tl.where(place_K < K, place_K, -1)"),
    ),
    Misconception(
        "list_of_the_first",
        "Every text reads the list of the first one: text b's begins at b * K.",
        GatherLines(row="row_K = tl.load(index_ptr + place_K, mask=place_K < K, other=-1)"),
    ),
    Misconception(
        "row_0_behind_the_end",
        "Behind the end of the list `other` is 0, which is an entry. It must be -1.",
        GatherLines(row=ROW.replace("other=-1", "other=0")),
    ),
    Misconception(
        "last_place_missing",
        "The last place of the list is never read.",
        GatherLines(row=ROW.replace("place_K < K", "place_K < K - 1")),
    ),
    Misconception(
        "first_block_again",
        "Each block reads the list's first places again; `place_K` has `start` in it.",
        GatherLines(row="row_K = tl.load(index_ptr + b * K + place_K - start, "
                    "mask=place_K < K, other=-1)"),
    ),
    Misconception(
        "by_place",
        "The entry is fetched by its place in the list. Its address comes from the list: row_K.",
        GatherLines(entry=_entry("(b * S + place_K)[:, None] * D + d")),
    ),
    Misconception(
        "entries_of_the_first",
        "Every text reads the entries of the first one: those of text b begin at b * S.",
        GatherLines(entry=_entry("row_K[:, None] * D + d")),
    ),
    Misconception(
        "one_later",
        "Each entry is one position too late.",
        GatherLines(entry=_entry("(b * S + (row_K + 1) % S)[:, None] * D + d")),
    ),
    Misconception(
        "numbers_reversed",
        "The numbers of an entry are read from its end.",
        GatherLines(entry=_entry("(b * S + row_K)[:, None] * D + D - 1 - d")),
    ),
)  # fmt: skip
