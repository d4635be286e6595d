"""V4-Flash and V4.1-Flash, scaled down: the same kinds of layers in the same order, fewer of each.

Windows, groups and choices are small, so that they bind at a few dozen tokens: what is cut off at
a million tokens in the real ones is cut off in a short text here. About 600,000 parameters each,
half of them in the experts.
"""

from dataclasses import replace

from .config import (
    Candidates,
    Grouped,
    HyperConnections,
    Indexer,
    Layer,
    ModelConfig,
    MoE,
    Rope,
    Yarn,
)
from .published_v4 import csa2_layers

NEAR = Rope(8, theta=10_000.0)
FAR = Rope(8, theta=160_000.0, yarn=Yarn(factor=4.0, original_context=256))
SHAPES = dict(heads=4, head_dim=32, rope_dim=8, q_rank=48, out_groups=2, out_rank=32, window=16)
EXPERTS = MoE(
    width=24,
    experts=8,
    top_k=2,
    shared=1,
    scoring="sqrtsoftplus",
    selection_bias=True,
    normalise=True,
    scale=1.5,
    limit=10.0,
)
BY_TABLE = replace(EXPERTS, hash_routed=True, selection_bias=False)


def tiny_v4(vocab: int = 256, context: int = 1024) -> ModelConfig:
    """DeepSeek-V4-Flash: two windows, then CSA and HCA in turns, in FP8 rows; mHC.

    The real one: 43 layers, windows of 128, groups of 4 (512 chosen) and of 128. Here: 7 layers,
    windows of 16, groups of 4 (8 chosen) and of 16; 48.75 bytes a token, 5,376 of windows.
    """
    indexer = Indexer(heads=4, dim=16, top_k=8, rope_dim=8)

    def layer(i: int, ratio: int) -> Layer:
        rope = FAR if ratio else NEAR
        chooses = indexer if ratio == 4 else None
        attention = Grouped(ratio=ratio, rope=rope, indexer=chooses, **SHAPES)
        return Layer(attention, BY_TABLE if i < 3 else EXPERTS)

    return ModelConfig(
        name="tiny_v4",
        vocab=vocab,
        width=64,
        layers=tuple(layer(i, ratio) for i, ratio in enumerate((0, 0, 4, 16, 4, 16, 4))),
        context=context,
        row="fp8",
        residual=HyperConnections(copies=4),
    )


def tiny_v4_1(vocab: int = 256, context: int = 1024) -> ModelConfig:
    """DeepSeek-V4.1-Flash: an encoder and a decoder half (CED) whose layers share (CSA2); FP4.

    The real one: 20 + 20 layers, 4 of which own entries; 512 chosen of 2,048 blocks of 8. Here:
    4 + 4 layers, 2 owners (layers 1 and 4), 8 chosen of 6 blocks of 4; 40.5 bytes a token.
    """
    attentions = csa2_layers(
        ratios=(0, 2, 2, 2, 1, 1, 1, 1),
        kv_sources=(1, 4),
        index_sources=(1, 4, 6),
        candidates=Candidates(source=4, block=4, keep=6),
        indexer=Indexer(heads=4, dim=16, top_k=8, rope_dim=8),
        near=NEAR,
        far=FAR,
        **SHAPES,
    )
    return ModelConfig(
        name="tiny_v4_1",
        vocab=vocab,
        width=64,
        layers=tuple(Layer(attention, EXPERTS) for attention in attentions),
        context=context,
        row="fp4",
        norm_eps=1e-20,
        residual=HyperConnections(copies=4, single_pass=True),
        decoder_start=4,
    )
