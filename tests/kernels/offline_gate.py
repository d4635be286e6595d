"""Runs in its own process, with KVC_BACKEND=offline: kernels that must not pass the gate."""

import json
import sys

import torch

from kernels import compile as compiler
from kernels.backend import tl, triton


@triton.jit
def greedy(source, target, BLOCK: tl.constexpr):
    """Keeps three large blocks alive at once: more numbers than there are registers."""
    at = tl.arange(0, BLOCK)
    a = tl.load(source + at)
    b = tl.load(source + BLOCK + at)
    c = tl.load(source + 2 * BLOCK + at)
    for step in range(4):
        a, b, c = tl.exp(b) + c * step, tl.exp(c) + a, tl.exp(a) + b
    tl.store(target + at, a)
    tl.store(target + BLOCK + at, b)
    tl.store(target + 2 * BLOCK + at, c)


@triton.jit
def spacious(a, b, target, N: tl.constexpr, STEPS: tl.constexpr):
    """Holds many stages of two wide tiles in shared memory."""
    row, column = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.zeros([N, N], tl.float32)
    for step in range(STEPS):
        left = tl.load(a + row * N * STEPS + step * N + column)
        right = tl.load(b + (step * N + row) * N + column)
        total = tl.dot(left, right, total)
    tl.store(target + row * N + column, total)


@triton.jit
def silent(source, target, BLOCK: tl.constexpr, KEEP: tl.constexpr):
    """Computes and keeps nothing, so that the compiler leaves nothing of it."""
    at = tl.arange(0, BLOCK)
    doubled = 2 * tl.load(source + at)
    if KEEP:
        tl.store(target + at, doubled)


@triton.jit
def number_by_number(a, b, target, N: tl.constexpr):
    """A matrix product as a sum of outer products."""
    row, column = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.zeros([N, N], tl.float32)
    for step in range(N):
        left = tl.load(a + row * N + step).to(tl.float32)
        total += left * tl.load(b + step * N + column).to(tl.float32)
    tl.store(target + row * N + column, total)


target = compiler.TARGETS[sys.argv[1]]
NVIDIA = target.vendor == "cuda"


def spill():
    block = 4_096 if NVIDIA else 16_384  # 384 or 768 numbers a thread
    numbers = torch.empty(3 * block)
    greedy[(1,)](numbers, torch.empty_like(numbers), BLOCK=block, num_warps=1)


def overflow():
    n, stages = (64, 14) if NVIDIA else (128, 3)
    a, b = torch.empty(n, n * 32).bfloat16(), torch.empty(n * 32, n).bfloat16()
    spacious[(1,)](a, b, torch.empty(n, n), N=n, STEPS=32, num_stages=stages, num_warps=8)


def nothing_stored():
    silent[(1,)](torch.empty(256), torch.empty(256), BLOCK=256, KEEP=False)


def no_products():
    a, b = torch.empty(16, 16).bfloat16(), torch.empty(16, 16).bfloat16()
    number_by_number[(1,)](a, b, torch.empty(16, 16), N=16)


PRODUCTS = ("spacious", "number_by_number")
found = [one for label, call in (("spill", spill), ("overflow", overflow),
                                 ("nothing stored", nothing_stored), ("no products", no_products))
         for one in compiler.compile_call(target, label, call, PRODUCTS)]
try:
    compiler.compile_call(target, "nothing", lambda: None)
except ValueError as error:
    nothing = str(error)
print(json.dumps({**compiler.as_json(target, found), "nothing": nothing,
                  "table": compiler.show(found)}))
