"""What the exercises with two lines of a kernel share: where it runs, and on which tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def no_triton() -> str:
    """Why there is no kernel to run in this process; "" where there is one."""
    from kernels import backend

    try:
        choice = backend.current()
    except backend.TritonUnavailable as error:
        return f"this exercise needs triton: {error}"
    return "" if choice.runs_triton else f"this exercise needs triton: {choice.reason}"


def ready(
    answer: Any, lines: type[Any], inputs: Mapping[str, Any], names: Sequence[str]
) -> tuple[Any, list[torch.Tensor], torch.Tensor]:
    """The kernel of an answer (or of a named mistake, one of `lines`), the tensors of these names
    on the GPU or for the interpreter, and an output like the first of them that starts as NaN."""
    from kernels import backend

    kernel = answer.build() if isinstance(answer, lines) else answer
    device = "cuda" if backend.current().name == "cuda" else "cpu"
    tensors = [inputs[name].to(device) for name in names]
    return kernel, tensors, torch.full_like(tensors[0], float("nan"))
