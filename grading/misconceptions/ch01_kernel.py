"""Named mistakes in exercise 01.6: two lines of a Triton decode kernel.

A kernel cannot be handed another kernel, so a mistake is a pair of lines, put into the
same text that the learner's lines stand in. `tests/grading` holds this text and the
exercise's against each other.
"""

from __future__ import annotations

import functools
import linecache
from dataclasses import dataclass
from typing import Any

from grading.exercise import Misconception

KERNEL = """
@triton.jit
def decode_kernel(
    query_ptr, key_ptr, value_ptr, output_ptr, S, scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):
    head = tl.program_id(0)
    dim = tl.arange(0, BLOCK_D)
    query = tl.load(query_ptr + head * D + dim, mask=dim < D, other=0.0)
    maximum = -float("inf")
    denominator = 0.0
    accumulator = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, S, BLOCK_S):
        token = start + tl.arange(0, BLOCK_S)
        place = (head * S + token)[:, None] * D + dim[None, :]
        here = (token < S)[:, None] & (dim < D)[None, :]
        key = tl.load(key_ptr + place, mask=here, other=0.0)
        score = tl.sum(key * query[None, :], axis=1) * scale
        score = tl.where(token < S, score, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(score, axis=0))
        weight = tl.exp(score - new_maximum)
        rescale = tl.exp(maximum - new_maximum)
        denominator = denominator * rescale + tl.sum(weight, axis=0)
        {load}
        {add}
        maximum = new_maximum
    tl.store(output_ptr + head * D + dim, accumulator / denominator, mask=dim < D)
"""

LOAD = "value = tl.load(value_ptr + place, mask=here, other=0.0)"
ADD = "accumulator = accumulator * rescale + tl.sum(weight[:, None] * value, axis=0)"


@dataclass(frozen=True)
class KernelLines:
    """The two lines; `build` makes them a kernel, when triton is there to make it."""

    load: str = LOAD
    add: str = ADD

    @functools.lru_cache(maxsize=32)  # noqa: B019 - a handful of frozen values
    def build(self) -> Any:
        from kernels.backend import tl, triton

        source = KERNEL.strip().format(load=self.load, add=self.add) + "\n"
        filename = f"<decode kernel {abs(hash(source))}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        namespace = {"triton": triton, "tl": tl, "__name__": __name__}
        exec(compile(source, filename, "exec"), namespace)
        return namespace["decode_kernel"]


KERNEL_LINES = (
    Misconception(
        "not_rescaled",
        "This is the answer when what was summed so far is not rescaled: it was made with the "
        "old maximum, so it is multiplied by `rescale` before the block is added.",
        KernelLines(add="accumulator = accumulator + tl.sum(weight[:, None] * value, axis=0)"),
    ),
    Misconception(
        "last_block_only",
        "This is the answer of the last block alone: each block's sum takes the place of what "
        "was summed before it.",
        KernelLines(add="accumulator = tl.sum(weight[:, None] * value, axis=0)"),
    ),
    Misconception(
        "new_part_rescaled_too",
        "This is the answer when the new block is rescaled as well. Its weights were made with "
        "the new maximum already; only what came before is multiplied by `rescale`.",
        KernelLines(
            add="accumulator = (accumulator + tl.sum(weight[:, None] * value, axis=0)) * rescale"
        ),
    ),
    Misconception(
        "unweighted",
        "This is the answer with the values summed without their weights.",
        KernelLines(add="accumulator = accumulator * rescale + tl.sum(value, axis=0)"),
    ),
    Misconception(
        "score_for_weight",
        "This is the answer with the scores in place of the weights; a weight is exp(score - "
        "maximum).",
        KernelLines(
            add="accumulator = accumulator * rescale + tl.sum("
            "tl.where(token < S, score, 0.0)[:, None] * value, axis=0)"
        ),
    ),
    Misconception(
        "divided_in_the_loop",
        "This is the answer with the weights divided by the denominator inside the loop. The "
        "denominator is not complete there; the last line divides once.",
        KernelLines(
            add="accumulator = accumulator * rescale + tl.sum("
            "(weight / denominator)[:, None] * value, axis=0)"
        ),
    ),
    Misconception(
        "key_for_value",
        "This is the answer with the keys in place of the values: load from value_ptr.",
        KernelLines(load="value = tl.load(key_ptr + place, mask=here, other=0.0)"),
    ),
    Misconception(
        "first_row_for_all",
        "This is the answer when every program reads the values of head 0: `place` knows the head.",
        KernelLines(
            load="value = tl.load(value_ptr + token[:, None] * D + dim[None, :], "
            "mask=here, other=0.0)"
        ),
    ),
    Misconception(
        "no_mask",
        "The load of the values has no mask: the last block reaches past the end of the tensor. "
        "`here` says which places exist.",
        KernelLines(load="value = tl.load(value_ptr + place)"),
    ),
    Misconception(
        "wrong_axis",
        "The sum runs over axis 1, the dims. Entries are axis 0: one sum for each dim.",
        KernelLines(
            add="accumulator = accumulator * rescale + tl.sum(weight[:, None] * value, axis=1)"
        ),
    ),
)
