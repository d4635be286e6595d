"""Models in which most layers keep a state of fixed size, and a few keep keys and values.

A state is counted in values: what linear attention or a state-space layer carries from token to
token, and the last inputs of its short convolution (taps - 1 of them).
"""

from ..config import GQA, Attention, Layer, ModelConfig, NoAttention, Recurrent
from .fields import Fields
from .latent import Latent, latent_attention
from .plain import Defaults, Reader, attention_shapes, full, layer_count, layer_kinds, model

KINDS = ("linear_attention", "full_attention")


def _mixed(fields, kinds: list[str], attention, state: Recurrent, default: Defaults) -> ModelConfig:
    layers = tuple(Layer(attention if kind == KINDS[1] else state, None) for kind in kinds)
    return model(fields, layers, default)


# ---------------------------------------------------------------- linear attention


def _delta_net(default: Defaults) -> Reader:
    """A reader of Qwen3-Next and Qwen3.5: three layers in four are Gated DeltaNet, with one state
    of key dim x value dim for every value head."""

    def read(fields: Fields) -> ModelConfig:
        attention = GQA(*attention_shapes(fields, default))
        count = layer_count(fields, default)
        kinds = layer_kinds(fields, count, KINDS)
        if kinds is None:
            every = fields.integer("full_attention_interval", default=4)
            kinds = [KINDS[(i + 1) % every == 0] for i in range(count)]
        state = delta_state(fields, 16, 32, 128, 128)
        return _mixed(fields, kinds, attention, state, default)

    return read


def delta_state(fields: Fields, key_heads, value_heads, key_dim, value_dim) -> Recurrent:
    """Gated DeltaNet's state; the numbers are the family's defaults."""
    key_heads = fields.integer("linear_num_key_heads", default=key_heads)
    value_heads = fields.integer("linear_num_value_heads", default=value_heads)
    key_dim = fields.integer("linear_key_head_dim", default=key_dim)
    value_dim = fields.integer("linear_value_head_dim", default=value_dim or 2 * key_dim)
    taps = fields.integer("linear_conv_kernel_dim", default=4)
    return Recurrent(
        "gated DeltaNet",
        state=value_heads * key_dim * value_dim,
        conv=(2 * key_heads * key_dim + value_heads * value_dim) * (taps - 1),
    )


OLMO_HYBRID = Defaults(context=65_536, core=(32, 30, 3840))


def read_olmo_hybrid(fields: Fields) -> ModelConfig:
    """Gated DeltaNet in three layers of four; its heads follow the attention's where not given."""
    attention = GQA(*attention_shapes(fields, OLMO_HYBRID))
    count = layer_count(fields, OLMO_HYBRID)
    kinds = layer_kinds(fields, count, KINDS)
    if kinds is None:
        fields.note("layer_types is not in the file; the family's default: one full layer in 4")
        kinds = [KINDS[i % 4 == 3] for i in range(count)]
        if count < 4:
            kinds[-1] = KINDS[1]
    width = fields.core("hidden_size", default=OLMO_HYBRID.core[2])
    heads = attention.heads
    key_heads = fields.integer("linear_num_key_heads", default=heads)
    state = delta_state(fields, heads, heads, int(0.75 * width / key_heads), None)
    return _mixed(fields, kinds, attention, state, OLMO_HYBRID)


MINIMAX = Defaults(context=131_072, core=(32, 32, 4096), kv_heads=8)


def read_minimax(fields: Fields) -> ModelConfig:
    """Lightning attention: one state of head dim x head dim for every head. 1 marks softmax."""
    attention = GQA(*attention_shapes(fields, MINIMAX))
    count = layer_count(fields, MINIMAX)
    marks = fields.sequence("attn_type_list", count, allowed=(0, 1))
    kinds = layer_kinds(fields, count, KINDS)
    if marks is not None:
        marked = [KINDS[mark] for mark in marks]
        if kinds not in (None, marked):
            fields.refuse("attn_type_list and layer_types differ", "they must agree")
        kinds = marked
    if kinds is None and fields.values.get("model_type") == "minimax":
        fields.note(
            "layer_types is not in the file; the family's default is full, linear, full, ..."
        )
        kinds = [KINDS[i % 2 == 0] for i in range(count)]
    if kinds is None:
        fields.refuse("attn_type_list is missing", "it says which layers keep keys and values")
    state = Recurrent("lightning attention", state=attention.heads * attention.head_dim**2)
    return _mixed(fields, kinds, attention, state, MINIMAX)


KIMI_LINEAR = Defaults(context=1_048_576, core=(27, 32, 2304))


