"""Counts the largest tensor that a function makes on its way."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class LargestResult(TorchFunctionMode):
    """While open, `numbers` is the size of the largest memory that any torch call's result has.

    Views of what is there already count as what is there. (A mode of torch's dispatcher would see
    inside the calls too, but would import a compiler, and with it triton, for that.)
    """

    numbers = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                held = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.numbers = max(self.numbers, held)
        return made
