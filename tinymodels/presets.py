"""The published models, scaled down: the same kinds of layers in the same order, fewer of each.

Each is a function that returns a `ModelConfig`. About a quarter of a million parameters: they
train on a laptop.
"""

from dataclasses import replace

from .config import GQA, MLA, Dense, Indexer, ModelConfig, MoE, Rope, uniform
from .presets_v4 import tiny_v4 as tiny_v4
from .presets_v4 import tiny_v4_1 as tiny_v4_1


def tiny_v1(layers: int = 4, vocab: int = 256, context: int = 1024) -> ModelConfig:
    """DeepSeek 67B (V1): every layer keeps keys and values of a few shared heads.

    The real one: 95 layers, 64 query heads over 8 kv heads of 128. 512 bytes a token here.
    """
    attention = GQA(heads=4, kv_heads=2, head_dim=16, rope=Rope(16, pairs="half"))
    return ModelConfig(
        name="tiny_v1",
        vocab=vocab,
        width=64,
        layers=uniform(layers, attention, Dense(192)),
        context=context,
    )


LATENT = MLA(heads=4, nope_dim=16, rope_dim=8, v_dim=16, kv_rank=32, q_rank=48, rope=Rope(8))
V2_EXPERTS = MoE(width=24, experts=8, top_k=3, shared=2, groups=4, top_groups=2, scale=2.0)
V3_EXPERTS = MoE(
    width=24,
    experts=8,
    top_k=2,
    shared=1,
    scoring="sigmoid",
    selection_bias=True,
    groups=4,
    top_groups=2,
    normalise=True,
    scale=2.5,
)


def tiny_v2(vocab: int = 256, context: int = 1024) -> ModelConfig:
    """DeepSeek-V2: one latent for all heads, experts from the second layer on.

    The real one: 60 layers, 128 heads, latent 512 + 64, 2 + 160 experts. 320 bytes a token here.
    """
    layers = uniform(1, LATENT, Dense(192)) + uniform(3, LATENT, V2_EXPERTS)
    return ModelConfig("tiny_v2", vocab, 64, layers, context)


def tiny_v2_lite(vocab: int = 256, context: int = 1024) -> ModelConfig:
    """DeepSeek-V2-Lite: as V2, queries straight from the stream, no expert groups.

    The real one: 27 layers, 16 heads, 2 + 64 experts. 240 bytes a token here.
    """
    latent = replace(LATENT, q_rank=None)
    experts = replace(V2_EXPERTS, groups=1, top_groups=1, scale=1.0)
    layers = uniform(1, latent, Dense(192)) + uniform(2, latent, experts)
    return ModelConfig("tiny_v2_lite", vocab, 64, layers, context)


def tiny_v3(vocab: int = 256, context: int = 1024) -> ModelConfig:
    """DeepSeek-V3: V2's memory; experts balanced by a bias instead of a loss.

    The real one: 61 layers, the first 3 dense, 1 + 256 experts. 400 bytes a token here.
    """
    layers = uniform(2, LATENT, Dense(192)) + uniform(3, LATENT, V3_EXPERTS)
    return ModelConfig("tiny_v3", vocab, 64, layers, context)


def tiny_v3_2(vocab: int = 256, context: int = 1024) -> ModelConfig:
    """DeepSeek-V3.2: V3 that reads 24 chosen entries a query, in FP8 rows with an index key.

    The real one reads 2,048 and keeps 656 + 132 bytes a layer; here 52 + 20, 360 bytes a token.
    """
    sparse = replace(LATENT, indexer=Indexer(heads=4, dim=16, top_k=24, rope_dim=8, fmt="fp8"))
    layers = uniform(2, sparse, Dense(192)) + uniform(3, sparse, V3_EXPERTS)
    return ModelConfig("tiny_v3_2", vocab, 64, layers, context, row="fp8")
