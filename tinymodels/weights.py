"""Names in released checkpoints -> names here, and loading that refuses rather than guesses.

Each rule is a pattern for a whole released name and the name it becomes. `load` wants every
parameter of the model exactly once, with its shape, and nothing that no rule explains.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

LAYER = r"model\.layers\.(\d+)\."
SELF = LAYER + r"self_attn\."

TRANSFORMERS: tuple[tuple[str, str], ...] = (
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
    (SELF + r"indexer\.weights_proj\.weight", r"layers.\1.attention.indexer.head_weight.weight"),
    (LAYER + r"mlp\.(gate|up|down)_proj\.(weight|bias)", r"layers.\1.ffn.\2.\3"),
)

SOURCES = {"transformers": TRANSFORMERS}


def rename(name: str, source: str) -> str | None:
    """The name here of a released tensor, or None if no rule explains it."""
    for pattern, ours in _rules(source):
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
    return None


def load(model: nn.Module, state_dict: Mapping[str, Tensor], source: str = "transformers") -> None:
    """Copy released weights into `model`, each to its place, in the model's dtype.

    Errors: ValueError naming every tensor that is missing, unknown or misshapen, or an unknown
    source; the model is unchanged then.
    """
    wanted = dict(model.named_parameters())
    found, problems = {}, []
    for name, tensor in state_dict.items():
        ours = rename(name, source)
        if ours is None:
            problems.append(f"{name}: not a name known from {source}")
        elif ours not in wanted:
            problems.append(f"{name}: this model has no {ours}")
        elif ours in found:
            problems.append(f"{name}: {ours} is there twice")
        elif wanted[ours].shape != tensor.shape:
            seen, want = tuple(tensor.shape), tuple(wanted[ours].shape)
            problems.append(f"{name}: shape {seen}, but {ours} has {want}")
        else:
            found[ours] = tensor
    tied = {"head.weight"} if model.config.tied else set()
    explained = set(found) | tied
    misshapen = {rename(name, source) for name in state_dict}
    problems += [f"{n}: missing" for n in wanted if n not in explained | misshapen]
    if problems:
        raise ValueError("the weights do not fit the model:\n  " + "\n  ".join(problems))
    with torch.no_grad():
        for name, tensor in found.items():
            wanted[name].copy_(tensor)


def _rules(source: str) -> tuple[tuple[str, str], ...]:
    if source not in SOURCES:
        raise ValueError(f"source is {source!r}; it must be one of {', '.join(SOURCES)}")
    return SOURCES[source]
