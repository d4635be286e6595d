"""Which of three ways a kernel runs: decided once, before triton is imported.

- `cuda`: Triton compiles the kernel for the GPU.
- `interpret`: Triton runs the kernel as Python on the CPU, one program after another.
  Slow, but the same source, and every line can be stopped at and printed.
- `torch`: no Triton at all; the twin in plain torch answers.

The environment variable KVC_BACKEND asks for one of them; unset or `auto`, the first of
the three that works here is taken. (`offline` is for `python -m kernels compile`: Triton
compiles for a GPU that this machine need not have, and nothing runs.)

A kernel file imports triton through here, `from kernels.backend import tl, triton`, so
that it can also be imported where triton does not exist (macOS, Windows).
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import sys
from dataclasses import dataclass

from kernels import late_switch

VARIABLE = "KVC_BACKEND"
CHOICES = ("auto", "cuda", "interpret", "torch", "offline")
DISTRIBUTIONS = ("triton", "triton-rocm", "pytorch-triton-rocm", "pytorch-triton")
# The interpreter of 3.6 breaks with numpy 2.4, and `kernels.interpreter` extends private
# classes that were read in these versions only.
INTERPRETER_VERSIONS = ((3, 7), (3, 9))

OFFLINE_PROCESSORS = 132  # an H100's; only block and split counts depend on it


class TritonUnavailable(RuntimeError):
    """Triton was asked for by name, and in this process it cannot run."""


@dataclass(frozen=True)
class Backend:
    """The choice, and the reason for it in one plain sentence."""

    name: str  # cuda, interpret, torch or offline
    reason: str
    triton_version: str | None = None  # None where triton is not installed

    @property
    def runs_triton(self) -> bool:
        return self.name != "torch"


@dataclass(frozen=True)
class Surroundings:
    """What the choice depends on."""

    triton_version: str | None
    has_cuda: bool
    imported_as: str | None = None  # None, "compiled" or "interpreted": triton is already here
    asked_to_interpret: bool = False  # TRITON_INTERPRET is set
    jitted: tuple[str, ...] = ()  # kernels decorated for the compiler before `kernels` came


def decide(wanted: str, here: Surroundings) -> Backend:
    """Choose a backend. Raises ValueError for an unknown name, TritonUnavailable when a
    backend was asked for by name and cannot work; `auto` always finds one."""
    if wanted not in CHOICES:
        raise ValueError(f"{VARIABLE} is {wanted!r}; it must be one of {', '.join(CHOICES[:-1])}")
    version = here.triton_version
    if wanted == "torch":
        return Backend("torch", f"{VARIABLE}=torch asks for the plain-torch twins", version)
    if wanted == "auto":
        name = "cuda" if here.has_cuda and not here.asked_to_interpret else "interpret"
    else:
        name = wanted
    trouble = _trouble(name, here)
    if trouble and wanted == "auto":
        return Backend("torch", trouble, version)
    if trouble:
        raise TritonUnavailable(f"{VARIABLE}={wanted} cannot work here: {trouble}")
    return Backend(name, _reason(name, wanted, here), version)


def _trouble(name: str, here: Surroundings) -> str | None:
    """Why this backend cannot work, or None."""
    if here.triton_version is None:
        return "triton is not installed (its packages exist for Linux only)"
    if name == "cuda" and not here.has_cuda:
        return "torch sees no GPU"
    if name in ("cuda", "offline") and here.imported_as == "interpreted":
        return ("triton was imported with TRITON_INTERPRET set; "
                "unset it and start Python again (in a notebook: restart the kernel)")
    if name == "interpret":
        if here.imported_as == "compiled" and here.jitted:
            return (f"the kernel {here.jitted[0]} was decorated before the package `kernels` was "
                    "imported, so triton is set to compile; "
                    "restart the notebook's kernel and import `kernels` first")
        oldest, newest = INTERPRETER_VERSIONS
        if not oldest <= _minor(here.triton_version) <= newest:
            return (f"triton {here.triton_version} is installed, and its interpreter is used "
                    f"from {oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]} only")
    return None


def _reason(name: str, wanted: str, here: Surroundings) -> str:
    if wanted != "auto":
        return f"{VARIABLE}={wanted} asks for it"
    if name == "cuda":
        return "torch sees a GPU"
    return "TRITON_INTERPRET is set" if here.asked_to_interpret else "torch sees no GPU"


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _surroundings() -> Surroundings:
    import torch

    module = sys.modules.get("triton")
    imported_as: str | None = None
    jitted: tuple[str, ...] = ()
    if module is not None and hasattr(module, "knobs"):  # else: being imported right now
        compiled = isinstance(module.language.max, module.JITFunction)
        imported_as = "compiled" if compiled else "interpreted"
        jitted = late_switch.jitted_before() if compiled else ()
    asked = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")
    return Surroundings(_triton_version(), torch.cuda.is_available(), imported_as, asked, jitted)


def _triton_version() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return None
    for distribution in DISTRIBUTIONS:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@functools.cache
def current() -> Backend:
    """This process's backend. The first call decides, and sets up triton's environment."""
    here = _surroundings()
    choice = decide(os.environ.get(VARIABLE) or "auto", here)
    if choice.name == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"
        if here.imported_as == "compiled":
            late_switch.to_interpreter()
    elif choice.name in ("cuda", "offline"):
        os.environ.pop("TRITON_INTERPRET", None)
        # Today's default (a * b + c is one rounding), said aloud so that 3.9 does not warn.
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    return choice


def report() -> dict[str, str]:
    """Backend, triton's version, device and a sentence for a person to read."""
    import torch

    choice = current()
    device = torch.cuda.get_device_name() if choice.name == "cuda" else "CPU"
    how = {
        "cuda": f"kernels are compiled by triton and run on {device}",
        "interpret": "kernels run in triton's interpreter on the CPU, as ordinary Python",
        "torch": "each kernel's twin in plain torch answers; triton is not used",
        "offline": "kernels are compiled for another machine's GPU and not run",
    }[choice.name]
    return {
        "backend": choice.name,
        "triton": choice.triton_version or "not installed",
        "device": device,
        "sentence": f"Backend {choice.name}: {how} ({choice.reason}).",
    }


