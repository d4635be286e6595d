"""Compile every kernel for GPUs this machine does not have, and read what came out.

The interpreter shows that a kernel is right; it does not show that it compiles, nor
that it fits. Here the real wrappers run at the shapes of real models, and each launch is
replaced by a compilation for the target: triton's own compiler and, for NVIDIA, the
`ptxas` in its package need no GPU. From the result are read: registers, bytes spilled
from registers to memory, shared memory against the chip's limit, matrix instructions,
16-byte loads, and stores. A kernel that stores nothing was compiled away, and one that
promises matrix products (`PRODUCTS` in its file) and has no matrix instruction multiplies
number by number: neither fits.

This needs a process in which triton compiles: KVC_BACKEND=offline, set by
`python -m kernels compile`.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from kernels import backend, gates


@dataclass(frozen=True)
class Target:
    """A chip: how the compiler calls it, and the shared memory one program may have."""

    name: str
    vendor: str  # "cuda" or "hip"
    arch: int | str
    warp: int  # threads
    shared: int  # bytes


TARGETS = {target.name: target for target in (
    Target("sm_80", "cuda", 80, 32, 166_912),  # A100
    Target("sm_90", "cuda", 90, 32, 232_448),  # H100, H200
    Target("sm_100", "cuda", 100, 32, 232_448),  # B200
    Target("sm_120", "cuda", 120, 32, 101_376),  # RTX 50, RTX PRO 6000
    Target("gfx942", "hip", "gfx942", 64, 65_536),  # MI300
)}


@dataclass(frozen=True)
class Compiled:
    """One launch, compiled. Numbers are per thread or per program, as compilers count."""

    kernel: str
    shape: str
    registers: int
    spilled: int  # bytes (NVIDIA) or registers (AMD)
    shared: int  # bytes
    shared_limit: int  # bytes
    mma: int  # matrix instructions in the code
    wide_loads: int  # 16-byte loads in the code
    stores: int  # stores to global memory in the code
    promised: bool  # matrix instructions
    seconds: float

    @property
    def problem(self) -> str:
        """Why it does not fit, or an empty string."""
        if self.spilled:
            return "SPILLS"
        if self.shared > self.shared_limit:
            return "TOO MUCH SHARED MEMORY"
        if not self.stores:
            return "STORES NOTHING"
        if self.promised and not self.mma:
            return "NO MATRIX INSTRUCTION"
        return ""

    @property
    def fits(self) -> bool:
        return not self.problem


class _OfflineDriver:
    """Tells triton that the target is this machine's GPU."""

    def __init__(self, target: Target):
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget(target.vendor, target.arch, target.warp)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return f"{self.target.backend}:{self.target.arch}"  # also keys the kernels' caches

    def get_current_stream(self, device):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_device_interface(self):
        return torch.cpu


@contextlib.contextmanager
def compiling_for(target: Target):
    """Inside, a launch compiles for the target instead of running; yields the list of
    (kernel name, compiled kernel, seconds)."""
    if backend.current().triton_version is None:
        raise backend.TritonUnavailable(f"nothing can be compiled here: {backend.current().reason}")
    if backend.current().name != "offline":
        raise backend.TritonUnavailable(
            f"compiling needs {backend.VARIABLE}=offline before triton is imported; the backend "
            f"here is {backend.current().name}. Run: python -m kernels compile")
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction, KernelInterface

    log = []

    def compile_instead(kernel, grid):
        def launch(*args, **kwargs):
            started = time.perf_counter()
            compiled = kernel.warmup(*args, grid=grid, **kwargs)
            seconds = time.perf_counter() - started
            function = kernel
            while not isinstance(function, JITFunction):  # under autotune and heuristics
                function = function.fn
            for one in compiled if isinstance(compiled, list) else [compiled]:
                log.append((function.__name__, one, seconds))

        return launch

    launch_as_usual, driver_as_usual = KernelInterface.__getitem__, driver._active
    KernelInterface.__getitem__ = compile_instead
    driver.set_active(_OfflineDriver(target))
    try:
        yield log
    finally:
        KernelInterface.__getitem__ = launch_as_usual
        driver._active = driver_as_usual


