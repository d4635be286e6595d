"""Out of bounds is an IndexError that says where; loads, stores and overflows are seen."""

import pytest
import torch

import kernels
from kernels import bounds

pytestmark = pytest.mark.interpreter

if kernels.backend.current().name == "interpret":
    import triton
    import triton.language as tl

    @triton.jit
    def load_at(source, target, offset, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(target + at, tl.load(source + offset + tl.program_id(0) * BLOCK + at))

    @triton.jit
    def store_at(source, target, offset, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(target + offset + at, tl.load(source + at))

    @triton.jit
    def masked(source, target, length, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        numbers = tl.load(source + at, mask=at < length, other=7.0)
        tl.store(target + at, numbers, mask=at < length)

    @triton.jit
    def table(source, target, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        row = source + tl.arange(0, ROWS)[:, None] * stride
        cells = tl.reshape(tl.trans(row + tl.arange(0, COLUMNS)[None, :]), [ROWS * COLUMNS])
        tl.store(target + tl.arange(0, ROWS * COLUMNS), tl.load(cells))

    @triton.jit
    def one(source, target, offset):
        tl.store(target, tl.load(source + offset) + 1)

    @triton.jit
    def add_to(target, offset):
        tl.atomic_add(target + offset + tl.arange(0, 2), 1.0)

    @triton.jit
    def inner(source, at):
        return tl.load(source + at)

    @triton.jit
    def outer(source, target, offset):
        at = tl.arange(0, 4)
        tl.store(target + at, inner(source, at + offset))

    @triton.jit
    def multiply(target, factor):
        tl.store(target, (tl.load(target) * factor * factor).to(tl.int32))

    @triton.jit
    def fails(target):
        tl.store(target, 1.0)
        raise KeyError("my own mistake")


def test_a_load_outside_names_kernel_argument_program_and_offset():
    source, target = torch.zeros(10), torch.zeros(8)
    with pytest.raises(IndexError) as caught:
        load_at[(2,)](source, target, 0, BLOCK=8)
    assert str(caught.value) == (
        "kernel load_at, program (1, 0, 0): tl.load is out of bounds: 6 of 8 elements lie outside"
        " source, the first at offset 10; source has elements 0 to 9."
        " Is a mask missing, or an offset wrong?")


@pytest.mark.parametrize("offset, count, first", [(-3, 3, -3), (5, 5, 8), (10**9, 8, 10**9),
                                                  (-10**9, 8, -10**9)])
def test_a_store_outside_writes_nothing(offset, count, first):
    source, target = torch.ones(8), torch.zeros(8)
    words = f"tl.store is out of bounds: {count} of 8 .* target, the first at offset {first};"
    with pytest.raises(IndexError, match=words):
        store_at[(1,)](source, target, offset, BLOCK=8)
    assert (target == 0).all()


def test_a_neighbour_in_memory_is_not_mine():
    # Both tensors are views of one storage: the bytes exist, but they belong to the other.
    both = torch.arange(16.0)
    source, target = both[:8], both[8:]
    with pytest.raises(IndexError, match="outside source"):
        load_at[(1,)](source, target, 4, BLOCK=8)


@pytest.mark.parametrize("view, columns, fine", [
    (torch.zeros(4, 8)[:, :4], 4, True), (torch.zeros(4, 8)[:, :4], 8, False),
    (torch.zeros(4, 8)[1:, 2:], 4, False),
])
def test_a_view_reaches_as_far_as_its_last_element(view, columns, fine):
    target = torch.zeros(4 * columns)
    if fine:
        table[(1,)](view, target, 8, ROWS=4, COLUMNS=columns)
    else:
        with pytest.raises(IndexError, match="outside source"):
            table[(1,)](view, target, 8, ROWS=4, COLUMNS=columns)


def test_masked_elements_may_point_anywhere_and_scalars_are_checked():
    source, target = torch.ones(5), torch.zeros(5)
    masked[(1,)](source, target, 5, BLOCK=8)
    assert (target == 1).all()
    with pytest.raises(IndexError, match="1 of 1 elements lie outside source"):
        one[(1,)](source, target, 5)
    with pytest.raises(IndexError, match="source is empty"):
        one[(1,)](torch.zeros(0), target, 0)


def test_atomics_are_checked_and_counted_both_ways():
    target = torch.zeros(5)
    with bounds.counting() as counts:
        add_to[(1,)](target, 3)
    assert target.tolist() == [0, 0, 0, 1, 1]
    assert (counts["target"].loads, counts["target"].stores) == (2, 2)
    with pytest.raises(IndexError, match="tl.atomic is out of bounds: 1 of 2"):
        add_to[(1,)](target, 4)


def test_a_function_called_by_a_kernel_is_checked_and_the_next_launch_is_fine():
    source, target = torch.arange(6.0), torch.zeros(4)
    with pytest.raises(IndexError, match="kernel outer.*2 of 4 elements lie outside source"):
        outer[(1,)](source, target, 4)
    outer[(1,)](source, target, 2)
    assert target.tolist() == [2, 3, 4, 5]


def test_other_mistakes_come_out_as_themselves():
    with pytest.raises(KeyError, match="my own mistake"):
        fails[(1,)](torch.zeros(1))


def test_counts_by_kernel_and_argument():
    source, target = torch.zeros(20, dtype=torch.float64), torch.zeros(20)
    with bounds.counting() as counts:
        masked[(1,)](source, target, 5, BLOCK=8)
        masked[(1,)](source, target, 0, BLOCK=8)
        load_at[(2,)](source, target, 0, BLOCK=4)
    assert counts.launches == 3 and counts.programs == 4
    assert counts.rows[("masked", "source")] == bounds.Count(loads=5, bytes_loaded=40)
    assert counts["source"] == bounds.Count(loads=13, bytes_loaded=104)
    assert counts["target"] == bounds.Count(stores=13, bytes_stored=52)
    assert (counts.bytes_read, counts.bytes_written) == (104, 52)
    assert "masked" in str(counts) and "104" in str(counts).splitlines()[-1]
    with pytest.raises(KeyError, match="no kernel touched 'query'; touched: source, target"):
        counts["query"]
    masked[(1,)](source, target, 5, BLOCK=8)
    assert counts.launches == 3  # counting ended with its block


def test_counting_nests():
    source, target = torch.zeros(8), torch.zeros(8)
    with bounds.counting() as all_counts:
        masked[(1,)](source, target, 3, BLOCK=8)
        with bounds.counting() as inner_counts:
            masked[(1,)](source, target, 2, BLOCK=8)
    assert (all_counts.bytes_read, inner_counts.bytes_read) == (20, 8)


def test_overflow_is_reported_when_asked_for():
    target = torch.tensor([70_000], dtype=torch.int32)
    multiply[(1,)](target, 3_000)
    assert target.item() == (70_000 * 3_000 * 3_000 + 2**31) % 2**32 - 2**31  # wraps, as on a GPU
    target.fill_(70_000)
    with bounds.checking_overflow(), pytest.raises(OverflowError) as caught:
        multiply[(1,)](target, 3_000)
    assert "kernel multiply, program (0, 0, 0): int32 overflow" in str(caught.value)
    assert "tl.int64" in str(caught.value)


def test_tensors_on_the_cpu_are_not_copied_around(monkeypatch):
    source, target = torch.ones(8), torch.zeros(8)
    monkeypatch.setattr(torch.UntypedStorage, "copy_",
                        lambda *_: pytest.fail("copied a storage onto itself"))
    masked[(1,)](source, target, 8, BLOCK=8)
    assert (target == 1).all()


def test_install_again_changes_nothing():
    from triton.runtime import interpreter as stock

    from kernels import interpreter

    before = stock.GridExecutor, stock._patch_lang, stock._implicit_cvt
    interpreter.install()
    assert before == (stock.GridExecutor, stock._patch_lang, stock._implicit_cvt)
