"""The choice of backend, and the order of imports it does not depend on."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from kernels import backend
from kernels.backend import Surroundings, TritonUnavailable, decide

ROOT = Path(kernels.__file__).parents[1]
CPU = Surroundings("3.9.0", has_cuda=False)
GPU = Surroundings("3.6.0", has_cuda=True)
NONE = Surroundings(None, has_cuda=False)


@pytest.mark.parametrize("wanted, here, name", [
    ("auto", CPU, "interpret"), ("auto", GPU, "cuda"), ("auto", NONE, "torch"),
    ("auto", Surroundings("3.6.0", False), "torch"),
    ("auto", Surroundings("3.10.0", False), "torch"),
    ("auto", Surroundings("3.7.1", False), "interpret"),
    ("auto", Surroundings("3.9.0", False, imported_as="compiled", jitted=("mine",)), "torch"),
    ("auto", Surroundings("3.9.0", False, imported_as="compiled"), "interpret"),
    ("auto", Surroundings("3.9.0", True, imported_as="compiled", jitted=("mine",)), "cuda"),
    ("auto", Surroundings("3.9.0", False, imported_as="interpreted"), "interpret"),
    ("auto", Surroundings("3.9.0", True, asked_to_interpret=True), "interpret"),
    ("interpret", Surroundings("3.9.0", True), "interpret"),
    ("torch", GPU, "torch"), ("offline", CPU, "offline"), ("cuda", GPU, "cuda"),
])
def test_decide(wanted, here, name):
    assert decide(wanted, here).name == name
    assert decide(wanted, here).triton_version == here.triton_version


@pytest.mark.parametrize("wanted, here, words", [
    ("cuda", CPU, "torch sees no GPU"),
    ("interpret", NONE, "triton is not installed"),
    ("interpret", Surroundings("3.6.0", False), r"triton 3.6.0 is installed.*from 3.7 to 3.9 only"),
    ("interpret", Surroundings("3.9.0", False, imported_as="compiled", jitted=("mine", "other")),
     "kernel mine was decorated before the package `kernels` was imported.*restart"),
    ("cuda", Surroundings("3.9.0", True, imported_as="interpreted"), "unset it and start"),
    ("offline", Surroundings("3.9.0", False, imported_as="interpreted"), "unset it and start"),
])
def test_a_backend_asked_for_by_name_that_cannot_work_says_why(wanted, here, words):
    with pytest.raises(TritonUnavailable, match=words):
        decide(wanted, here)


def test_unknown_backend():
    with pytest.raises(ValueError, match="KVC_BACKEND is 'gpu'; it must be one of auto, cuda, int"):
        decide("gpu", CPU)


def test_report_reads_as_a_sentence():
    report = backend.report()
    assert report["backend"] == backend.current().name
    assert report["sentence"].startswith(f"Backend {report['backend']}: ")
    assert report["sentence"].endswith(".")


def run(code, **variables):
    """Run Python in a new process; returns what it printed."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("TRITON_INTERPRET", "KVC_BACKEND")}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_kernels_is_light():
    assert run("import sys, kernels; print('torch' in sys.modules, 'triton' in sys.modules,"
               " 'numpy' in sys.modules)") == "False False False"


def test_a_kernels_name_is_the_function_however_it_is_imported():
    assert run("""
from kernels.decode_attention import traffic
import kernels.flash_attention
from kernels import decode_attention, flash_attention, first_kernels
import kernels.decode_attention as named
print(decode_attention.__name__, callable(decode_attention), decode_attention.traffic is traffic,
      named is decode_attention, kernels.flash_attention is flash_attention, first_kernels.__name__)
try:
    kernels.no_such
except AttributeError as error:
    print(error)
""") == ("decode_attention True True True True kernels.first_kernels\n"
         "module 'kernels' has no attribute 'no_such'")


@pytest.mark.interpreter
def test_triton_imported_by_the_reader_after_kernels_is_interpreted_and_checked(tmp_path):
    script = tmp_path / "reader.py"
    script.write_text("""
import kernels
import torch
import triton
import triton.language as tl

@triton.jit
def beyond(source, target):
    at = tl.arange(0, 8)
    tl.store(target + at, tl.load(source + at + 1_000_000_000))

try:
    beyond[(1,)](torch.zeros(8), torch.zeros(8))
except IndexError as error:
    print(error)
""")
    told = run(f"import runpy; runpy.run_path({str(script)!r})")
    assert told.startswith("kernel beyond, program (0, 0, 0): tl.load is out of bounds: 8 of 8")


def forms():
    """What each name of triton's language is here: a function interpreted, compiled, ..."""
    import triton.language as tl

    return sorted((space.__name__, name, type(value).__name__)
                  for space in (tl, tl.standard, tl.random, tl.tensor)
                  for name, value in vars(space).items() if not name.startswith("__"))


@pytest.mark.interpreter
def test_an_optimizer_made_before_kernels_is_no_hindrance():
    """torch imports triton for it, set to compile; the language ends as if we had come first."""
    told = f"{inspect.getsource(forms)}\nprint(forms())"
    first = run("from kernels import backend\nbackend.current()\n" + told).strip()
    late = run("""
import sys, torch
torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))])
assert type(sys.modules["triton"].language.max).__name__ == "JITFunction"
from kernels import backend, select_topk
print(backend.current().name)
""" + told + """
scores = torch.randn(2, 5, 37, generator=torch.Generator().manual_seed(3))
for impl in ("triton", "torch"):
    print(select_topk(scores, 7, ratio=2, start=65, impl=impl).tolist())
""").splitlines()
    assert late[0] == "interpret" and late[2] == late[3] != ""
    assert late[1] == first


@pytest.mark.interpreter
def test_triton_imported_before_kernels(tmp_path):
    script = tmp_path / "reader.py"
    script.write_text("""
import triton

@triton.jit
def mine(source):
    pass

from kernels import backend
print(backend.current().name, '|', backend.current().reason)
""")
    told = run(f"import runpy; runpy.run_path({str(script)!r})")
    assert told.startswith("torch | the kernel mine was decorated before")
    assert run("import triton; from kernels import backend; print(backend.current().name)",
               TRITON_INTERPRET="1") == "interpret"


def test_without_triton_the_twins_answer_and_triton_is_unavailable():
    told = run("""
import sys, torch
from kernels import backend, bounds, decode_attention, first_kernels
query, key = torch.ones(1, 1, 3, 5), torch.ones(1, 7, 3, 5)
print(decode_attention(query, key, key).sum().item(), 'triton' in sys.modules)
for call in (lambda: decode_attention(query, key, key, impl="triton"),
             lambda: first_kernels._copy[(1,)](key),
             lambda: bounds.counting().__enter__()):
    try:
        call()
    except backend.TritonUnavailable as error:
        print(error)
""", KVC_BACKEND="torch").splitlines()
    assert told[0] == "15.0 False"
    assert told[1] == ('impl="triton" is unavailable: KVC_BACKEND=torch asks for the plain-torch'
                       " twins")
    assert told[2].startswith("kernel _copy cannot run: KVC_BACKEND=torch")
    assert told[3].startswith("bounds.counting() sees kernels in the interpreter only")
