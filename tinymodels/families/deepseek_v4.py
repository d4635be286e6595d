"""DeepSeek V4 (CSA and HCA) and V4.1 (CSA2, CED): groups of tokens, and layers that share.

Both the released names (hidden_size, ...) and those of the inference code (dim, ...) are read.
"""

from ..config import (
    Candidates,
    Grouped,
    HyperConnections,
    Indexer,
    Layer,
    ModelConfig,
    MoE,
    Rope,
    Yarn,
)
from ..published_v4 import csa2_layers
from .fields import Fields

RATIOS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}


def read_v4(fields: Fields) -> ModelConfig:
    """Ratio 0: window only; a ratio with an indexer: CSA; the large one without: HCA."""
    count = fields.layers("num_hidden_layers", "n_layers")
    near, far = _ropes(fields)
    shapes, indexer = _shapes(fields), _indexer(fields)

    def attention(kind: str, ratio: int) -> Grouped:
        chooses = kind == "compressed_sparse_attention"
        return Grouped(
            ratio=ratio, rope=far if ratio else near, indexer=indexer if chooses else None, **shapes
        )

    hashed = _hash_layers(fields, count)
    layers = tuple(
        Layer(attention(*kind), _experts(fields, hash_routed=hashed[i]))
        for i, kind in enumerate(_v4_kinds(fields, count))
    )
    return _model(fields, layers, single_pass=False, decoder_start=None)


def _v4_kinds(fields: Fields, count: int) -> list[tuple[str, int]]:
    """(kind, ratio) a layer, from `layer_types` with `compress_rates`, or `compress_ratios`."""
    kinds = fields.sequence("layer_types", count, allowed=RATIOS)
    rates = {**RATIOS, **fields.group("compress_rates")}
    if kinds is not None:
        named = Fields(rates, f"{fields.where}: compress_rates")
        return [(k, named.integer(k, least=0 if RATIOS[k] == 0 else 1)) for k in kinds]
    ratios = fields.sequence("compress_ratios", None, allowed=RATIOS.values())
    if ratios is None:
        fields.refuse(
            "layer_types and compress_ratios are missing", "one of them says how layers compress"
        )
    if len(ratios) < count:
        fields.refuse(f"compress_ratios has {len(ratios)} entries", f"there are {count} layers")
    names = {ratio: kind for kind, ratio in RATIOS.items()}
    return [
        (names[ratio], ratio) for ratio in ratios[:count]
    ]  # what follows belongs to draft layers


def _hash_layers(fields: Fields, count: int) -> list[bool]:
    kinds = fields.sequence("mlp_layer_types", count, allowed=("hash_moe", "moe"))
    if kinds is not None:
        return [kind == "hash_moe" for kind in kinds]
    first = fields.integer("num_hash_layers", "n_hash_layers", default=3, least=0)
    return [i < first for i in range(count)]


def read_v4_1(fields: Fields) -> ModelConfig:
    """The sharing lists say who owns entries, who chooses and who borrows."""
    count = fields.layers("num_hidden_layers", "n_layers")
    given = fields.sequence("compress_ratios", None)
    if given is None or len(given) < count:
        fields.refuse("compress_ratios does not reach all layers", f"give {count} ratios")
    ratios = tuple(given[:count])
    for i, ratio in enumerate(ratios):
        if isinstance(ratio, bool) or not isinstance(ratio, int) or ratio < 0:
            fields.refuse(f"compress_ratios[{i}] is {ratio!r}", "it must be an integer >= 0")
    owners = _layer_list(fields, "kv_source_layers", count)
    choosers = _layer_list(fields, "index_source_layers", count)
    near, far = _ropes(fields)
    candidates = _candidates(fields)
    attentions = csa2_layers(
        ratios,
        owners,
        choosers,
        candidates,
        _indexer(fields),
        near,
        far,
        **_shapes(fields),
    )
    if candidates and candidates.source not in choosers:
        fields.refuse(
            f"candidate_source_layer is {candidates.source}",
            f"it must be one of index_source_layers, {', '.join(map(str, choosers))}",
        )
    layers = tuple(Layer(a, _experts(fields, hash_routed=False)) for a in attentions)
    start = owners[-1] if len(owners) > 1 else None
    if start is not None:
        fields.note(f"the decoder starts at layer {start}, the last that owns entries")
    return _model(fields, layers, single_pass=True, decoder_start=start)


def _layer_list(fields: Fields, name: str, count: int) -> tuple[int, ...]:
    layers = fields.sequence(name, None)
    if not layers:
        fields.refuse(f"{name} is missing", "give the layers' numbers")
    for entry in layers:
        if isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < count:
            fields.refuse(f"{name} holds {entry!r}", f"layers are numbered 0 to {count - 1}")
    return tuple(sorted(layers))


def _candidates(fields: Fields) -> Candidates | None:
    if not fields.has("candidate_source_layer"):
        return None
    return Candidates(
        source=fields.integer("candidate_source_layer", least=0),
        block=fields.integer("candidate_block_size"),
        keep=fields.integer("candidate_topk_blocks"),
    )


# ---------------------------------------------------------------- what both have


