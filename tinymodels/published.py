"""The eight published models: shapes to compute with, and the figures to compare against.

Every figure carries a status:

    C  stated in words or a table by its source
    R  read off a chart that its source printed
    D  derived here from sourced shapes; nobody printed it

Nothing here is computed from anything else here: the ledger computes, the tests compare.
No torch, no numpy.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from .config import GQA, MLA, Dense, Indexer, ModelConfig, MoE, Rope, Yarn, uniform
from .published_v4 import MILLION, V4_1_FLASH, V4_FLASH, V4_PRO

__all__ = ["PUBLISHED", "Figure", "Price", "Published", "get", "MILLION"]

Status = Literal["C", "R", "D"]


@dataclass(frozen=True)
class Figure:
    """One number, its unit, how it is known and where from."""

    value: float
    unit: str
    status: Status
    source: str


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens. None: not known, so a bill must be told it."""

    hit: float | None  # prompt tokens found in the cache
    miss: float | None  # prompt tokens that are computed
    output: float | None  # written tokens
    source: str


@dataclass(frozen=True)
class Published:
    """A model and what was said about it.

    rate: bytes of global KV per token in the deployed rows. parameters: billions, as printed.
    active: billions per token, as printed, by phase where the source tells them apart.
    """

    config: ModelConfig
    rate: Figure
    parameters: Figure
    active: dict[str, Figure]
    more: dict[str, Figure] = field(default_factory=dict)
    price: Price | None = None


V2_REPORT = "V2 report, arXiv 2405.04434"
V3_REPORT = "V3 report, arXiv 2412.19437"
V32_REPORT = "V3.2 report"
V4_REPORT = "V4 report"
V41_REPORT = "V4.1-Flash report, arXiv 2609.19969"
RELEASED = "released config.json"
CHART = "published chart of KV bytes per token"


def _mla(heads: int, q_rank: int | None, mscale: float, indexer: Indexer | None = None) -> MLA:
    yarn = Yarn(factor=40.0, original_context=4096, mscale_all_dim=mscale)
    return MLA(
        heads=heads,
        nope_dim=128,
        rope_dim=64,
        v_dim=128,
        kv_rank=512,
        q_rank=q_rank,
        rope=Rope(64, yarn=yarn),
        indexer=indexer,
    )


def _moe_model(name, vocab, width, layers, dense, dense_width, attention, experts, **rest):
    """`dense` layers with one plain FFN, then experts; the same attention in all."""
    head = uniform(dense, attention, Dense(dense_width))
    return ModelConfig(
        name=name,
        vocab=vocab,
        width=width,
        layers=head + uniform(layers - dense, attention, experts),
        **rest,
    )


V1 = ModelConfig(
    name="deepseek-67b",
    vocab=102_400,
    width=8192,
    layers=uniform(95, GQA(64, 8, 128, rope=Rope(128, pairs="half")), Dense(22_016)),
    context=4096,
    source=f"DeepSeek LLM report, arXiv 2401.02954; {RELEASED}",
)

V2 = _moe_model(
    "deepseek-v2",
    vocab=102_400,
    width=5120,
    layers=60,
    dense=1,
    dense_width=12_288,
    attention=_mla(128, 1536, mscale=0.707),
    experts=MoE(1536, 160, top_k=6, shared=2, groups=8, top_groups=3, scale=16.0),
    context=131_072,
    source=f"{V2_REPORT}; {RELEASED}",
)

V2_LITE = _moe_model(
    "deepseek-v2-lite",
    vocab=102_400,
    width=2048,
    layers=27,
    dense=1,
    dense_width=10_944,
    attention=_mla(16, None, mscale=0.707),
    experts=MoE(1408, 64, top_k=6, shared=2),
    context=32_768,
    source=f"{V2_REPORT}, appendix; {RELEASED}",
)

_V3_EXPERTS = MoE(
    2048,
    256,
    top_k=8,
    shared=1,
    scoring="sigmoid",
    selection_bias=True,
    groups=8,
    top_groups=4,
    normalise=True,
    scale=2.5,
)

V3 = _moe_model(
    "deepseek-v3",
    vocab=129_280,
    width=7168,
    layers=61,
    dense=3,
    dense_width=18_432,
    attention=_mla(128, 1536, mscale=1.0),
    experts=_V3_EXPERTS,
    context=131_072,
    source=f"{V3_REPORT}; {RELEASED}",
)

V3_2 = _moe_model(
    "deepseek-v3.2",
    vocab=129_280,
    width=7168,
    layers=61,
    dense=3,
    dense_width=18_432,
    attention=_mla(128, 1536, 1.0, Indexer(heads=64, dim=128, top_k=2048, fmt="fp8")),
    experts=_V3_EXPERTS,
    context=131_072,
    row="fp8",
    source=f"{V32_REPORT}; {RELEASED} and inference code; FlashMLA's row",
)


