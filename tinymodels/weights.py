"""Names in released checkpoints -> names here, and loading that refuses rather than guesses.

Each rule is a pattern for a whole released name and the name it becomes. Experts are stacked here
(see `experts.py`): a released tensor is either such a stack, or one expert's matrix and so a part
of it. `load` wants every parameter and buffer of the model exactly once, with its shape, and
nothing that no rule explains.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .weights_v4 import V4_1_RELEASED, V4_1_RELEASED_EXPERTS, V4_TRANSFORMERS

LAYER = r"model\.layers\.(\d+)\."
SELF = LAYER + r"self_attn\."
MLP = LAYER + r"mlp\."


@dataclass(frozen=True)
class Rules:
    """names: (pattern, name here). experts: (pattern with the expert's number as its second
    group, the stacked tensor here, which matrix of an expert it is)."""

    names: tuple[tuple[str, str], ...]
    experts: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Place:
    """Where a released tensor goes: a tensor here or, where an expert is named, the part of a
    stacked one that is its `matrix`: gate, up or down."""

    name: str
    expert: int | None = None
    matrix: str | None = None

    def __str__(self) -> str:
        return self.name if self.expert is None else f"{self.name}[{self.expert}], {self.matrix}"


TRANSFORMERS = Rules(
    names=(
        (r"model\.embed_tokens\.weight", "embed.weight"),
        (r"model\.norm\.weight", "norm.weight"),
        (r"lm_head\.weight", "head.weight"),
        (LAYER + r"input_layernorm\.weight", r"layers.\1.attention_norm.weight"),
        (LAYER + r"post_attention_layernorm\.weight", r"layers.\1.ffn_norm.weight"),
        (SELF + r"q_proj\.(weight|bias)", r"layers.\1.attention.query.\2"),
        (SELF + r"k_proj\.(weight|bias)", r"layers.\1.attention.key.\2"),
        (SELF + r"v_proj\.(weight|bias)", r"layers.\1.attention.value.\2"),
        (SELF + r"o_proj\.weight", r"layers.\1.attention.output.weight"),
        (SELF + r"q_a_proj\.weight", r"layers.\1.attention.query_down.weight"),
        (SELF + r"q_a_layernorm\.weight", r"layers.\1.attention.query_norm.weight"),
        (SELF + r"q_b_proj\.weight", r"layers.\1.attention.query.weight"),
        (SELF + r"kv_a_proj_with_mqa\.weight", r"layers.\1.attention.kv_down.weight"),
        (SELF + r"kv_a_layernorm\.weight", r"layers.\1.attention.kv_norm.weight"),
        (SELF + r"kv_b_proj\.weight", r"layers.\1.attention.kv_up.weight"),
        (SELF + r"indexer\.wq_b\.weight", r"layers.\1.attention.indexer.query.weight"),
        (SELF + r"indexer\.wk\.weight", r"layers.\1.attention.indexer.key.weight"),
        (SELF + r"indexer\.k_norm\.(weight|bias)", r"layers.\1.attention.indexer.key_norm.\2"),
        (
            SELF + r"indexer\.weights_proj\.weight",
            r"layers.\1.attention.indexer.head_weight.weight",
        ),
        (MLP + r"(gate|up|down)_proj\.(weight|bias)", r"layers.\1.ffn.\2.\3"),
        (MLP + r"gate\.weight", r"layers.\1.ffn.router.gate.weight"),
        (MLP + r"gate\.e_score_correction_bias", r"layers.\1.ffn.router.bias"),
        (MLP + r"shared_experts\.(gate|up|down)_proj\.weight", r"layers.\1.ffn.shared.\2.weight"),
        # One tensor an expert in released files (below), all experts in one once they are loaded.
        (MLP + r"experts\.gate_up_proj", r"layers.\1.ffn.experts.gate_up"),
        (MLP + r"experts\.down_proj", r"layers.\1.ffn.experts.down"),
        *V4_TRANSFORMERS,
    ),
    experts=(
        (MLP + r"experts\.(\d+)\.gate_proj\.weight", r"layers.\1.ffn.experts.gate_up", "gate"),
        (MLP + r"experts\.(\d+)\.up_proj\.weight", r"layers.\1.ffn.experts.gate_up", "up"),
        (MLP + r"experts\.(\d+)\.down_proj\.weight", r"layers.\1.ffn.experts.down", "down"),
    ),
)

SOURCES = {
    "transformers": TRANSFORMERS,
    "deepseek_v4_1": Rules(V4_1_RELEASED, V4_1_RELEASED_EXPERTS),
}


def rename(name: str, source: str) -> Place | None:
    """Where a released tensor goes, or None if no rule explains its name."""
    rules = _rules(source)
    for pattern, ours in rules.names:
        if match := re.fullmatch(pattern, name):
            return Place(match.expand(ours))
    for pattern, ours, matrix in rules.experts:
        if match := re.fullmatch(pattern, name):
            return Place(match.expand(ours), int(match[2]), matrix)
    return None


def load(model: nn.Module, state_dict: Mapping[str, Tensor], source: str = "transformers") -> None:
    """Copy released weights into `model`, each to its place, in the model's dtype.

    Errors: ValueError naming every tensor that is missing, unknown, there twice or misshapen, or
    an unknown source; the model is unchanged then.
    """
    _rules(source)  # refuse an unknown source even where there is nothing to load
    wanted = model.state_dict()
    parts = {place: part for n, tensor in wanted.items() for place, part in _cut(n, tensor).items()}
    found: dict[Place, Tensor] = {}
    touched: set[Place] = set()  # named in a problem already, so not to be called missing too
    problems = []
    for name, tensor in state_dict.items():
        place = rename(name, source)
        target = None if place is None else parts.get(place, wanted.get(str(place)))
        if target is None:
            unknown = f"not a name known from {source}"
            problems.append(f"{name}: {unknown if place is None else f'this model has no {place}'}")
            continue
        fills = {place} if place in parts else _cut(place.name, target).keys()
        touched |= fills
        if any(one in found for one in fills):
            problems.append(f"{name}: {place} is there twice")
        elif not isinstance(tensor, Tensor):
            problems.append(f"{name}: a {type(tensor).__name__}, not a tensor")
        elif tensor.shape != target.shape:
            shapes = f"shape {tuple(tensor.shape)}, but {place} has {tuple(target.shape)}"
            problems.append(f"{name}: {shapes}")
        else:
            found |= {place: tensor} if place in parts else _cut(place.name, tensor)
    if getattr(model.config, "tied", False):
        head = found.pop(Place("head.weight"), None)
        touched.add(Place("head.weight"))
        if head is not None and not torch.equal(head, found.get(Place("embed.weight"), head)):
            problems.append("head.weight differs from embed.weight; in this model they are one")
    problems += [f"{what}: missing" for what in _missing(wanted, touched)]
    if problems:
        raise ValueError("the weights do not fit the model:\n  " + "\n  ".join(problems))
    with torch.no_grad():
        for place, tensor in found.items():
            parts[place].copy_(tensor)


def _cut(name: str, tensor: Tensor) -> dict[Place, Tensor]:
    """The parts of a tensor here that released ones may bring one by one, as views."""
    if name.endswith("experts.gate_up"):
        halves = [(e, *both.chunk(2)) for e, both in enumerate(tensor)]
        return {
            Place(name, e, matrix): half
            for e, gate, up in halves
            for matrix, half in (("gate", gate), ("up", up))
        }
    if name.endswith("experts.down"):
        return {Place(name, e, "down"): matrix for e, matrix in enumerate(tensor)}
    return {Place(name): tensor}


def _missing(wanted: Mapping[str, Tensor], touched: set[Place]) -> list[str]:
    """What no released tensor was meant for; a stack of which all is missing is named once."""
    missing: list[str] = []
    for name, tensor in wanted.items():
        places = _cut(name, tensor)
        left = [place for place in places if place not in touched]
        missing += [name] if len(left) == len(places) else map(str, left)
    return missing


def _rules(source: str) -> Rules:
    if source not in SOURCES:
        raise ValueError(f"source is {source!r}; it must be one of {', '.join(SOURCES)}")
    return SOURCES[source]
