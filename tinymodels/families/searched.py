"""Models whose layers were chosen one by one: Nemotron Super and Ultra, `nemotron-nas`."""

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


READERS: dict[str, Reader] = {"nemotron-nas": read_nemotron_nas}
