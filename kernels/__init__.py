"""Attention kernels in Triton, one a file, each beside a twin in plain torch.

`from kernels import decode_attention` gives the public function of
`kernels/decode_attention.py`. Importing `kernels` imports neither torch nor triton;
it only arranges that triton, whoever imports it first, finds its backend chosen
(see `kernels.backend`).

To add a kernel: write `kernels/NAME.py` with what `kernels/gates.py` lists, and add NAME
to `KERNELS`.
"""

import importlib
import sys
import types

from kernels import first_import

# Every kernel that `check`, `compile` and `bench` know. One line a kernel.
KERNELS = (
    "first_kernels",
    "flash_attention",
    "decode_attention",
    "mla_decode",
    "select_topk",
    "candidate_blocks",
    "indexer_scores",
    "quantise",
    "group_pool",
    "hyper_connection",
    "sparse_attention",
    "sparse_attention_fp4",
    "moe_experts",
)

__all__ = ["KERNELS", *KERNELS]


class _Package(types.ModuleType):
    """A package in which a kernel's name is the function, never the module of that name.

    Importing `kernels.decode_attention` makes Python store the module as an attribute of
    the package; here the function of the same name is stored instead.
    """

    def __setattr__(self, name, value):
        if name in KERNELS and isinstance(value, types.ModuleType):
            value = getattr(value, name, value)  # a file of several kernels stays a module
        super().__setattr__(name, value)


def __getattr__(name):
    if name in KERNELS:
        importlib.import_module(f"{__name__}.{name}")
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *KERNELS})


sys.modules[__name__].__class__ = _Package
first_import.watch()
