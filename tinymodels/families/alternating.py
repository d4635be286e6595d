"""Models in which near and full layers take turns; in some, late layers own nothing.

Gemma 2 and 3, gpt-oss, Command A, OLMo 3 and EXAONE 4 slide; Llama 4 looks back inside chunks;
in Gemma 3n and 4 the last layers read the rows of earlier ones; in Llama 3.2 Vision one in five
looks at the image instead.
"""

from dataclasses import replace
from typing import Any

from ..config import GQA, Layer, ModelConfig, NoAttention
from .fields import MOST_LAYERS, Fields
from .plain import Defaults, Reader, attention_shapes, full, layer_count, layer_kinds, model

KINDS = ("sliding_attention", "full_attention")


EVERY = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")


def _turns(fields: Fields, count: int, every: int, first: bool = False) -> list[str]:
    """layer_types, or the family's pattern: one full layer in `every`, the last of each turn, or
    the first. Some files write the pattern as a text: L near, G full, and the last layer full."""
    kinds = layer_kinds(fields, count, KINDS)
    if kinds is not None:
        return kinds
    text = fields.values.get("sliding_window_pattern")
    if isinstance(text, str):
        if not text or set(text) - {"L", "G"}:
            fields.refuse(
                f"sliding_window_pattern is {text!r}", "it must be a text of L and G, or a number"
            )
        return [KINDS[text[i % len(text)] == "G" or i == count - 1] for i in range(count)]
    if fields.has(*EVERY):
        every = fields.integer(*EVERY)
    else:
        fields.note(
            f"layer_types is not in the file; the family's pattern is one full layer in {every}, "
            f"starting with a {'full' if first else 'sliding'} one"
        )
    turn = 0 if first else every - 1
    return [KINDS[i % every == turn] for i in range(count)]


def _alternating(
    default: Defaults, every: int, nullable: bool = False, first: bool = False
) -> Reader:
    """A reader of models whose near and full layers have the same heads.

    nullable: the family allows `sliding_window: null`, and then every layer is full. first:
    whether a turn starts with its full layer.
    """

    def read(fields: Fields) -> ModelConfig:
        shapes = attention_shapes(fields, default)
        count = layer_count(fields, default)
        if nullable and fields.optional("sliding_window", default=default.window) is None:
            kinds, window = ["full_attention"] * count, None
        else:
            kinds = _turns(fields, count, every, first)
            window = fields.integer("sliding_window", default=default.window)
        near, far = (Layer(GQA(*shapes, window=w), None) for w in (window, None))
        layers = tuple(near if kind == "sliding_attention" else far for kind in kinds)
        return model(fields, layers, default)

    return read


LLAMA4 = Defaults(context=131_072, core=(48, 40, 5120), kv_heads=8, head_dim=128)


def read_llama4(fields: Fields) -> ModelConfig:
    """Three layers in four look back inside their chunk only, so they keep at most a chunk."""
    shapes = attention_shapes(fields, LLAMA4)
    count = layer_count(fields, LLAMA4)
    chunk = fields.optional("attention_chunk_size", default=8192)
    kinds = layer_kinds(fields, count, ("chunked_attention", "full_attention"))
    if kinds is None:
        kinds = _by_rope(fields, count, chunk)
    if chunk is None and "chunked_attention" in kinds:
        fields.refuse("attention_chunk_size is missing", "layer_types has chunked layers")
    if "chunked_attention" in kinds:
        fields.note(f"a chunked layer starts anew every {chunk} tokens: it holds at most a chunk")
    near, far = (Layer(GQA(*shapes, window=w), None) for w in (chunk, None))
    layers = tuple(near if kind == "chunked_attention" else far for kind in kinds)
    return model(fields, layers, LLAMA4)


