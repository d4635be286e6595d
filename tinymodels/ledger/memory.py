"""Bytes of a model's memory: what one more token adds, and what n tokens hold.

The caches allocate the rows that `plan` lists and this file adds them up, so measured and
predicted bytes can be compared. `row` and `kv_bits` mean what they mean in `plan`.
"""

from fractions import Fraction

from ..config import ModelConfig, RowFormat
from ..plan import LayerPlan, Store, plan
from ..published import config_of

OPEN_STATE_BYTES = 4  # half-built groups are kept in fp32
STATE_BYTES = 2  # a recurrent state is counted in bf16


def rate(
    model: str | ModelConfig, row: RowFormat | None = None, kv_bits: int | None = None
) -> int | float:
    """Bytes of global KV that one more token adds, per sequence, on average over many tokens.

    Windows and states are left out: they stop growing. An int when whole, else a float (all
    eight published rates are exact in binary).
    """
    layers = plan(config_of(model), row, kv_bits)
    total = sum((_store_rate(s) for p in layers for s in (p.main, p.index)), Fraction(0))
    return int(total) if total.denominator == 1 else float(total)


def _store_rate(store: Store | None) -> Fraction:
    return Fraction(store.layout.nbytes, store.ratio) if store else Fraction(0)


def exact(
    model: str | ModelConfig,
    tokens: int,
    batch: int = 1,
    row: RowFormat | None = None,
    kv_bits: int | None = None,
) -> dict[str, int]:
    """Bytes after `tokens` tokens in each of `batch` sequences; spare capacity is not counted.

    global: complete entries and index keys, which grow for ever. window: min(n, W) rows a layer.
    open_state: the buffers of half-built groups, whole whatever n is. total: their sum and
    the constant state of recurrent layers.
    """
    _count("tokens", tokens, 0)
    _count("batch", batch, 1)
    layers = plan(config_of(model), row, kv_bits)

    def rows(*kinds: str) -> int:
        stores = (getattr(p, kind) for p in layers for kind in kinds)
        return batch * sum(s.nbytes(tokens) for s in stores if s)

    opened = batch * OPEN_STATE_BYTES * sum(p.open_values for p in layers)
    held = {"global": rows("main", "index"), "window": rows("window"), "open_state": opened}
    state = batch * STATE_BYTES * sum(p.constant_values for p in layers)
    return {**held, "total": sum(held.values()) + state}


def per_layer(
    model: str | ModelConfig,
    tokens: int,
    batch: int = 1,
    row: RowFormat | None = None,
    kv_bits: int | None = None,
) -> list[dict]:
    """One dict a layer: `layer, attention, owner` and the bytes `main, index, window`.

    owner is the layer whose far rows it reads: itself, if it keeps its own; a borrowing layer
    holds 0 bytes of them.
    """
    _count("tokens", tokens, 0)
    _count("batch", batch, 1)

    def bytes_of(store: Store | None) -> int:
        return batch * store.nbytes(tokens) if store else 0

    def line(p: LayerPlan) -> dict:
        kept = {kind: bytes_of(getattr(p, kind)) for kind in ("main", "index", "window")}
        return {"layer": p.layer, "attention": p.attention, "owner": p.owner, **kept}

    return [line(p) for p in plan(config_of(model), row, kv_bits)]


def persistent(
    model: str | ModelConfig,
    tokens: int,
    batch: int = 1,
    row: RowFormat | None = None,
    kv_bits: int | None = None,
) -> int:
    """Bytes a disk must keep to continue later: the global part, as a window can be replayed."""
    return exact(model, tokens, batch, row, kv_bits)["global"]


def constant(model: str | ModelConfig, batch: int = 1) -> int:
    """Bytes that do not depend on the tokens: state of linear-attention and state-space layers.

    Counted at 2 bytes a value; serving engines that keep the state in fp32 hold twice that.
    """
    _count("batch", batch, 1)
    return batch * STATE_BYTES * sum(p.constant_values for p in plan(config_of(model)))


def disk_rate(model: str | ModelConfig, interval: int) -> float:
    """Bytes per token on a disk that also keeps all full windows once every `interval` tokens.

    V4 does so; its interval is not published, so every use must say that it is assumed.
    """
    _count("interval", interval, 1)
    windows = [p.window for p in plan(config_of(model)) if p.window]
    return rate(model) + sum(s.layout.nbytes * s.window for s in windows) / interval


def _count(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be an integer >= {least}")
