"""Chapter 12: serving. What each exercise draws, expects and counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.checks.ch12_money import BILLED, DISK_RATIO
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.hints import tied
from grading.misconceptions.ch12_memory import MEMORY
from grading.misconceptions.ch12_prefix import PREFIX
from grading.misconceptions.ch12_window import WINDOW
from grading.references import ch12 as reference

NOTEBOOK = "12__serving"

# ---------------------------------------------------------------- 12.1

LENGTH, ALL_STORED = "where the texts part", "a prompt that is stored whole"
RATIOS = (((2, 1), 6), ((4, 6), 9), ((3,), 10), ((4, 10), 6))


def prefix_cases(draw: Draw) -> tuple[Case, ...]:
    """Texts that part in the middle of a group and are equal again after it; prompts that are
    stored whole and end on a multiple; texts that differ at once."""
    cases = []
    for which, (ratios, piece) in enumerate(RATIOS):
        step = math.lcm(*ratios, piece)
        product = math.prod(ratios) * piece
        same = (2 * product // step - 1) * step + step - 1
        prompt = draw.tokens(same + 3 * step + 2, vocabulary=50).tolist()
        stored = list(prompt)
        stored[same] = (prompt[same] + 1) % 50
        part = LENGTH
        if which == 1:
            part, prompt = ALL_STORED, prompt[: 2 * step]
            stored = prompt + draw.tokens(step, vocabulary=50).tolist()
        if which == 2:
            stored = prompt[:same]
        cases.append(_prefix_case(part, prompt, stored, ratios, piece))
        if which == 3:
            short = prompt[: step + 1]
            cases.append(_prefix_case(ALL_STORED, short, short + short, ratios, piece))
        if which == 0:
            cases.append(_prefix_case(LENGTH, prompt, [prompt[0] + 1, *prompt[1:]], ratios, piece))
    return tuple(cases)


def _prefix_case(part, prompt, stored, ratios, piece) -> Case:
    inputs = {"prompt": prompt, "stored": stored, "ratios": ratios, "piece": piece}
    says = f"a prompt of {len(prompt)} tokens, {len(stored)} stored, ratios {ratios}, piece {piece}"
    return Case(part, says, inputs)


LONGEST_PREFIX = Exercise(
    id="12.1",
    title="The longest usable prefix",
    notebook=NOTEBOOK,
    parts=(Part(LENGTH, 2), Part(ALL_STORED, 1)),
    cases=prefix_cases,
    run=call("prompt", "stored", "ratios", "piece", output="tokens"),
    expected=lambda inputs: {
        "tokens": Expected(np.array(reference.longest_prefix(**inputs)), kind="integer")
    },
    hints=(
        tied(
            "Walk along both texts together and stop at the first difference.",
            "equal_anywhere", "known_tokens", "whole_or_nothing", LENGTH,
        ),
        tied(
            "math.lcm(*ratios, piece) is what the length must be a multiple of; n // step * step "
            "rounds down.",
            "not_rounded", "rounded_up", "only_the_piece", "only_the_ratios", "largest_ratio",
            "product", "common_divisor", "counts_pieces",
        ),
        tied(
            "At most len(prompt) - 1 tokens are used: compare prompt[:-1] with the stored text.",
            "nothing_left", "subtracts_after", "always_one_less", ALL_STORED,
        ),
    ),
    misconceptions=PREFIX,
)  # fmt: skip

# ---------------------------------------------------------------- 12.2

ROWS, SHORT, RUN = "the windows", "a prefix shorter than the window", "no token too many is run"


def window_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for part in (ROWS, ROWS, SHORT):
        window, width, row, more = draw.sizes(4)
        length = max(2, window - 2) if part == SHORT else 2 * window + more
        while length > 3 and (length in (width, row) or not length & (length - 1)):
            length += -1 if part == SHORT else 1
        inputs = {
            "x": draw.normal(length, width),
            "down": draw.normal(3, width, row, scale=width**-0.5),
            "up": draw.normal(3, row, width),
            "window": window,
        }
        says = f"P={length}, W={window}, X={width}, rows of {row} numbers, 3 layers"
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def run_windows(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    run = [0]

    def made(down_XC, up_CX):
        def layer(x_TX, visible_TT):
            run[0] += len(x_TX)
            rows = x_TX @ down_XC
            seen = visible_TT.to(rows.dtype)
            mean = seen @ rows / seen.sum(-1, keepdim=True).clamp(min=1)
            return rows, x_TX + torch.tanh(mean) @ up_CX

        return layer

    layers = [made(*pair) for pair in zip(inputs["down"], inputs["up"])]
    found = answer(inputs["x"], layers, inputs["window"])
    return {"windows": torch.stack(list(found)), "tokens run": run[0]}


def expected_windows(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    value = reference.windows(**inputs)
    cost = Expected(
        np.array(float(len(inputs["down"]) * min(len(inputs["x"]), inputs["window"]))),
        kind="cost", part=RUN,
        too_much="More tokens are run than the window has. That is the work that stored rows save.",
    )  # fmt: skip
    return {"windows": Expected(value, "LTC"), "tokens run": cost}


REBUILD = Exercise(
    id="12.2",
    title="Rebuild the window",
    notebook=NOTEBOOK,
    parts=(Part(ROWS, 2), Part(SHORT, 1), Part(RUN, 1)),
    cases=window_cases,
    run=run_windows,
    expected=expected_windows,
    hints=(
        tied(
            "x_PX[-window:] are the last W tokens, or all if there are fewer.",
            "all_tokens", "all_tokens_no_window", "everything_is_kept", "first_tokens",
            "one_too_few", "one_too_many", RUN, SHORT,
        ),
        tied(
            "torch.ones(T, T, dtype=torch.bool).tril() is the mask: in a replay of W tokens nobody "
            "can see farther than W.",
            "sees_the_future", "not_itself", "only_itself", "mask_transposed",
        ),
        tied(
            "rows_TC, x_TX = layer(x_TX, visible_TT): keep the rows, and hand the new stream to "
            "the next layer.",
            "same_stream_everywhere", "streams_kept", "inputs_kept", "newest_first",
            "layers_backwards", ROWS,
        ),
    ),
    misconceptions=WINDOW,
)  # fmt: skip

# ---------------------------------------------------------------- 12.3

BUDGET, TIME = "the budget", "the time to live"


def memory_cases(draw: Draw) -> tuple[Case, ...]:
    """Scenes of a few calls, which are told in full; then many calls in a fixed order of events,
    with drawn sizes, and a random tail. A size of None is a get."""
    a, b, c = sorted(draw.sizes(3))
    budget, ttl = a + b + c, 10 * (b + 1)
    again = (("a", a, 0), ("a", b, 1), ("a", None, 2), ("b", a + c, 3))
    renewed = (("a", a, 0), ("b", b, 1), ("a", None, 2), ("c", a + c, 3), ("a", None, 4))
    late = (("a", a, 0), ("a", None, ttl - 1), ("b", b, ttl), ("a", None, 2 * ttl - 1))
    return (
        _scene(BUDGET, again, budget, 10**6),
        _scene(BUDGET, renewed, budget, 10**6),
        _scene(TIME, late, budget, ttl),
        _many(BUDGET, _events(draw, a, b, c), budget, 10**6),
        _many(TIME, _late_events(a, b, c, ttl), budget, ttl),
    )


def _scene(part: str, calls: tuple, budget: int, ttl: int) -> Case:
    told = (
        f"get({name!r}, {now})" if size is None else f"put({name!r}, {size}, {now})"
        for name, size, now in calls
    )
    inputs = {"budget": budget, "ttl": ttl, "calls": calls}
    return Case(part, f"Memory({budget}, {ttl}), then {', '.join(told)}", inputs)


def _many(part: str, calls: tuple, budget: int, ttl: int) -> Case:
    inputs = {"budget": budget, "ttl": ttl, "calls": calls}
    return Case(part, f"a budget of {budget} bytes, ttl {ttl}, {len(calls)} calls", inputs)


def _events(draw: Draw, a: int, b: int, c: int) -> tuple:
    budget = a + b + c
    calls = [
        ("a", a, 0), ("b", b, 0), ("c", c, 1), ("a", None, 2), ("d", budget + 1, 3),
        ("a", None, 3), ("b", None, 3), ("c", None, 3), ("a", None, 4), ("e", 1, 5),
        ("b", None, 6), ("b", None, 7), ("a", a - 1, 8), ("c", c, 8), ("a", budget + 1, 8),
        ("a", None, 8), ("f", b, 9), ("c", None, 9), ("e", None, 9),
        ("g", budget, 9), ("f", None, 9), ("g", None, 10),
    ]  # fmt: skip
    names, now = "abcde", 10
    for _ in range(25):
        now += draw.integer(0, 2)
        size = draw.integer(1, c) if draw.random.random() < 0.6 else None
        calls.append((names[draw.integer(0, 4)], size, now))
    return tuple(calls)


def _late_events(a: int, b: int, c: int, ttl: int) -> tuple:
    return (
        ("a", a, 0), ("b", b, 3), ("a", None, ttl - 1), ("b", None, ttl + 3), ("a", None, ttl + 4),
        ("c", c, ttl + 5), ("a", None, 2 * ttl + 3), ("b", b, 2 * ttl + 4), ("c", None, 3 * ttl),
        ("a", None, 3 * ttl + 2), ("a", a, 3 * ttl + 3), ("b", b, 4 * ttl), ("c", c, 4 * ttl + 3),
        ("d", a, 4 * ttl + 3), ("b", None, 4 * ttl + 4), ("d", None, 4 * ttl + 5),
    )  # fmt: skip


def run_memory(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    memory, answers, used = answer(inputs["budget"], inputs["ttl"]), [], []
    for name, size, now in inputs["calls"]:
        got = memory.get(name, now) if size is None else memory.put(name, size, now)
        answers.append(int(got))
        used.append(int(memory.used))
    return {"answers": torch.tensor(answers), "used": torch.tensor(used)}


def expected_memory(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    answers, used = reference.memory(inputs["budget"], inputs["ttl"], inputs["calls"])
    return {
        "answers": Expected(np.array(answers), "N", kind="integer"),
        "used": Expected(np.array(used), "N", kind="integer"),
    }


LRU_TTL = Exercise(
    id="12.3",
    title="LRU with a TTL",
    notebook=NOTEBOOK,
    parts=(Part(BUDGET, 2), Part(TIME, 2)),
    cases=memory_cases,
    run=run_memory,
    expected=expected_memory,
    hints=(
        tied(
            "An OrderedDict, name: (size, time of use), keeps the order of use if every use takes "
            "the entry out and puts it in again; popitem(last=False) is the oldest.",
            "first_in_first_out", "newest_goes", "largest_goes", BUDGET,
        ),
        tied(
            "In put: expire, then refuse what is larger than the budget, then take out the old "
            "entry of that name, then let others go, then store.",
            "too_large_empties", "replaced_bytes_counted", "old_entry_kept", "no_budget",
            "not_filled", "all_go", "always_true",
        ),
        tied(
            "One method that expires: for each entry of list(self.held.items()) with now - since "
            ">= self.ttl, delete it and subtract its size. Call it first in get and in put.",
            "never_expires", "expires_too_late", "put_does_not_expire", "get_does_not_expire",
            "expired_bytes_counted", "get_does_not_renew", TIME,
        ),
    ),
    misconceptions=MEMORY,
)  # fmt: skip

EQUIVALENT = {
    "12.1": {
        "math.lcm(*ratios, piece)  ->  math.lcm(piece, *ratios)": "the same multiple in any order",
        "zip(prompt[:-1], stored)  ->  zip(stored, prompt[:-1])": "equal is equal from both sides",
    },
    "12.2": {
        "max(0, len(x_PX) - window)  ->  max(len(x_PX) - window, 0)": "the larger of two",
    },
}

EXERCISES = (LONGEST_PREFIX, REBUILD, LRU_TTL, BILLED, DISK_RATIO)
