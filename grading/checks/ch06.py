"""Chapter 06: MLA. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.checks.ch06_kernel import DECODE_KERNEL
from grading.checks.ch06_saving import THE_SAVING
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch06_absorb import ABSORB
from grading.misconceptions.ch06_latent import LATENT
from grading.misconceptions.ch06_position import POSITION
from grading.references import ch06 as reference
from grading.references.largest_tensor import LargestTensor

NOTEBOOK = "06__mla"

# ---------------------------------------------------------------- 06.1

KEPT = "the latents that are kept"
MADE = "the keys and values made of them"
CACHE = ("x", "past", "down", "norm", "up_k", "up_v", "eps")


def cache_cases(draw: Draw) -> tuple[Case, ...]:
    """Nothing kept yet; a chunk behind others; one token. eps is large enough to be missed."""
    heads, dim, latent, width, past, new = draw.sizes(6)
    batch = draw.integer(2, 3)
    cases = []
    for part in (KEPT, MADE):
        for before, more in ((0, new), (past, new), (past, 1)):
            kept = draw.normal(batch, before, latent, scale=2.0)
            inputs = {
                "x": draw.normal(batch, more, width),
                "past": kept,
                "down": draw.normal(latent, width, scale=0.3),
                "norm": 1 + draw.normal(latent, scale=0.4),
                "up_k": draw.normal(heads, dim, latent),
                "up_v": draw.normal(heads, dim, latent),
                "eps": 0.05,
                "asked": part,
            }
            says = f"B={batch}, P={before}, T={more}, H={heads}, D={dim}, C={latent}, X={width}"
            cases.append(Case(part, says, inputs))
    return tuple(cases)


def run_cache(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in CACHE))
    if not isinstance(given, tuple | list) or len(given) != 3:
        return {"the answer (three tensors: latents, keys, values)": given}
    if inputs["asked"] == KEPT:
        return {"latents": given[0]}
    return {"keys": given[1], "values": given[2]}


def expected_cache(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    latent, key, value = reference.latent_cache(*(inputs[name] for name in CACHE))
    if inputs["asked"] == KEPT:
        return {"latents": Expected(latent, "BSC")}
    return {"keys": Expected(key, "BSHD"), "values": Expected(value, "BSHD")}


LATENT_CACHE = Exercise(
    id="06.1",
    title="Latent cache",
    notebook=NOTEBOOK,
    parts=(Part(KEPT, 2), Part(MADE, 2)),
    cases=cache_cases,
    run=run_cache,
    expected=expected_cache,
    hints=(
        tied(
            "x_BTX @ down_CX.T are the new latents, before their norm. Only these are normed.",
            "norm_when_read", "no_norm", "normed_twice", KEPT,
        ),
        tied(
            "latent.square().mean(-1, keepdim=True) is the mean of the squares of each latent. Add "
            "eps, take the root, divide, multiply by norm_C.",
            "no_norm_weight", "no_eps", "eps_outside", "sum_for_mean", "layer_norm",
            "norm_over_tokens",
        ),
        tied(
            "torch.cat([past_BPC, new_BTC], dim=1) puts the new ones behind the old ones.",
            "new_first", "past_forgotten",
        ),
        tied(
            'torch.einsum("bsc,hdc->bshd", latent_BSC, up_k_HDC) makes the keys of all heads and '
            "all entries.",
            "keys_of_new_only", "swapped", MADE,
        ),
    ),
    misconceptions=LATENT,
)  # fmt: skip

# ---------------------------------------------------------------- 06.2

WHOLE = "a text from its first token"
NEWEST = "the newest tokens of a longer text"
SCORES = ("nope", "rope", "key", "rope_key")


def position_cases(draw: Draw) -> tuple[Case, ...]:
    """T = S, T < S, one new token; both pieces of the score weigh alike."""
    rope = (6, 10)[draw.integer(0, 1)]
    heads, dim, new, past = draw.sizes(4)
    while not _apart(rope, heads, dim, new, past, new + past):
        heads, dim, new, past = draw.sizes(4)
    batch = draw.integer(2, 3)
    cases = []
    for part, tokens, entries in ((WHOLE, new, new), (NEWEST, new, new + past), (NEWEST, 1, past)):
        inputs = {
            "nope": draw.normal(batch, tokens, heads, dim),
            "rope": draw.normal(batch, tokens, heads, rope),
            "key": draw.normal(batch, entries, heads, dim),
            "rope_key": draw.normal(batch, entries, rope),
        }
        says = f"B={batch}, T={tokens}, S={entries}, H={heads}, D={dim}, R={rope}"
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def _apart(*sizes: int) -> bool:
    """All different, and the last, a sum, no power of two."""
    return len(set(sizes)) == len(sizes) and sizes[-1] & (sizes[-1] - 1) != 0


DECOUPLED = Exercise(
    id="06.2",
    title="Decoupled RoPE",
    notebook=NOTEBOOK,
    parts=(Part(WHOLE, 1), Part(NEWEST, 2)),
    cases=position_cases,
    run=lambda answer, inputs: {"scores": answer(*(inputs[name] for name in SCORES))},
    expected=lambda inputs: {
        "scores": Expected(
            reference.decoupled_scores(*(inputs[name] for name in SCORES)), "BHTS"
        )
    },
    hints=(
        tied(
            "Positions of the tokens: torch.arange(S). Those of the queries are its last T.",
            "queries_from_zero", "one_late", "all_at_the_end", NEWEST,
        ),
        tied(
            "rotate(rope_BTHR, Rope(R), position_S[S - T :]) and rotate(rope_key_BSR, Rope(R), "
            "position_S). The nope pieces stay as they are.",
            "nothing_turned", "query_unturned", "key_unturned", "everything_turned",
            "nope_turned_instead", "turned_apart", WHOLE,
        ),
        tied(
            'torch.einsum("bthd,bshd->bhts", ...) for the nope pieces; "bthr,bsr->bhts" for the '
            "others, whose key has no heads. Add them, divide by (D + R) ** 0.5.",
            "not_scaled", "scaled_by_nope", "scaled_apart", "no_position", "no_content", "axes",
        ),
    ),
    misconceptions=POSITION,
)  # fmt: skip

# ---------------------------------------------------------------- 06.3

RIGHT = "the output"
THRIFTY = "nothing larger than the cache or the weights is made"
LARGE = "tensors larger than the cache and the weights"
LATENT_ATTENTION = ("nope", "rope", "latent", "rope_key", "up_k", "up_v", "scale", "visible")


def absorb_cases(draw: Draw) -> tuple[Case, ...]:
    """One new token, a chunk, a whole text, and rows that see only some.

    Keys or values of all heads are about twice as large as the cache and the matrices.
    """
    heads = (5, 7)[draw.integer(0, 1)]
    dim, value = (int(n) for n in draw.random.permutation((9, 10, 11, 12, 13))[:2])
    latent, rope, past = 17, 6, 50 + draw.integer(1, 9)
    batch = draw.integer(2, 3)
    cases = []
    for tokens, entries, causal in (
        (1, past, True),
        (3, past, True),
        (15, 15, True),
        (3, 9, False),
    ):
        visible = torch.ones(tokens, entries, dtype=torch.bool).tril(entries - tokens)
        if not causal:
            visible = visible & torch.tensor(draw.random.random((tokens, entries)) < 0.6)
            visible[:, 0] = True
        inputs = {
            "nope": draw.normal(batch, tokens, heads, dim),
            "rope": draw.normal(batch, tokens, heads, rope),
            "latent": draw.normal(batch, entries, latent),
            "rope_key": draw.normal(batch, entries, rope),
            "up_k": draw.normal(heads, dim, latent, scale=0.4),
            "up_v": draw.normal(heads, value, latent),
            "scale": 0.23,
            "visible": tuple(map(tuple, visible.tolist())),
            "weigh": entries == past and tokens == 1,
        }
        says = (
            f"B={batch}, T={tokens}, S={entries}, H={heads}, D={dim}, V={value}, C={latent}, "
            f"R={rope}{'' if causal else ', some entries hidden'}"
        )
        cases.append(Case(RIGHT, says, inputs))
    return tuple(cases)


def run_absorb(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = [inputs[name] for name in LATENT_ATTENTION[:-1]]
    given.append(torch.tensor(inputs["visible"]))
    if not inputs["weigh"]:
        return {"output": answer(*given)}
    with LargestTensor(given) as seen:
        output = answer(*given)
    return {"output": output, LARGE: int(seen.numbers > limit(inputs))}


def limit(inputs: Mapping[str, Any]) -> int:
    """The numbers of the cache or of a matrix, whichever is more."""
    rows = inputs["latent"].numel() + inputs["rope_key"].numel()
    return max(rows, inputs["up_k"].numel(), inputs["up_v"].numel())


def expected_absorb(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    output = reference.latent_attention(*(inputs[name] for name in LATENT_ATTENTION))
    expected = {"output": Expected(output, "BTHD")}
    if inputs["weigh"]:
        expected[LARGE] = Expected(
            np.array(0.0), kind="cost", part=THRIFTY,
            too_much="keys or values of all heads were made on the way",
        )  # fmt: skip
    return expected


ABSORPTION = Exercise(
    id="06.3",
    title="Absorption",
    notebook=NOTEBOOK,
    parts=(Part(RIGHT, 3), Part(THRIFTY, 1)),
    cases=absorb_cases,
    run=run_absorb,
    expected=expected_absorb,
    hints=(
        tied(
            'torch.einsum("bthd,hdc->bthc", nope_BTHD, up_k_HDC): a query of C numbers, which '
            "meets the latents themselves.",
            "expanded", "one_head_in", THRIFTY,
        ),
        tied(
            "Its product with the latents plus the product of the rope pieces, times scale; "
            "masked_fill(~visible_TS, -float('inf')); softmax over the last axis.",
            "no_position", "no_content", "not_scaled", "content_scaled_only",
            "position_scaled_only", "divided_by_scale", "no_mask", "masked_late",
            "mask_upside_down", "softmax_over_queries", "softmax_over_heads", "finite",
        ),
        tied(
            "Weights times latents is one sum of C numbers for each head; only then up_v_HVC.",
            "latent_left", "keys_matrix_out", "one_head_out", RIGHT,
        ),
    ),
    misconceptions=ABSORB,
)  # fmt: skip


def _fit_absorb(mine):
    """The exercise has the signature of the part: Parts.absorb."""
    return mine


PARTS = {"06.3": ("absorb", _fit_absorb)}
EQUIVALENT: dict[str, dict[str, str]] = {}

EXERCISES = (LATENT_CACHE, DECOUPLED, ABSORPTION, THE_SAVING, DECODE_KERNEL)
