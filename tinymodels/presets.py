"""The published models, scaled down: the same kinds of layers in the same order, fewer of each.

Each is a function that returns a `ModelConfig`. About a quarter of a million parameters: they
train on a laptop.
"""

from .config import GQA, Dense, ModelConfig, Rope, uniform


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