def _by_rope(fields: Fields, count: int, chunk: int | None) -> list[str]:
    """Layers with RoPE (1 in `no_rope_layers`) are chunked, layers without it are full."""
    marks = fields.values.get("no_rope_layers") or None
    if marks is None:
        every = fields.integer("no_rope_layer_interval", default=4)
        fields.note(f"no_rope_layers is not in the file; the family's default: one in {every}")
        marks = [int((i + 1) % every != 0) for i in range(count)]
    else:
        marks = fields.sequence("no_rope_layers", count, allowed=(0, 1))
    return ["chunked_attention" if mark and chunk else "full_attention" for mark in marks]


MLLAMA = Defaults(context=131_072, core=(40, 32, 4096), kv_heads=8)


def read_mllama(fields: Fields) -> ModelConfig:
    """Llama 3.2 Vision: its cross-attention layers look at the image, and hold no token's rows."""
    attention = GQA(*attention_shapes(fields, MLLAMA))
    count = layer_count(fields, MLLAMA)
    crossing = fields.sequence("cross_attention_layers", None, allowed=range(MOST_LAYERS))
    if crossing is None:
        crossing = [*range(3, 40, 5)]
        fields.note("cross_attention_layers is not in the file; the family's: 3, 8, 13, ... 38")
    fields.note("cross-attention layers keep rows of the image, not of the text: not counted")
    kept = (NoAttention() if i in crossing else attention for i in range(count))
    return model(fields, tuple(Layer(a, None) for a in kept), MLLAMA)


GEMMA4 = Defaults(
    context=131_072, core=(30, 8, 2304), kv_heads=4, head_dim=256, window=512, tied=True
)


def read_gemma4(fields: Fields) -> ModelConfig:
    """Full layers have larger heads of their own, and the last `num_kv_shared_layers` layers read
    the rows of the nearest earlier layer of their kind."""
    heads, kv_heads, dim = attention_shapes(fields, GEMMA4)
    count = layer_count(fields, GEMMA4)
    kinds = _turns(fields, count, 6)
    if kinds[-1] != "full_attention":
        fields.note(
            "the last layer is full, as the family's class makes it, whatever layer_types says"
        )
        kinds = [*kinds[:-1], "full_attention"]
    window = fields.integer("sliding_window", default=GEMMA4.window)
    near = GQA(heads, kv_heads, dim, window=window)
    if fields.has("per_layer_config"):
        layers = _sharing(fields, kinds, near, replace(near, window=None), 0)
        return model(fields, _one_by_one(fields, layers), GEMMA4)
    global_dim = fields.integer("global_head_dim", default=512)
    global_heads = kv_heads
    if fields.flag("attention_k_eq_v", default=False):
        global_heads = fields.integer("num_global_key_value_heads", default=kv_heads)
        fields.note(
            "full layers make values from the key projection; both are kept, as keys are turned"
        )
    if heads % global_heads:
        fields.refuse(
            f"num_global_key_value_heads is {global_heads}",
            f"it must divide the {heads} query heads",
        )
    far = GQA(heads, global_heads, global_dim)
    return model(fields, _sharing(fields, kinds, near, far, 0), GEMMA4)


