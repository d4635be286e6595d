"""The compile gate: real kernels pass it on real chips, and bad ones do not."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from kernels import backend, gates
from kernels import compile as compiler

ROOT = Path(kernels.__file__).parents[1]
HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")


def python(*arguments, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("TRITON_INTERPRET", "KVC_BACKEND")}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=ROOT, text=True,
                          capture_output=True, timeout=900)


@needs_triton
@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_spill_and_too_much_shared_memory_are_found(target):
    done = python(str(Path(__file__).with_name("offline_gate.py")), target,
                  KVC_BACKEND="offline")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    spill, overflow, silent, by_hand = told["kernels"]
    assert spill["kernel"] == "greedy" and spill["spilled"] > 0 and not spill["fits"]
    assert overflow["kernel"] == "spacious" and overflow["shared"] > overflow["shared_limit"]
    assert not overflow["fits"] and overflow["mma"] > 0 and overflow["wide_loads"] > 0
    assert silent["kernel"] == "silent" and silent["stores"] == 0
    assert silent["problem"] == "STORES NOTHING" and not silent["fits"]
    assert by_hand["kernel"] == "number_by_number" and by_hand["stores"] > 0
    assert by_hand["promised"] and by_hand["mma"] == 0
    assert by_hand["problem"] == "NO MATRIX INSTRUCTION" and not by_hand["fits"]
    assert not told["fits"]
    assert "SPILLS" in told["table"] and "TOO MUCH SHARED MEMORY" in told["table"]
    assert told["nothing"] == "nothing: the call launched no kernel, so nothing was compiled"


@needs_triton
def test_real_kernels_fit_and_use_matrix_instructions():
    done = python("-m", "kernels", "compile", "--target", "sm_90", "--json", "decode_attention")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["target"] == "sm_90" and told["fits"]
    shapes = gates.module("decode_attention").REAL
    assert len(told["kernels"]) == 2 * len(shapes)  # split and merge
    for one in told["kernels"]:
        assert one["registers"] > 0 and one["spilled"] == 0 and one["shared_limit"] == 232_448
        assert one["stores"] > 0
        products = one["kernel"] == "_attend_split" and "float32" not in one["shape"]
        assert one["promised"] == products
        if products:
            assert one["mma"] > 0 and one["wide_loads"] > 0, one


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("target", compiler.TARGETS)
def test_every_kernel_fits_every_chip(target):
    done = python("-m", "kernels", "compile", "--target", target)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_triton
def test_usage():
    done = python("-m", "kernels", "compile", "--target", "sm_42")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'sm_42' is unknown; expected one of sm_80, sm_90" in done.stderr
    done = python("-m", "kernels", "compile", "--target", "sm_80", "no_such_kernel")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kernel 'no_such_kernel'; there are: first_kernels, flash_attention" in done.stderr


def test_compiling_needs_its_own_process():
    with pytest.raises(kernels.backend.TritonUnavailable, match="KVC_BACKEND=offline before"):
        with compiler.compiling_for(compiler.TARGETS["sm_80"]):
            pass


def test_compiling_needs_triton(monkeypatch):
    none = backend.Backend("torch", "triton is not installed", None)
    monkeypatch.setattr(backend, "current", lambda: none)
    with pytest.raises(backend.TritonUnavailable, match="compiled here: triton is not installed"):
        with compiler.compiling_for(compiler.TARGETS["sm_80"]):
            pass


@pytest.mark.parametrize("name", kernels.KERNELS)
def test_every_kernel_offers_what_the_gates_need(name):
    module = gates.module(name)
    assert module.SMALL and module.REAL
    for shape in (*module.SMALL, *module.REAL):
        assert shape.label
        assert set(module.expected(shape)) == {"bytes_read", "bytes_written", "flops"}
    assert callable(getattr(module.SMALL[0], "function", None) or getattr(module, name))
    assert set(getattr(module, "PRODUCTS", ())) == set(launches_with_products(module))


def launches_with_products(module):
    """Kernels of this file that are launched and multiply matrices, themselves or by a call.
    `hyper_connection` does so in fp32 always, for which there is no instruction."""
    if module.__name__ == "kernels.hyper_connection":
        return
    source = Path(module.__file__).read_text()
    functions = {one.name: ast.get_source_segment(source, one) for one in ast.parse(source).body
                 if isinstance(one, ast.FunctionDef)}
    launched = set(re.findall(r"(\w+)\[\(", "\n".join(functions.values())))
    for name in launched & set(functions):
        reached = {name}
        while more := {called for one in reached for called in functions
                       if re.search(rf"\b{called}\(", functions[one])} - reached:
            reached |= more
        if any("tl.dot(" in functions[one] for one in reached):
            yield name
