"""MiMo V2 Flash, whose values are narrower than its keys, and whose near layers have more heads."""

from ..config import GQA, Layer, ModelConfig
from .alternating import KINDS
from .fields import Fields
from .plain import Defaults, Reader, attention_shapes, layer_count, layer_kinds, model

MIMO2 = Defaults(context=131_072, core=(48, 64, 4096), kv_heads=4, head_dim=192, window=129)


def read_mimo_v2_flash(fields: Fields) -> ModelConfig:
    """hybrid_layer_pattern: 0 full, 1 near. sliding_window_size counts the tokens before the new
    one, so one row more is kept."""
    heads, kv_heads, dim = attention_shapes(fields, MIMO2)
    count = layer_count(fields, MIMO2)
    kinds = layer_kinds(fields, count, KINDS)
    marks = fields.sequence("hybrid_layer_pattern", count, allowed=(0, 1))
    if kinds is None and marks is not None:
        kinds = [KINDS[1 - mark] for mark in marks]
    if kinds is None:
        fields.note("layer_types is not in the file; the family's: layer 0 and one in 6 are full")
        kinds = [KINDS[i == 0 or i % 6 == 5] for i in range(count)]
    if fields.has("sliding_window_size"):
        window = fields.integer("sliding_window_size") + 1
    else:
        window = fields.integer("sliding_window", default=MIMO2.window)
    near_heads = fields.integer("swa_num_key_value_heads", default=2 * kv_heads)
    v_dim = fields.integer("v_head_dim", default=128)
    near_dim = fields.integer("swa_head_dim", default=dim)
    near_v = fields.integer("swa_v_head_dim", default=v_dim)
    far = GQA(heads, kv_heads, _pair(fields, dim, v_dim))
    near = GQA(heads, near_heads, _pair(fields, near_dim, near_v), window=window)
    kept = (far if kind == "full_attention" else near for kind in kinds)
    return model(fields, tuple(Layer(attention, None) for attention in kept), MIMO2)


def _pair(fields: Fields, key: int, value: int) -> int:
    """The head dim of equal keys and values that take as much room as these."""
    if (key + value) % 2:
        fields.refuse(f"head_dim is {key} and v_head_dim {value}", "their sum must be even")
    if key != value:
        fields.note(f"keys of {key} and values of {value} are counted as {(key + value) // 2} each")
    return (key + value) // 2


READERS: dict[str, Reader] = {"mimo_v2_flash": read_mimo_v2_flash}