def read_kimi_linear(fields: Fields) -> ModelConfig:
    """Kimi Delta Attention beside latent attention: a state of head dim x head dim a head, and
    the last inputs of three convolutions, for queries, keys and values."""
    heads = fields.core("num_attention_heads", default=KIMI_LINEAR.core[1])
    attention = latent_attention(fields, Latent(512, 64, 128, 128, None), heads)
    count = layer_count(fields, KIMI_LINEAR)
    linear = Fields(fields.group("linear_attn_config"), f"{fields.where}: linear_attn_config")
    if linear.values:
        dim, many, taps = (
            linear.integer(*names, default=default)
            for names, default in (
                (("head_dim",), 128), (("num_heads",), 32), (("short_conv_kernel_size",), 4)
            )
        )  # fmt: skip
    else:
        dim = fields.integer("linear_head_dim", default=128)
        many = fields.integer("linear_num_heads", default=32)
        taps = fields.integer("linear_conv_kernel_dim", default=4)
    state = Recurrent("Kimi delta attention", state=many * dim**2, conv=3 * many * dim * (taps - 1))
    fields.notes += linear.notes
    return _mixed(fields, _kimi_kinds(fields, linear, count), attention, state, KIMI_LINEAR)


def _kimi_kinds(fields: Fields, linear: Fields, count: int) -> list[str]:
    """layer_types, or the two lists of layers (the first layer is 1), or the class's pattern."""
    kinds = layer_kinds(fields, count, KINDS)
    if kinds is not None:
        return kinds
    named = {
        kind: linear.sequence(kind, None, allowed=range(1, count + 1))
        for kind in ("full_attn_layers", "kda_layers")
    }
    if None in named.values():
        fields.note("layer_types is not in the file; the family's default: layers 4, 8, 12, ...")
        return [KINDS[i > 0 and i % 4 == 0] for i in range(count)]
    if sorted(named["full_attn_layers"] + named["kda_layers"]) != list(range(1, count + 1)):
        linear.refuse(
            "full_attn_layers and kda_layers do not name each layer once",
            f"layers are numbered 1 to {count}",
        )
    return [KINDS[i + 1 in named["full_attn_layers"]] for i in range(count)]


# ---------------------------------------------------------------- state-space layers


JAMBA = Defaults(context=262_144, core=(32, 32, 4096), kv_heads=8)


def read_jamba(fields: Fields) -> ModelConfig:
    """Mamba: `expand` x width channels, each with a state and the convolution's last inputs."""
    attention = GQA(*attention_shapes(fields, JAMBA), window=fields.optional("sliding_window"))
    state = mamba(
        channels=fields.integer("mamba_expand", default=2) * fields.integer("hidden_size"),
        size=fields.integer("mamba_d_state", default=16),
        taps=fields.integer("mamba_d_conv", default=4),
    )
    period = fields.integer("attn_layer_period", default=8)
    offset = fields.integer("attn_layer_offset", default=4, least=0)
    if offset >= period:
        fields.refuse(
            f"attn_layer_offset is {offset}", f"it must be below attn_layer_period, {period}"
        )
    kinds = [KINDS[i % period == offset] for i in range(layer_count(fields, JAMBA))]
    return _mixed(fields, kinds, attention, state, JAMBA)


def mamba(channels: int, size: int, taps: int) -> Recurrent:
    """Mamba 1: a state of `size` values for every channel, and the convolution's last inputs."""
    return Recurrent("Mamba", state=channels * size, conv=channels * (taps - 1))


def mamba2(heads: int, dim: int, groups: int, size: int, taps: int) -> Recurrent:
    """Mamba 2: a state of head dim x size for every head; the convolution runs over the heads'
    inputs and each group's B and C."""
    channels = heads * dim + 2 * groups * size
    return Recurrent("Mamba 2", state=heads * dim * size, conv=channels * (taps - 1))


NEMOTRON_H = Defaults(context=4096, core=(None, 32, 4096), kv_heads=8, head_dim=128)
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
BLOCKS = {
    "mamba": "state", "linear_attention": "state", "attention": "attention",
    "full_attention": "attention", "mlp": "none", "moe": "none",
}  # fmt: skip


def read_nemotron_h(fields: Fields) -> ModelConfig:
    """One letter a layer: M Mamba 2, * attention, - feed-forward, E experts. The last two mix no
    tokens and keep nothing."""
    attention = GQA(*attention_shapes(fields, NEMOTRON_H))
    state = mamba2(
        heads=fields.integer("mamba_num_heads", default=128),
        dim=fields.integer("mamba_head_dim", default=64),
        groups=fields.integer("n_groups", "mamba_n_groups", default=8),
        size=fields.integer("ssm_state_size", default=128),
        taps=fields.integer("conv_kernel", "mamba_d_conv", default=4),
    )
    kept: dict[str, Attention] = {"state": state, "attention": attention, "none": NoAttention()}
    layers = tuple(Layer(kept[BLOCKS[kind]], None) for kind in _nemotron_kinds(fields))
    return model(fields, layers, NEMOTRON_H)


