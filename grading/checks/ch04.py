"""Chapter 04: FFN and experts. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.hints import tied
from grading.misconceptions.ch04_balance import BALANCE, PARAMETERS
from grading.misconceptions.ch04_router import ROUTER
from grading.misconceptions.ch04_swiglu import SWIGLU
from grading.references import ch04 as reference

NOTEBOOK = "04__ffn_and_experts"

# ---------------------------------------------------------------- 04.1

FREE = "without a limit"
CUT = "with a limit"


def swiglu_cases(draw: Draw) -> tuple[Case, ...]:
    """Gates and ups far beyond the limit on both sides, in a half of the places or more."""
    tokens, inner = draw.sizes(2)
    batch = draw.integer(2, 3)
    cases = []
    for part, limit in ((FREE, None), (CUT, 1.5), (CUT, draw.integer(2, 4) + 0.25)):
        inputs = {
            "gate": draw.normal(batch, tokens, inner, scale=3.0),
            "up": draw.normal(batch, tokens, inner, scale=3.0),
            "limit": limit,
        }
        says = f"B={batch}, T={tokens}, F={inner}, limit {limit}"
        cases.append(Case(part, says, inputs))
    return tuple(cases)


SWIGLU_CLAMPED = Exercise(
    id="04.1",
    title="SwiGLU, with clamps",
    notebook=NOTEBOOK,
    parts=(Part(FREE, 1), Part(CUT, 2)),
    cases=swiglu_cases,
    run=call("gate", "up", "limit"),
    expected=lambda inputs: {
        "output": Expected(reference.swiglu(inputs["gate"], inputs["up"], inputs["limit"]), "BTF")
    },
    hints=(
        tied(
            "Without a limit it is one line: F.silu(gate_BTF) * up_BTF.",
            "sigmoid", "relu", "gelu", "no_up", "sum", "silu_of_up", "silu_of_both",
            "silu_of_product", FREE,
        ),
        tied(
            "With a limit, make a clamped gate and a clamped up first, then the same line.",
            "ignores_limit", "cuts_the_product", "cuts_silu", "inputs", "in_place",
        ),
        tied(
            "x.clamp(max=limit) cuts from above only, x.clamp(min=-limit, max=limit) on both "
            "sides. `if limit is not None:` comes before both.",
            "gate_on_both_sides", "gate_not_cut", "up_from_above", "up_not_cut", "forgets_none",
            CUT,
        ),
    ),
    misconceptions=SWIGLU,
)  # fmt: skip

# ---------------------------------------------------------------- 04.2

ORDINARY = "experts and weights"
TIED = "equal experts: the lowest index"
FAINT = "very negative logits"
CLEAR = 1e-4  # nobody is chosen by rounding: scores that decide differ by more


def router_cases(draw: Draw) -> tuple[Case, ...]:
    """Ordinary tokens; tokens of zeros, for which all experts are equal; very negative logits."""
    batch = draw.integer(2, 3)
    cases = []
    for part in (ORDINARY, TIED, FAINT):
        inputs = _clear_router(draw, part, batch)
        B, T, X = inputs["x"].shape
        says = (
            f"B={B}, T={T}, X={X}, E={len(inputs['bias'])}, k={inputs['top_k']}, "
            f"scale {inputs['scale']}" + {TIED: ", some tokens all zeros, no bias"}.get(part, "")
        )
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def _clear_router(draw: Draw, part: str, batch: int) -> dict[str, Any]:
    scale = draw.integer(3, 11) / 4  # V4 has 1.5, V3 2.5; 0.75 to 2.75 here
    while True:
        tokens, width, experts = draw.sizes(3)
        top_k = draw.integer(2, experts - 1) if experts > 3 else 2
        x, gate = draw.normal(batch, tokens, width), draw.normal(experts, width, scale=0.7)
        bias = draw.normal(experts, scale=0.5)
        if part == TIED:
            x[:, ::2], bias = 0.0, torch.zeros(experts)
        if part == FAINT:  # every row of the gate points one way, every token the other
            gate = gate * 0.1 + 1.0
            x = x * 0.1 - 30.0 / width
        if reference.least_gap(x, gate, bias, top_k) > CLEAR:
            return {"x": x, "gate": gate, "bias": bias, "top_k": top_k, "scale": scale}


def run_router(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in ("x", "gate", "bias", "top_k", "scale")))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: experts, weights)": given}
    return {"experts": given[0], "weights": given[1]}


def expected_router(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    names = ("x", "gate", "bias", "top_k", "scale")
    experts, weights = reference.route(*(inputs[name] for name in names))
    return {"experts": Expected(experts, "BTk", "integer"), "weights": Expected(weights, "BTk")}


ROUTER_V4 = Exercise(
    id="04.2",
    title="Router",
    notebook=NOTEBOOK,
    parts=(Part(ORDINARY, 2), Part(TIED, 1), Part(FAINT, 1)),
    cases=router_cases,
    run=run_router,
    expected=expected_router,
    hints=(
        tied(
            "x_BTX @ gate_EX.T gives the logits [B, T, E], F.softplus(...).sqrt() the scores.",
            "no_root", "sigmoid", "softmax", "raw_logits", "plain_logarithm", "bias_on_logits",
            FAINT, "shape",
        ),
        tied(
            "(scores + bias_E).argsort(dim=-1, descending=True, stable=True) ranks the experts of "
            "each token; the first k of them are chosen.",
            "no_bias", "bias_subtracted", "by_index", "topk", "ties_to_the_last", "worst",
            "worst_first", TIED,
        ),
        tied(
            "score_BTE.gather(-1, experts_BTk) picks the scores of the chosen ones, without the "
            "bias. Divide by their sum over the last axis (keepdim=True), multiply by scale.",
            "bias_weighs", "not_scaled", "not_shared_out", "share_of_all", "softmax_of_chosen",
            "experts_alone", "weights_alone", "weights_first", "returns",
        ),
    ),
    misconceptions=ROUTER,
)  # fmt: skip

# ---------------------------------------------------------------- 04.3

EVEN = "a whole mean, one expert just on it"
UNEVEN = "a mean between whole numbers"
SHAPES = {  # B, T, k, E: in the first, the choices divide evenly among the experts
    EVEN: ((2, 9, 3, 6), (3, 10, 3, 9), (2, 15, 3, 10), (3, 14, 3, 7)),
    UNEVEN: ((2, 7, 3, 9), (3, 11, 2, 7), (2, 13, 3, 11), (3, 10, 3, 7)),
}


def balance_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for part, shapes in SHAPES.items():
        B, T, k, E = shapes[draw.integer(0, len(shapes) - 1)]
        loads = _loads(draw, B * T * k, E)
        chosen = draw.random.permutation(np.repeat(np.arange(E), loads))
        inputs = {
            "bias": draw.normal(E, scale=0.1),
            "experts": torch.tensor(chosen.reshape(B, T, k), dtype=torch.int64),
            "gamma": draw.integer(2, 9) / 100,
        }
        says = f"B={B}, T={T}, k={k}, E={E}, loads {', '.join(map(str, loads))}"
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def _loads(draw: Draw, choices: int, experts: int) -> list[int]:
    """How many choices each expert gets: one of them the mean (rounded down), the last none, the
    rest by chance; busy ones among them, and none that is even with the median."""
    mean = choices // experts
    while True:
        share = draw.random.dirichlet(np.full(experts - 2, 2.0))
        free = np.floor(share * (choices - mean)).astype(int)
        free[0] += choices - mean - free.sum()
        loads = [mean, *map(int, free), 0]
        if max(loads) > 2 * mean and loads.count(mean) == 1 and np.median(loads) != mean:
            return loads


BALANCING = Exercise(
    id="04.3",
    title="Balancing update",
    notebook=NOTEBOOK,
    parts=(Part(EVEN, 2), Part(UNEVEN, 1)),
    cases=balance_cases,
    run=call("bias", "experts", "gamma", output="bias"),
    expected=lambda inputs: {
        "bias": Expected(
            reference.updated_bias(inputs["bias"], inputs["experts"], inputs["gamma"]), "E"
        )
    },
    hints=(
        tied(
            "The load of an expert is how often its index stands in experts_BTk, whatever the "
            "batch, the token or the place among the k.",
            "best_only", "busiest_only", "tokens_not_choices", "chosen_only",
        ),
        tied(
            "torch.bincount(experts_BTk.flatten(), minlength=len(bias_E)) counts them all.",
            "no_minlength", "shape",
        ),
        tied(
            "torch.sign gives 1, 0 or -1. The sign of (mean - load) is the direction of the step; "
            "gamma is its size. The mean needs a float: load_E.float().",
            "reversed", "proportional", "relative", "multiplied", "median", "mean_moves",
            "rounded_mean", "old_bias_lost", "in_place", "inputs", UNEVEN,
        ),
    ),
    misconceptions=BALANCE,
)  # fmt: skip

# ---------------------------------------------------------------- 04.4

TOTAL = "all parameters"
ACTIVE = "those that a token meets"
ARGUMENTS = ("layers", "width", "expert_width", "experts", "shared", "top_k")
V4_1 = (40, 5120, 2304, 384, 1, 6)


def parameter_cases(draw: Draw) -> tuple[Case, ...]:
    """V4.1-Flash, and made-up models with all numbers different."""
    models = [V4_1]
    for _ in range(2):
        layers, top_k, more, a, b = draw.sizes(5)
        models.append((layers, 100 * a + 36, 50 * b + 7, top_k + 10 * more, 2, top_k))
    cases = []
    for model in models:
        inputs = dict(zip(ARGUMENTS, model, strict=True))
        says = ", ".join(f"{name} {value:,}" for name, value in inputs.items())
        cases += [Case(part, says, inputs | {"asked": part}) for part in (TOTAL, ACTIVE)]
    return tuple(cases)


def run_parameters(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    given = answer(*(inputs[name] for name in ARGUMENTS))
    if not isinstance(given, tuple | list) or len(given) != 2:
        return {"the answer (a pair: all, active)": given}
    return {TOTAL: given[0], ACTIVE: given[1]}


def expected_parameters(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    counted = reference.parameters(*(inputs[name] for name in ARGUMENTS))
    value = counted["total" if inputs["asked"] == TOTAL else "active"]
    return {inputs["asked"]: Expected(np.array(float(value)), kind="integer")}


ACTIVE_PARAMETERS = Exercise(
    id="04.4",
    title="Active parameters of V4.1",
    notebook=NOTEBOOK,
    parts=(Part(TOTAL, 1), Part(ACTIVE, 1)),
    cases=parameter_cases,
    run=run_parameters,
    expected=expected_parameters,
    hints=(
        tied(
            "One expert is three matrices of width x expert_width numbers.",
            "two_matrices", "square",
        ),
        tied(
            "All: (experts + shared) of them a layer. Met: (top_k + shared).",
            "one_layer", "no_shared", "shared_in_experts", "shared_in_top_k", "all_met",
            "active_alone", "active_first", "all_alone", ACTIVE,
        ),
        tied(
            "The router has experts x (width + 1) numbers a layer and belongs to both counts.",
            "no_router", "router_of_chosen", "router_once", "router_not_met", "no_selection_bias",
        ),
    ),
    misconceptions=PARAMETERS,
)  # fmt: skip


def _fit_swiglu(mine):
    """The exercise has the signature of the part: Parts.swiglu(gate, up, limit)."""
    return mine


EQUIVALENT = {
    "04.2": {
        "True  ->  False": "so few numbers are sorted stably even when nobody asks for it; that "
        "it is not promised, a run cannot show",
    },
}
PARTS = {"04.1": ("swiglu", _fit_swiglu)}

EXERCISES = (SWIGLU_CLAMPED, ROUTER_V4, BALANCING, ACTIVE_PARAMETERS)
