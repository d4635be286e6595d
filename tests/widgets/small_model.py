"""A model small enough to record in a moment; no dimension equals another."""

from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform

PROMPT = (7, 3, 3)
NEW = 5
WORDS = ("<bos>", "Ada", " Ben", " lives", " in", " a", " tent", ".", " red", "s", "e", "\n", "?")


def pieces(ids):
    return [WORDS[token] for token in ids]


def make_model(window=None, seed=3):
    from tinymodels.transformer import Transformer

    attention = GQA(6, 3, 10, rope=Rope(10, pairs="half"), window=window)
    config = ModelConfig("small", 13, 30, uniform(3, attention, Dense(17)), context=40)
    return Transformer(config, seed=seed).eval()