def _nemotron_kinds(fields: Fields) -> list[str]:
    for name in ("layers_block_type", "layer_types"):
        kinds = fields.sequence(name, None, allowed=tuple(BLOCKS))
        if kinds:
            break
    else:
        pattern = fields.values.get("hybrid_override_pattern")
        if not isinstance(pattern, str) or not pattern or set(pattern) - set(LETTERS):
            fields.refuse(
                f"hybrid_override_pattern is {pattern!r}", "it must be a text of M, *, - and E"
            )
        kinds = [LETTERS[letter] for letter in pattern]
    if fields.has("num_hidden_layers") and fields.layers() != len(kinds):
        fields.refuse(
            f"num_hidden_layers is {fields.layers()}", f"the pattern names {len(kinds)} layers"
        )
    return kinds


def _block_mamba2(fields: Fields) -> Recurrent:
    """Mamba 2 as Bamba and Granite 4 state it."""
    heads = fields.integer("mamba_n_heads", default=128)
    inner = fields.integer("mamba_expand", default=2) * fields.integer("hidden_size")
    dim = inner // heads
    if fields.values.get("mamba_d_head", "auto") not in ("auto", None):
        dim = fields.integer("mamba_d_head")
    if dim * heads != inner:
        fields.refuse(
            f"mamba_n_heads is {heads}", f"heads of {dim} must make {inner} channels together"
        )
    return mamba2_of(fields, heads, dim)


def mamba2_of(fields: Fields, heads: int, dim: int) -> Recurrent:
    """Mamba 2 of so many heads, the rest as Bamba, Granite 4 and Falcon-H1 state it."""
    return mamba2(
        heads=heads,
        dim=dim,
        groups=fields.integer("mamba_n_groups", default=1),
        size=fields.integer("mamba_d_state", default=256),
        taps=fields.integer("mamba_d_conv", default=4),
    )


GRANITE4 = Defaults(context=2048, core=(32, 32, 4096))


def read_granite4(fields: Fields) -> ModelConfig:
    """Granite 4: layer_types says which layers are Mamba 2 and which attend."""
    count = layer_count(fields, GRANITE4)
    kinds = layer_kinds(fields, count, ("mamba", "attention", *KINDS))
    if kinds is None:
        fields.refuse("layer_types is missing", "it says which layers keep keys and values")
    attends = [KINDS[kind in ("attention", KINDS[1])] for kind in kinds]
    attention = GQA(*attention_shapes(fields, GRANITE4))
    if KINDS[0] not in attends:
        return full(GRANITE4)(fields)
    return _mixed(fields, attends, attention, _block_mamba2(fields), GRANITE4)


BAMBA = Defaults(context=262_144, core=(32, 32, 4096), kv_heads=8)


def read_bamba(fields: Fields) -> ModelConfig:
    """attn_layer_indices lists the layers that attend."""
    count = layer_count(fields, BAMBA)
    attending = fields.sequence("attn_layer_indices", None, allowed=range(count)) or []
    kinds = [KINDS[i in attending] for i in range(count)]
    state = _block_mamba2(fields)
    return _mixed(fields, kinds, GQA(*attention_shapes(fields, BAMBA)), state, BAMBA)


QWEN3_5 = Defaults(context=32_768, core=(32, 16, 4096), kv_heads=4, head_dim=256)
QWEN3_5_MOE = Defaults(context=32_768, core=(40, 16, 2048), kv_heads=2, head_dim=256)

READERS: dict[str, Reader] = {
    "qwen3_next": _delta_net(
        Defaults(context=32_768, core=(48, 16, 2048), kv_heads=2, head_dim=256)
    ),
    "qwen3_5": _delta_net(QWEN3_5),
    "qwen3_5_text": _delta_net(QWEN3_5),
    "qwen3_5_moe": _delta_net(QWEN3_5_MOE),
    "qwen3_5_moe_text": _delta_net(QWEN3_5_MOE),
    "olmo_hybrid": read_olmo_hybrid,
    "minimax": read_minimax,
    "minimax_m1": read_minimax,
    "minimax_text_01": read_minimax,
    "kimi_linear": read_kimi_linear,
    "jamba": read_jamba,
    "nemotron_h": read_nemotron_h,
    "granitemoehybrid": read_granite4,
    "bamba": read_bamba,
}
