"""Tiny models with the memory of every DeepSeek generation, from V1 to V4.1-Flash.

Dimension key. Tensors in the maths end with the letters of their dimensions: `query_BTHD`.

    B batch            H query heads     C latent           I indexer heads
    T new tokens       K kv heads        R rope dims        N residual copies
    S cached entries   D head dim        W window           E experts
    V vocabulary       L layers          M ratio            F feed-forward width
    X model width

`import tinymodels` imports no torch: the arithmetic (`ledger`, `published`) answers at once.
`tinymodels.Transformer` and `tinymodels.Parts` are fetched when they are asked for.
"""

from importlib import import_module

_HOMES = {"Transformer": "transformer", "Parts": "parts"}


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