def _one_by_one(fields: Fields, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Newer files give single layers other heads: per_layer_config, {"05": {"head_dim": 512}}."""
    own = {}
    for number, values in fields.group("per_layer_config").items():
        if not number.isdecimal() or int(number) >= len(layers) or not isinstance(values, dict):
            fields.refuse(
                f"per_layer_config holds {number!r}: {values!r}",
                f"it must map layers, 0 to {len(layers) - 1}, to objects",
            )
        own[int(number)] = Fields(values, f"{fields.where}: per_layer_config {number}")

    def changed(i: int, a: Any) -> Any:  # a GQA
        if i not in own:
            return a
        kv_heads = own[i].integer("num_key_value_heads", default=a.kv_heads)
        return replace(
            a, kv_heads=kv_heads, head_dim=own[i].integer("head_dim", default=a.head_dim)
        )

    return tuple(replace(x, attention=changed(i, x.attention)) for i, x in enumerate(layers))


GEMMA3N = Defaults(
    context=32_768, core=(35, 8, 2048), kv_heads=2, head_dim=256, window=512, tied=True
)


def read_gemma3n(fields: Fields) -> ModelConfig:
    """One full layer in five; the last `num_kv_shared_layers` read earlier layers' rows."""
    shapes = attention_shapes(fields, GEMMA3N)
    kinds = _turns(fields, layer_count(fields, GEMMA3N), 5)
    near = GQA(*shapes, window=fields.integer("sliding_window", default=GEMMA3N.window))
    return model(fields, _sharing(fields, kinds, near, GQA(*shapes), 15), GEMMA3N)


def _sharing(fields: Fields, kinds: list[str], near: GQA, far: GQA, shared: int):
    """The layers; those that share read the latest owner of their kind. shared: how many share
    where the file is silent."""
    shared = fields.integer("num_kv_shared_layers", default=shared, least=0)
    own = len(kinds) - shared
    if own < 1:
        fields.refuse(
            f"num_kv_shared_layers is {shared}", f"fewer than {len(kinds)} layers can share"
        )

    def attention(i: int, kind: str) -> GQA:
        source = None if i < own else _latest(fields, kinds[:own], kind)
        return replace(far if kind == "full_attention" else near, kv_source=source)

    return tuple(Layer(attention(i, kind), None) for i, kind in enumerate(kinds))


def _latest(fields: Fields, kinds: list[str], kind: str) -> int:
    """The last layer of a kind among those that keep rows."""
    if kind not in kinds:
        fields.refuse(f"no layer that keeps rows is of kind {kind}", "a sharing layer needs one")
    return len(kinds) - 1 - kinds[::-1].index(kind)


_GEMMA3 = _alternating(
    Defaults(context=131_072, core=(26, 8, 2304), kv_heads=4, head_dim=256, window=4096, tied=True),
    every=6,
)

READERS: dict[str, Reader] = {
    "gemma": full(
        Defaults(context=8192, core=(28, 16, 3072), kv_heads=16, head_dim=256, tied=True)
    ),
    "gemma2": _alternating(
        Defaults(
            context=8192, core=(26, 8, 2304), kv_heads=4, head_dim=256, window=4096, tied=True
        ),
        every=2,
    ),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma3n": read_gemma3n,
    "gemma3n_text": read_gemma3n,
    "gemma4": read_gemma4,
    "gemma4_text": read_gemma4,
    "gpt_oss": _alternating(
        Defaults(context=131_072, core=(36, 64, 2880), kv_heads=8, head_dim=64, window=128), every=2
    ),
    "mllama": read_mllama,
    "mllama_text_model": read_mllama,
    "llama4": read_llama4,
    "llama4_text": read_llama4,
    "cohere2": _alternating(
        Defaults(context=8192, core=(40, 64, 8192), window=4096, tied=True), every=4
    ),
    "vaultgemma": _alternating(
        Defaults(
            context=8192, core=(26, 8, 2304), kv_heads=4, head_dim=256, window=4096, tied=True
        ),
        every=2,
    ),
    "cwm": _alternating(
        Defaults(context=131_072, core=(64, 48, 6144), kv_heads=8, head_dim=128, window=8192),
        every=4,
        first=True,
    ),
    "afmoe": _alternating(
        Defaults(context=16_384, core=(32, 16, 2048), head_dim=128, window=1024), every=4
    ),
    "olmo3": _alternating(Defaults(context=2048, core=(32, 32, 4096), window=4096), every=4),
    "exaone4": _alternating(
        Defaults(context=2048, core=(32, 32, 4096), kv_heads=32, window=4096),
        every=4,
        nullable=True,
    ),
    "exaone_moe": _alternating(
        Defaults(context=2048, core=(32, 32, 4096), kv_heads=32, window=4096),
        every=4,
        nullable=True,
    ),
}
