"""Notices whether a function sorts."""

from __future__ import annotations

from torch.overrides import TorchFunctionMode

SORTS = frozenset(
    ("sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "quantile", "unique")
)


class Sorting(TorchFunctionMode):
    """While open, `asked` holds the names of torch's sorting functions that were called."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ in SORTS:
            self.asked.add(func.__name__)
        return func(*args, **(kwargs or {}))