def _shapes(fields: Fields) -> dict[str, int]:
    head_dim = fields.integer("head_dim")
    return dict(
        heads=fields.integer("num_attention_heads", "n_heads"),
        head_dim=head_dim,
        rope_dim=_rope_dim(fields, head_dim),
        q_rank=fields.integer("q_lora_rank"),
        out_groups=fields.integer("o_groups"),
        out_rank=fields.integer("o_lora_rank"),
        window=fields.integer("sliding_window", "window_size"),
    )


def _rope_dim(fields: Fields, head_dim: int) -> int:
    """How many numbers RoPE turns: the same in heads and index heads."""
    if not fields.has("qk_rope_head_dim", "rope_head_dim"):
        return int(head_dim * fields.number("partial_rotary_factor", default=64 / 512))
    dim = fields.integer("qk_rope_head_dim", "rope_head_dim")
    for name in ("head_dim", "index_head_dim"):
        if (whole := fields.integer(name)) < dim:
            fields.refuse(f"qk_rope_head_dim is {dim}", f"at most all {whole} of {name} can turn")
    return dim


def _indexer(fields: Fields) -> Indexer:
    return Indexer(
        heads=fields.integer("index_n_heads"),
        dim=fields.integer("index_head_dim"),
        top_k=fields.integer("index_topk"),
        rope_dim=_rope_dim(fields, fields.integer("head_dim")),
        fmt="fp4",
    )


def _ropes(fields: Fields) -> tuple[Rope, Rope]:
    """(of window-only layers, of compressing layers): two bases, and YaRN only for the second."""
    dim = _rope_dim(fields, fields.integer("head_dim"))
    nested = fields.group("rope_parameters")
    if isinstance(nested.get("compress"), dict):
        main = Fields(nested.get("main") or {}, fields.where)
        far = Fields(nested["compress"], fields.where)
        near_base = main.number("rope_theta", default=10_000.0)
        far_base = far.number("rope_theta", default=160_000.0)
    else:
        scaling = nested or fields.group("rope_scaling")
        far = Fields(scaling or _flat_yarn(fields), fields.where)
        near_base = fields.number("rope_theta", default=10_000.0)
        far_base = fields.number("compress_rope_theta", default=160_000.0)
    yarn = None
    if far.values.get("rope_type", far.values.get("type")) == "yarn":
        yarn = Yarn(
            factor=far.number("factor"),
            original_context=far.integer("original_max_position_embeddings"),
            beta_fast=far.number("beta_fast", default=32.0),
            beta_slow=far.number("beta_slow", default=1.0),
        )
    return Rope(dim, theta=near_base), Rope(dim, theta=far_base, yarn=yarn)


def _flat_yarn(fields: Fields) -> dict:
    """The inference code's flat names; an original length of 0 switches YaRN off."""
    length = fields.integer("original_seq_len", default=0, least=0)
    if not length:
        return {}
    return {
        "type": "yarn",
        "factor": fields.number("rope_factor"),
        "original_max_position_embeddings": length,
        "beta_fast": fields.number("beta_fast", default=32.0),
        "beta_slow": fields.number("beta_slow", default=1.0),
    }


def _experts(fields: Fields, hash_routed: bool) -> MoE:
    limit = fields.number("swiglu_limit", default=10.0)
    if limit < 0:
        fields.refuse(f"swiglu_limit is {limit:g}", "it must be positive, or 0 for none")
    if fields.has("gate_temp") and fields.number("gate_temp") != 1:
        fields.refuse(f"gate_temp is {fields.number('gate_temp'):g}", "only 1 can be read")
    return MoE(
        width=fields.integer("moe_intermediate_size", "moe_inter_dim"),
        experts=fields.integer("n_routed_experts"),
        top_k=fields.integer("num_experts_per_tok", "n_activated_experts"),
        shared=fields.integer("n_shared_experts", default=1, least=0),
        scoring=fields.word(
            "scoring_func",
            "score_func",
            allowed=("sqrtsoftplus", "softmax", "sigmoid"),
            default="sqrtsoftplus",
        ),
        selection_bias=not hash_routed,
        normalise=fields.flag("norm_topk_prob", default=True),
        scale=fields.number("routed_scaling_factor", "route_scale", default=1.5),
        limit=limit or None,  # 0 switches the clamp off
        hash_routed=hash_routed,
    )


def _model(fields: Fields, layers, single_pass: bool, decoder_start: int | None) -> ModelConfig:
    residual = HyperConnections(
        copies=fields.integer("hc_mult", default=4),
        sinkhorn_iterations=fields.integer("hc_sinkhorn_iters", default=20),
        eps=fields.number("hc_eps", default=1e-6),
        single_pass=single_pass,
    )
    return ModelConfig(
        name="config",
        vocab=fields.integer("vocab_size"),
        width=fields.integer("hidden_size", "dim"),
        layers=layers,
        context=fields.integer("max_position_embeddings", "max_seq_len", default=1_048_576),
        norm_eps=fields.number("rms_norm_eps", "norm_eps", default=1e-20 if single_pass else 1e-6),
        tied=fields.flag("tie_word_embeddings", default=False),
        residual=residual,
        decoder_start=decoder_start,
    )


READERS = {"deepseek_v4": read_v4, "deepseek_v41": read_v4_1, "deepseek_v4_1": read_v4_1}
