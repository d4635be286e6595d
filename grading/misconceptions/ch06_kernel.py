"""Named mistakes in exercise 06.5: two lines of the absorbed decode kernel.

As in chapter 01 a mistake is a pair of lines, put into the same text that the learner's lines
stand in. `tests/grading` holds this text and the exercise's against each other.
"""

from __future__ import annotations

import functools
import linecache
from dataclasses import dataclass
from typing import Any

from grading.exercise import Misconception

KERNEL = """
@triton.jit
def latent_decode(
    query_ptr, rope_query_ptr, latent_ptr, rope_ptr, output_ptr, S, scale,
    H: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):
    b = tl.program_id(0)
    h = tl.arange(0, BLOCK_H)[:, None]
    c = tl.arange(0, BLOCK_C)[None, :]
    r = tl.arange(0, BLOCK_R)[None, :]
    query_at, rope_query_at = (b * H + h) * C + c, (b * H + h) * R + r
    query_HC = tl.load(query_ptr + query_at, mask=(h < H) & (c < C), other=0.0)
    rope_query_HR = tl.load(
        rope_query_ptr + rope_query_at, mask=(h < H) & (r < R), other=0.0
    )
    maximum_H = tl.full([BLOCK_H], -float("inf"), tl.float32)
    denominator_H = tl.zeros([BLOCK_H], tl.float32)
    sum_HC = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for start in range(0, S, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)[:, None]
        row = b * S + s
        latent_SC = tl.load(latent_ptr + row * C + c, mask=(s < S) & (c < C), other=0.0)
        rope_SR = tl.load(rope_ptr + row * R + r, mask=(s < S) & (r < R), other=0.0)
        {score}
        score_HS = tl.where(tl.trans(s) < S, score_HS * scale, -float("inf"))
        new_maximum_H = tl.maximum(maximum_H, tl.max(score_HS, axis=1))
        weight_HS = tl.exp(score_HS - new_maximum_H[:, None])
        rescale_H = tl.exp(maximum_H - new_maximum_H)
        denominator_H = denominator_H * rescale_H + tl.sum(weight_HS, axis=1)
        {add}
        maximum_H = new_maximum_H
    output_HC = sum_HC / denominator_H[:, None]
    tl.store(output_ptr + query_at, output_HC, mask=(h < H) & (c < C))
"""

CONTENT = 'tl.dot(query_HC, tl.trans(latent_SC), input_precision="ieee")'
NEAR = 'tl.dot(rope_query_HR, tl.trans(rope_SR), input_precision="ieee")'
BLOCK = 'tl.dot(weight_HS, latent_SC, input_precision="ieee")'
SCORE = f"score_HS = {CONTENT} + {NEAR}"
ADD = f"sum_HC = sum_HC * rescale_H[:, None] + {BLOCK}"


@dataclass(frozen=True)
class LatentLines:
    """The two lines; `build` makes them a kernel, when triton is there to make it."""

    score: str = SCORE
    add: str = ADD

    @functools.lru_cache(maxsize=32)  # noqa: B019 - a handful of frozen values
    def build(self) -> Any:
        from kernels.backend import tl, triton

        source = KERNEL.strip().format(score=self.score, add=self.add) + "\n"
        filename = f"<latent kernel {abs(hash(source))}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        namespace = {"triton": triton, "tl": tl, "__name__": __name__}
        exec(compile(source, filename, "exec"), namespace)
        return namespace["latent_decode"]


KERNEL_LINES = (
    Misconception(
        "no_position",
        "The rope product is missing from the scores.",
        LatentLines(score=f"score_HS = {CONTENT}"),
    ),
    Misconception(
        "no_content",
        "The product with the latents is missing from the scores.",
        LatentLines(score=f"score_HS = {NEAR}"),
    ),
    Misconception(
        "position_subtracted",
        "The rope product is subtracted; the score is the sum of both.",
        LatentLines(score=f"score_HS = {CONTENT} - {NEAR}"),
    ),
    Misconception(
        "scaled_twice",
        "The scores are scaled in your line and once more below it.",
        LatentLines(score=f"score_HS = ({CONTENT} + {NEAR}) * scale"),
    ),
    Misconception(
        "not_rescaled",
        "What was summed so far is not rescaled: it was made with the old maximum.",
        LatentLines(add=f"sum_HC = sum_HC + {BLOCK}"),
    ),
    Misconception(
        "last_block_only",
        "This is the answer of the last block alone: each block takes the place of what was summed "
        "before it.",
        LatentLines(add=f"sum_HC = {BLOCK}"),
    ),
    Misconception(
        "new_part_rescaled_too",
        "The new block is rescaled as well. Its weights were made with the new maximum already.",
        LatentLines(add=f"sum_HC = (sum_HC + {BLOCK}) * rescale_H[:, None]"),
    ),
    Misconception(
        "divided_in_the_loop",
        "The weights are divided by the denominator inside the loop, where it is not complete.",
        LatentLines(
            add="sum_HC = sum_HC * rescale_H[:, None] + tl.dot("
            'weight_HS / denominator_H[:, None], latent_SC, input_precision="ieee")'
        ),
    ),
    Misconception(
        "score_for_weight",
        "The scores stand in place of the weights; a weight is exp(score - maximum).",
        LatentLines(
            add="sum_HC = sum_HC * rescale_H[:, None] + tl.dot("
            'tl.where(tl.trans(s) < S, score_HS, 0.0), latent_SC, input_precision="ieee")'
        ),
    ),
    Misconception(
        "unweighted",
        "The latents are summed without their weights.",
        LatentLines(
            add="sum_HC = sum_HC * rescale_H[:, None] + tl.sum(latent_SC, axis=0)[None, :]"
        ),
    ),
)
