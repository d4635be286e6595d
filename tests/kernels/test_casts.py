"""bf16 and e4m3 in the interpreter, bit for bit what torch computes."""

import pytest
import torch

import kernels

pytestmark = pytest.mark.interpreter

if kernels.backend.current().name == "interpret":
    import triton
    import triton.language as tl

    @triton.jit
    def cast(source, target, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.store(target + at, tl.load(source + at).to(target.dtype.element_ty))

    @triton.jit
    def arithmetic(a, b, out, N: tl.constexpr):
        at = tl.arange(0, N)
        x, y = tl.load(a + at), tl.load(b + at)
        tl.store(out + at, x + y)
        tl.store(out + N + at, x * y)
        tl.store(out + 2 * N + at, x - y)
        tl.store(out + 3 * N + at, -x)
        tl.store(out + 4 * N + at, tl.maximum(x, y))
        tl.store(out + 5 * N + at, tl.where(x < y, x, y))
        tl.store(out + 6 * N + at, tl.abs(x))
        tl.store(out + 7 * N + at, tl.clamp(x, -y, y))
        tl.store(out + 8 * N + at, tl.fma(x, y, x))

    @triton.jit
    def reduce(a, out, sums, N: tl.constexpr):
        at = tl.arange(0, 8)[:, None] * N + tl.arange(0, N)[None, :]
        x = tl.load(a + at)
        row = tl.arange(0, 8)
        tl.store(out + row, tl.sum(x, 1))
        tl.store(out + 8 + row, tl.max(x, 1).to(tl.bfloat16))
        highest, index = tl.max(x, 1, return_indices=True)
        tl.store(out + 16 + row, highest)
        tl.store(out + 24 + row, index.to(tl.bfloat16))
        tl.store(sums + at, tl.cumsum(x, 1))

    @triton.jit
    def product(a, b, out, N: tl.constexpr):
        at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)))

N = 4096
EDGES = [0.0, -0.0, 1.0, -1.0, 3.3895e38, -3.4e38, 1e-40, 448.0, 464.0, 465.0, 500.0, 2.0**-9,
         2.0**-10, 1.5 * 2.0**-10, float("inf"), -float("inf"), 1.00390625, 1.01171875, 0.99609375]


def numbers(seed, n=N):
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(n, generator=generator) * 2.0 ** torch.randint(-30, 30, (n,),
                                                                        generator=generator)
    spread[:len(EDGES)] = torch.tensor(EDGES)
    return spread


@pytest.mark.parametrize("source, target", [
    (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32),
    (torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16),
    (torch.int32, torch.bfloat16), (torch.bfloat16, torch.bfloat16),
])
def test_casts_equal_torch(source, target):
    values = numbers(1).clamp(-60_000, 60_000) if torch.float16 in (source, target) else numbers(1)
    values = (values.clamp(-1e9, 1e9) if source == torch.int32 else values).to(source)
    out = torch.empty(N, dtype=target)
    cast[(1,)](values, out, N=N)
    assert torch.equal(out, values.to(target))


def test_ties_go_to_even_and_nan_stays_nan():
    values = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, float("nan")])
    out = torch.empty(4, dtype=torch.bfloat16)
    cast[(1,)](values, out, N=4)
    assert out[:3].tolist() == [1.0, 1 + 2**-6, 1 + 2**-7] and out[3].isnan()


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16])
def test_cast_to_e4m3(source):
    values = numbers(2).clamp(-1000, 1000).to(source)
    out = torch.empty(N, dtype=torch.float8_e4m3fn)
    cast[(1,)](values, out, N=N)
    wanted = values.float().clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(out.view(torch.uint8), wanted.view(torch.uint8))


def test_cast_from_e4m3_every_code():
    codes = torch.tensor([c for c in range(256) if c & 0x7F != 0x7F] + [0, 0], dtype=torch.uint8)
    values = codes.view(torch.float8_e4m3fn)
    for target in (torch.float32, torch.bfloat16):
        out = torch.empty(256, dtype=target)
        cast[(1,)](values, out, N=256)
        assert torch.equal(out, values.to(target))


def test_arithmetic_rounds_each_result_to_bf16():
    x, y = numbers(3).clamp(-1e15, 1e15), numbers(4).clamp(-1e15, 1e15)
    x, y = x.bfloat16(), y.bfloat16().abs()
    out = torch.empty(9, N, dtype=torch.bfloat16)
    arithmetic[(1,)](x, y, out, N=N)
    wide, high = x.double(), y.double()
    wanted = [x + y, x * y, x - y, -x, torch.maximum(x, y), torch.minimum(x, y), x.abs(),
              torch.minimum(torch.maximum(x, -y), y), (wide * high + wide).float().bfloat16()]
    for row, want in zip(out, wanted):
        assert torch.equal(row, want)


def test_reductions_are_taken_in_fp32_and_rounded_once():
    x = numbers(5, 8 * 32).clamp(-100, 100).bfloat16().view(8, 32)
    out, sums = torch.empty(4, 8, dtype=torch.bfloat16), torch.empty(8, 32, dtype=torch.bfloat16)
    reduce[(1,)](x, out, sums, N=32)
    wide = x.double()
    torch.testing.assert_close(out[0].double(), wide.sum(1), rtol=2**-8, atol=1e-30)
    torch.testing.assert_close(sums.double(), wide.cumsum(1), rtol=2**-8, atol=1e-4)
    assert torch.equal(out[1], x.amax(1)) and torch.equal(out[2], x.amax(1))
    assert torch.equal(out[3].long(), x.max(1).indices)


def test_dot_multiplies_values_not_bit_patterns():
    generator = torch.Generator().manual_seed(6)
    a, b = (torch.randn(32, 32, generator=generator).bfloat16() for _ in range(2))
    out = torch.empty(32, 32)
    product[(1,)](a, b, out, N=32)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=0, atol=1e-4)
