"""Named mistakes in exercise 13.8: configurations that are out of the hunt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grading.exercise import Misconception
from tinymodels import frontier
from tinymodels.config import GQA, MLA, Dense, Layer, ModelConfig, Rope
from tinymodels.presets import tiny_v1, tiny_v4_1


def two(near: GQA, far, width: int = 192, **more) -> ModelConfig:
    return ModelConfig(
        "frontier", 256, 64, (Layer(near, Dense(width)), Layer(far, Dense(width))), 1024, **more
    )


NEAR = GQA(4, kv_heads=2, head_dim=16, rope=Rope(16, pairs="half"), window=4)
FAR = GQA(4, kv_heads=1, head_dim=6)


def _one_head() -> ModelConfig:
    v1 = tiny_v1()
    attention: Any = v1.layers[0].attention
    layers = (Layer(replace(attention, kv_heads=1), x.ffn) for x in v1.layers)
    return v1.with_(layers=tuple(layers))


def _borrowing() -> ModelConfig:
    return two(NEAR, replace(FAR, kv_source=0))


FRONTIERS = (
    Misconception(
        "tiny_v1",
        "This is tiny_v1 itself: four layers keep 128 bytes each. Fewer layers with a far memory, "
        "fewer kv heads and a smaller head bring that down.",
        tiny_v1,
    ),
    Misconception(
        "the_lessons",
        "This is the model of the lesson, and its weights are there already. The hunt is for "
        "another: fewer numbers in a row, other layers, another order.",
        lambda: frontier.EXAMPLE,
    ),
    Misconception(
        "one_kv_head",
        "tiny_v1 with one kv head: 256 bytes, still ten times too many. Not every layer needs a "
        "memory that grows.",
        _one_head,
    ),
    Misconception(
        "tiny_v4_1",
        "This is tiny_v4_1: 40.5 bytes a token, a twelfth and not a twentieth, and more parameters "
        "than are allowed.",
        tiny_v4_1,
    ),
    Misconception(
        "everything_in_the_window",
        "A window as long as the text is no saving: nothing grows because everything is held from "
        "the start. At most 16 tokens are allowed.",
        lambda: two(replace(NEAR, window=256), replace(FAR, window=256)),
    ),
    Misconception(
        "both_layers_far",
        "Both layers keep all tokens. The first needs only its neighbours: give it a window.",
        lambda: two(replace(FAR, rope=Rope(6)), FAR),
    ),
    Misconception(
        "eight_numbers",
        "One key and one value of 8 numbers in bf16 are 32 bytes.",
        lambda: two(NEAR, replace(FAR, head_dim=8)),
    ),
    Misconception(
        "latent_of_16",
        "A latent of 16 and a rope key of 4, in bf16, are 40 bytes a token.",
        lambda: two(NEAR, MLA(4, 16, 4, 16, 16, None, Rope(4))),
    ),
    Misconception(
        "bits_on_paper",
        "kv_bits counts bytes and stores nothing so. The measured row is what counts.",
        lambda: two(NEAR, FAR, kv_bits=4),
    ),
    Misconception(
        "too_many_parameters",
        "The bytes are few, but the feed-forward networks are so wide that the model is larger "
        "than tiny_v1.",
        lambda: two(NEAR, FAR, width=600),
    ),
    Misconception(
        "counted_not_run",
        "A layer that borrows another's keys is counted by this course, but not run (kv_source of "
        "GQA). CSA2's layers do borrow.",
        _borrowing,
    ),
    Misconception(
        "another_vocabulary",
        "The games have 256 words, so the model needs as many.",
        lambda: two(NEAR, FAR).with_(vocab=64),
    ),
    Misconception(
        "no_configuration",
        "Text came back instead of a ModelConfig.",
        lambda: "MQA, one layer",
    ),
)
