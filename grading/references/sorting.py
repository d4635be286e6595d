"""Notices whether a function sorts: with torch, with numpy, or with Python itself."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

SORTS = frozenset(
    ("sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "quantile", "unique")
)
# What Python and numpy sort with, whatever the function is called that asks for it.
BUILT_IN = frozenset(
    ("sorted", "sort", "argsort", "partition", "argpartition", "insort_left", "insort_right")
)


class Sorting(TorchFunctionMode):
    """While open, `asked` holds the names of the sorting functions that were called.

    torch tells its mode; the others are seen by the thread's profile function, which Python
    calls for every built-in. Whoever profiled before does so again afterwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()
        self._before: Any = None

    def __enter__(self) -> Sorting:
        self._before = sys.getprofile()
        super().__enter__()
        sys.setprofile(self._built_in)
        return self

    def __exit__(self, *raised: Any) -> None:
        sys.setprofile(self._before)
        super().__exit__(*raised)

    def _built_in(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__name__", "") in BUILT_IN:
            self.asked.add(called.__name__)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ in SORTS:
            self.asked.add(func.__name__)
        return func(*args, **(kwargs or {}))
