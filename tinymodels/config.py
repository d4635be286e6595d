"""What a model is: frozen dataclasses, and nothing that runs.

One description drives three things: the model that is built (`transformer.py`), the storage
that is allocated (`cache/`) and the arithmetic that predicts its bytes (`ledger.py`). So a
number in the ledger can only agree with the model by being the same number.

This file imports neither torch nor numpy.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

RowFormat = Literal["bf16", "fp8", "fp4"]


def _positive(owner, **values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{type(owner).__name__}.{name} is {value!r}; it must be an int >= 1")


# ---------------------------------------------------------------- positions


@dataclass(frozen=True)
class Yarn:
    """YaRN's stretching of RoPE (arXiv 2309.00071), with the fields released configs use."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale_all_dim: float = 0.0  # 0: the softmax scale is left alone
    attention_factor: float = 1.0  # what cosine and sine are multiplied by (V2 to V3.2: 1)


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding over `dim` values of a head.

    pairs: "adjacent" turns (x0, x1), (x2, x3), ...; "half" turns (x0, x[dim/2]), ...
    """

    dim: int
    theta: float = 10_000.0
    pairs: Literal["adjacent", "half"] = "adjacent"
    yarn: Yarn | None = None

    def __post_init__(self):
        _positive(self, dim=self.dim)
        if self.dim % 2:
            raise ValueError(f"Rope.dim is {self.dim}; RoPE turns pairs, so it must be even")


# ---------------------------------------------------------------- attention


@dataclass(frozen=True)
class GQA:
    """Attention with `kv_heads` key-value heads (V1, Llama). MHA: kv_heads = heads; MQA: 1.

    window: how many of the newest tokens are seen and kept; None keeps all of them.
    kv_source: the layer whose keys and values are read instead of own ones; None: own.
    """

    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope | None = None
    window: int | None = None
    kv_source: int | None = None
    bias: bool = False

    def __post_init__(self):
        _positive(self, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"GQA.kv_heads is {self.kv_heads}; it must divide the {self.heads} query heads"
            )
        if self.window is not None:
            _positive(self, window=self.window)


@dataclass(frozen=True)
class Indexer:
    """The cheap scorer that picks which entries a query reads (V3.2, V4, V4.1)."""

    heads: int
    dim: int
    top_k: int
    rope_dim: int = 64
    fmt: Literal["fp8", "fp4"] = "fp4"  # V3.2 keeps FP8 keys, V4 and V4.1 MXFP4 keys


@dataclass(frozen=True)
class MLA:
    """Multi-head latent attention (V2, V3); with an indexer it is V3.2's DSA."""

    heads: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    kv_rank: int
    q_rank: int | None
    rope: Rope
    indexer: Indexer | None = None


@dataclass(frozen=True)
class Grouped:
    """V4 attention: a window, and groups of `ratio` tokens pooled to one entry each.

    ratio 0: window only. 4: CSA (overlapping groups, chosen by the indexer). 128: HCA (plain
    groups, all read). K = V: one latent of `head_dim` values serves every head as both.
    """

    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    out_groups: int
    out_rank: int
    window: int
    ratio: int
    rope: Rope
    indexer: Indexer | None = None

    @property
    def overlap(self) -> bool:
        return self.indexer is not None


@dataclass(frozen=True)
class Candidates:
    """The blocks of positions that one layer keeps for later layers to choose from (V4.1)."""

    source: int  # the layer that picks the blocks
    block: int
    keep: int


@dataclass(frozen=True)
class CSA2:
    """V4.1 attention: a window, and far entries that few layers own and the others borrow.

    mode: "window" has no far memory; "full" owns entries, keys and choice; "reindex" makes its
    own choice over the owner's keys; "reuse" takes the nearest published choice.
    """

    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    out_groups: int
    out_rank: int
    window: int
    mode: Literal["window", "full", "reindex", "reuse"]
    ratio: int  # 0 for mode "window"
    rope: Rope
    indexer: Indexer | None = None  # full, reindex
    kv_source: int | None = None  # reindex, reuse: the layer that owns the entries
    index_source: int | None = None  # reuse: the layer whose choice is taken
    candidates: Candidates | None = None


@dataclass(frozen=True)
class Recurrent:
    """A layer whose memory does not grow: linear attention or a state-space layer.

    state, conv: values held per sequence. Only counted here, never run.
    """

    kind: str
    state: int
    conv: int = 0


@dataclass(frozen=True)
class GQAAndState:
    """Attention and a state-space layer beside it, in one layer (Falcon-H1). Only counted here."""

    attention: GQA
    state: Recurrent


@dataclass(frozen=True)
class NoAttention:
    """A layer that mixes no tokens (the plain layers of Nemotron-H), so it remembers nothing."""


Attention = GQA | MLA | Grouped | CSA2 | Recurrent | GQAAndState | NoAttention


# ---------------------------------------------------------------- feed-forward and residual


@dataclass(frozen=True)
class Dense:
    """SwiGLU feed-forward of inner width `width`; `gated=False` is the older two-matrix form."""

    width: int
    limit: float | None = None  # clamp before silu(gate) * up
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True)
class MoE:
    """Experts of inner width `width`: `shared` always run, `top_k` of `experts` are chosen."""

    width: int
    experts: int
    top_k: int
    shared: int = 0
    scoring: Literal["softmax", "sigmoid", "sqrtsoftplus"] = "softmax"
    selection_bias: bool = False
    groups: int = 1
    top_groups: int = 1
    normalise: bool = False
    scale: float = 1.0
    limit: float | None = None
    hash_routed: bool = False  # V4's first MoE layers choose by token id


@dataclass(frozen=True)
class HyperConnections:
    """mHC: `copies` residual streams, mixed by a doubly stochastic matrix (V4, V4.1)."""

    copies: int
    sinkhorn_iterations: int = 20
    eps: float = 1e-6
    single_pass: bool = False  # V4.1: the input mix comes from the previous sublayer


@dataclass(frozen=True)
class Layer:
    attention: Attention
    ffn: Dense | MoE | None  # None: not described; such a layer can be counted, not built


@dataclass(frozen=True)
class ModelConfig:
    """A whole model. `width` is the residual stream's, `context` the longest it is made for.

    row: how a cache entry is stored where it is deployed. kv_bits: bits a cached value takes,
    without scales; None: `row` decides. decoder_start: the first decoder layer of a CED model
    (V4.1); None: every layer runs on every token. vocab, width: None where a configuration was
    read for its cache only and does not say.
    """

    name: str
    vocab: int | None
    width: int | None
    layers: tuple[Layer, ...]
    context: int
    row: RowFormat = "bf16"
    kv_bits: int | None = None
    norm_eps: float = 1e-6
    tied: bool = False
    residual: HyperConnections | None = None
    decoder_start: int | None = None
    source: str = ""
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self):
        given = dict(vocab=self.vocab, width=self.width, kv_bits=self.kv_bits)
        _positive(self, context=self.context, **{k: v for k, v in given.items() if v is not None})
        if not self.layers:
            raise ValueError("ModelConfig.layers is empty; a model has at least one layer")

    def with_(self, **changes) -> "ModelConfig":
        """A copy with some fields changed: `config.with_(context=4096)`."""
        return replace(self, **changes)

    def __len__(self) -> int:
        return len(self.layers)


def uniform(layers: int, attention: Attention, ffn: Dense | MoE) -> tuple[Layer, ...]:
    """The same layer `layers` times."""
    _positive(Layer(attention, ffn), layers=layers)
    return (Layer(attention, ffn),) * layers
