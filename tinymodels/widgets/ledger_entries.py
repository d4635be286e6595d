"""What stands in the ledger, a row for each chapter: its formula, and how it is measured.

The formula's number comes from `tinymodels.ledger`, the measured one from storage that is
allocated, or a file that is written, on the spot, the published one from
`tinymodels.published`, with its status.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from tempfile import TemporaryDirectory
from typing import Any

from .. import ledger
from ..config import GQA, Layer, ModelConfig, RowFormat
from ..ledger.ladder import unshared
from ..plan import plan
from ..presets import tiny_v1
from ..published import V1, V2, V3_2, V4_1_FLASH, V4_FLASH

Bytes = int | float


def measure(config: ModelConfig, row: RowFormat | None = None) -> Bytes:
    """Bytes a token adds, measured: allocate storage until every ratio divides, and weigh it."""
    from ..cache import allocate

    stores = [s for p in plan(config, row) for s in (p.main, p.index) if s is not None]
    tokens = lcm(*(store.ratio for store in stores))
    held = Fraction(allocate(config, tokens, row=row).bytes()["global"], tokens)
    return int(held) if held.denominator == 1 else float(held)


def measure_layer(config: ModelConfig) -> int:
    """Bytes that one token adds to one layer, measured."""
    from ..cache import allocate

    return allocate(config, 1).per_layer()[0]["main"]


def measure_beside(config: ModelConfig) -> int:
    """Bytes a cache holds for a token besides its rows, measured."""
    from ..cache import allocate

    held = allocate(config, 1).bytes()
    return held["total"] - held["global"] - held["window"] - held["open_state"]


def measure_on_disk(config: ModelConfig, tokens: int = 512) -> Bytes:
    """Bytes a token adds to a file of the prefix store, its header apart, measured.

    tokens: a multiple of every ratio.
    """
    from ..cache import allocate
    from ..serving import rows
    from ..serving.store import RowStore

    with TemporaryDirectory() as folder:
        store = RowStore(folder, "", 10**9)
        store.put("piece", rows.piece(allocate(config, tokens), 0, tokens))
        file = store.path("piece").read_bytes()
        store.close()
    header = 8 + int.from_bytes(file[:8], "little")  # of safetensors: its length goes first
    held = Fraction(len(file) - header, tokens)
    return int(held) if held.denominator == 1 else float(held)


@dataclass(frozen=True)
class Entry:
    """One chapter's row. formula: in numbers. rate, measure: computed and weighed when asked.

    printed: the figure as its source prints it; status: C, R or D as in `published.py`, or
    empty for what has no published counterpart.
    """

    chapter: str
    what: str
    formula: str
    rate: Callable[[], Bytes]
    measure: Callable[[], Bytes]
    printed: str = ""
    status: str = ""


def _heads_of_their_own(config: ModelConfig) -> ModelConfig:
    """V1 without GQA: every query head keeps keys and values."""

    def own(attention: Any) -> GQA:
        return replace(attention, kv_heads=attention.heads)

    layers = tuple(Layer(own(layer.attention), layer.ffn) for layer in config.layers)
    return config.with_(layers=layers)


def _twice_as_wide(config: ModelConfig) -> ModelConfig:
    wide = (replace(layer.ffn, width=2 * layer.ffn.width) for layer in config.layers)
    layers = tuple(Layer(layer.attention, ffn) for layer, ffn in zip(config.layers, wide))
    return config.with_(layers=layers)


def _model(chapter, what, formula, config, row=None, printed="", status="D") -> Entry:
    return Entry(
        chapter,
        what,
        formula,
        lambda: ledger.rate(config, row=row),
        lambda: measure(config, row),
        printed,
        status,
    )


TINY = tiny_v1()
ENTRIES = (
    _model("00", "the model of this course", "2 × 4 × 2 × 16 × 2", TINY, status=""),
    _model("01", "DeepSeek 67B (V1)", "2 × 95 × 8 × 128 × 2", V1, printed="389,120", status="R"),
    Entry(
        "02",
        "one layer of V1",
        "2 × 8 × 128 × 2",
        lambda: ledger.rate(V1) // len(V1),
        lambda: measure_layer(V1),
        status="D",
    ),
    Entry("03", "the residual stream", "not kept", lambda: 0, lambda: measure_beside(V1)),
    Entry(
        "04",
        "a feed-forward twice as wide",
        "not kept",
        lambda: ledger.rate(_twice_as_wide(V1)) - ledger.rate(V1),
        lambda: measure(_twice_as_wide(TINY)) - measure(TINY),
    ),
    _model("05", "V1 without GQA", "2 × 95 × 64 × 128 × 2", _heads_of_their_own(V1)),
    _model("06", "DeepSeek V2", "60 × (512 + 64) × 2", V2),
    _model("07", "DeepSeek V3.2", "61 × (656 + 132)", V3_2, printed="48,068", status="R"),
    _model(
        "08",
        "DeepSeek V4-Flash",
        "21 × (584 + 68) / 4 + 20 × 584 / 128",
        V4_FLASH,
        printed="3,514",
        status="R",
    ),
    _model(
        "09",
        "V4.1, not shared, bf16",
        "(18 / 2 + 20) × (512 + 128) × 2",
        unshared(V4_1_FLASH),
        "bf16",
    ),
    _model("10", "V4.1, shared, FP8", "(3 / 2 + 1) × (528 + 132)", V4_1_FLASH, "fp8"),
    _model(
        "11",
        "DeepSeek V4.1-Flash",
        "(3 / 2 + 1) × (288 + 68)",
        V4_1_FLASH,
        printed="890",
        status="C",
    ),
    Entry(
        "12",
        "the same, on disk",
        "(3 / 2 + 1) × (288 + 68)",
        lambda: ledger.persistent(V4_1_FLASH, 2) // 2,
        lambda: measure_on_disk(V4_1_FLASH),
        status="D",
    ),
)


def entries(through: str) -> tuple[Entry, ...]:
    """The rows up to a chapter. Raises ValueError for a chapter without one."""
    chapters = [entry.chapter for entry in ENTRIES]
    if through not in chapters:
        raise ValueError(f"through is {through!r}; the ledger has {chapters[0]} to {chapters[-1]}")
    return ENTRIES[: chapters.index(through) + 1]
