"""Models that keep a latent: DeepSeek V2, V3, V3.2 and Kimi K2 (MLA, with an indexer DSA)."""

import math
from typing import Any

from ..config import MLA, Dense, Indexer, Layer, ModelConfig, MoE, Rope, Yarn
from .fields import Fields
from .plain import Defaults, full, model

EXPERT_FIELDS = (
    "intermediate_size",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
)


def read_yarn(fields: Fields) -> tuple[float, Yarn | None]:
    """(base, YaRN) from `rope_parameters`, or from the older `rope_scaling` and `rope_theta`."""
    nested = fields.group("rope_parameters")
    scaling = Fields(nested or fields.group("rope_scaling"), fields.where)
    theta = scaling if scaling.has("rope_theta") else fields
    base = theta.number("rope_theta", default=10_000.0)
    if _rope_kind(fields) != "yarn":
        return base, None
    yarn = Yarn(
        factor=scaling.number("factor"),
        original_context=scaling.integer("original_max_position_embeddings", default=4096),
        beta_fast=scaling.number("beta_fast", default=32.0),
        beta_slow=scaling.number("beta_slow", default=1.0),
        mscale_all_dim=scaling.number("mscale_all_dim", default=0.0),
        attention_factor=_attention_factor(scaling),
    )
    return base, yarn


def _rope_kind(fields: Fields) -> str:
    """The type of RoPE scaling; the bytes depend on none."""
    scaling = fields.group("rope_parameters") or fields.group("rope_scaling")
    kind = scaling.get("rope_type", scaling.get("type"))
    return "default" if kind is None else str(kind)


def _attention_factor(scaling: Fields) -> float:
    """What YaRN multiplies cosine and sine by: mscale's factor over that of mscale_all_dim, or,
    where one of them is missing, as if they were 1 and 0. Released files give both the same."""
    if scaling.has("attention_factor"):
        return scaling.number("attention_factor")
    factor, (upper, lower) = (
        scaling.number("factor"),
        (scaling.number(name, default=0.0) for name in ("mscale", "mscale_all_dim")),
    )
    if not (upper and lower):
        upper, lower = 1.0, 0.0
    if factor <= 1 or upper == lower:
        return 1.0
    return (0.1 * upper * math.log(factor) + 1) / (0.1 * lower * math.log(factor) + 1)


def _latent(scoring: str, context: int, indexed: bool = False, halves: bool = False):
    """A reader of latent attention; scoring is what the family's router uses when it is silent.

    halves: whether `rope_interleave: false` is a choice (V3): RoPE then turns the two halves of a
    head against each other instead of neighbours.
    """

    def read(fields: Fields) -> ModelConfig:
        if not fields.flag("use_mla", default=True):
            fields.note("use_mla is false: keys and values are kept, not a latent")
            return full(Defaults(context))(fields)
        base, yarn = read_yarn(fields)
        rope_dim = fields.integer("qk_rope_head_dim", default=64)
        interleaved = fields.flag("rope_interleave", default=True)
        if not (interleaved or halves):
            fields.refuse("rope_interleave is false", "this family's RoPE turns neighbours")
        attention = MLA(
            heads=fields.integer("num_attention_heads"),
            nope_dim=fields.integer("qk_nope_head_dim", default=128),
            rope_dim=rope_dim,
            v_dim=fields.integer("v_head_dim", default=128),
            kv_rank=fields.integer("kv_lora_rank"),
            q_rank=fields.optional("q_lora_rank", default=1536),
            rope=Rope(rope_dim, base, "adjacent" if interleaved else "half", yarn),
            indexer=_indexer(fields, rope_dim) if indexed else None,
        )
        count = fields.layers()
        feed_forward = _feed_forward(fields, count, scoring)
        if (kind := _rope_kind(fields)) not in ("default", "yarn"):  # counted, not to be built
            fields.note(f"RoPE scaling of type {kind} does not change the bytes")
            feed_forward = [None] * count
        layers = tuple(Layer(attention, ffn) for ffn in feed_forward)
        eps = fields.number("rms_norm_eps", default=1e-6)
        return model(fields, layers, Defaults(context), norm_eps=eps)

    return read


def _indexer(fields: Fields, rope_dim: int) -> Indexer:
    return Indexer(
        heads=fields.integer("index_n_heads", default=64),
        dim=fields.integer("index_head_dim", default=128),
        top_k=fields.integer("index_topk", default=2048),
        rope_dim=rope_dim,
        fmt="fp8",
    )


def _feed_forward(fields: Fields, count: int, scoring: Any) -> list[Dense | MoE | None]:
    """Dense layers first, then experts; None for all where the file leaves their widths out."""
    if not all(fields.has(name) for name in EXPERT_FIELDS):
        fields.note("feed-forward widths are not all in the file, so parameters are not counted")
        return [None] * count
    dense = Dense(fields.integer("intermediate_size"))
    scoring = fields.word("scoring_func", allowed=("softmax", "sigmoid"), default=scoring)
    grouped = scoring == "sigmoid" or fields.values.get("topk_method") == "group_limited_greedy"
    experts = MoE(
        width=fields.integer("moe_intermediate_size"),
        experts=fields.integer("n_routed_experts"),
        top_k=fields.integer("num_experts_per_tok"),
        shared=fields.optional("n_shared_experts", default=1, least=0) or 0,
        scoring=scoring,
        selection_bias=scoring == "sigmoid",
        groups=(fields.optional("n_group") or 1) if grouped else 1,
        top_groups=(fields.optional("topk_group") or 1) if grouped else 1,
        normalise=fields.flag("norm_topk_prob", default=scoring == "sigmoid"),
        scale=fields.number("routed_scaling_factor", default=1.0),
    )
    first = _dense_layers(fields, count)
    return [dense] * first + [experts] * (count - first)


def _dense_layers(fields: Fields, count: int) -> int:
    """How many layers from the front are dense."""
    kinds = fields.sequence("mlp_layer_types", count, allowed=("dense", "sparse"))
    if kinds is not None and not fields.has("first_k_dense_replace"):
        first = kinds.index("sparse") if "sparse" in kinds else count
        if "dense" in kinds[first:]:
            fields.refuse("mlp_layer_types mixes dense layers in", "dense layers come first")
        return first
    return min(count, fields.integer("first_k_dense_replace", default=0, least=0))


READERS = {
    "deepseek_v2": _latent("softmax", context=2048),
    "deepseek_v3": _latent("sigmoid", context=4096, halves=True),
    "kimi_k2": _latent("sigmoid", context=4096, halves=True),
    "deepseek_v32": _latent("sigmoid", context=163_840, indexed=True),
}
