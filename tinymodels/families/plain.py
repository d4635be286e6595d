"""Llama and its kin: every layer keeps keys and values of the same heads, sliding or not."""

from dataclasses import dataclass

from ..config import GQA, Dense, Layer, ModelConfig, Rope
from .fields import Fields


@dataclass(frozen=True)
class Defaults:
    """What a family's published configuration class takes where a file is silent.

    kv_heads None: as many as query heads. head_dim None: width / heads. window None: none.
    """

    context: int
    kv_heads: int | None = None
    head_dim: int | None = None
    window: int | None = None


def attention_shapes(fields: Fields, default: Defaults) -> tuple[int, int, int]:
    """(query heads, kv heads, head dim), and whether they fit together."""
    heads = fields.integer("num_attention_heads")
    if fields.has("num_key_value_heads"):
        kv_heads = fields.integer("num_key_value_heads")
    else:
        kv_heads = default.kv_heads or heads
        fields.note(f"num_key_value_heads is not in the file; the family's default is {kv_heads}")
    if heads % kv_heads:
        fields.refuse(
            f"num_key_value_heads is {kv_heads}", f"it must divide the {heads} query heads"
        )
    return heads, kv_heads, head_dim(fields, heads, default.head_dim)


def head_dim(fields: Fields, heads: int, default: int | None = None) -> int:
    """head_dim where stated, else the family's default, else width / heads."""
    if fields.has("head_dim"):
        return fields.integer("head_dim")
    if default is not None:
        fields.note(f"head_dim is not in the file; the family's default is {default}")
        return default
    width = fields.integer("hidden_size")
    if width % heads:
        fields.refuse(
            f"hidden_size is {width} and num_attention_heads {heads}",
            "head_dim is not given, so the heads must divide the width",
        )
    return width // heads


def layer_kinds(fields: Fields, count: int, kinds: tuple[str, ...]) -> list[str] | None:
    """layer_types, where the file gives them."""
    return fields.sequence("layer_types", count, allowed=kinds)


def model(fields: Fields, layers: tuple[Layer, ...], context: int, **more) -> ModelConfig:
    """The model of these layers; names and notes are filled in by `config_from`."""
    return ModelConfig(
        name="config",
        vocab=fields.integer("vocab_size") if fields.has("vocab_size") else None,
        width=fields.integer("hidden_size") if fields.has("hidden_size") else None,
        layers=layers,
        context=fields.integer("max_position_embeddings", default=context),
        tied=fields.flag("tie_word_embeddings", default=more.pop("tied", False)),
        **more,
    )


# ---------------------------------------------------------------- the families


def read_llama(fields: Fields) -> ModelConfig:
    """Llama 1 to 3, DeepSeek 67B: described whole, so it can be built as well as counted."""
    default = Defaults(context=2048)
    heads, kv_heads, dim = attention_shapes(fields, default)
    rope = Rope(dim, theta=rope_theta(fields), pairs="half")
    attention = GQA(heads, kv_heads, dim, rope=rope)
    described = fields.has("intermediate_size") and not fields.flag("attention_bias", default=False)
    ffn = None
    if described:
        ffn = Dense(
            fields.integer("intermediate_size"), bias=fields.flag("mlp_bias", default=False)
        )
    layers = (Layer(attention, ffn),) * fields.layers()
    eps = fields.number("rms_norm_eps", default=1e-6)
    return model(fields, layers, default.context, norm_eps=eps)


def rope_theta(fields: Fields, default: float = 10_000.0) -> float:
    """The base of RoPE, from the older field or the newer nested one."""
    nested = fields.group("rope_parameters")
    if "rope_theta" in nested:
        return Fields(nested, fields.where).number("rope_theta")
    scaling = fields.group("rope_scaling") or nested
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in ("default", None):
        fields.note(f"RoPE scaling of type {kind} does not change the bytes and is not described")
    return fields.number("rope_theta", default=default)


def _sliding(default: Defaults):
    """A reader of models whose layers all slide, or none: by `sliding_window` alone."""

    def read(fields: Fields) -> ModelConfig:
        heads, kv_heads, dim = attention_shapes(fields, default)
        window = fields.optional("sliding_window", default=default.window)
        count = fields.layers()
        kinds = layer_kinds(fields, count, ("full_attention", "sliding_attention"))
        return model(
            fields, _layers(fields, count, kinds, heads, kv_heads, dim, window), default.context
        )

    return read


def _layers(fields, count, kinds, heads, kv_heads, dim, window) -> tuple[Layer, ...]:
    """One layer a kind; without kinds all slide where there is a window."""
    if kinds is None:
        return (Layer(GQA(heads, kv_heads, dim, window=window), None),) * count
    if window is None and "sliding_attention" in kinds:
        fields.refuse("sliding_window is missing", "layer_types has sliding layers")
    return tuple(
        Layer(
            GQA(heads, kv_heads, dim, window=window if kind == "sliding_attention" else None), None
        )
        for kind in kinds
    )


def _qwen(default: Defaults):
    """A reader of Qwen 2 and 3: the window counts only with `use_sliding_window`, and then only
    from layer `max_window_layers` on."""

    def read(fields: Fields) -> ModelConfig:
        heads, kv_heads, dim = attention_shapes(fields, default)
        count = fields.layers()
        kinds = layer_kinds(fields, count, ("full_attention", "sliding_attention"))
        window = None
        if fields.flag("use_sliding_window", default=False):
            window = fields.optional("sliding_window", default=default.window)
            first = fields.integer("max_window_layers", default=28, least=0)
            if kinds is None and window is not None:
                kinds = [
                    "full_attention" if i < first else "sliding_attention" for i in range(count)
                ]
        elif kinds and "sliding_attention" in kinds:
            fields.refuse(
                "layer_types has sliding layers", "use_sliding_window says there are none"
            )
        layers = _layers(fields, count, kinds, heads, kv_heads, dim, window)
        return model(fields, layers, default.context)

    return read


READERS = {
    "llama": read_llama,
    "mistral": _sliding(Defaults(context=131_072, kv_heads=8, window=4096)),
    "mixtral": _sliding(Defaults(context=131_072, kv_heads=8)),
    "qwen2": _qwen(Defaults(context=32_768, kv_heads=32, window=4096)),
    "qwen2_moe": _qwen(Defaults(context=32_768, kv_heads=16, window=4096)),
    "qwen3": _qwen(Defaults(context=32_768, kv_heads=32, head_dim=128, window=4096)),
    "qwen3_moe": _qwen(Defaults(context=32_768, kv_heads=4, window=4096)),
}