def compile_call(target: Target, shape: str, call, products=()) -> list[Compiled]:
    """Compile every launch that `call()` makes; `products` names the kernels among them that
    promise matrix instructions."""
    with compiling_for(target) as log:
        call()
    if not log:
        raise ValueError(f"{shape}: the call launched no kernel, so nothing was compiled")
    read = _read_nvidia if target.vendor == "cuda" else _read_amd
    return [
        Compiled(kernel=name, shape=shape, shared=compiled.metadata.shared,
                 shared_limit=target.shared, promised=name in products, seconds=seconds,
                 **read(compiled, target))
        for name, compiled, seconds in log
    ]


def compile_kernels(target: Target, names) -> list[Compiled]:
    """Compile the named kernels at all their real shapes."""
    found = []
    for name in names:
        for shape in gates.module(name).REAL:
            label = f"{shape.label} {str(shape.dtype).removeprefix('torch.')}"
            found += compile_call(
                target, label, lambda: gates.call(name, shape, shape.arguments(), "triton"),  # noqa: B023
                gates.products(name, shape))
    return found


def _read_nvidia(compiled, target: Target) -> dict[str, int]:
    from triton.backends.nvidia.compiler import get_ptxas

    ptx = compiled.asm["ptx"]
    suffix = "a" if int(target.arch) >= 90 else ""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        run = subprocess.run(
            [get_ptxas(target.arch).path, "-v", f"--gpu-name=sm_{target.arch}{suffix}",
             str(source), "-o", str(Path(folder) / "kernel.cubin")],
            capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"ptxas failed for {target.name}: {run.stderr.strip()[:400]}")
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", run.stderr)
    registers = re.search(r"Used (\d+) registers", run.stderr)
    if not spilled or not registers:
        raise RuntimeError(f"ptxas -v said nothing of registers and spills: {run.stderr[:400]}")
    wide = (r"ld\.global\S*\.v4\.[bfu]32|ld\.global\S*\.v2\.[bfu]64"
            r"|cp\.async\S* \[[^\]]*\], \[[^\]]*\], (?:0x10|16)\b")
    return {
        "registers": int(registers[1]),
        "spilled": max(int(count) for count in spilled),
        "mma": len(re.findall(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)\b", ptx)),
        "wide_loads": len(re.findall(wide, ptx)),
        "stores": len(re.findall(r"\b(?:st(?:\.\w+)*|red|atom)\.global\b", ptx)),
    }


def _read_amd(compiled, target: Target) -> dict[str, int]:
    text = compiled.asm["amdgcn"]

    def largest(field):
        values = re.findall(rf"\.{field}:\s*(\d+)", text)
        if not values:
            raise RuntimeError(f"the AMD assembly does not give .{field}")
        return max(map(int, values))

    return {
        "registers": largest("vgpr_count"),
        "spilled": largest("vgpr_spill_count") + largest("sgpr_spill_count"),
        "mma": len(re.findall(r"\bv_s?mfma", text)),
        "wide_loads": len(re.findall(r"\b(?:global|buffer)_load_dwordx4", text)),
        "stores": len(re.findall(r"\b(?:global|buffer|flat)_(?:store|atomic)", text)),
    }


def show(found: list[Compiled]) -> str:
    """The table that `python -m kernels compile` prints."""
    heads = ["kernel", "shape", "registers", "spilled", "shared", "limit", "mma", "16 B loads",
             "stores", "seconds", "verdict"]
    rows = [[one.kernel, one.shape, one.registers, one.spilled, one.shared, one.shared_limit,
             one.mma, one.wide_loads, one.stores, round(one.seconds, 2), one.problem or "fits"]
            for one in found]
    return gates.table(heads, rows)


def as_json(target: Target, found: list[Compiled]) -> dict:
    return {"target": target.name, "triton": backend.current().triton_version,
            "fits": all(one.fits for one in found),
            "kernels": [{**asdict(one), "fits": one.fits, "problem": one.problem}
                        for one in found]}
