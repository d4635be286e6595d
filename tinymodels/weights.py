"""Names in released checkpoints -> names here, and loading that refuses rather than guesses.

Each rule is a pattern for a whole released name and the name it becomes. Where a released tensor
stacks the matrices of all experts, it is cut apart. `load` wants every parameter and buffer of
the model exactly once, with its shape, and nothing that no rule explains.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .weights_v4 import V4_1_RELEASED, V4_TRANSFORMERS

LAYER = r"model\.layers\.(\d+)\."
SELF = LAYER + r"self_attn\."
MLP = LAYER + r"mlp\."


@dataclass(frozen=True)
class Rules:
    """names: (pattern, name here). stacks: (pattern, list of experts here, the matrices that lie
    below each other in each slice): [experts, rows, columns]."""

    names: tuple[tuple[str, str], ...]
    stacks: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


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
        # One tensor an expert in released files, all experts in one once they are loaded.
        (
            MLP + r"experts\.(\d+)\.(gate|up|down)_proj\.weight",
            r"layers.\1.ffn.experts.\2.\3.weight",
        ),
        *V4_TRANSFORMERS,
    ),
    stacks=(
        (MLP + r"experts\.gate_up_proj", r"layers.\1.ffn.experts", ("gate", "up")),
        (MLP + r"experts\.down_proj", r"layers.\1.ffn.experts", ("down",)),
    ),
)

SOURCES = {"transformers": TRANSFORMERS, "deepseek_v4_1": Rules(V4_1_RELEASED)}


def rename(name: str, source: str) -> str | None:
    """The name here of a released tensor, or None if no rule explains it."""
    for pattern, ours in _rules(source).names:
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
    return None


def load(model: nn.Module, state_dict: Mapping[str, Tensor], source: str = "transformers") -> None:
    """Copy released weights into `model`, each to its place, in the model's dtype.

    Errors: ValueError naming every tensor that is missing, unknown, there twice or misshapen, or
    an unknown source; the model is unchanged then.
    """
    _rules(source)  # refuse an unknown source even where there is nothing to load
    wanted = model.state_dict()
    found: dict[str, Tensor] = {}
    touched: set[str] = set()  # named in a problem already, so not to be called missing too
    problems = []
    for name, tensor in state_dict.items():
        places, whole = _places(name, wanted, source)
        touched |= set(places)
        if not places:
            problems.append(f"{name}: {whole}")
        elif any(place in found for place in places):
            problems.append(f"{name}: {whole} is there twice")
        elif tensor.shape != (want := _shape(places, wanted, whole)):
            problems.append(f"{name}: shape {tuple(tensor.shape)}, but {whole} has {tuple(want)}")
        else:
            found |= _cut(places, wanted, tensor)
    if getattr(model.config, "tied", False):
        head = found.pop("head.weight", None)
        touched.add("head.weight")
        if head is not None and not torch.equal(head, found.get("embed.weight", head)):
            problems.append("head.weight differs from embed.weight; in this model they are one")
    problems += [f"{name}: missing" for name in wanted if name not in touched]
    if problems:
        raise ValueError("the weights do not fit the model:\n  " + "\n  ".join(problems))
    with torch.no_grad():
        for name, tensor in found.items():
            wanted[name].copy_(tensor)


def _places(name: str, wanted: Mapping[str, Tensor], source: str) -> tuple[list[str], str]:
    """The names here that a released tensor fills, slice by slice, and what to call them all.

    No names: what is wrong with it instead.
    """
    ours = rename(name, source)
    if ours is not None:
        return ([ours], ours) if ours in wanted else ([], f"this model has no {ours}")
    for pattern, experts, matrices in _rules(source).stacks:
        if match := re.fullmatch(pattern, name):
            experts = match.expand(experts)
            first = re.compile(re.escape(experts) + rf"\.\d+\.{matrices[0]}\.weight")
            count = sum(first.fullmatch(w) is not None for w in wanted)
            places = [f"{experts}.{e}.{m}.weight" for e in range(count) for m in matrices]
            return places, experts if places else f"this model has no {experts}"
    return [], f"not a name known from {source}"


def _shape(places: list[str], wanted: Mapping[str, Tensor], whole: str) -> torch.Size:
    """What the released tensor has to be: one matrix, or [experts, rows, columns]."""
    if places == [whole]:
        return wanted[whole].shape
    experts = 1 + int(places[-1].removeprefix(whole + ".").split(".")[0])
    first = [wanted[place] for place in places[: len(places) // experts]]
    return torch.Size([experts, sum(len(matrix) for matrix in first), first[0].shape[1]])


def _cut(places: list[str], wanted: Mapping[str, Tensor], tensor: Tensor) -> dict[str, Tensor]:
    """Each place and its part of the released tensor."""
    if len(places) == 1:
        return {places[0]: tensor.reshape(wanted[places[0]].shape)}
    matrices = tensor.flatten(0, 1).split([len(wanted[place]) for place in places])
    return dict(zip(places, matrices, strict=True))


def _rules(source: str) -> Rules:
    if source not in SOURCES:
        raise ValueError(f"source is {source!r}; it must be one of {', '.join(SOURCES)}")
    return SOURCES[source]
