"""Gemma and gpt-oss: sliding and full layers take turns; in Gemma 4 late layers own nothing."""

from ..config import GQA, Layer, ModelConfig
from .fields import Fields
from .plain import Defaults, attention_shapes, layer_kinds, model

KINDS = ("sliding_attention", "full_attention")


def _turns(fields: Fields, count: int, every: int | None, first: str) -> list[str]:
    """layer_types, or the family's pattern: one full layer in `every`.

    first: which kind opens a turn of two; longer turns end with the full layer.
    """
    kinds = layer_kinds(fields, count, KINDS)
    if kinds is not None:
        return kinds
    if fields.has("sliding_window_pattern", "_sliding_window_pattern"):
        every = fields.integer("sliding_window_pattern", "_sliding_window_pattern")
    else:
        fields.note(
            f"layer_types is not in the file; the family's pattern is one full layer in {every}, "
            f"starting with a {first.split('_')[0]} one"
        )
    full = every - 1 if first == "sliding_attention" else 0
    return [KINDS[i % every == full] for i in range(count)]


def _alternating(default: Defaults, every: int, first: str = "sliding_attention", tied=True):
    """A reader of models that alternate and share the same heads in both kinds."""

    def read(fields: Fields) -> ModelConfig:
        heads, kv_heads, dim = attention_shapes(fields, default)
        kinds = _turns(fields, fields.layers(), every, first)
        window = fields.integer("sliding_window", default=default.window)
        near, far = (Layer(GQA(heads, kv_heads, dim, window=w), None) for w in (window, None))
        layers = tuple(near if kind == "sliding_attention" else far for kind in kinds)
        return model(fields, layers, default.context, tied=tied)

    return read


def read_gemma(fields: Fields) -> ModelConfig:
    """The first Gemma: all layers full, heads of 256 whatever the width."""
    default = Defaults(context=8192, kv_heads=16, head_dim=256)
    heads, kv_heads, dim = attention_shapes(fields, default)
    layers = (Layer(GQA(heads, kv_heads, dim), None),) * fields.layers()
    return model(fields, layers, default.context, tied=True)


GEMMA4 = Defaults(context=131_072, kv_heads=4, head_dim=256, window=512)


def read_gemma4(fields: Fields) -> ModelConfig:
    """Full layers have larger heads of their own, and the last `num_kv_shared_layers` layers read
    the rows of the nearest earlier layer of their kind."""
    heads, kv_heads, dim = attention_shapes(fields, GEMMA4)
    count = fields.layers()
    kinds = _turns(fields, count, 6, "sliding_attention")
    if kinds[-1] != "full_attention":
        fields.note(
            "the last layer is full, as the family's class makes it, whatever layer_types says"
        )
        kinds = [*kinds[:-1], "full_attention"]
    window = fields.integer("sliding_window", default=GEMMA4.window)
    global_dim = fields.integer("global_head_dim", default=512)
    global_heads = kv_heads
    if fields.flag("attention_k_eq_v", default=False):
        global_heads = fields.integer("num_global_key_value_heads", default=kv_heads)
        fields.note(
            "full layers make values from the key projection; both are kept, as keys are turned"
        )
    own = count - fields.integer("num_kv_shared_layers", default=0, least=0)
    if own < 1:
        fields.refuse(
            f"num_kv_shared_layers is {count - own}", f"fewer than {count} layers can share"
        )

    def attention(i: int, kind: str) -> GQA:
        source = None if i < own else _latest(fields, kinds[:own], kind)
        if kind == "full_attention":
            return GQA(heads, global_heads, global_dim, kv_source=source)
        return GQA(heads, kv_heads, dim, window=window, kv_source=source)

    layers = tuple(Layer(attention(i, kind), None) for i, kind in enumerate(kinds))
    return model(fields, layers, GEMMA4.context, tied=True)


def _latest(fields: Fields, kinds: list[str], kind: str) -> int:
    """The last layer of a kind among those that keep rows."""
    if kind not in kinds:
        fields.refuse(f"no layer that keeps rows is of kind {kind}", "a sharing layer needs one")
    return len(kinds) - 1 - kinds[::-1].index(kind)


_GEMMA3 = _alternating(Defaults(context=131_072, kv_heads=4, head_dim=256, window=4096), every=6)

READERS = {
    "gemma": read_gemma,
    "gemma2": _alternating(Defaults(context=8192, kv_heads=4, head_dim=256, window=4096), every=2),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma4": read_gemma4,
    "gemma4_text": read_gemma4,
    "gpt_oss": _alternating(
        Defaults(context=131_072, kv_heads=8, head_dim=64, window=128), every=2, tied=False
    ),
}
