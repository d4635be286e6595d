"""`course.py doctor`: what this machine can run of the course, in plain words.

Each line is a finding: `ok`, `note` (the course works, with less) or `FAULT` (it does not).
"""

import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.chromium import find_chromium, why_none

ROOT = Path(__file__).resolve().parent.parent
STAMP = ROOT / ".venv" / "course-stamp.json"
INTERPRETER_NEEDS = (3, 7)  # triton's; older ones break with numpy 2.4
SPARE_BYTES = 500_000_000
TORCH_WORDS = """\
Another build of torch may suit this machine better (on Linux without an NVIDIA card the usual
one brings gigabytes of CUDA that nothing here needs). Name one, once:
  COURSE_TORCH=2.12.0       another version, or any requirement that pip takes
  COURSE_TORCH_INDEX=URL    another index to take torch from, such as the CPU index that
                            https://pytorch.org/get-started/locally/ shows
before `python3 course.py doctor`. Both are remembered in .venv/ from then on."""


@dataclass(frozen=True)
class Finding:
    """One line of the report: level is "ok", "note" or "FAULT".

    another_torch: whether another build of torch would mend it.
    """

    level: str
    subject: str
    words: str
    another_torch: bool = False


def python() -> Iterator[Finding]:
    """Report the Python of the environment and the system it runs on."""
    where = f"{platform.system()} {platform.machine()}"
    yield Finding("ok", "Python", f"{platform.python_version()} on {where}, {sys.executable}")


def torch() -> Iterator[Finding]:
    """Report torch, where it came from, and the device it computes on."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library that does not load
        words = f"cannot be imported: {error}; remove .venv/, try again"
        yield Finding("FAULT", "torch", words, another_torch=True)
        return
    yield Finding("ok", "torch", f"{torch.__version__}{asked_for()}")
    yield from gpu(torch)


def gpu(torch, which=shutil.which) -> Iterator[Finding]:
    """Report the card that torch computes on, or that there is none.

    which: where a command lies, or None, as `shutil.which`; nvidia-smi comes with NVIDIA's driver.
    """
    if torch.cuda.is_available():
        name, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0)
        words = f"{name}, {memory.total_memory / 1e9:.0f} GB; kernels are compiled for it"
        yield Finding("ok", "GPU", words)
        return
    words = "none that torch can use: the whole course runs on the CPU"
    card = which("nvidia-smi") is not None
    carries = torch.version.cuda
    if carries and not card:
        words += f" (this torch carries CUDA {carries} for nothing: see below)"
    elif carries:
        words += f" (nvidia-smi is here, but this torch's CUDA {carries} finds no card: see below)"
    elif card:
        words += " (nvidia-smi is here, but this torch is built without CUDA: see below)"
    yield Finding("note", "GPU", words, another_torch=card or bool(carries))


def asked_for() -> str:
    """Return what the environment was asked to install, in brackets; empty if unknown."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    index = f" from {stamp['torch_index']}" if stamp.get("torch_index") else ""
    return f" (asked for: {stamp.get('torch', 'unknown')}{index})"


def triton() -> Iterator[Finding]:
    """Report triton and the way kernels run: compiled, interpreted, or as torch twins."""
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        level = "FAULT" if platform.system() == "Linux" else "note"
        words = "not installed (its packages are for Linux): kernels answer with torch twins"
        yield Finding(level, "triton", words)
    else:
        yield triton_version(version)
    try:
        from kernels import backend
    except ImportError as error:
        yield Finding("FAULT", "kernels", f"cannot be imported: {error}")
        return
    try:
        yield Finding("ok", "kernels", backend.report()["sentence"])
    except (ValueError, RuntimeError, ImportError) as error:
        yield Finding("FAULT", "kernels", str(error))


def triton_version(version: str) -> Finding:
    """Judge triton's version: its interpreter, which a CPU needs, works from 3.7 on."""
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < INTERPRETER_NEEDS:
        words = f"{version}: enough to compile for a GPU; its interpreter needs 3.7 or newer"
        return Finding("note", "triton", words)
    return Finding("ok", "triton", f"{version} (its interpreter needs 3.7 or newer)")


def jupyter() -> Iterator[Finding]:
    """Report JupyterLab, and the browser that the browser tests drive."""
    try:
        version = importlib.metadata.version("jupyterlab")
        yield Finding("ok", "JupyterLab", version)
    except importlib.metadata.PackageNotFoundError:
        yield Finding("FAULT", "JupyterLab", "not installed: remove .venv/ and run this again")
    browser = find_chromium()
    if browser:
        yield Finding("ok", "Chromium", f"{browser}; `test --all` drives it")
    else:
        yield Finding("note", "Chromium", f"{why_none()}: `test --all` skips the browser tests")


def disk() -> Iterator[Finding]:
    """Report the room that is left where the course writes."""
    free = shutil.disk_usage(ROOT).free
    level = "ok" if free >= SPARE_BYTES else "note"
    yield Finding(level, "disk", f"{free / 1e9:.1f} GB free in {ROOT}")
    if not os.access(ROOT, os.W_OK):
        yield Finding("FAULT", "folder", f"{ROOT} cannot be written: answers cannot be saved")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (python, torch, triton, jupyter, disk)


def examine(checks=CHECKS) -> list[Finding]:
    """Return all findings, in order."""
    return [finding for check in checks for finding in check()]


def main(arguments: list[str], checks=CHECKS) -> int:
    """Print the findings; 0 where the course runs, 1 where it does not, 2 for a wrong call."""
    if arguments:
        print(f"course.py doctor takes no arguments, not {arguments[0]!r}.", file=sys.stderr)
        return 2
    findings = examine(checks)
    for finding in findings:
        print(f"{finding.level:<5}  {finding.subject:<10}  {finding.words}")
    if any(finding.another_torch for finding in findings):
        print(f"\n{TORCH_WORDS}")
    print()
    faults = [finding.subject for finding in findings if finding.level == "FAULT"]
    print(f"Not in order: {', '.join(faults)}." if faults else "The course runs here.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
