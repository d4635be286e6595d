"""decode_attention over pages: the same as over entries in a row, whatever lies where."""

import pytest
import torch

from kernels import bounds, decode_attention
from kernels.check import poisoned
from kernels.pages import in_pages, laid_out

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]


def close(output, wanted, tolerance=1e-5):
    assert torch.isfinite(output).all()
    torch.testing.assert_close(output.cpu().double(), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("seed", [0, 4])
def test_there_and_back(seed, draw):
    entries = draw(seed, 3, 35, 2, 6)
    pool, table = in_pages(entries, 5, seed)
    assert pool.shape == (21, 5, 2, 6) and sorted(table.flatten().tolist()) == list(range(21))
    assert table.flatten().tolist() != list(range(21))
    assert torch.equal(laid_out(pool, table), entries)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("page, pages, window, splits", [
    (1, 37, None, 3), (5, 13, 29, None), (16, 9, None, 2), (7, 1, 3, 1), (100, 3, 128, 5),
])
def test_equals_entries_in_a_row(impl, dtype, page, pages, window, splits, draw, device,
                                 reference):
    entries = page * pages
    query = draw(1, 3, 1, 6, 20)
    key, value = draw(2, 3, entries, 2, 20), draw(3, 3, entries, 2, 12)
    lengths = torch.tensor([entries, max(1, entries - page), 0], device=device)
    key_pool, table = in_pages(key, page)
    value_pool, _ = in_pages(value, page)
    with poisoned():
        output = decode_attention(query, key_pool, value_pool, window=window, lengths=lengths,
                                  block_table=table.to(dtype), splits=splits, impl=impl)
    close(output, reference(query, key, value, window=window, lengths=lengths))
    assert (output[2] == 0).all()


@pytest.mark.parametrize("impl", IMPLS)
def test_what_no_visible_entry_needs_may_be_anything(impl, draw, device, reference):
    query, key, value = draw(1, 2, 1, 6, 20), draw(2, 2, 40, 3, 20), draw(3, 2, 40, 3, 20)
    lengths = torch.tensor([33, 11], device=device)
    wanted = reference(query, key, value, window=9, lengths=lengths)
    (key_pool, table), (value_pool, _) = in_pages(key, 5), in_pages(value, 5)
    needed = torch.tensor([[j in range(4, 7) for j in range(8)], [j in range(3) for j in range(8)]])
    free = table.cpu()[~needed].tolist()
    key_pool[free], value_pool[free] = torch.nan, torch.nan
    table[~needed.to(device)] = -1  # given back: fallen out of the window, or not taken yet
    output = decode_attention(query, key_pool, value_pool, window=9, lengths=lengths,
                              block_table=table, impl=impl)
    close(output, wanted)


@pytest.mark.parametrize("impl", IMPLS)
def test_two_texts_share_their_first_pages(impl, draw, reference):
    query, pool, other = draw(1, 2, 1, 4, 12), draw(2, 6, 3, 2, 12), draw(3, 6, 3, 2, 12)
    table = torch.tensor([[4, 1, 5], [4, 1, 0]], device=pool.device)
    output = decode_attention(query, pool, other, block_table=table, impl=impl)
    close(output, reference(query, laid_out(pool, table), laid_out(other, table)))


@pytest.mark.parametrize("impl", IMPLS)
def test_views_of_a_pool(impl, draw, reference):
    pool = draw(2, 3, 9, 4, 2, 24).transpose(0, 2)  # [page row, page, kv head, both, D]
    pool = pool.permute(1, 0, 2, 3, 4)[1:8]
    key, value = pool[:, :, :, 0], pool[:, :, :, 1, 1::2]
    table = torch.tensor([[6, 0, 3, 2, 5, 1], [1, 2, 0, 4, 6, 3]], device=pool.device)[:, ::2]
    assert not any(x.is_contiguous() for x in (key, value, table))
    query = draw(1, 2, 1, 6, 24)
    output = decode_attention(query, key, value, block_table=table, impl=impl)
    close(output, reference(query, laid_out(key, table), laid_out(value, table)))


@pytest.mark.interpreter
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("window, lengths, splits", [(None, None, 2), (13, [40, 0, 31], 1)])
def test_counted_is_foretold(dtype, window, lengths, splits, draw):
    query, key, value = draw(1, 3, 1, 6, 20), draw(2, 3, 40, 2, 20), draw(3, 3, 40, 2, 12)
    (key_pool, table), (value_pool, _) = in_pages(key, 8), in_pages(value, 8)
    with bounds.counting() as counts, bounds.checking_overflow():
        decode_attention(query, key_pool, value_pool, window=window, splits=splits, impl="triton",
                         block_table=table.to(dtype),
                         lengths=None if lengths is None else torch.tensor(lengths))
    said = decode_attention.traffic(
        batch=3, entries=40, heads=6, kv_heads=2, head_dim=20, value_dim=12, window=window,
        lengths=lengths, splits=splits, itemsize=4, table_itemsize=dtype.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw, reference):
    stride, tensors = 2**29 + 40, []
    for seed in (2, 3):
        flat = torch.from_file(str(tmp_path / f"{seed}.bin"), shared=True, size=5 * stride,
                               dtype=torch.float16)
        view = flat.as_strided((5, 7, 3, 12), (stride, 36, 12, 1))
        view.copy_(draw(seed, 5, 7, 3, 12, dtype=torch.float16))
        tensors.append(view)
    query, table = draw(1, 2, 1, 6, 12, dtype=torch.float16), torch.tensor([[4, 0], [1, 4]]).int()
    with bounds.checking_overflow():
        output = decode_attention(query, *tensors, block_table=table, impl="triton")
    close(output, reference(query, *(laid_out(x, table) for x in tensors)), 3e-3)


@pytest.mark.parametrize("table, lengths, words", [
    (torch.zeros(2, 3), None, "block_table is torch.float32; expected a tensor of int32"),
    (torch.zeros(3, 2).int(), None, r"block_table has shape \(3, 2\); expected \(2, J\)"),
    (torch.tensor([[0, 1], [2, 4]]), None, r"block_table\[1, 1\] is 4; expected 0 to 3"),
    (torch.tensor([[0, 1], [-1, 2]]), None, r"block_table\[1, 0\] is -1"),
    (torch.tensor([[0, 1], [2, -1]]), [6, 4], r"block_table\[1, 1\] is -1"),
    (torch.tensor([[0, 1], [2, 3]]), [6, 7], "lengths goes from 6 to 7; expected 0 to 6"),
])
@pytest.mark.parametrize("impl", ["torch", None])
def test_errors_name_the_argument(table, lengths, words, impl):
    lengths = None if lengths is None else torch.tensor(lengths)
    key = torch.zeros(4, 3, 2, 8)
    with pytest.raises(ValueError, match=words):
        decode_attention(torch.zeros(2, 1, 6, 8), key, key, block_table=table, lengths=lengths,
                         impl=impl)
