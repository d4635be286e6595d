"""Chapter 13: window, scale and group of the fault lab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch13_groups import GROUP
from grading.misconceptions.ch13_rows import SCALE, WINDOW
from grading.references import ch13 as reference

NOTEBOOK = "13__capstone"

# ---------------------------------------------------------------- 13.4

SEEN = "who sees what, and what is kept"


def window_cases(draw: Draw) -> tuple[Case, ...]:
    """Token by token, chunks shorter than the window, and one longer than it."""
    size = draw.integer(3, 5)
    cases = []
    for sizes in ((1,) * (size + 3), (2, size - 1, 2, 1, 2), (size + 2, 1, 2 * size)):
        dim, batch = (6, 7, 9)[draw.integer(0, 2)], draw.integer(2, 3)
        length = sum(sizes)
        while length in (dim, 8, 16):
            sizes, length = (*sizes, 2), length + 2
        inputs = {"row": draw.normal(batch, length, dim), "sizes": sizes, "size": size}
        says = f"B={batch}, D={dim}, window {size}, chunks of {', '.join(map(str, sizes))}"
        cases.append(Case(SEEN, says, inputs))
    return tuple(cases)


def run_window(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    cache, seen, start = answer(inputs["size"]), {}, 0
    for n, size in enumerate(inputs["sizes"], 1):
        given = cache.append(inputs["row"][:, start : start + size].clone())
        if not isinstance(given, tuple | list) or len(given) != 2:
            return {"the answer (a pair: rows, visible)": given}
        rows, visible = given
        seen[f"rows for chunk {n}"] = rows
        seen[f"visible to chunk {n}"] = (
            visible.long() if isinstance(visible, torch.Tensor) else visible
        )
        start += size
    return seen


def expected_window(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    wanted = {}
    found = reference.window(inputs["row"], inputs["sizes"], inputs["size"])
    for n, (rows, visible) in enumerate(found, 1):
        wanted[f"rows for chunk {n}"] = Expected(rows, "BSD")
        wanted[f"visible to chunk {n}"] = Expected(visible, "TS", kind="integer")
    return wanted


WINDOWS = Exercise(
    id="13.4",
    title="A window, off by one",
    notebook=NOTEBOOK,
    parts=(Part(SEEN, 2),),
    cases=window_cases,
    run=run_window,
    expected=expected_window,
    hints=(
        tied(
            "A window of 3: token 9 sees 7, 8 and 9. Their distances are 2, 1 and 0.",
            "as_it_was", "one_too_few", "not_itself", "not_itself_but_one_more", "no_window",
        ),
        tied(
            "distance >= 0 keeps the future out, distance < size keeps the far past out. Row "
            "S - T + t is the t-th new one.",
            "sees_the_future", "counts_from_the_chunk",
        ),
        tied(
            "rows_BSD[:, -size:] is what stays. The chunk itself reads all of rows_BSD first.",
            "keeps_one_more", "keeps_all", "keeps_one_less", "keeps_the_oldest", "cut_too_soon",
            "shape",
        ),
    ),
    misconceptions=WINDOW,
)  # fmt: skip

# ---------------------------------------------------------------- 13.5

BLOCKS = "codes and scales of each block"


def scale_cases(draw: Draw) -> tuple[Case, ...]:
    """Rows that lie a little off whole codes, so that no rounding is a matter of luck."""
    cases = []
    for _ in range(2):
        block, blocks = (5, 3)[draw.integer(0, 1)], draw.integer(2, 3)
        batch, tokens = draw.integer(2, 3), (7, 11, 12)[draw.integer(0, 2)]
        shape = (batch, tokens, blocks, block)
        code = draw.random.integers(-126, 127, shape)
        largest = draw.random.integers(0, block, shape[:3])
        sign = draw.random.choice((-1, 1), shape[:3])
        off = draw.random.uniform(0.1, 0.35, shape) * draw.random.choice((-1, 1), shape)
        exact = code + off
        np.put_along_axis(exact, largest[..., None], 127.0 * sign[..., None], -1)
        size = 2.0 ** draw.random.integers(-12, 3, shape[:3])
        row = torch.tensor((exact * size[..., None]).reshape(batch, tokens, -1)).float()
        says = f"B={batch}, T={tokens}, D={blocks * block}, blocks of {block}"
        cases.append(Case(BLOCKS, says, {"row": row, "block": block}))
    return tuple(cases)


def run_scale(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(inputs["block"]).pack(inputs["row"])
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: codes, scales)": given}
    return {"codes": given[0], "scales": given[1]}


def expected_scale(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    code, scale = reference.eight_bits(inputs["row"], inputs["block"])
    return {
        "codes": Expected(code, "BTD", kind="integer"),
        "scales": Expected(scale, "BTN", atol=1e-9),
    }


SCALES = Exercise(
    id="13.5",
    title="A scale on the wrong axis",
    notebook=NOTEBOOK,
    parts=(Part(BLOCKS, 2),),
    cases=scale_cases,
    run=run_scale,
    expected=expected_scale,
    hints=(
        tied(
            "block_BTNb has the axes batch, token, block, number within it. Over which of them may "
            "the largest be taken, if each block of each row has its own scale?",
            "as_it_was", "over_the_batch", "over_the_row", "one_for_all", "shape",
        ),
        tied(
            "block.abs().amax(dim=-1) / 127 is the scale [B, T, N]. Divide by it with [..., None].",
            "no_absolute_value", "the_mean", "by_128", "by_255", "scale_inverted",
        ),
        tied(
            "Round to the nearest whole number, then flatten the last two axes: blocks follow each "
            "other as in the row.",
            "cut_off", "rounded_down", "interleaved", "dtype",
        ),
    ),
    misconceptions=SCALE,
)  # fmt: skip

# ---------------------------------------------------------------- 13.6

COMPLETE = "entries of complete groups"


def group_cases(draw: Draw) -> tuple[Case, ...]:
    """A chunk with several groups and a rest; token by token; a rest that waits twice."""
    size = (3, 5)[draw.integer(0, 1)]
    cases = []
    for sizes in ((2 * size + 1, size, 1, 2), (size, *(1,) * (size + 1)), (size + 1, 1, 2 * size)):
        dim, batch = (6, 7, 9)[draw.integer(0, 2)], draw.integer(2, 3)
        length = sum(sizes)
        while length in (dim, 8, 16):
            sizes, length = (*sizes, 2), length + 2
        inputs = {"x": draw.normal(batch, length, dim), "sizes": sizes, "size": size}
        says = f"B={batch}, D={dim}, groups of {size}, chunks of {', '.join(map(str, sizes))}"
        cases.append(Case(COMPLETE, says, inputs))
    return tuple(cases)


def run_groups(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    cache, seen, start = answer(inputs["size"]), {}, 0
    for n, size in enumerate(inputs["sizes"], 1):
        cache.append(inputs["x"][:, start : start + size].clone())
        start += size
        seen[f"entries after chunk {n}"] = _entries(cache, inputs["x"])
    return seen


def _entries(cache: Any, x: torch.Tensor) -> Any:
    return cache.read() if cache.entries else x[:, :0]


def expected_groups(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    ends = np.cumsum(inputs["sizes"])
    return {
        f"entries after chunk {n}": Expected(
            reference.means(inputs["x"][:, :end], inputs["size"]), "BND"
        )
        for n, end in enumerate(ends, 1)
    }


GROUPS = Exercise(
    id="13.6",
    title="A group that closes too early",
    notebook=NOTEBOOK,
    parts=(Part(COMPLETE, 2),),
    cases=group_cases,
    run=run_groups,
    expected=expected_groups,
    hints=(
        tied(
            "How many tokens has the group that is closed last in a chunk? If they are fewer than "
            "`size`, they must wait.",
            "as_it_was", "closes_too_early_and_goes_on", "closes_too_late", "rest_is_lost",
        ),
        tied(
            "A chunk begins with what waits: torch.cat([self.waiting_BTD, x_BTD], dim=1), unless "
            "that is None.",
            "waits_for_ever", "waits_again", "waiting_behind", "groups_from_the_end",
        ),
        tied(
            "While there are `size` tokens or more: the mean of the first `size` of them is an "
            "entry, and they are cut off. What remains waits.",
            "one_group_an_append", "sliding", "sum", "last_token", "first_token", "shape",
        ),
    ),
    misconceptions=GROUP,
)  # fmt: skip
