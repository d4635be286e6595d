"""Every weight tensor of a model, by name and shape; so every parameter, exactly.

Names follow the released DeepSeek checkpoints. Counted: projections, norms, sinks, biases,
compressors, indexers, routers and the mixing weights of the residual streams. Left out, as they
are not part of the backbone: hash-routing tables (integers), draft (MTP) layers and Engram.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from ..config import (
    CSA2,
    GQA,
    MLA,
    Dense,
    Grouped,
    HyperConnections,
    Indexer,
    Layer,
    ModelConfig,
    MoE,
)
from ..published import config_of

PARTS = ("embedding", "attention", "indexer", "ffn", "norms", "residual", "head")


@dataclass(frozen=True)
class Weight:
    """One tensor, or `copies` of the same shape (experts), `active` of which a token meets."""

    part: str
    name: str
    shape: tuple[int, ...]
    copies: int = 1
    active: int = 1

    @property
    def count(self) -> int:
        return prod(self.shape) * self.copies

    @property
    def active_count(self) -> int:
        return prod(self.shape) * self.active

    @property
    def is_matrix(self) -> bool:
        """Whether a token's vector is multiplied by it (tables that are added are not)."""
        return len(self.shape) == 2 and self.name.endswith((".weight", "_fn"))


def weights(model: str | ModelConfig) -> Iterator[tuple[int | None, Weight]]:
    """(layer, weight) of every tensor; layer is None for what stands outside the layers.

    Raises ValueError for a model whose widths are not all described.
    """
    config = config_of(model)
    if config.vocab is None or config.width is None or any(x.ffn is None for x in config.layers):
        raise ValueError(
            f"{config.name}: parameters are not counted, as its shapes are not all known"
        )
    yield None, Weight("embedding", "embed.weight", (config.vocab, config.width))
    for i, layer in enumerate(config.layers):
        for weight in layer_weights(config, layer):
            yield i, weight
    yield None, Weight("norms", "norm.weight", (config.width,))
    if config.residual and not config.residual.single_pass:
        for weight in _stream_head(config.width, config.residual.copies):
            yield None, weight
    if not config.tied:
        yield None, Weight("head", "head.weight", (config.vocab, config.width))


def layer_weights(config: ModelConfig, layer: Layer) -> Iterator[Weight]:
    """The tensors of one layer: attention, feed-forward, norms, residual mixing."""
    yield from _attention(config.width, layer.attention)
    yield from _ffn(config.width, layer.ffn)
    for name in ("attn_norm.weight", "ffn_norm.weight"):
        yield Weight("norms", name, (config.width,))
    if config.residual:
        yield from _mixing(config.width, config.residual)


# ---------------------------------------------------------------- attention


def _attention(width: int, a) -> Iterator[Weight]:
    match a:
        case GQA():
            return _gqa(width, a)
        case MLA():
            return _mla(width, a)
        case Grouped():
            return _grouped(width, a)
        case CSA2():
            return _csa2(width, a)
    raise ValueError(f"{type(a).__name__}: its parameters are not counted, only its state is known")


def _linear(name: str, out: int, into: int, part: str = "attention") -> Weight:
    return Weight(part, f"attn.{name}.weight", (out, into))


def _norm(name: str, dim: int, part: str = "norms") -> Weight:
    return Weight(part, f"attn.{name}", (dim,))


def _gqa(width: int, a: GQA) -> Iterator[Weight]:
    query, kept = a.heads * a.head_dim, a.kv_heads * a.head_dim
    own = (("wk", kept), ("wv", kept)) if a.kv_source is None else ()
    for name, out in (("wq", query), *own):
        yield _linear(name, out, width)
        if a.bias:
            yield Weight("attention", f"attn.{name}.bias", (out,))
    yield _linear("wo", width, query)


def _mla(width: int, a: MLA) -> Iterator[Weight]:
    query = a.heads * (a.nope_dim + a.rope_dim)
    yield from _queries(width, a.q_rank, query)
    yield _linear("wkv_a", a.kv_rank + a.rope_dim, width)
    yield _norm("kv_norm.weight", a.kv_rank)
    yield _linear("wkv_b", a.heads * (a.nope_dim + a.v_dim), a.kv_rank)
    yield _linear("wo", width, a.heads * a.v_dim)
    if a.indexer:
        yield _linear("indexer.wk", a.indexer.dim, width, "indexer")
        yield _norm("indexer.k_norm.weight", a.indexer.dim, "indexer")
        yield _norm("indexer.k_norm.bias", a.indexer.dim, "indexer")
        yield from _index_queries(width, a.q_rank or width, a.indexer)


def _queries(width: int, rank: int | None, query: int) -> Iterator[Weight]:
    if rank is None:
        yield _linear("wq", query, width)
        return
    yield _linear("wq_a", rank, width)
    yield _norm("q_norm.weight", rank)
    yield _linear("wq_b", query, rank)


def _index_queries(width: int, rank: int, indexer: Indexer) -> Iterator[Weight]:
    yield _linear("indexer.wq_b", indexer.heads * indexer.dim, rank, "indexer")
    yield _linear("indexer.weights_proj", indexer.heads, width, "indexer")


