"""How large the largest tensor is that an answer makes on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LARGEST = "numbers in the largest tensor made"  # what checks call it


class LargestTensor(TorchDispatchMode):
    """Inside `with LargestTensor() as seen:`, `seen.numbers` is how many numbers the largest tensor
    has. A view counts as what it looks at, however far it is stretched; views of what is `given`
    do not count at all.
    """

    def __init__(self, given: Iterable[Any] = ()) -> None:
        # A dispatch mode brings in torch's compiler and with it triton. `kernels` has to come
        # first: it says, before triton is imported, whether kernels are interpreted.
        import kernels  # noqa: F401

        super().__init__()
        tensors = (x for x in given if isinstance(x, torch.Tensor))
        self.old = {x.untyped_storage().data_ptr() for x in tensors}
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else (made,):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in self.old:
                self.numbers = max(self.numbers, x.untyped_storage().nbytes() // x.itemsize)
        return made


def measured(
    answer: Callable, inputs: Mapping[str, Any], names: tuple[str, ...], enough: int
) -> tuple[Any, int]:
    """What the answer gives, and the largest tensor it made. All that is `enough` or less counts
    alike, so that a mistake is known again in code that makes smaller tensors on its way."""
    given = [inputs[name] for name in names]
    with LargestTensor(given) as seen:
        output = answer(*given)
    return output, max(seen.numbers, enough)
