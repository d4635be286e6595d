"""Models whose layers keep a state of fixed size: all of them, all but a few, or each one beside
its keys and values. The memory of a long text is then small, and so is what can be held in it.
"""

from dataclasses import replace

from ..config import GQA, Attention, GQAAndState, Layer, ModelConfig, Recurrent
from .fields import Fields
from .hybrid import KINDS, mamba, mamba2, mamba2_of
from .plain import Defaults, Reader, attention_shapes, full, layer_count, layer_kinds, model

# ---------------------------------------------------------------- states alone


UNSTATED = 2048


def _pure(fields: Fields, state: Recurrent, core: tuple) -> ModelConfig:
    """The state in every layer. These models state no context: nothing in them ends with one."""
    if not fields.has("max_position_embeddings"):
        fields.values = {**fields.values, "max_position_embeddings": UNSTATED}
        fields.note(
            f"no context is stated, and nothing here depends on it: {UNSTATED:,} tokens are shown"
        )
    default = Defaults(context=UNSTATED, core=core)
    return model(fields, (Layer(state, None),) * layer_count(fields, default), default)


def read_mamba(fields: Fields) -> ModelConfig:
    """Mamba 1, Falcon-Mamba: a state for each of `intermediate_size` channels in every layer."""
    if fields.has("intermediate_size"):
        channels = fields.integer("intermediate_size")
    else:
        width = fields.core("hidden_size", default=768)
        channels = fields.integer("expand", default=2) * width
    size = fields.integer("state_size", default=16)
    state = mamba(channels, size, taps=fields.integer("conv_kernel", default=4))
    return _pure(fields, state, (32, None, 768))


def read_mamba2(fields: Fields) -> ModelConfig:
    """Mamba 2 in every layer."""
    heads = fields.integer("num_heads", default=128)
    dim = fields.integer("head_dim", default=64)
    width = fields.core("hidden_size", default=4096)
    inner = fields.integer("expand", default=2) * width
    if heads * dim != inner:
        fields.refuse(
            f"num_heads x head_dim is {heads * dim}",
            f"it must be expand x hidden_size, {inner}",
        )
    state = mamba2(
        heads=heads,
        dim=dim,
        groups=fields.integer("n_groups", default=8),
        size=fields.integer("state_size", default=128),
        taps=fields.integer("conv_kernel", default=4),
    )
    return _pure(fields, state, (64, None, 4096))


# ---------------------------------------------------------------- states beside keys and values


FALCON_H1 = Defaults(context=8192, core=(32, 32, 4096), kv_heads=8)


def read_falcon_h1(fields: Fields) -> ModelConfig:
    """Every layer attends and has a Mamba-2 state beside it; both add to the same stream.

    `mamba_d_ssm` null: expand x width.
    """
    attention = GQA(*attention_shapes(fields, FALCON_H1))
    width = fields.core("hidden_size", default=FALCON_H1.core[2])
    heads = fields.integer("mamba_n_heads", default=128)
    inner = fields.optional("mamba_d_ssm", default=1024)
    if inner is None:
        inner = fields.integer("mamba_expand", default=2) * width
    if inner % heads:
        fields.refuse(f"mamba_n_heads is {heads}", f"it must divide the {inner} channels")
    dim = inner // heads
    if fields.values.get("mamba_d_head", "auto") not in ("auto", None):
        dim = fields.integer("mamba_d_head")
    if dim * heads != inner:
        fields.refuse(f"mamba_d_head is {dim}", f"{heads} heads of it must make {inner} channels")
    layer = Layer(GQAAndState(attention, mamba2_of(fields, heads, dim)), None)
    return model(fields, (layer,) * layer_count(fields, FALCON_H1), FALCON_H1)


# ---------------------------------------------------------------- states, and some attention


def read_zamba(fields: Fields) -> ModelConfig:
    """Zamba: Mamba in every layer. Before some of them ("hybrid") stands one block of attention
    whose weights they share, not its rows; its heads are twice as wide."""
    layers = fields.layers(default=76)
    state = mamba(
        channels=fields.integer("mamba_expand", default=2)
        * fields.core("hidden_size", default=3712),
        size=fields.integer("mamba_d_state", default=16),
        taps=fields.integer("mamba_d_conv", default=4),
    )
    kinds = _zamba_kinds(fields, layers)
    if kinds is None:
        period = fields.integer("attn_layer_period", default=6)
        offset = fields.integer("attn_layer_offset", default=4, least=0)
        kinds = ["mamba", "mamba", "hybrid"]
        kinds += ["hybrid" if i % period == offset else "mamba" for i in range(layers - 3)]
        kinds = kinds[:layers]
    return _zamba_model(fields, kinds, state, Defaults(4096, (76, 16, 3712), 16, tied=True))


