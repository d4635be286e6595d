"""Each kernel against its twin: right numbers, and only the loads and stores foretold.

The kernel runs as it would for a caller (in the interpreter on a CPU, compiled on a GPU)
on outputs that were filled with NaN before; the judge is the twin in fp64. In the
interpreter integer overflow is an error, and what was loaded and stored is counted and
must equal the kernel's `traffic` to the byte.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

import torch

from kernels import backend, bounds, gates

# Largest error allowed, for normal random inputs. In 16 bits the weights of the softmax
# are rounded before they meet the values, and so is the output.
ALLOWED = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@dataclass(frozen=True)
class Checked:
    """One kernel on one shape."""

    kernel: str
    shape: str
    dtype: str
    error: float  # largest absolute difference from the twin in fp64; NaN counts as wrong
    allowed: float
    bytes_read: int | None  # counted; None on a GPU, where nothing can be counted
    bytes_written: int | None
    foretold_read: int
    foretold_written: int
    seconds: float

    @property
    def problem(self) -> str:
        """What is wrong, or an empty string."""
        if not self.error <= self.allowed:
            return "WRONG NUMBERS"
        counted = (self.bytes_read, self.bytes_written)
        if counted != (None, None) and counted != (self.foretold_read, self.foretold_written):
            return f"TRAFFIC SAID {self.foretold_read:,} + {self.foretold_written:,}"
        return ""


@contextlib.contextmanager
def poisoned():
    """Inside, new tensors that were not filled hold NaN, so that a number which a kernel
    forgets to store cannot look right by chance."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fill


def check_shape(name: str, shape, seed: int = 0) -> Checked:
    """Run one kernel on one shape and compare. Raises what the kernel raises, and
    TritonUnavailable where there is no triton to check."""
    interpreting = backend.current().name == "interpret"
    inputs = shape.arguments("cpu" if interpreting else "cuda", seed)
    judge = gates.call(name, shape, {key: _wide(value) for key, value in inputs.items()}, "torch")
    with contextlib.ExitStack() as stack:
        stack.enter_context(poisoned())
        counts = stack.enter_context(bounds.counting()) if interpreting else None
        if interpreting:
            stack.enter_context(bounds.checking_overflow())
        started = time.perf_counter()
        output = gates.call(name, shape, inputs, "triton")
        seconds = time.perf_counter() - started
    error = (output.double() - judge).abs().max().item()
    foretold = gates.module(name).expected(shape)
    return Checked(
        kernel=name, shape=shape.label, dtype=str(shape.dtype).removeprefix("torch."),
        error=error, allowed=ALLOWED[shape.dtype],
        bytes_read=counts.bytes_read if counts else None,
        bytes_written=counts.bytes_written if counts else None,
        foretold_read=foretold["bytes_read"], foretold_written=foretold["bytes_written"],
        seconds=seconds)


def _wide(value):
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floating else value


def show(found: list[Checked]) -> str:
    """The table that `python -m kernels check` prints."""
    heads = ["kernel", "shape", "dtype", "error", "allowed", "bytes read", "bytes written",
             "seconds", "verdict"]
    rows = [[one.kernel, one.shape, one.dtype, one.error, one.allowed,
             "-" if one.bytes_read is None else one.bytes_read,
             "-" if one.bytes_written is None else one.bytes_written,
             round(one.seconds, 2), one.problem or "equal"] for one in found]
    return gates.table(heads, rows)