def _shared_kv(width: int, a: Grouped | CSA2) -> Iterator[Weight]:
    """What V4 and V4.1 attention have in every layer: queries, window KV, sinks, output."""
    query = a.heads * a.head_dim
    yield Weight("attention", "attn.attn_sink", (a.heads,))
    yield from _queries(width, a.q_rank, query)
    yield _linear("wkv", a.head_dim, width)
    yield _norm("kv_norm.weight", a.head_dim)
    yield _linear("wo_a", a.out_groups * a.out_rank, query // a.out_groups)
    yield _linear("wo_b", width, a.out_groups * a.out_rank)


def _grouped(width: int, a: Grouped) -> Iterator[Weight]:
    yield from _shared_kv(width, a)
    if a.ratio:
        yield from _compressor(width, a, a.head_dim, "compressor", "attention")
    if a.indexer:
        yield from _compressor(width, a, a.indexer.dim, "indexer.compressor", "indexer")
        yield from _index_queries(width, a.q_rank, a.indexer)


def _compressor(width: int, a: Grouped, dim: int, name: str, part: str) -> Iterator[Weight]:
    out = 2 * dim if a.overlap else dim
    yield _linear(f"{name}.wkv", out, width, part)
    yield _linear(f"{name}.wgate", out, width, part)
    yield Weight(part, f"attn.{name}.ape", (a.ratio, out))
    yield _norm(f"{name}.norm.weight", dim, "norms" if part == "attention" else part)


def _csa2(width: int, a: CSA2) -> Iterator[Weight]:
    yield from _shared_kv(width, a)
    if a.mode == "full":
        yield from owner_weights(width, a)
    if a.mode in ("full", "reindex"):
        yield from _index_queries(width, a.q_rank, a.indexer)


def owner_weights(width: int, a: CSA2) -> Iterator[Weight]:
    """What makes a full layer's entries and keys; a prefill needs no more of CED's decoder."""
    yield _linear("compressor.wkv", a.head_dim, width)
    if a.ratio > 1:
        yield _linear("compressor.wgate", a.head_dim, width)
    yield _norm("compressor.norm.weight", a.head_dim)
    yield _linear("indexer.wk", a.indexer.dim, a.head_dim, "indexer")
    yield _norm("indexer.k_norm.weight", a.indexer.dim, "indexer")


# ---------------------------------------------------------------- feed-forward and residual


def _ffn(width: int, f: Dense | MoE) -> Iterator[Weight]:
    if isinstance(f, Dense):
        ups = ("w1", "w3") if f.gated else ("w1",)
        for name, out, into in (*((u, f.width, width) for u in ups), ("w2", width, f.width)):
            yield Weight("ffn", f"ffn.{name}.weight", (out, into))
            if f.bias:
                yield Weight("ffn", f"ffn.{name}.bias", (out,))
        return
    yield Weight("ffn", "ffn.gate.weight", (f.experts, width))
    if f.selection_bias:
        yield Weight("ffn", "ffn.gate.bias", (f.experts,))
    for kind, copies, active in (
        ("experts", f.experts, f.top_k),
        ("shared_experts", f.shared, f.shared),
    ):
        for name, shape in (
            ("w1", (f.width, width)),
            ("w3", (f.width, width)),
            ("w2", (width, f.width)),
        ):
            if copies:
                yield Weight("ffn", f"ffn.{kind}.{name}.weight", shape, copies, active)


def _mixing(width: int, r: HyperConnections) -> Iterator[Weight]:
    """Per sublayer: `pre` and `post` of n values and an n x n `comb`, one scale each."""
    mixes = (2 + r.copies) * r.copies
    for sublayer in ("attn", "ffn"):
        yield Weight("residual", f"hc_{sublayer}_fn", (mixes, r.copies * width))
        yield Weight("residual", f"hc_{sublayer}_base", (mixes,))
        yield Weight("residual", f"hc_{sublayer}_scale", (3,))


def _stream_head(width: int, copies: int) -> Iterator[Weight]:
    """V4 folds the streams before the head with weights of their own; V4.1 needs none."""
    yield Weight("residual", "hc_head_fn", (copies, copies * width))
    yield Weight("residual", "hc_head_base", (copies,))
    yield Weight("residual", "hc_head_scale", (1,))


# ---------------------------------------------------------------- totals


def parameters(model: str | ModelConfig) -> int:
    """Parameters of the backbone."""
    return sum(weight.count for _, weight in weights(model))


def parameter_parts(model: str | ModelConfig) -> dict[str, int]:
    """Parameters by part: embedding, attention, indexer, ffn, norms, residual, head."""
    parts = dict.fromkeys(PARTS, 0)
    for _, weight in weights(model):
        parts[weight.part] += weight.count
    return parts


def ffn_share(model: str | ModelConfig) -> float:
    """The feed-forward layers' share of all parameters, experts and routers included."""
    parts = parameter_parts(model)
    return parts["ffn"] / sum(parts.values())


def active(
    model: str | ModelConfig, phase: Literal["decode", "prefill"] = "decode", head: bool = True
) -> int:
    """Parameters that one token meets. The embedding is a look-up and does not count.

    In prefill a CED model (V4.1) runs its encoder and the one projection that makes the
    decoder's entries; every other model runs all layers in both phases. head=False leaves the
    output head out: a prompt's tokens but the last need no logits.
    """
    if phase not in ("decode", "prefill"):
        raise ValueError(f"phase is {phase!r}; it must be 'decode' or 'prefill'")
    config = config_of(model)
    met = sum(w.active_count for i, w in weights(config) if _is_met(config, phase, i, w))
    if config.tied:  # the one table is then the head too
        met += config.vocab * config.width
    if phase == "prefill" and config.decoder_start is not None:
        first: Any = config.layers[config.decoder_start].attention
        met += sum(w.active_count for w in owner_weights(config.width, first))
    return met if head else met - config.vocab * config.width


def _is_met(config: ModelConfig, phase: str, layer: int | None, weight: Weight) -> bool:
    if weight.part == "embedding":
        return False
    skipped = phase == "prefill" and config.decoder_start is not None
    return not (skipped and layer is not None and layer >= config.decoder_start)