def _billions(value: float, source: str) -> Figure:
    return Figure(value, "billion parameters", "C", source)


def _bytes(value: float, status: Status, source: str) -> Figure:
    return Figure(value, "bytes per token", status, source)


def _published(*models: Published) -> dict[str, Published]:
    return {m.config.name: m for m in models}


PUBLISHED: dict[str, Published] = _published(
    Published(
        V1,
        _bytes(389_120, "R", f"{CHART}; {RELEASED} agrees"),
        _billions(67, "DeepSeek LLM report, arXiv 2401.02954"),
        {},
    ),
    Published(
        V2,
        _bytes(69_120, "D", "60 layers x 576 values in bf16; the report prints only a ratio"),
        _billions(236, V2_REPORT),
        {"decode": _billions(21, V2_REPORT)},
        {
            "reduction": Figure(93.3, "percent below V1, at 6 bits a value", "C", V2_REPORT),
            "bits": Figure(6, "bits a value on average", "C", V2_REPORT),
        },
    ),
    Published(
        V2_LITE,
        _bytes(31_104, "D", "27 layers x 576 values in bf16"),
        _billions(15.7, V2_REPORT),
        {"decode": _billions(2.4, V2_REPORT)},
    ),
    Published(
        V3,
        _bytes(70_272, "D", "61 layers x 576 values in bf16"),
        _billions(671, V3_REPORT),
        {"decode": _billions(37, V3_REPORT)},
    ),
    Published(
        V3_2,
        _bytes(48_068, "R", CHART),
        _billions(671, f"{V3_REPORT}: V3's figure; the indexer is not in it"),
        {"decode": _billions(37, V3_REPORT)},
    ),
    Published(
        V4_FLASH,
        _bytes(3_514.25, "R", f"{CHART}, which prints 3,514"),
        _billions(284, V4_REPORT),
        {"decode": _billions(13, V4_REPORT)},
        {"share of V3.2": Figure(7, "percent", "C", V4_REPORT)},
        Price(0.0028, 0.14, 0.28, "third parties' reports, April 2026"),
    ),
    Published(
        V4_PRO,
        _bytes(5_031.4375, "D", "30 CSA layers x 163 + 31 HCA layers x 4.5625"),
        _billions(1_600, V4_REPORT),
        {"decode": _billions(49, V4_REPORT)},
        {"share of V3.2": Figure(10, "percent", "C", V4_REPORT)},
        Price(0.022, None, 1.98, "article on V4.1-Flash"),
    ),
    Published(
        V4_1_FLASH,
        _bytes(890, "C", V41_REPORT),
        _billions(552, V41_REPORT),
        {"decode": _billions(16, V41_REPORT), "prefill": _billions(8, V41_REPORT)},
        {"engram": _billions(196, f"{V41_REPORT}; not counted here")},
        Price(0.003, None, 0.6, "article on V4.1-Flash, off-peak"),
    ),
)

# Where the bytes of a deployed row are stated, by the layout's name.
ROW_SOURCES: dict[str, str] = {
    "key + value": RELEASED,
    "latent + rope": V2_REPORT,
    "FP8 latent + rope": "FlashMLA's FP8 row; V3.2's released inference code",
    "FP8 index key": "V3.2's released inference code",
    "FP8 + bf16 rope": "FlashMLA's V4 row",
    "MXFP4 index key": "released inference code",
    "FP4 entry": V41_REPORT,
    "FP8 entry": f"{V41_REPORT}; released inference code",
}


def get(name: str) -> Published:
    """The published model of that name. Raises ValueError with the valid names and the nearest."""
    if isinstance(name, str) and name in PUBLISHED:
        return PUBLISHED[name]
    near = nearest(str(name), PUBLISHED)
    hint = f"did you mean {near}? " if near else ""
    names = ", ".join(PUBLISHED)
    raise ValueError(f"no published model is named {name!r}; {hint}The names are {names}")


def nearest(typed: str, names: Iterable[str]) -> str | None:
    """The name that a slip most likely meant: one that holds it whole, else a similar one."""
    typed, known = typed.lower(), {name.lower(): name for name in names}
    holding = [name for name in known if typed and typed in name]
    close = sorted(holding, key=len) or get_close_matches(typed, known, n=1, cutoff=0.5)
    return known[close[0]] if close else None


def config_of(model: "str | ModelConfig | Published") -> ModelConfig:
    """The shapes behind a published name; a `ModelConfig` is its own answer."""
    if isinstance(model, ModelConfig):
        return model
    return model.config if isinstance(model, Published) else get(model).config
