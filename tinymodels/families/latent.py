"""Latent attention outside DeepSeek: GLM-4.7 Flash and GLM-5, MiniCPM 3, Mistral 4, LongCat.

What is read here is what decides the cache; experts and routers are left undescribed.
"""

from dataclasses import dataclass, replace

from ..config import MLA, Indexer, Layer, ModelConfig, Rope
from .fields import Fields
from .plain import Defaults, Reader, model


@dataclass(frozen=True)
class Latent:
    """What a family's published class takes where a file is silent. q_rank None: no query
    latent. Not all of these reach the cache: rows are `kv_rank + rope_dim` values wide."""

    kv_rank: int
    rope_dim: int
    nope_dim: int
    v_dim: int
    q_rank: int | None


def latent_attention(fields: Fields, default: Latent, heads: int) -> MLA:
    rope_dim = fields.integer("qk_rope_head_dim", default=default.rope_dim)
    return MLA(
        heads=heads,
        nope_dim=fields.integer("qk_nope_head_dim", default=default.nope_dim),
        rope_dim=rope_dim,
        v_dim=fields.integer("v_head_dim", default=default.v_dim),
        kv_rank=fields.integer("kv_lora_rank", default=default.kv_rank),
        q_rank=fields.optional("q_lora_rank", default=default.q_rank),
        rope=Rope(rope_dim),
    )


def _uniform(default: Defaults, shapes: Latent) -> Reader:
    def read(fields: Fields) -> ModelConfig:
        heads = fields.core("num_attention_heads", default=default.core[1])
        attention = latent_attention(fields, shapes, heads)
        count = fields.layers(default=default.core[0])
        return model(fields, (Layer(attention, None),) * count, default)

    return read


GLM5 = Defaults(context=202_752, core=(78, 64, 6144))


def read_glm_dsa(fields: Fields) -> ModelConfig:
    """GLM-5: V3.2's sparse attention; a "shared" layer takes the choice of the last "full" one
    and keeps no index keys."""
    heads = fields.core("num_attention_heads", default=GLM5.core[1])
    shared = latent_attention(fields, Latent(512, 64, 192, 256, 2048), heads)
    indexer = Indexer(
        heads=fields.integer("index_n_heads", default=32),
        dim=fields.integer("index_head_dim", default=128),
        top_k=fields.integer("index_topk", default=2048),
        rope_dim=shared.rope_dim,
        fmt="fp8",
    )
    count = fields.layers(default=GLM5.core[0])
    kinds = _indexer_kinds(fields, count)
    if kinds[0] != "full":
        fields.refuse("the first layer shares its choice", "there is no layer before it")
    own = replace(shared, indexer=indexer)
    layers = tuple(Layer(own if kind == "full" else shared, None) for kind in kinds)
    return model(fields, layers, GLM5)


def _indexer_kinds(fields: Fields, count: int) -> list[str]:
    """Who chooses: indexer_types; index_topk_pattern; or every `index_topk_freq`-th layer."""
    kinds = fields.sequence("indexer_types", count, allowed=("full", "shared"))
    if kinds is not None:
        return kinds
    pattern = fields.values.get("index_topk_pattern")
    if pattern is not None:
        letters = list(pattern) if isinstance(pattern, str) else []
        if len(letters) != count or set(letters) - {"F", "S"}:
            fields.refuse(
                f"index_topk_pattern is {pattern!r}", f"it must be {count} letters, F or S"
            )
        return ["full" if letter == "F" else "shared" for letter in letters]
    every = fields.integer("index_topk_freq", default=1)
    offset = fields.integer("index_skip_topk_offset", default=2, least=0)
    return ["shared" if max(i - offset + 1, 0) % every else "full" for i in range(count)]


LONGCAT = Defaults(context=131_072, core=(28, 64, 6144))


def read_longcat(fields: Fields) -> ModelConfig:
    """LongCat Flash: two attentions in each of its `num_layers` blocks, each with its own rows."""
    heads = fields.core("num_attention_heads", default=LONGCAT.core[1])
    attention = latent_attention(fields, Latent(512, 64, 128, 128, 1536), heads)
    blocks = fields.layers("num_layers", default=LONGCAT.core[0])
    fields.note("each block holds two attentions, counted here as two layers")
    return model(fields, (Layer(attention, None),) * (2 * blocks), LONGCAT)


READERS: dict[str, Reader] = {
    "glm4_moe_lite": _uniform(
        Defaults(context=202_752, core=(47, 20, 2048)), Latent(512, 64, 192, 256, 768)
    ),
    "glm_moe_dsa": read_glm_dsa,
    "minicpm3": _uniform(
        Defaults(context=32_768, core=(62, 40, 2560), tied=True), Latent(256, 32, 64, 64, 768)
    ),
    "mistral4": _uniform(
        Defaults(context=1_048_576, core=(36, 32, 4096)), Latent(256, 64, 64, 128, 1024)
    ),
    "longcat_flash": read_longcat,
}
