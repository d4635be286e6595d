"""Make an independent implementation compute in float64 throughout.

Released modelling code turns norms, softmax, rotary angles and routers to float32 inside,
whatever the model's dtype, so even a float64 model is right to about 1e-6 only. These islands
are a choice for speed on GPUs and no part of the mechanism. Lifting them to float64 changes no
operation and lets the comparison be 1e-10 instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch


class _Torch:
    """The torch module, with float32 standing for float64."""

    float32 = torch.float64
    float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextmanager
def float64_throughout(*modules: ModuleType) -> Iterator[None]:
    """While open, `torch.float32` in these modules and `.float()` on any tensor mean float64."""
    before = [m.torch for m in modules], torch.Tensor.float
    for m in modules:
        m.torch = _Torch()
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        for m, was in zip(modules, before[0]):
            m.torch = was
        torch.Tensor.float = before[1]
