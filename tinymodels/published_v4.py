"""The shapes of DeepSeek-V4-Flash, V4-Pro and V4.1-Flash, as released.

Shapes come from the released `config.json` files and inference code; the mechanisms from the V4
report and the V4.1-Flash report (arXiv 2609.19969). Draft (MTP) layers, Engram and the vision
tower hold no part of this memory and are left out.
"""

from typing import Any

from .config import (
    CSA2,
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

MILLION = 1_048_576  # the "1M" of the reports: 2**20 positions

# Layers with a far memory turn by a larger base and are stretched by YaRN; the others are not.
NEAR_ROPE = Rope(64, theta=10_000.0)
FAR_ROPE = Rope(64, theta=160_000.0, yarn=Yarn(factor=16.0, original_context=65_536))


def v4_ratios(layers: int, first: int) -> tuple[int, ...]:
    """Compression ratio of each layer: two of kind `first`, then 4, 128, 4, ... ending in 4.

    Raises ValueError where the alternation would not end in 4.
    """
    if layers < 3 or layers % 2 == 0:
        raise ValueError(
            f"layers is {layers}; two layers, then 4, 128, ..., 4 is an odd number >= 3"
        )
    return (first, first) + tuple(4 if i % 2 == 0 else 128 for i in range(layers - 2))


def _v4(name, *, layers, first, width, heads, q_rank, out_groups, top_k, experts, expert_width):
    indexer = Indexer(heads=64, dim=128, top_k=top_k, rope_dim=64, fmt="fp4")

    def layer(i: int, ratio: int) -> Layer:
        attention = Grouped(
            heads=heads,
            head_dim=512,
            rope_dim=64,
            q_rank=q_rank,
            out_groups=out_groups,
            out_rank=1024,
            window=128,
            ratio=ratio,
            rope=FAR_ROPE if ratio else NEAR_ROPE,
            indexer=indexer if ratio == 4 else None,
        )
        return Layer(attention, _experts(expert_width, experts, hash_routed=i < 3))

    ratios = v4_ratios(layers, first)
    return ModelConfig(
        name=name,
        vocab=129_280,
        width=width,
        layers=tuple(layer(i, ratio) for i, ratio in enumerate(ratios)),
        context=MILLION,
        row="fp8",
        norm_eps=1e-6,
        residual=HyperConnections(copies=4),
        source="V4 report; released config.json and inference code",
    )


def _experts(width: int, experts: int, hash_routed: bool = False) -> MoE:
    return MoE(
        width=width,
        experts=experts,
        top_k=6,
        shared=1,
        scoring="sqrtsoftplus",
        selection_bias=not hash_routed,  # a table chooses, so there is nothing to balance
        normalise=True,
        scale=1.5,
        limit=10.0,
        hash_routed=hash_routed,
    )


V4_FLASH = _v4(
    "deepseek-v4-flash",
    layers=43,
    first=0,
    width=4096,
    heads=64,
    q_rank=1024,
    out_groups=8,
    top_k=512,
    experts=256,
    expert_width=2048,
)

V4_PRO = _v4(
    "deepseek-v4-pro",
    layers=61,
    first=128,
    width=7168,
    heads=128,
    q_rank=1536,
    out_groups=16,
    top_k=1024,
    experts=384,
    expert_width=3072,
)

# ---------------------------------------------------------------- V4.1

KV_SOURCES = (2, 8, 14, 20)
INDEX_SOURCES = (2, 8, 14, 20, 24, 28, 32, 36)
V4_1_RATIOS = (0, 0) + (2,) * 18 + (1,) * 20
CANDIDATES = Candidates(source=20, block=8, keep=2048)


def csa2_layers(
    ratios: tuple[int, ...],
    kv_sources: tuple[int, ...],
    index_sources: tuple[int, ...],
    candidates: Candidates | None,
    indexer: Indexer,
    near: Rope,
    far: Rope,
    **shapes: Any,
) -> tuple[CSA2, ...]:
    """One CSA2 a layer from the sharing lists: who owns entries, who chooses, who borrows.

    A layer with ratio 0 has a window only. A layer in `kv_sources` owns entries; one that is
    only in `index_sources` chooses anew among the nearest owner's; every other takes the nearest
    entries and the nearest choice. `shapes` are CSA2's own fields (heads, head_dim, ...).

    Raises ValueError when a layer has no owner before it, or an owner of another ratio.
    """

    def attention(i: int, ratio: int) -> CSA2:
        if ratio == 0:
            return CSA2(mode="window", ratio=0, rope=near, **shapes)
        owner = max((s for s in kv_sources if s <= i), default=None)
        choice = max((s for s in index_sources if s <= i), default=None)
        if owner is None or choice is None or choice < owner:
            raise ValueError(
                f"layer {i} has ratio {ratio}, but no layer up to it owns entries and a choice"
            )
        if ratios[owner] != ratio:
            raise ValueError(f"layer {i} has ratio {ratio}, its owner {owner} has {ratios[owner]}")
        pool = candidates if candidates and i >= candidates.source else None
        own: dict[str, Any] = dict(ratio=ratio, rope=far, **shapes)
        if owner == i:
            return CSA2(mode="full", indexer=indexer, candidates=pool, **own)
        if choice == i:
            return CSA2(mode="reindex", indexer=indexer, kv_source=owner, candidates=pool, **own)
        return CSA2(mode="reuse", kv_source=owner, index_source=choice, **own)

    return tuple(attention(i, ratio) for i, ratio in enumerate(ratios))


V4_1_FLASH = ModelConfig(
    name="deepseek-v4.1-flash",
    vocab=129_280,
    width=5120,
    layers=tuple(
        Layer(attention, _experts(2304, 384))
        for attention in csa2_layers(
            V4_1_RATIOS,
            KV_SOURCES,
            INDEX_SOURCES,
            CANDIDATES,
            Indexer(heads=32, dim=128, top_k=512, rope_dim=64, fmt="fp4"),
            NEAR_ROPE,
            FAR_ROPE,
            heads=64,
            head_dim=512,
            rope_dim=64,
            q_rank=1280,
            out_groups=8,
            out_rank=1024,
            window=128,
        )
    ),
    context=MILLION,
    row="fp4",
    norm_eps=1e-20,
    residual=HyperConnections(copies=4, single_pass=True),
    decoder_start=20,
    source="V4.1-Flash report, arXiv 2609.19969; released config.json and inference code",
)
