"""Chapter 10: CSA2. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from grading.checks.ch10_counts import SHARED, WORK_AT
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch10_candidates import CANDIDATES
from grading.misconceptions.ch10_modes import MODES
from grading.references import ch10 as reference

NOTEBOOK = "10__csa2"

# ---------------------------------------------------------------- 10.1

WHOSE = "whose entries are read"
WHICH = "which of them"
TOWERS = (
    ("window", "full", "reuse", "reindex", "reuse"),
    ("full", "reindex", "reuse", "full", "reuse", "reuse"),
    ("window", "full", "reuse", "reindex", "window", "reuse", "full", "reindex", "reuse"),
)
WALK = ("modes", "query", "key", "k")


def whole_numbers(draw: Draw, *shape: int) -> torch.Tensor:
    """Small whole numbers: their products and sums are exact, and some are equal."""
    values = draw.random.integers(-4, 5, shape)
    return torch.tensor(values, dtype=torch.float32)


def mode_cases(draw: Draw) -> tuple[Case, ...]:
    """Three towers: one owner; two; two with windows between."""
    cases = []
    for modes in TOWERS:
        layers = len(modes)
        tokens, dim = _two(draw, layers)
        k = 3 + draw.integer(0, 2)
        inputs = {
            "modes": modes,
            "query": whole_numbers(draw, layers, tokens, dim),
            "key": whole_numbers(draw, layers, tokens, dim),
            "k": k,
        }
        says = f"{', '.join(modes)}; T={tokens}, D={dim}, k={k}"
        cases.append(Case(WHICH, says, inputs))
    return tuple(cases)


def _two(draw: Draw, other: int) -> list[int]:
    """Two sizes above 5, different from each other and from `other`."""
    return [n for n in draw.sizes(9) if n > 5 and n != other][:2]


def run_modes(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in WALK))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (two tensors: owners, choices)": given}
    return {"owners": given[0], "choices": given[1]}


def expected_modes(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    owners, choices = reference.owners_and_choices(*(inputs[name] for name in WALK))
    return {
        "owners": Expected(owners, "L", kind="integer", part=WHOSE),
        "choices": Expected(choices, "LTk", kind="integer"),
    }


THREE_MODES = Exercise(
    id="10.1",
    title="The three modes",
    notebook=NOTEBOOK,
    parts=(Part(WHOSE, 1), Part(WHICH, 3)),
    cases=mode_cases,
    run=run_modes,
    expected=expected_modes,
    hints=(
        tied(
            "Two things travel upwards: the number of the nearest full layer, and the nearest "
            "choice. Keep both in variables; a full layer sets the first, full and reindex layers "
            "the second.",
            "first_owner", "all_own", "names_the_chooser", "reuse_of_owner", "reuse_of_first",
            "windows_read", WHOSE,
        ),
        tied(
            "torch.ones(T, T, dtype=torch.bool).tril() says what query t sees: keys 0 to t.",
            "no_mask", "not_itself",
        ),
        tied(
            "query_LTD[layer] @ key_LTD[owner].T: the query is the layer's own, the keys are the "
            "owner's; a full layer is its own owner. Then top_k(...).",
            "own_keys", "owners_query", "stale_keys", "best_first", "never_empty", WHICH,
        ),
        tied(
            "A reuse layer computes nothing: its choice is the tensor that was chosen last.",
            "reuse_asks",
        ),
    ),
    misconceptions=MODES,
)  # fmt: skip

# ---------------------------------------------------------------- 10.2

KEPT = "the blocks that are kept"
SOME_SEE_NONE = "queries that see little, or nothing"


def candidate_cases(draw: Draw) -> tuple[Case, ...]:
    """A long text late in it; a text from its start, some queries of which see nothing yet."""
    cases = []
    for part in (KEPT, KEPT, SOME_SEE_NONE):
        block, tokens = (3, 5, 6, 7)[draw.integer(0, 3)], (5, 6, 7)[draw.integer(0, 2)]
        keep, batch = draw.integer(2, 3), draw.integer(2, 3)
        entries = block * (6 + draw.integer(0, 2)) + 2
        while entries == tokens or not entries & (entries - 1):
            entries += block
        if part == KEPT:
            counts = [block * draw.integer(4, 6) for _ in range(tokens // 2)]
            counts += [draw.integer(3 * block, entries - 1) for _ in range(tokens - len(counts))]
            counts[-1] = entries  # the newest entry lies in the last block, which is shorter
        else:
            counts = [0, 1, block, block + 1, *(draw.integer(0, entries) for _ in range(3))]
            counts = counts[:tokens]
        inputs = {
            "score": whole_numbers(draw, batch, tokens, entries) * 2 - 1,
            "counts": tuple(counts),
            "block": block,
            "keep": keep,
        }
        says = (
            f"B={batch}, T={tokens}, S={entries}, block {block}, keep {keep}; visible: "
            f"{', '.join(map(str, counts))}"
        )
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def run_candidates(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    entries, counts = inputs["score"].shape[-1], torch.tensor(inputs["counts"])
    visible = torch.arange(entries) < counts[:, None]
    kept = answer(inputs["score"], visible, inputs["block"], inputs["keep"])
    is_mask = isinstance(kept, torch.Tensor) and kept.dtype == torch.bool
    return {"candidates": kept.long() if is_mask else kept}


SIEVE = Exercise(
    id="10.2",
    title="Candidate blocks",
    notebook=NOTEBOOK,
    parts=(Part(KEPT, 3), Part(SOME_SEE_NONE, 1)),
    cases=candidate_cases,
    run=run_candidates,
    expected=lambda inputs: {
        "candidates": Expected(
            reference.candidates(**inputs_of(inputs)), "BTS", kind="integer"
        )
    },
    hints=(
        tied(
            "Hide first: masked_fill(~visible_TS, -inf). Then pad with -inf to a whole number of "
            "blocks, unflatten the last axis into (blocks, block), and take amax(-1).",
            "sees_the_future", "mean_of_block", "first_of_block", "worst_blocks",
            "single_entries", "for_all_queries", "short_block_dropped",
        ),
        tied(
            "Of n visible entries the newest has the number n - 1, so its block is (n - 1) // "
            "block. Set the score of that block to +inf: then it is one of the best.",
            "not_pinned", "pinned_extra", "last_block", "block_after", "first_block",
            "newest_alone", SOME_SEE_NONE,
        ),
        tied(
            "sort(dim=-1, descending=True, stable=True).indices[..., :keep] are the kept blocks; "
            "zeros(...).scatter(-1, places, True) makes a mask of them.",
            "last_of_equals", "one_block_short", KEPT,
        ),
        tied(
            "repeat_interleave(block, dim=-1)[..., :S] gives each entry what its block has; & "
            "visible_TS takes away what is not visible.",
            "hidden_kept", "blocks_out", "shape",
        ),
    ),
    misconceptions=CANDIDATES,
)  # fmt: skip


def inputs_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same for the reference."""
    return {
        "score_BTS": inputs["score"],
        "counts": inputs["counts"],
        "block": inputs["block"],
        "keep": inputs["keep"],
    }


def _fit_candidates(mine):
    """The exercise has the signature of the part: Parts.candidates."""
    return mine


PARTS = {"10.2": ("candidates", _fit_candidates)}
_EITHER = "the smaller of two, in either order"
EQUIVALENT: dict[str, dict[str, str]] = {
    "10.2": {
        "-1  ->  +1": "on a tensor of two axes, axis 1 is axis -1",
        "-S // block  ->  -S * block": "blocks beyond the last hold nothing visible",
        "True  ->  False": "on a CPU equal ones stay in order, though only `stable` promises it",
    },
    "10.4": {
        "min(n, window)  ->  min(window, n)": _EITHER,
        "min(entries, top_k)  ->  min(top_k, entries)": _EITHER,
        "min(entries, pool)  ->  min(pool, entries)": _EITHER,
    },
}

EXERCISES = (THREE_MODES, SIEVE, SHARED, WORK_AT)
