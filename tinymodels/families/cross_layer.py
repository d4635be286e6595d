"""Hunyuan: neighbouring layers share one set of rows where `use_cla` says so."""

from dataclasses import replace

from ..config import GQA, Layer, ModelConfig
from .fields import Fields
from .plain import Defaults, Reader, attention_shapes, layer_count, model

HUNYUAN = Defaults(context=2048, core=(32, 32, 4096))


def read_hunyuan(fields: Fields) -> ModelConfig:
    """Of `cla_share_factor` layers in a row the first owns keys and values, the others read them.

    Files of models that do not share state the factor too, with `use_cla` false.
    """
    attention = GQA(*attention_shapes(fields, HUNYUAN))
    if fields.flag("use_mla", default=False):
        fields.refuse("use_mla is true", "this family is read with keys and values only")
    share = 1
    if fields.flag("use_cla", default=False):
        share = fields.integer("cla_share_factor", default=1)
    if share > 1:
        fields.note(
            f"{share} layers share one set of rows; an engine that copies them for each layer "
            f"holds {share} times as much"
        )
    owners = [i - i % share for i in range(layer_count(fields, HUNYUAN))]
    layers = tuple(
        Layer(replace(attention, kv_source=None if owner == i else owner), None)
        for i, owner in enumerate(owners)
    )
    return model(fields, layers, HUNYUAN)


READERS: dict[str, Reader] = {
    "hunyuan": read_hunyuan,
    "hunyuan_v1_dense": read_hunyuan,
    "hunyuan_v1_moe": read_hunyuan,
}
