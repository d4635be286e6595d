"""Falcon, under its later names and its first ones (RefinedWeb, with n_head and n_layer)."""

from ..config import GQA, Layer, ModelConfig
from .fields import Fields


def read_falcon(fields: Fields) -> ModelConfig:
    """7B: one kv head for all (`multi_query`). 40B and 180B: `num_kv_heads`, once `n_head_kv`."""
    heads = fields.integer("num_attention_heads", "n_head")
    width = fields.integer("hidden_size")
    if width % heads:
        fields.refuse(f"hidden_size is {width}", f"the {heads} heads must divide it")
    kv_heads = _kv_heads(fields, heads)
    if heads % kv_heads:
        fields.refuse(f"num_kv_heads is {kv_heads}", f"it must divide the {heads} query heads")
    layers = fields.layers("num_hidden_layers", "n_layer")
    return ModelConfig(
        name="config",
        vocab=fields.integer("vocab_size") if fields.has("vocab_size") else None,
        width=width,
        layers=(Layer(GQA(heads, kv_heads, width // heads), None),) * layers,
        context=fields.integer("max_position_embeddings", default=2048),
        tied=fields.flag("tie_word_embeddings", default=True),
    )


def _kv_heads(fields: Fields, heads: int) -> int:
    grouped = fields.flag("new_decoder_architecture", default=fields.has("n_head_kv"))
    if grouped:
        return fields.integer("num_kv_heads", "n_head_kv", default=heads)
    if not fields.has("multi_query"):
        fields.note("multi_query is not in the file; the family's default, true, is taken")
    return 1 if fields.flag("multi_query", default=True) else heads


READERS = {"falcon": read_falcon, "RefinedWebModel": read_falcon, "RefinedWeb": read_falcon}