def processors(device) -> int:
    """How many programs run side by side: the GPU's multiprocessors, 1 in the interpreter."""
    import torch

    name = current().name
    if name == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return OFFLINE_PROCESSORS if name == "offline" else 1


def vendor() -> str:
    """"cuda" or "hip": for which maker's chips triton compiles in this process."""
    import triton

    return triton.runtime.driver.active.get_current_target().backend


def use_triton(impl: str | None, dtypes, **tensors) -> bool:
    """Whether a call on these named tensors goes to the Triton kernel (else to the twin).

    `impl` is "triton", "torch", or None: the kernel wherever it can answer. Raises
    ValueError (TritonUnavailable where there is no triton) if "triton" cannot.
    """
    if impl not in (None, "triton", "torch"):
        raise ValueError(f'impl is {impl!r}; it must be "triton", "torch" or None')
    if impl == "torch":
        return False
    choice = current()
    if not choice.runs_triton:
        if impl == "triton":
            raise TritonUnavailable(f'impl="triton" is unavailable: {choice.reason}')
        return False
    trouble = _call_trouble(choice, dtypes, tensors)
    if trouble and impl == "triton":
        raise ValueError(f'impl="triton" cannot take this call: {trouble}')
    return trouble is None


def _call_trouble(choice: Backend, dtypes, tensors) -> str | None:
    """Why the Triton kernel cannot take these tensors, or None."""
    import torch

    for name, tensor in tensors.items():
        if tensor.dtype not in dtypes:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            return f"{name} is {str(tensor.dtype).removeprefix('torch.')}; the kernel has {known}"
        if tensor.requires_grad and torch.is_grad_enabled():
            return (f"{name} requires a gradient and the kernel has no backward pass; "
                    'use torch.no_grad(), or impl="torch"')
        allowed = {"cuda": ("cuda",), "interpret": ("cpu", "cuda")}.get(choice.name)
        if allowed and tensor.device.type not in allowed:
            return f"{name} is on {tensor.device}, and the backend here is {choice.name}"
    return None


class _Absent:
    """Stands where `triton` or `tl` would, so that kernel files import without them."""

    constexpr = None

    def jit(self, function):
        return _AbsentKernel(function.__name__)


class _AbsentKernel:
    """A kernel that says why it cannot run, however it is launched."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *_args, **_kwargs):
        raise TritonUnavailable(f"kernel {self.__name__} cannot run: {current().reason}")

    __getitem__ = __call__


def __getattr__(name: str):
    if name not in ("triton", "tl"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not current().runs_triton:
        return _Absent()
    import triton
    import triton.language

    return triton if name == "triton" else triton.language
