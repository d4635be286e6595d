"""What every kernel file offers, so that one list suffices for all gates.

A kernel NAME is `kernels/NAME.py` with

- `NAME(..., impl=None)`, the public function, and `traffic(...)` beside it;
- `SMALL`, shapes that the interpreter can run: compared with the twin by `check`;
- `REAL`, shapes of real models: compiled by `compile`, timed by `bench`;
- `expected(shape)`, the traffic of a shape with the blocks that are chosen here;
- `PRODUCTS`, if it has any, the names of its launches that use matrix instructions when
  numbers have 16 bits: in compiled code their absence is a fault.

A shape is a frozen dataclass with a `label`, a `dtype` and `arguments(device, seed)`, the
keyword arguments of the public function (`kernels.attention_shape` has one for
attention). Tensors may stay unfilled when the backend is `offline`: nothing reads them.
A file with several small kernels has shapes that name their `function`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import kernels


def module(name: str) -> ModuleType:
    """The kernel's module. Raises ValueError for a name that is no kernel."""
    if name not in kernels.KERNELS:
        raise ValueError(f"no kernel {name!r}; there are: {', '.join(kernels.KERNELS)}")
    return importlib.import_module(f"kernels.{name}")


def call(name: str, shape, arguments: dict[str, Any], impl: str | None = None):
    """The public function on these arguments: the kernel's namesake, or the shape's own
    `function` where a file holds several kernels."""
    function = getattr(shape, "function", None) or getattr(module(name), name)
    return function(**arguments, impl=impl)


def products(name: str, shape) -> tuple[str, ...]:
    """The launches that promise matrix instructions. In fp32 none does: at full precision
    NVIDIA's chips have no such instruction."""
    return getattr(module(name), "PRODUCTS", ()) if shape.dtype.itemsize == 2 else ()


def table(heads: list[str], rows: list[list]) -> str:
    """Columns as wide as they need to be; numbers to the right, text to the left."""
    cells = [heads, *[[_cell(value) for value in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    right = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows)
             for i in range(len(heads))]
    lines = [
        "  ".join(text.rjust(width) if aligned else text.ljust(width)
                  for text, width, aligned in zip(row, widths, right)).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def _cell(value) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
