"""Models in which every layer attends alike: Llama and its kin, with or without a window."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..config import GQA, Dense, Layer, ModelConfig, Rope
from .fields import Fields


@dataclass(frozen=True)
class Defaults:
    """What a family's published configuration class takes where a file is silent.

    core: (layers, query heads, width), taken in a nested text_config only (`Fields.core`).
    kv_heads None: as many as query heads. head_dim None: width / heads. window None: none.
    """

    context: int
    core: tuple[int, int, int] | tuple[None, None, None] = (None, None, None)
    kv_heads: int | None = None
    head_dim: int | None = None
    window: int | None = None
    tied: bool = False


def layer_count(fields: Fields, default: Defaults) -> int:
    return fields.layers(default=default.core[0])


def attention_shapes(fields: Fields, default: Defaults) -> tuple[int, int, int]:
    """(query heads, kv heads, head dim), and whether they fit together."""
    heads = fields.core("num_attention_heads", default=default.core[1])
    if fields.has("num_key_value_heads"):
        kv_heads = fields.integer("num_key_value_heads")
    elif fields.null("num_key_value_heads"):
        kv_heads = heads
        fields.note(f"num_key_value_heads is null: as many as query heads, {heads}")
    else:
        kv_heads = default.kv_heads or heads
        fields.note(f"num_key_value_heads is not in the file; the family's default is {kv_heads}")
    if heads % kv_heads:
        fields.refuse(
            f"num_key_value_heads is {kv_heads}", f"it must divide the {heads} query heads"
        )
    return heads, kv_heads, head_dim(fields, heads, default)


def head_dim(fields: Fields, heads: int, default: Defaults) -> int:
    """head_dim where stated, else the family's default, else (or where it is null) width / heads.

    The first Nemotron-H files call it attention_head_dim.
    """
    if fields.has("head_dim", "attention_head_dim"):
        return fields.integer("head_dim", "attention_head_dim")
    if default.head_dim is not None and not fields.null("head_dim", "attention_head_dim"):
        fields.note(f"head_dim is not in the file; the family's default is {default.head_dim}")
        return default.head_dim
    width = fields.core("hidden_size", default=default.core[2])
    if width % heads:
        fields.refuse(
            f"hidden_size is {width} and num_attention_heads {heads}",
            "head_dim is not given, so the heads must divide the width",
        )
    return width // heads


def layer_kinds(fields: Fields, count: int, kinds: tuple[str, ...]) -> list[str] | None:
    """layer_types, where the file gives them."""
    return fields.sequence("layer_types", count, allowed=kinds)


def model(fields: Fields, layers: tuple[Layer, ...], default: Defaults, **more) -> ModelConfig:
    """The model of these layers; names and notes are filled in by `config_from`.

    Some wrappers state a hidden_size of their own; who needs it for the bytes has read it before.
    """
    widths = fields.inner_first()
    return ModelConfig(
        name="config",
        vocab=fields.integer("vocab_size") if fields.has("vocab_size") else None,
        width=widths.integer("hidden_size") if widths.has("hidden_size") else default.core[2],
        layers=layers,
        context=_context(fields, default),
        tied=fields.flag("tie_word_embeddings", default=default.tied),
        **more,
    )


def _context(fields: Fields, default: Defaults) -> int:
    """max_position_embeddings, or the longer `model_max_length` of Command R and Baichuan."""
    longer = fields.values.get("model_max_length")
    if not isinstance(longer, int) or isinstance(longer, bool) or not 0 < longer <= LONGEST:
        return fields.integer("max_position_embeddings", default=default.context)
    own = fields.integer("max_position_embeddings", default=longer)
    if longer > own:
        fields.note(f"model_max_length is {longer}, more than max_position_embeddings, {own}")
    return max(own, longer)


# ---------------------------------------------------------------- the families

LONGEST = 10**8  # a longer "maximum" stands for none

Reader = Callable[[Fields], ModelConfig]

LLAMA = Defaults(context=2048, core=(32, 32, 4096))


def read_llama(fields: Fields) -> ModelConfig:
    """Llama 1 to 3, DeepSeek 67B: described whole, so it can be built as well as counted."""
    heads, kv_heads, dim = attention_shapes(fields, LLAMA)
    rope = Rope(dim, theta=rope_theta(fields), pairs="half")
    attention = GQA(heads, kv_heads, dim, rope=rope)
    described = fields.has("intermediate_size") and not fields.flag("attention_bias", default=False)
    ffn = None
    if described:
        ffn = Dense(
            fields.integer("intermediate_size"), bias=fields.flag("mlp_bias", default=False)
        )
    layers = (Layer(attention, ffn),) * layer_count(fields, LLAMA)
    eps = fields.number("rms_norm_eps", default=1e-6)
    return model(fields, layers, LLAMA, norm_eps=eps)


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


def full(default: Defaults) -> Reader:
    """A reader of models whose layers all keep everything."""

    def read(fields: Fields) -> ModelConfig:
        attention = GQA(*attention_shapes(fields, default))
        if fields.has("sliding_window") and fields.flag("use_sliding_window", default=True):
            window = fields.integer("sliding_window")
            fields.note(f"sliding_window is {window}, but this family's layers keep every row")
        return model(fields, (Layer(attention, None),) * layer_count(fields, default), default)

    return read


def sliding(default: Defaults) -> Reader:
    """A reader of models whose layers all slide, or none: by `sliding_window` alone."""

    def read(fields: Fields) -> ModelConfig:
        shapes = attention_shapes(fields, default)
        window = fields.optional("sliding_window", default=default.window)
        count = layer_count(fields, default)
        kinds = layer_kinds(fields, count, ("full_attention", "sliding_attention"))
        return model(fields, by_kind(fields, count, kinds, shapes, window), default)

    return read


def by_kind(fields, count, kinds, shapes, window) -> tuple[Layer, ...]:
    """One layer a kind; without kinds all slide where there is a window."""
    sizes: dict[str, Any] = dict(zip(("heads", "kv_heads", "head_dim"), shapes))
    near, far = (Layer(GQA(**sizes, window=w), None) for w in (window, None))
    if kinds is None:
        return (near,) * count
    if window is None and "sliding_attention" in kinds:
        fields.refuse("sliding_window is missing", "layer_types has sliding layers")
    return tuple(near if kind == "sliding_attention" else far for kind in kinds)


def switched(default: Defaults, slides: Callable[[int, int], bool], first: int | None = 28):
    """A reader of Qwen 2 and 3 and others with a switch: `use_sliding_window` must be true for
    `sliding_window` to count.

    slides(layer, first): which layers slide then, where `layer_types` does not say so. first:
    the default of `max_window_layers`; None: the family has no such field.
    """

    def read(fields: Fields) -> ModelConfig:
        shapes = attention_shapes(fields, default)
        count = layer_count(fields, default)
        kinds = layer_kinds(fields, count, ("full_attention", "sliding_attention"))
        window = None
        for name in ("sliding_window", "max_window_layers"):  # a slip is one though unused
            fields.optional(name, least=0)
        if fields.flag("use_sliding_window", default=False):
            window = fields.optional("sliding_window", default=default.window)
            start = 0
            if first is not None:
                start = fields.integer("max_window_layers", default=first, least=0)
            if kinds is None and window is not None:
                turns = [slides(i, start) for i in range(count)]
                kinds = ["sliding_attention" if turn else "full_attention" for turn in turns]
        elif kinds and "sliding_attention" in kinds:
            fields.refuse(
                "layer_types has sliding layers", "use_sliding_window says there are none"
            )
        return model(fields, by_kind(fields, count, kinds, shapes, window), default)

    return read


def _from(layer: int, first: int) -> bool:
    return layer >= first


def _fourth(layer: int, first: int) -> bool:
    return (layer + 1) % 4 == 0


def _every_other_before(layer: int, first: int) -> bool:
    return layer % 2 == 0 and layer < first


QWEN2_VL = Defaults(context=32_768, core=(80, 64, 8192), kv_heads=8, window=4096)
QWEN3_VL = Defaults(context=128_000, core=(32, 32, 4096), kv_heads=32, head_dim=128)
GLM4V = Defaults(context=32_768, core=(40, 32, 4096), kv_heads=2)
QWEN3_VL_MOE = Defaults(context=128_000, core=(24, 16, 2048), kv_heads=16, tied=True)

READERS: dict[str, Reader] = {
    "llama": read_llama,
    "deepseek": full(LLAMA),  # DeepSeekMoE 16B: its experts are not described
    "internlm2": full(Defaults(context=2048)),
    "baichuan": full(Defaults(context=4096)),
    "mistral": sliding(
        Defaults(context=131_072, core=(32, 32, 4096), kv_heads=8, window=4096),
    ),
    "ministral": sliding(Defaults(context=131_072, core=(32, 32, 4096), kv_heads=8, window=4096)),
    "ministral3": sliding(Defaults(context=262_144, core=(34, 32, 4096), kv_heads=8, head_dim=128)),
    "mixtral": sliding(Defaults(context=131_072, core=(32, 32, 4096), kv_heads=8)),
    "qwen2": switched(
        Defaults(context=32_768, core=(32, 32, 4096), kv_heads=32, window=4096), _from
    ),
    "qwen2_moe": switched(
        Defaults(context=32_768, core=(24, 16, 2048), kv_heads=16, window=4096),
        _every_other_before,
    ),
    "qwen2_vl": switched(QWEN2_VL, _from, first=80),
    "qwen2_vl_text": switched(QWEN2_VL, _from, first=80),
    "qwen2_5_vl": switched(QWEN2_VL, _from, first=80),
    "qwen2_5_vl_text": switched(QWEN2_VL, _from, first=80),
    "qwen2_5_omni_text": switched(
        Defaults(context=32_768, core=(28, 28, 3584), kv_heads=4, window=32_768, tied=True), _from
    ),
    "qwen3": switched(
        Defaults(context=32_768, core=(32, 32, 4096), kv_heads=32, head_dim=128, window=4096),
        _from,
    ),
    "qwen3_moe": switched(
        Defaults(context=32_768, core=(24, 32, 2048), kv_heads=4, window=4096), _from, first=None
    ),
    "qwen3_omni_moe_text": switched(Defaults(context=32_768, kv_heads=4), _from, first=None),
    "qwen3_vl": full(QWEN3_VL),
    "qwen3_vl_text": full(QWEN3_VL),
    "qwen3_vl_moe": full(QWEN3_VL_MOE),
    "qwen3_vl_moe_text": full(QWEN3_VL_MOE),
    "phi": full(Defaults(context=2048, core=(24, 32, 2048))),
    "phi3": sliding(Defaults(context=4096, core=(32, 32, 3072))),
    "phi3_v": sliding(Defaults(context=4096)),
    "phi3small": full(Defaults(context=8192, kv_heads=8)),  # block-sparse reads, every row kept
    "phimoe": sliding(Defaults(context=131_072, core=(32, 32, 4096), kv_heads=8)),
    "phi4_multimodal": sliding(Defaults(context=131_072, core=(32, 32, 3072), kv_heads=8)),
    "phi4mm": sliding(Defaults(context=131_072, core=(32, 32, 3072), kv_heads=8)),
    "glm": full(Defaults(context=131_072, core=(40, 32, 4096), kv_heads=2, head_dim=128)),
    "glm4": full(Defaults(context=131_072, core=(40, 32, 4096), kv_heads=2, head_dim=128)),
    "glm4v": full(GLM4V),  # the first files were flat
    "glm4v_text": full(GLM4V),
    "glm4_moe": full(Defaults(context=131_072, kv_heads=8)),
    "glm4v_moe": full(Defaults(context=65_536, kv_heads=8)),
    "glm4v_moe_text": full(Defaults(context=65_536, kv_heads=8)),
    "minimax_m2": full(Defaults(context=196_608, core=(62, 48, 3072), kv_heads=8, head_dim=128)),
    "cohere": full(Defaults(context=8192, core=(40, 64, 8192), tied=True)),
    "olmo": full(Defaults(context=2048, core=(32, 32, 4096))),
    "olmo2": full(Defaults(context=2048, core=(32, 32, 4096))),
    "olmoe": full(Defaults(context=4096, core=(16, 16, 2048))),
    "flex_olmo": full(Defaults(context=4096, core=(32, 32, 4096))),
    "starcoder2": sliding(Defaults(context=4096, core=(30, 24, 3072), kv_heads=2, tied=True)),
    "nemotron": full(Defaults(context=4096, core=(32, 48, 6144))),
    "stablelm": full(Defaults(context=4096, core=(32, 32, 2560), kv_heads=32)),
    "granite": full(Defaults(context=2048, core=(32, 32, 4096))),
    "granitemoe": full(Defaults(context=2048, core=(32, 32, 4096))),
    "seed_oss": full(Defaults(context=524_288, core=(64, 80, 4096), kv_heads=8, head_dim=128)),
    "ernie4_5": full(
        Defaults(context=131_072, core=(18, 16, 1024), kv_heads=2, head_dim=128, tied=True)
    ),
    "ernie4_5_moe": full(Defaults(context=131_072, core=(28, 20, 2560), kv_heads=4, tied=True)),
    "apertus": full(Defaults(context=65_536, core=(32, 32, 4096))),
    "smollm3": switched(  # layers without RoPE slide, if any do
        Defaults(context=32_768, core=(36, 16, 2048), kv_heads=4, tied=True), _fourth, first=None
    ),
}
