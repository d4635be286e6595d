"""From compiling to interpreting, after triton was imported.

Triton decides while it is imported whether `tl.max` and its like are compiled or interpreted.
`kernels.first_import` is there in time where `kernels` comes first. But torch imports triton by
itself, as soon as an optimizer is made (`torch.optim` imports `torch._dynamo`, which asks whether
there is a triton). What triton then decorated for the compiler is decorated here once more, for
the interpreter: the functions of triton's own language, and those of them that are also methods
of `tl.tensor`. A kernel of the reader's that was decorated before stays as it is; where there is
one, the switch is not made, for such a kernel could not call the language any more.
"""

from __future__ import annotations

import gc
import os
import sys

LANGUAGE = "triton.language"
NOT_THE_READERS = ("triton", "torch")  # torch has kernels of its own; none runs without a GPU


def jitted_before() -> tuple[str, ...]:
    """Names of the reader's kernels that are decorated for the compiler already."""
    from triton.runtime.jit import JITFunction

    found = (thing for thing in gc.get_objects() if type(thing) is JITFunction)
    readers = (one for one in found if one.__module__.split(".")[0] not in NOT_THE_READERS)
    return tuple(sorted(kernel.__name__ for kernel in readers))


def to_interpreter() -> None:
    """Set triton, imported to compile, to interpret. Calling it again changes nothing."""
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language as tl
    from triton.runtime.jit import JITFunction, jit

    again: dict[int, object] = {}  # the same function under two names stays one function
    for module in [*sys.modules.values()]:
        if not getattr(module, "__name__", "").startswith(LANGUAGE):
            continue
        for name, value in [*vars(module).items()]:
            if type(value) is JITFunction:
                new = again.setdefault(id(value), jit(value.fn))
                setattr(module, name, new)
    for name, value in [*vars(tl.tensor).items()]:
        if type(value) is JITFunction:
            setattr(tl.tensor, name, _method(again[id(value)]))


def _method(function):
    """A plain function that calls `function`: only a plain one binds `self`."""

    def method(*args, **kwargs):
        return function(*args, **kwargs)

    return method
