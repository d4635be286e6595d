"""Models whose layers were chosen one by one: Nemotron Super and Ultra (`nemotron-nas`), DeciLM,
OpenELM.
"""

from ..config import GQA, Layer, ModelConfig, NoAttention
from .fields import Fields
from .plain import Defaults, Reader, head_dim, model

NEMOTRON_NAS = Defaults(context=131_072)


def read_nemotron_nas(fields: Fields) -> ModelConfig:
    """`block_configs` says of each layer how many query heads share a kv head, or that there is
    no attention (`no_op`) or a linear map in its place; both keep nothing."""
    heads = fields.core("num_attention_heads")
    dim = head_dim(fields, heads, NEMOTRON_NAS)
    blocks = fields.sequence("block_configs", fields.layers())
    if blocks is None:
        fields.refuse("block_configs is missing", "it says which layers keep keys and values")
    kept = (_attention(fields, i, block, heads, dim) for i, block in enumerate(blocks))
    return model(fields, tuple(Layer(attention, None) for attention in kept), NEMOTRON_NAS)


def _attention(fields: Fields, i: int, block, heads: int, dim: int) -> GQA | NoAttention:
    stated = block.get("attention") if isinstance(block, dict) else None
    if not isinstance(stated, dict):
        fields.refuse(f"block_configs[{i}] is {block!r}", "it must be an object with 'attention'")
    own = Fields(stated, f"{fields.where}: block_configs[{i}].attention")
    skips = [own.flag(name, default=False) for name in ("no_op", "replace_with_linear")]
    if any(skips):
        return NoAttention()
    if own.has("num_sink_tokens") or own.has("window_length"):
        own.refuse("num_sink_tokens or window_length is given", "only full layers can be read")
    share = own.integer("n_heads_in_group")
    if heads % share:
        own.refuse(f"n_heads_in_group is {share}", f"it must divide the {heads} query heads")
    return GQA(heads, heads // share, dim)


DECILM = Defaults(context=8192)


def read_decilm(fields: Fields) -> ModelConfig:
    """DeciLM: `num_key_value_heads_per_layer`, or the block_configs of its successors."""
    if fields.has("block_configs"):
        return read_nemotron_nas(fields)
    heads = fields.core("num_attention_heads")
    dim = head_dim(fields, heads, DECILM)
    kv_heads = _one_each(fields, "num_key_value_heads_per_layer", fields.layers())
    return model(fields, tuple(Layer(GQA(heads, n, dim), None) for n in kv_heads), DECILM)


def read_openelm(fields: Fields) -> ModelConfig:
    """OpenELM: later layers have more heads."""
    dim = fields.integer("head_dim", default=128)
    count = fields.layers("num_transformer_layers")
    heads = _one_each(fields, "num_query_heads", count)
    kv_heads = _one_each(fields, "num_kv_heads", count)
    return ModelConfig(
        name="config",
        vocab=fields.integer("vocab_size") if fields.has("vocab_size") else None,
        width=fields.integer("model_dim"),
        layers=tuple(Layer(GQA(q, kv, dim), None) for q, kv in zip(heads, kv_heads)),
        context=fields.integer("max_context_length", default=2048),
        tied=fields.flag("share_input_output_layers", default=True),
    )


def _one_each(fields: Fields, name: str, count: int) -> list[int]:
    """A list of heads, one number a layer."""
    found = fields.sequence(name, count, allowed=range(1, 1025))
    if found is None:
        fields.refuse(f"{name} is missing", f"it must give one number for each of {count} layers")
    return found


READERS: dict[str, Reader] = {
    "nemotron-nas": read_nemotron_nas,
    "deci": read_decilm,
    "openelm": read_openelm,
}
