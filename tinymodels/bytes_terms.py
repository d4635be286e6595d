"""The terms of a model's bytes: which layers keep which row, and how each number is known."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from .config import ModelConfig, RowFormat
from .layouts import Layout
from .ledger.memory import OPEN_STATE_BYTES, STATE_BYTES, constant, rate
from .plan import LayerPlan, Store, plan
from .published import PUBLISHED, ROW_SOURCES, Published


@dataclass(frozen=True)
class Term:
    """One product of the sum, e.g. "21 x CSA entries": 21 x 584 / 4 = 3,066 bytes per token."""

    name: str
    arithmetic: str
    value: int | float
    unit: str
    status: str
    source: str


def terms(
    config: ModelConfig,
    status: str,
    source: str,
    row: RowFormat | None = None,
    kv_bits: int | None = None,
) -> list[Term]:
    """The growing terms and their sum, what the rate leaves out, and figures printed elsewhere.

    status, source: those of the whole rate. A row's own status is C where its bytes are stated by a
    source, else D.
    """
    layers = plan(config, row, kv_bits)
    found = [t for kind in ("main", "index") for t in _growing(config, layers, kind)]
    total = rate(config, row, kv_bits)
    found.append(Term("rate", _sum(found), total, "bytes per token", status, source))
    return found + _windows(config, layers) + _states(config, layers) + _printed(config)


def filling(
    config: ModelConfig, row: RowFormat | None = None, kv_bits: int | None = None
) -> tuple[int | float, int]:
    """(bytes that one more token adds while every window still fills, tokens until all are full).

    Without windows: the rate, and 0. A window longer than the context never closes in it.
    """
    windows = [p.window for p in plan(config, row, kv_bits) if p.window]
    adds = rate(config, row, kv_bits) + sum(w.layout.nbytes for w in windows)
    return adds, max((w.window or 0 for w in windows), default=0)


def published(config: ModelConfig) -> Published | None:
    """What was published about exactly these shapes; a file of the same name is not enough."""
    found = PUBLISHED.get(config.name)
    return found if found and found.config == config else None


def _printed(config: ModelConfig) -> list[Term]:
    """The other figures that the model's sources print, to compare with."""
    model = published(config)
    if model is None:
        return []
    figures = {"parameters": model.parameters, **model.more}
    figures |= {f"active in {phase}": figure for phase, figure in model.active.items()}
    return [
        Term(f"published: {name}", "as printed", f.value, f.unit, f.status, f.source)
        for name, f in figures.items()
    ]


def _sum(found: list[Term]) -> str:
    return " + ".join(f"{t.value:,}" for t in found) or "nothing grows"


def _row_source(config: ModelConfig, layout: Layout) -> tuple[str, str]:
    stated = published(config) and layout.name in ROW_SOURCES
    return ("C", ROW_SOURCES[layout.name]) if stated else ("D", f"{config.source}; {layout.name}")


def _groups(layers: tuple[LayerPlan, ...], kind: str) -> list[tuple[str, Store, int]]:
    """[(attention, store, layers)] of equal stores, in the order in which they appear."""
    kept = Counter((p.attention, getattr(p, kind)) for p in layers if getattr(p, kind))
    return [(attention, store, count) for (attention, store), count in kept.items()]


def _growing(config: ModelConfig, layers: tuple[LayerPlan, ...], kind: str) -> list[Term]:
    found = []
    for attention, store, count in _groups(layers, kind):
        value = Fraction(count * store.layout.nbytes, store.ratio)
        row = f"({store.layout.terms()})" if len(store.layout.fields) > 1 else store.layout.terms()
        ratio = f" / {store.ratio}" if store.ratio > 1 else ""
        what = "entries" if kind == "main" else "index keys"
        found.append(
            Term(
                f"{attention}: {what}, {store.layout.name}",
                f"{count} x {row}{ratio}",
                int(value) if value.denominator == 1 else float(value),
                "bytes per token",
                *_row_source(config, store.layout),
            )
        )
    return found


def _windows(config: ModelConfig, layers: tuple[LayerPlan, ...]) -> list[Term]:
    return [
        Term(
            f"{attention}: newest {store.window:,} tokens, {store.layout.name}",
            f"{count} x {store.window} x {store.layout.nbytes}",
            count * store.window * store.layout.nbytes,
            "bytes per sequence, not in the rate",
            *_row_source(config, store.layout),
        )
        for attention, store, count in _groups(layers, "window")
    ]


def _states(config: ModelConfig, layers: tuple[LayerPlan, ...]) -> list[Term]:
    unit = "bytes per sequence, not in the rate"
    opened = sum(p.open_values for p in layers)
    found = []
    if opened:
        arithmetic = f"{opened:,} x {OPEN_STATE_BYTES}"
        value = opened * OPEN_STATE_BYTES
        found.append(Term("half-built groups in fp32", arithmetic, value, unit, "D", config.source))
    if constant(config):
        kinds = Counter((p.attention, p.constant_values) for p in layers if p.constant_values)
        for (attention, values), count in kinds.items():
            arithmetic = f"{count} x {values:,} x {STATE_BYTES}"
            value = count * values * STATE_BYTES
            name = f"{attention}: state at {STATE_BYTES} bytes a value"
            found.append(Term(name, arithmetic, value, unit, "D", config.source))
    return found
