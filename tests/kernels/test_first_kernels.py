"""The four small kernels of the first chapter: right, and open to print and breakpoint."""

import sys

import pytest
import torch

import kernels
from kernels import bounds, first_kernels
from kernels.check import poisoned

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 30])
def test_copy(impl, length, draw):
    source = draw(0, length * 2)[::2]
    with poisoned():
        copied = first_kernels.copy(source, impl=impl)
    assert torch.equal(copied, source) and copied.data_ptr() != source.data_ptr()


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("rows, columns", [(1, 1), (5, 11), (3, 16), (6, 17)])
def test_row_sum_and_softmax(impl, rows, columns, draw):
    table = draw(1, columns, rows).T * 30
    with poisoned():
        sums = first_kernels.row_sum(table, impl=impl)
        weights = first_kernels.softmax(table, impl=impl)
    torch.testing.assert_close(sums.double(), table.double().sum(1), rtol=0, atol=1e-4)
    torch.testing.assert_close(weights.double(), torch.softmax(table.double(), 1), rtol=0,
                               atol=1e-6)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("block", [1, 4, 16, 64])
@pytest.mark.parametrize("entries, dim", [(1, 3), (16, 12), (37, 24)])
def test_attend(impl, block, entries, dim, draw, reference):
    query, key, value = draw(1, dim), draw(2, entries, dim) * 5, draw(3, entries, dim)
    with poisoned():
        output = first_kernels.attend(query, key, value, block=block, impl=impl)
    wanted = reference(query[None, None, None], key[None, :, None], value[None, :, None])
    torch.testing.assert_close(output.cpu().double(), wanted.flatten(), rtol=0, atol=1e-5)


@pytest.mark.interpreter
@pytest.mark.parametrize("shape", first_kernels.SMALL, ids=lambda shape: shape.label)
def test_counted_is_foretold(shape):
    with bounds.counting() as counts:
        shape.function(**shape.arguments(), impl="triton")
    foretold = first_kernels.expected(shape)
    assert (counts.bytes_read, counts.bytes_written) == (
        foretold["bytes_read"], foretold["bytes_written"])


@pytest.mark.parametrize("call, words", [
    (lambda: first_kernels.copy(torch.zeros(3), block=6), "block is 6; expected a power of two"),
    (lambda: first_kernels.copy(torch.zeros(3, 2)), r"source has shape \(3, 2\)"),
    (lambda: first_kernels.softmax(torch.zeros(3)), r"table has shape \(3,\)"),
    (lambda: first_kernels.attend(torch.zeros(3), torch.zeros(5, 4), torch.zeros(5, 4)),
     "D is 4 there and 3 in query"),
])
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# A reader's own kernel, printing and stopping in the middle.
if kernels.backend.current().name == "interpret":
    import triton
    import triton.language as tl

    @triton.jit
    def double(source, target, length, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        numbers = tl.load(source + at, mask=at < length, other=0.0)
        print("program", tl.program_id(0), "holds", numbers)
        breakpoint()
        tl.store(target + at, numbers * 2, mask=at < length)


@pytest.mark.interpreter
def test_print_and_breakpoint_inside_a_kernel(capsys, monkeypatch):
    stops = []

    def stop():
        frame = sys._getframe(1)
        stops.append((frame.f_code.co_name, frame.f_lineno, str(frame.f_locals["numbers"])))

    monkeypatch.setattr(sys, "breakpointhook", stop)
    source = torch.tensor([1.0, 2.0, 3.0])
    target = torch.empty(3)
    double[(2,)](source, target, 3, BLOCK=2)
    assert target.tolist() == [2.0, 4.0, 6.0]
    assert capsys.readouterr().out == "program [0] holds [1. 2.]\nprogram [1] holds [3. 0.]\n"
    with open(__file__) as file:
        here = [i for i, line in enumerate(file, 1) if line.strip() == "breakpoint()"][0]
    assert [(name, line) for name, line, _ in stops] == [("double", here)] * 2
    assert stops[1][2] == "[3. 0.]"
