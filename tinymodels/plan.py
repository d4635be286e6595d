"""Which rows each layer keeps: the one table that the ledger adds up and the caches allocate.

`plan(config)` walks the layers once. A `Store` says: rows of this layout, one for every `ratio`
tokens, at most `window` of them. A layer that borrows has no store of its own and names its
owner.
"""

from dataclasses import dataclass, replace

from . import layouts
from .config import (
    CSA2,
    GQA,
    MLA,
    Attention,
    GQAAndState,
    Grouped,
    Indexer,
    ModelConfig,
    NoAttention,
    Recurrent,
    RowFormat,
)
from .layouts import BF16, Layout


@dataclass(frozen=True)
class Store:
    """Rows of one layout. ratio: tokens per row. window: newest rows kept, None keeps all."""

    layout: Layout
    ratio: int = 1
    window: int | None = None

    def rows(self, tokens: int) -> int:
        """Rows that are complete after `tokens` tokens."""
        if tokens < 0:
            raise ValueError(f"tokens is {tokens}; it must be >= 0")
        rows = tokens // self.ratio
        return rows if self.window is None else min(rows, self.window)

    def nbytes(self, tokens: int) -> int:
        return self.rows(tokens) * self.layout.nbytes


@dataclass(frozen=True)
class LayerPlan:
    """What one layer keeps. `owner` is the layer whose far rows it reads (itself, if it owns)."""

    layer: int
    attention: str
    owner: int | None
    main: Store | None = None
    index: Store | None = None
    window: Store | None = None
    open_values: int = 0  # fp32 numbers of half-built groups
    constant_values: int = 0  # recurrent state, in the model's own format


def plan(
    config: ModelConfig, row: RowFormat | None = None, kv_bits: int | None = None
) -> tuple[LayerPlan, ...]:
    """The stores of every layer. row=None takes the deployed format, "bf16" the plain one.

    kv_bits: every cached value takes that many bits instead, and there are no scales.
    """
    if row is None and kv_bits is None:
        kv_bits = config.kv_bits
    row = row or config.row
    layers = tuple(_layer(i, layer.attention, row) for i, layer in enumerate(config.layers))
    return layers if kv_bits is None else tuple(_at_bits(layer, kv_bits) for layer in layers)


def _at_bits(layer: LayerPlan, bits: int) -> LayerPlan:
    stores = {kind: getattr(layer, kind) for kind in ("main", "index", "window")}
    return replace(
        layer,
        **{
            kind: replace(store, layout=layouts.at_bits(store.layout, bits))
            for kind, store in stores.items()
            if store is not None
        },
    )


def _layer(i: int, a: Attention, row: RowFormat) -> LayerPlan:
    match a:
        case GQA():
            return _gqa(i, a)
        case MLA():
            return _mla(i, a, row)
        case Grouped():
            return _grouped(i, a, row)
        case CSA2():
            return _csa2(i, a, row)
        case Recurrent():
            return LayerPlan(i, a.kind, owner=i, constant_values=a.state + a.conv)
        case GQAAndState():
            kept = _gqa(i, a.attention)
            return replace(
                kept,
                attention=f"{kept.attention} and {a.state.kind}",
                constant_values=a.state.state + a.state.conv,
            )
        case NoAttention():
            return LayerPlan(i, "none", owner=None)
    raise ValueError(f"layer {i}: {type(a).__name__} is no attention kind known here")


def _gqa(i: int, a: GQA) -> LayerPlan:
    kind = "MQA" if a.kv_heads == 1 else "MHA" if a.kv_heads == a.heads else "GQA"
    if a.kv_source is not None:
        return LayerPlan(i, f"{kind}, shared", owner=a.kv_source)
    store = Store(layouts.key_value(a.kv_heads, a.head_dim), window=a.window)
    if a.window is not None:
        return LayerPlan(i, f"{kind}, window {a.window}", owner=i, window=store)
    return LayerPlan(i, kind, owner=i, main=store)


def _index(indexer: Indexer | None, ratio: int, fmt: str) -> Store | None:
    if indexer is None:
        return None
    match fmt:
        case "bf16":
            layout = layouts.plain("bf16 index key", BF16, index=indexer.dim)
        case "fp8":
            layout = layouts.index_fp8(indexer.dim)
        case _:
            layout = layouts.index_fp4(indexer.dim)
    return Store(layout, ratio)


def _key_format(indexer: Indexer | None, row: RowFormat) -> str:
    return "bf16" if row == "bf16" or indexer is None else indexer.fmt


def _mla(i: int, a: MLA, row: RowFormat) -> LayerPlan:
    make = layouts.latent if row == "bf16" else layouts.latent_fp8
    return LayerPlan(
        i,
        "MLA" if a.indexer is None else "DSA",
        owner=i,
        main=Store(make(a.kv_rank, a.rope_dim)),
        index=_index(a.indexer, 1, _key_format(a.indexer, row)),
    )


def _grouped(i: int, a: Grouped, row: RowFormat) -> LayerPlan:
    if row == "bf16":
        entry = layouts.plain("bf16 entry", BF16, latent=a.head_dim)
    else:
        entry = layouts.shared_kv_fp8(a.head_dim - a.rope_dim, a.rope_dim)
    window = Store(entry, window=a.window)
    if a.ratio == 0:
        return LayerPlan(i, "SWA", owner=i, window=window)
    # Half-built groups, in fp32: value and gate of every slot. An overlapping group has two
    # halves of each and keeps the group before it too; its indexer pools the same way.
    halves, slots = (2, 2 * a.ratio) if a.overlap else (1, a.ratio)
    pooled = a.head_dim + (a.indexer.dim if a.indexer else 0)
    return LayerPlan(
        i,
        "CSA" if a.overlap else "HCA",
        owner=i,
        main=Store(entry, a.ratio),
        index=_index(a.indexer, a.ratio, _key_format(a.indexer, row)),
        window=window,
        open_values=slots * 2 * halves * pooled,
    )


def _csa2(i: int, a: CSA2, row: RowFormat) -> LayerPlan:
    bf16 = layouts.plain("bf16 entry", BF16, latent=a.head_dim)
    near = bf16 if row == "bf16" else layouts.entry_fp8(a.head_dim)
    far = {"bf16": bf16, "fp8": layouts.entry_fp8(a.head_dim), "fp4": layouts.entry_fp4(a.head_dim)}
    window = Store(near, window=a.window)
    if a.mode == "window":
        return LayerPlan(i, "SWA", owner=i, window=window)
    if a.mode != "full":
        return LayerPlan(i, f"CSA2 {a.mode}", owner=a.kv_source, window=window)
    return LayerPlan(
        i,
        "CSA2 full",
        owner=i,
        main=Store(far[row], a.ratio),
        index=_index(a.indexer, a.ratio, row),
        window=window,
        open_values=a.ratio * 2 * a.head_dim if a.ratio > 1 else 0,
    )