def read_zamba2(fields: Fields) -> ModelConfig:
    """Zamba 2: the same with Mamba 2, and two blocks in turn."""
    heads = fields.integer("n_mamba_heads", default=8)
    inner = fields.integer("mamba_expand", default=2) * fields.core("hidden_size", default=2560)
    if inner % heads:
        fields.refuse(f"n_mamba_heads is {heads}", f"it must divide the {inner} channels")
    state = mamba2(
        heads=heads,
        dim=inner // heads,
        groups=fields.integer("mamba_ngroups", default=1),
        size=fields.integer("mamba_d_state", default=64),
        taps=fields.integer("mamba_d_conv", default=4),
    )
    kinds = _zamba_kinds(fields, fields.layers(default=54))
    if kinds is None:
        fields.refuse("layers_block_type is missing", "it says which layers attend too")
    return _zamba_model(fields, kinds, state, Defaults(4096, (54, 32, 2560), tied=True))


def _zamba_kinds(fields: Fields, count: int) -> list[str] | None:
    return fields.sequence(
        "layers_block_type", count, allowed=("mamba", "linear_attention", "hybrid")
    ) or fields.sequence("layer_types", count, allowed=("linear_attention", "hybrid"))


def _zamba_model(fields: Fields, kinds: list[str], state: Recurrent, default: Defaults):
    width = fields.core("hidden_size", default=default.core[2])
    heads = fields.core("num_attention_heads", default=default.core[1])
    default = replace(default, head_dim=2 * width // heads)
    attention = GQA(*attention_shapes(fields, default))
    kept = {"hybrid": GQAAndState(attention, state)}
    return model(fields, tuple(Layer(kept.get(kind, state), None) for kind in kinds), default)


RECURRENT_GEMMA = Defaults(context=8192, core=(26, 10, 2560), tied=True)


def read_recurrent_gemma(fields: Fields) -> ModelConfig:
    """Griffin: RG-LRU layers with one number a channel, and every third attends in a window.

    The whole memory is bounded, so the rate is 0.
    """
    shapes = attention_shapes(fields, RECURRENT_GEMMA)
    window = fields.integer("attention_window_size", default=2048)
    width = fields.core("hidden_size", default=RECURRENT_GEMMA.core[2])
    channels = fields.integer("lru_width", default=width)
    taps = fields.integer("conv1d_width", default=4)
    kept: dict[str, Attention] = {
        "recurrent": Recurrent("RG-LRU", state=channels, conv=channels * (taps - 1)),
        "attention": GQA(*shapes, window=window),
    }
    pattern = fields.sequence("block_types", None, allowed=tuple(kept))
    if not pattern:
        pattern = ["recurrent", "recurrent", "attention"]
        fields.note("block_types is not in the file; the family's default: every third attends")
    count = layer_count(fields, RECURRENT_GEMMA)
    layers = tuple(Layer(kept[pattern[i % len(pattern)]], None) for i in range(count))
    return model(fields, layers, RECURRENT_GEMMA)


def _lfm2(default: Defaults) -> Reader:
    """A reader of LFM2: short convolutions, which keep their last inputs, and some attention."""

    def read(fields: Fields) -> ModelConfig:
        count = layer_count(fields, default)
        kinds = layer_kinds(fields, count, ("conv", *KINDS))
        if kinds is None:
            attending = fields.sequence("full_attn_idxs", None, allowed=range(count))
            if attending is None:
                fields.note("layer_types is not in the file; the family's default: all attend")
                return full(default)(fields)
            kinds = [KINDS[1] if i in attending else "conv" for i in range(count)]
        attention = GQA(*attention_shapes(fields, default))
        width = fields.core("hidden_size", default=default.core[2])
        taps = fields.integer("conv_L_cache", default=3)
        if taps < 2:
            fields.refuse(f"conv_L_cache is {taps}", "a convolution over one token keeps nothing")
        state = Recurrent("short convolution", state=0, conv=width * (taps - 1))
        kept = [Layer(attention if kind == KINDS[1] else state, None) for kind in kinds]
        return model(fields, tuple(kept), default)

    return read


READERS: dict[str, Reader] = {
    "mamba": read_mamba,
    "falcon_mamba": read_mamba,
    "mamba2": read_mamba2,
    "falcon_h1": read_falcon_h1,
    "zamba": read_zamba,
    "zamba2": read_zamba2,
    "recurrent_gemma": read_recurrent_gemma,
    "lfm2": _lfm2(Defaults(context=128_000, core=(32, 32, 2560), kv_heads=8, tied=True)),
    "lfm2_moe": _lfm2(Defaults(context=128_000, core=(32, 32, 2048), kv_heads=8, tied=True)),
}
