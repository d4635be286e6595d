"""Models in which most layers keep a state of fixed size, and a few keep keys and values.

A state is counted in values: what linear attention or a state-space layer carries from token to
token, and the last inputs of its short convolution (taps - 1 of them).
"""

from ..config import GQA, Layer, ModelConfig, Recurrent
from .fields import Fields
from .plain import Defaults, attention_shapes, layer_kinds, model

KINDS = ("linear_attention", "full_attention")


def read_qwen3_next(fields: Fields) -> ModelConfig:
    """Gated DeltaNet: one state of key dim x value dim for every value head."""
    default = Defaults(context=32_768, kv_heads=2, head_dim=256)
    full = GQA(*attention_shapes(fields, default))
    key_heads = fields.integer("linear_num_key_heads", default=16)
    value_heads = fields.integer("linear_num_value_heads", default=32)
    key_dim = fields.integer("linear_key_head_dim", default=128)
    value_dim = fields.integer("linear_value_head_dim", default=128)
    taps = fields.integer("linear_conv_kernel_dim", default=4)
    state = Recurrent(
        "gated DeltaNet",
        state=value_heads * key_dim * value_dim,
        conv=(2 * key_heads * key_dim + value_heads * value_dim) * (taps - 1),
    )
    count = fields.layers()
    kinds = layer_kinds(fields, count, KINDS)
    if kinds is None:
        every = fields.integer("full_attention_interval", default=4)
        kinds = [KINDS[(i + 1) % every == 0] for i in range(count)]
    return _mixed(fields, kinds, full, state, default.context)


def read_minimax(fields: Fields) -> ModelConfig:
    """Lightning attention: one state of head dim x head dim for every head. 1 marks softmax."""
    default = Defaults(context=131_072, kv_heads=8)
    full = GQA(*attention_shapes(fields, default))
    count = fields.layers()
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
    state = Recurrent("lightning attention", state=full.heads * full.head_dim**2)
    return _mixed(fields, kinds, full, state, default.context)


def read_jamba(fields: Fields) -> ModelConfig:
    """Mamba: `expand` x width channels, each with a state and the convolution's last inputs."""
    default = Defaults(context=262_144, kv_heads=8)
    full = GQA(*attention_shapes(fields, default), window=fields.optional("sliding_window"))
    channels = fields.integer("mamba_expand", default=2) * fields.integer("hidden_size")
    state = Recurrent(
        "Mamba",
        state=channels * fields.integer("mamba_d_state", default=16),
        conv=channels * (fields.integer("mamba_d_conv", default=4) - 1),
    )
    period = fields.integer("attn_layer_period", default=8)
    offset = fields.integer("attn_layer_offset", default=4, least=0)
    if offset >= period:
        fields.refuse(
            f"attn_layer_offset is {offset}", f"it must be below attn_layer_period, {period}"
        )
    kinds = [KINDS[i % period == offset] for i in range(fields.layers())]
    return _mixed(fields, kinds, full, state, default.context)


def _mixed(fields, kinds: list[str], full: GQA, state: Recurrent, context: int) -> ModelConfig:
    layers = tuple(Layer(full if kind == "full_attention" else state, None) for kind in kinds)
    return model(fields, layers, context)


READERS = {
    "qwen3_next": read_qwen3_next,
    "minimax": read_minimax,
    "minimax_m1": read_minimax,
    "minimax_text_01": read_minimax,
    "jamba": read_jamba,
}
