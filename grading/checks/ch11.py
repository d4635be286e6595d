"""Chapter 11: FP4. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.checks.ch11_scales import FP4_SCALE, MXFP4_SCALE, STRAIGHT_THROUGH
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.hints import tied
from grading.misconceptions.ch11_rate import RATE
from grading.misconceptions.ch11_round import NIBBLES, ROUND
from grading.references import ch11 as reference

NOTEBOOK = "11__fp4"

# ---------------------------------------------------------------- 11.1

NEAREST, TIES = "the nearest value", "ties, and the sign of zero"
MIDDLES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


def round_cases(draw: Draw) -> tuple[Case, ...]:
    """Small numbers, numbers beyond 6; then every tie with both signs, both zeros."""
    rows, width = draw.sizes(2)
    cases = []
    for scale, says in ((0.8, "small numbers"), (5.0, "some beyond 6")):
        values = draw.normal(rows, width, scale=scale)
        cases.append(Case(NEAREST, f"N={rows}, G={width}, {says}", {"values": values}))
    ties = torch.tensor([*MIDDLES, 0.0, 6.0])
    ties = ties[torch.tensor(draw.random.permutation(len(ties)))]
    both = torch.stack([ties, -ties])
    cases.append(Case(TIES, f"N=2, G={len(ties)}, middles and zeros", {"values": both}))
    return tuple(cases)


ROUNDING = Exercise(
    id="11.1",
    title="Round to E2M1",
    notebook=NOTEBOOK,
    parts=(Part(NEAREST, 2), Part(TIES, 1)),
    cases=round_cases,
    run=call("values", output="codes"),
    expected=lambda inputs: {
        "codes": Expected(reference.codes(inputs["values"]), "ND", kind="integer")
    },
    hints=(
        tied(
            "Between two neighbours lies a middle: 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5. The code "
            "of a magnitude is how many middles lie below it.",
            "cut", "next_above", "even_steps", "halves", "values_for_codes", "too_large_is_zero",
            NEAREST,
        ),
        tied(
            "At a middle go up only if the code below it is odd: at 0.75, 1.75 and 3.5.",
            "ties_up", "ties_down", "ties_to_odd", "nearest_in_a_table", TIES,
        ),
        tied(
            "Work with values.abs(), and add 8 where values.signbit() is True.",
            "no_sign", "zero_without_sign", "minus_zero", "sign_turned", "negative_is_zero",
            "twos_complement",
        ),
    ),
    misconceptions=ROUND,
)  # fmt: skip

# ---------------------------------------------------------------- 11.2

PACKED, TAKEN = "the bytes", "the codes taken out of them"
ELSEWHERE = "codes that are not in the bytes"


def nibble_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for part in (PACKED, TAKEN):
        rows, half = draw.sizes(2)
        while rows == 2 * half:
            rows, half = draw.sizes(2)
        codes = torch.tensor(draw.random.integers(0, 16, (rows, 2 * half)), dtype=torch.uint8)
        cases.append(Case(part, f"N={rows}, G={2 * half}", {"codes": codes, "asked": part}))
    return tuple(cases)


def run_nibbles(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(inputs["codes"])
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (two tensors: bytes, codes)": given}
    if inputs["asked"] == PACKED:
        return {PACKED: given[0]}
    return {TAKEN: given[1], ELSEWHERE: taken_elsewhere(answer, inputs["codes"])}


def taken_elsewhere(answer: Any, codes: torch.Tensor) -> int:
    """How many codes of the second tensor are not those of the first tensor's bytes.

    The codes given here are too large for a nibble, in the even places. No byte can hold them:
    whatever an answer packs, what it takes out of the bytes is not what it was given. Nothing is
    said against an answer that refuses such codes.
    """
    wide = codes & 6
    wide[:, 0::2] += 16  # the same bits whether codes are joined by | or by +, and below 256
    try:
        packed, taken = answer(wide)
        low, high = packed & 15, packed >> 4
        return int((torch.stack((low, high), dim=-1).flatten(1) != taken).sum())
    except Exception:
        return 0


def expected_nibbles(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    codes = np.asarray(inputs["codes"], np.int64)
    if inputs["asked"] == PACKED:
        return {PACKED: Expected(reference.packed(codes), "ND", kind="integer")}
    says = (
        "The second tensor was not taken out of the first: given codes that do not fit into the "
        "bytes, it has them all the same"
    )
    none = Expected(np.array(0.0), kind="cost", too_much=says)
    return {TAKEN: Expected(codes, "ND", kind="integer"), ELSEWHERE: none}


PACKING = Exercise(
    id="11.2",
    title="Pack nibbles",
    notebook=NOTEBOOK,
    parts=(Part(PACKED, 1), Part(TAKEN, 1)),
    cases=nibble_cases,
    run=run_nibbles,
    expected=expected_nibbles,
    hints=(
        tied(
            "codes[:, 0::2] are the even places, codes[:, 1::2] the odd ones; `odd << 4` moves a "
            "code into the high half, `|` joins both.",
            "high_first", "high_first_when_packing", "halves_of_the_row", "shifted_by_three",
            "added", "unpacked", PACKED,
        ),
        tied(
            "byte & 15 is the low code, byte >> 4 the high one; torch.stack((low, high), dim=-1) "
            "puts them side by side, .flatten(1) in a row.",
            "high_first_when_read", "not_interleaved", "low_only", "sign_lost", "input_again",
            TAKEN,
        ),
    ),
    misconceptions=NIBBLES,
)  # fmt: skip

# ---------------------------------------------------------------- 11.6

ROW_BYTES, KEY_BYTES = "bytes of rows", "bytes of index keys"
LAYOUT = ("ratios", "dim", "index_dim")
V4_1 = ((2, 2, 2, 1), 512, 128)


def rate_cases(draw: Draw) -> tuple[Case, ...]:
    """V4.1, and made-up models, one of them with short last blocks."""
    a, b, c, d = draw.sizes(4)
    models = [V4_1, ((a, 2, b), 16 * c, 32 * d), ((3, a), 16 * d + 6, 32 * c + 10)]
    cases = []
    for model in models:
        inputs = dict(zip(LAYOUT, model, strict=True))
        says = ", ".join(f"{name} {value}" for name, value in inputs.items())
        cases += [Case(part, says, inputs | {"asked": part}) for part in (ROW_BYTES, KEY_BYTES)]
    return tuple(cases)


def run_rate(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in LAYOUT))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: rows, keys)": given}
    return {ROW_BYTES: given[0], KEY_BYTES: given[1]}


def expected_rate(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    counted = reference.bytes_per_token(*(inputs[name] for name in LAYOUT))
    value = dict(zip((ROW_BYTES, KEY_BYTES), counted))[inputs["asked"]]
    return {inputs["asked"]: Expected(np.array(float(value)), atol=1e-6)}


THE_RATE = Exercise(
    id="11.6",
    title="890 from the layout",
    notebook=NOTEBOOK,
    parts=(Part(ROW_BYTES, 1), Part(KEY_BYTES, 1)),
    cases=rate_cases,
    run=run_rate,
    expected=expected_rate,
    hints=(
        tied(
            "A row: dim / 2 bytes of codes, and -(-dim // 16) scales (// rounds down; the two "
            "minus signs make it round up).",
            "no_scales", "byte_a_number", "row_blocks_of_32", "short_block_dropped",
            "scales_as_fraction", "scale_of_four_bytes", ROW_BYTES,
        ),
        tied(
            "sum(1 / ratio for ratio in ratios) is how many rows a token leaves; as many keys.",
            "row_each_token", "ratios_added", "one_owner", "mean_ratio", "keys_once",
        ),
        tied(
            "A key: index_dim / 2 bytes and a scale for every 32.",
            "key_without_scales", "one_block_size", "sixteen_and_dropped",
            "sixteen_and_fraction", KEY_BYTES,
        ),
    ),
    misconceptions=RATE,
)  # fmt: skip

EXERCISES = (ROUNDING, PACKING, FP4_SCALE, MXFP4_SCALE, STRAIGHT_THROUGH, THE_RATE)
_FLOOR = "5, 6 or 7 times 2^-9, over 6, all round to the smallest scale, 2^-9"
EQUIVALENT = {"11.3": {"6  ->  5": _FLOOR, "6  ->  7": _FLOOR}}
