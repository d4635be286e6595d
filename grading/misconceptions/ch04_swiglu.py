"""Named mistakes in exercise 04.1: SwiGLU with clamps."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from grading.exercise import Misconception


def gate_above(gate: torch.Tensor, limit: float) -> torch.Tensor:
    return gate.clamp(max=limit)


def both_sides(x: torch.Tensor, limit: float) -> torch.Tensor:
    return x.clamp(-limit, limit)


def as_it_is(x: torch.Tensor, limit: float) -> torch.Tensor:
    return x


def product(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def answer(
    say: Callable = product,
    cut_gate: Callable = gate_above,
    cut_up: Callable = both_sides,
    cut_after: Callable = as_it_is,
) -> Callable:
    """SwiGLU with every choice open; the defaults make it right."""

    def swiglu(gate_BTF, up_BTF, limit=None):
        if limit is None:
            return say(gate_BTF, up_BTF)
        said = say(cut_gate(gate_BTF, limit), cut_up(up_BTF, limit))
        return cut_after(said, limit)

    return swiglu


def forgets_none(gate_BTF, up_BTF, limit=None):
    return product(gate_BTF.clamp(max=limit), up_BTF.clamp(min=-limit, max=limit))


def in_place(gate_BTF, up_BTF, limit=None):
    if limit is not None:
        gate_BTF.clamp_(max=limit)
        up_BTF.clamp_(min=-limit, max=limit)
    return product(gate_BTF, up_BTF)


def silu_cut_after(gate_BTF, up_BTF, limit=None):
    if limit is None:
        return product(gate_BTF, up_BTF)
    return F.silu(gate_BTF).clamp(max=limit) * both_sides(up_BTF, limit)


SWIGLU = (
    Misconception(
        "silu_of_up",
        "This is the answer with the silu on the up: it is the gate that goes through the silu.",
        answer(say=lambda gate, up: gate * F.silu(up)),
    ),
    Misconception(
        "sigmoid",
        "This is the answer with sigmoid(gate) * up. silu(g) is g * sigmoid(g): the gate "
        "itself is a factor too.",
        answer(say=lambda gate, up: gate.sigmoid() * up),
    ),
    Misconception(
        "relu",
        "This is the answer with relu in the place of silu. silu is smooth, and a little below "
        "0 for small negative gates.",
        answer(say=lambda gate, up: F.relu(gate) * up),
    ),
    Misconception(
        "gelu",
        "This is the answer with gelu in the place of silu: close, but another function.",
        answer(say=lambda gate, up: F.gelu(gate) * up),
    ),
    Misconception(
        "silu_of_product",
        "This is the answer with the silu around the product: only the gate goes through it, "
        "and what comes out is multiplied by the up.",
        answer(say=lambda gate, up: F.silu(gate * up)),
    ),
    Misconception(
        "silu_of_both",
        "This is the answer with a silu on gate and up. The up stays as it is, so that a unit "
        "can say something negative as well as something positive.",
        answer(say=lambda gate, up: F.silu(gate) * F.silu(up)),
    ),
    Misconception(
        "sum",
        "This is the answer with silu(gate) + up. A gate multiplies: closed, it lets nothing "
        "through.",
        answer(say=lambda gate, up: F.silu(gate) + up),
    ),
    Misconception(
        "no_up",
        "This is the answer without the up: silu(gate) alone, as in the older networks of two "
        "matrices.",
        answer(say=lambda gate, up: F.silu(gate)),
    ),
    Misconception(
        "ignores_limit",
        "Without a limit this is right; with one, nothing is clamped.",
        answer(cut_gate=as_it_is, cut_up=as_it_is),
    ),
    Misconception(
        "gate_on_both_sides",
        "This is the answer with the gate clamped on both sides. It is cut from above only: "
        "silu of -limit is not 0, and a closed gate would be forced open a little.",
        answer(cut_gate=both_sides),
    ),
    Misconception(
        "up_from_above",
        "This is the answer with the up cut from above only. An up may be very negative too, and "
        "the product with it: it is cut at limit and at -limit.",
        answer(cut_up=gate_above),
    ),
    Misconception(
        "gate_not_cut",
        "This is the answer with the up clamped and the gate not: a gate above the limit is "
        "cut too.",
        answer(cut_gate=as_it_is),
    ),
    Misconception(
        "up_not_cut",
        "This is the answer with the gate clamped and the up not: the up is cut too, on both "
        "sides.",
        answer(cut_up=as_it_is),
    ),
    Misconception(
        "cuts_the_product",
        "This is the answer with the product clamped. The limit acts before: on gate and up, not "
        "on what is made of them.",
        answer(cut_gate=as_it_is, cut_up=as_it_is, cut_after=both_sides),
    ),
    Misconception(
        "cuts_silu",
        "This is the answer with silu(gate) cut at the limit. The gate is cut before the silu: "
        "silu(limit) is a little less than the limit.",
        silu_cut_after,
    ),
    Misconception(
        "forgets_none",
        "limit may be None, and then nothing is clamped: ask for that first.",
        forgets_none,
    ),
    Misconception(
        "in_place",
        "The values are right, but clamp_ with the underscore writes into the tensors that were "
        "passed in. clamp without it makes new ones.",
        in_place,
    ),
)
