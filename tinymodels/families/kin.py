"""Llama's kin under names of their own: every layer attends alike, and keeps what Llama's do.

Many came with code of their own and are in no library of classes; their files state the shapes.
"""

from ..config import ModelConfig
from .fields import Fields
from .plain import (
    Defaults,
    Reader,
    attention_shapes,
    by_kind,
    full,
    layer_count,
    layer_kinds,
    model,
    switched,
)

DOTS1 = Defaults(context=2048, core=(62, 32, 4608), kv_heads=32, window=4096)


def read_dots1(fields: Fields) -> ModelConfig:
    """dots.llm1: layers from `max_window_layers` on slide, where there is a `sliding_window`."""
    shapes = attention_shapes(fields, DOTS1)
    count = layer_count(fields, DOTS1)
    window = fields.optional("sliding_window", default=DOTS1.window)
    first = fields.integer("max_window_layers", default=62, least=0)
    kinds = layer_kinds(fields, count, ("full_attention", "sliding_attention"))
    if kinds is None:
        near = [window is not None and i >= first for i in range(count)]
        kinds = ["sliding_attention" if slides else "full_attention" for slides in near]
    return model(fields, by_kind(fields, count, kinds, shapes, window), DOTS1)


ERNIE_VL = Defaults(context=131_072, core=(28, 20, 2560), kv_heads=4, tied=True)
MINICPM_V = switched(  # its file is flat: Qwen's fields, and those of the picture beside them
    Defaults(context=32_768, window=4096), lambda layer, first: layer >= first
)

READERS: dict[str, Reader] = {
    "arcee": full(Defaults(context=4096, core=(32, 32, 2560))),
    "arctic": full(Defaults(context=4096)),
    "bailing_moe": full(Defaults(context=16_384)),
    "bailing_moe_v2": full(Defaults(context=16_384)),
    "dots1": read_dots1,
    "ernie4_5_moe_vl": full(ERNIE_VL),
    "ernie4_5_vl_moe_text": full(ERNIE_VL),
    "granitemoeshared": full(Defaults(context=2048, core=(32, 32, 4096))),
    "helium": full(Defaults(context=4096, core=(24, 20, 2560), kv_heads=20, head_dim=128)),
    "internlm": full(Defaults(context=2048)),
    "internlm3": full(Defaults(context=32_768, core=(48, 32, 4096), kv_heads=2, head_dim=128)),
    "minicpmo": MINICPM_V,
    "minicpmv": MINICPM_V,
    "mimo": switched(  # Qwen 2's class
        Defaults(context=32_768, kv_heads=32, window=4096), lambda layer, first: layer >= first
    ),
    "minicpm": full(Defaults(context=2048)),
    "molmo": full(Defaults(context=2048)),
    "persimmon": full(Defaults(context=16_384, core=(36, 64, 4096))),
    "solar_open": full(Defaults(context=131_072, core=(48, 64, 4096), kv_heads=8, head_dim=128)),
    "stablelm_epoch": full(Defaults(context=4096, kv_heads=32)),
    "Yi": full(Defaults(context=4096, kv_heads=4)),
}
