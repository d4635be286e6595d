"""decode_attention against an attention in numpy: splits, groups, and what breaks a merge."""

import pytest
import torch

from kernels import bounds, decode_attention
from kernels.check import poisoned

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]


def close(output, wanted, tolerance=1e-5):
    assert torch.isfinite(output).all()
    torch.testing.assert_close(output.cpu().double(), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("entries, heads, kv_heads, dim, value_dim, splits", [
    (1, 3, 3, 5, 5, None),
    (127, 3, 1, 40, 40, 1),
    (128, 6, 2, 96, 96, 3),
    (129, 6, 3, 24, 12, 2),
    (131, 6, 6, 192, 128, 1),
])
def test_equals_the_reference(impl, seed, entries, heads, kv_heads, dim, value_dim, splits,
                              draw, reference):
    query = draw(seed, 3, 1, heads, dim)
    key, value = draw(seed + 1, 3, entries, kv_heads, dim), draw(seed + 2, 3, entries, kv_heads,
                                                                 value_dim)
    with poisoned():
        output = decode_attention(query, key, value, splits=splits, impl=impl)
    assert output.shape == (3, 1, heads, value_dim)
    close(output, reference(query, key, value))


@pytest.mark.triton_runs
@pytest.mark.parametrize("splits", [1, 2, 3, 5, 64])
def test_any_number_of_splits_merges_to_the_same(splits, draw, reference):
    # Blocks hold 256 entries at this width, so 64 splits leave most of them empty.
    query, key, value = draw(1, 2, 1, 6, 200), draw(2, 2, 700, 2, 200), draw(3, 2, 700, 2, 200)
    with poisoned():
        output = decode_attention(query, key, value, splits=splits, impl="triton")
    close(output, reference(query, key, value))


@pytest.mark.parametrize("impl", IMPLS)
def test_a_large_score_in_one_split_only(impl, draw, reference):
    # exp(score) alone would overflow fp32, and one split outweighs the other entirely.
    query, key, value = draw(1, 1, 1, 3, 200), draw(2, 1, 700, 3, 200), draw(3, 1, 700, 3, 200)
    key[:, 650] = query[:, 0] * 60
    output = decode_attention(query, key, value, splits=2, impl=impl)
    close(output, reference(query, key, value), 1e-4)
    assert (output[0, 0] - value[0, 650]).abs().max() < 1e-4


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("window", [1, 7, 40, 1000])
@pytest.mark.parametrize("splits", [None, 3])
def test_window_lengths_and_nan_in_unused_slots(impl, window, splits, draw, device, reference):
    query, key, value = draw(1, 4, 1, 6, 20), draw(2, 4, 77, 2, 20), draw(3, 4, 77, 2, 20)
    lengths = torch.tensor([77, 40, 1, 0], device=device)
    for row, length in enumerate(lengths.tolist()):
        key[row, length:] = torch.nan
        value[row, length:] = torch.nan
        key[row, :max(0, length - window)] = torch.nan  # fallen out of the window
        value[row, :max(0, length - window)] = torch.nan
    with poisoned():
        output = decode_attention(query, key, value, window=window, lengths=lengths,
                                  splits=splits, impl=impl)
    close(output, reference(query, key, value, window=window, lengths=lengths))
    assert (output[3] == 0).all()  # no entry at all: every split is empty


@pytest.mark.parametrize("impl", IMPLS)
def test_views_of_a_larger_cache(impl, draw, reference):
    cache = draw(2, 3, 40, 2, 2, 24)  # key and value side by side, capacity 40
    key, value = cache[:, 3:34, 0], cache[:, 3:34, 1, :, 1::2]
    query = draw(1, 24, 6, 3).permute(2, 1, 0)[:, None]
    assert not any(x.is_contiguous() for x in (query, key, value))
    close(decode_attention(query, key, value, impl=impl), reference(query, key, value))


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_16_bit(dtype, tolerance, draw, reference):
    query = draw(1, 2, 1, 6, 40, dtype=dtype)
    key, value = draw(2, 2, 77, 3, 40, dtype=dtype), draw(3, 2, 77, 3, 40, dtype=dtype)
    output = decode_attention(query, key, value, splits=2, impl="triton")
    assert output.dtype == dtype
    close(output.double(), reference(query, key, value), tolerance)


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw, reference):
    # Row 2 of the batch starts above 2**31 elements, in a sparse file: no memory is used. The
    # stride itself fits in 32 bits, so only a product in 32 bits overflows.
    stride = 2**30 + 40
    tensors = []
    for seed in (2, 3):
        flat = torch.from_file(str(tmp_path / f"{seed}.bin"), shared=True, size=2 * stride + 4096,
                               dtype=torch.float16)
        view = flat.as_strided((3, 19, 3, 12), (stride, 36, 12, 1))
        view.copy_(draw(seed, 3, 19, 3, 12, dtype=torch.float16))
        tensors.append(view)
    query = draw(1, 3, 1, 6, 12, dtype=torch.float16)
    with bounds.checking_overflow():
        output = decode_attention(query, *tensors, splits=2, impl="triton")
    close(output.double(), reference(query, *tensors), 3e-3)


@pytest.mark.interpreter
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("window, lengths", [(None, None), (13, None), (None, [150, 0, 31]),
                                             (13, [150, 1, 31])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_counted_is_foretold(splits, window, lengths, dtype, draw):
    query = draw(1, 3, 1, 6, 20, dtype=dtype)
    key, value = draw(2, 3, 150, 2, 20, dtype=dtype), draw(3, 3, 150, 2, 12, dtype=dtype)
    with bounds.counting() as counts:
        decode_attention(query, key, value, window=window, splits=splits, impl="triton",
                         lengths=None if lengths is None else torch.tensor(lengths))
    foretold = decode_attention.traffic(
        batch=3, entries=150, heads=6, kv_heads=2, head_dim=20, value_dim=12, window=window,
        lengths=lengths, splits=splits, itemsize=dtype.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (
        foretold["bytes_read"], foretold["bytes_written"])


@pytest.mark.interpreter
def test_the_cache_is_read_once_for_all_heads_of_a_group(draw):
    query = draw(1, 2, 1, 12, 20)
    key, value = draw(2, 2, 150, 2, 20), draw(3, 2, 150, 2, 20)
    with bounds.counting() as counts:
        decode_attention(query, key, value, splits=3, impl="triton")
    assert counts["key"].loads == key.numel() and counts["value"].loads == value.numel()


@pytest.mark.parametrize("options, words", [
    ({"splits": 0}, "splits is 0"), ({"splits": 1.5}, "splits is 1.5"),
    ({"window": -1}, "window is -1"), ({"impl": "gpu"}, "impl is 'gpu'"),
    ({"lengths": torch.tensor([3])}, r"lengths has shape \(1,\); expected \(2,\)"),
])
def test_errors_name_the_argument(options, words):
    query, key = torch.zeros(2, 1, 6, 8), torch.zeros(2, 9, 3, 8)
    with pytest.raises(ValueError, match=words):
        decode_attention(query, key, key, **{"impl": "torch", **options})


def test_several_new_tokens_belong_to_flash_attention():
    key = torch.zeros(2, 9, 3, 8)
    with pytest.raises(ValueError, match="T is 2, expected 1 new token; flash_attention takes"):
        decode_attention(torch.zeros(2, 2, 6, 8), key, key)
    with pytest.raises(ValueError, match="query has 5 heads and key 3"):
        decode_attention(torch.zeros(2, 1, 5, 8), key, key)
