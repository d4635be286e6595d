"""indexer_scores against a sum head by head in numpy: heads, groups, what is not visible."""

import numpy as np
import pytest
import torch

from kernels import bounds, indexer_scores
from kernels.check import poisoned
from kernels.visibility import counts_of

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]


def wanted(query, weight, key, ratio=1, start=None):
    query, weight, key = (x.double().cpu().numpy() for x in (query, weight, key))
    batch, tokens, heads, _ = query.shape
    seen = counts_of(batch=batch, tokens=tokens, entries=key.shape[1], ratio=ratio, start=start)
    score = np.zeros((batch, tokens, key.shape[1]))
    for b in range(batch):
        for t in range(tokens):
            count = seen[b][t]
            for h in range(heads):
                match = key[b, :count] @ query[b, t, h]
                score[b, t, :count] += weight[b, t, h] * np.maximum(match, 0)
    return torch.from_numpy(score)


def close(score, answer, tolerance=2e-5):
    assert score.dtype == torch.float32 and torch.isfinite(score).all()
    torch.testing.assert_close(score.cpu().double(), answer, rtol=1e-6, atol=tolerance)


def inputs(draw, seed, batch, tokens, entries, heads, dim, dtype=torch.float32):
    return (draw(seed, batch, tokens, heads, dim, dtype=dtype),
            draw(seed + 1, batch, tokens, heads, dtype=dtype) * heads**-0.5,
            draw(seed + 2, batch, entries, dim, dtype=dtype))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("tokens, entries, heads, dim", [
    (1, 1, 1, 5), (1, 127, 3, 40), (3, 128, 6, 24), (13, 129, 5, 12), (66, 70, 3, 20),
])
def test_equals_the_reference(impl, seed, tokens, entries, heads, dim, draw):
    tensors = inputs(draw, seed, 3, tokens, entries, heads, dim)
    with poisoned():
        score = indexer_scores(*tensors, impl=impl)
    close(score, wanted(*tensors))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("ratio, start", [(1, 20), (2, 30), (4, None), (3, [150, 0, -40]),
                                          (128, 500)])
def test_groups_lengths_and_nan_in_what_is_not_visible(impl, ratio, start, draw, device):
    tensors = inputs(draw, 5, 3, 21, 43, 3, 12)
    seen = counts_of(batch=3, tokens=21, entries=43, ratio=ratio, start=start)
    for b in range(3):
        tensors[2][b, max(seen[b]):] = torch.nan
    at = torch.tensor(start, device=device) if isinstance(start, list) else start
    with poisoned():
        score = indexer_scores(*tensors, ratio=ratio, start=at, impl=impl)
    close(score, wanted(*tensors, ratio, start))
    for b in range(3):
        for t in range(21):
            assert (score[b, t, seen[b][t]:] == 0).all()
    if isinstance(start, list):
        assert (score[2] == 0).all()  # before position 0: nothing is visible


@pytest.mark.parametrize("impl", IMPLS)
def test_relu_comes_before_the_weights(impl, device):
    query = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]], device=device)
    key = torch.tensor([[[3.0, -5.0], [-2.0, 4.0], [-1.0, -1.0]]], device=device)
    weight = torch.tensor([[[2.0, -10.0]]], device=device)
    assert indexer_scores(query, weight, key, impl=impl).tolist() == [[[6.0, -40.0, 0.0]]]


@pytest.mark.parametrize("impl", IMPLS)
def test_views_of_a_larger_cache(impl, draw):
    key = draw(3, 12, 3, 40).permute(1, 2, 0)[:, 2:39]
    query = draw(1, 12, 5, 7, 3).permute(3, 2, 1, 0)
    weight = draw(2, 5, 3, 14)[:, :, ::2].permute(1, 2, 0)
    assert not any(x.is_contiguous() for x in (key, query, weight))
    close(indexer_scores(query, weight, key, impl=impl), wanted(query, weight, key))


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit(dtype, draw):
    tensors = inputs(draw, 6, 2, 7, 77, 3, 40, dtype)
    with poisoned():
        score = indexer_scores(*tensors, impl="triton")
    close(score, wanted(*tensors), 1e-4)  # the products are exact, the sums are in fp32


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw):
    stride = 2**30 + 40
    flat = torch.from_file(str(tmp_path / "key.bin"), shared=True, size=2 * stride + 4096,
                           dtype=torch.float16)
    key = flat.as_strided((3, 19, 12), (stride, 36, 1))
    query, weight, normal = inputs(draw, 7, 3, 5, 19, 3, 12, torch.float16)
    key.copy_(normal)
    with bounds.checking_overflow():
        score = indexer_scores(query, weight, key, impl="triton")
    close(score, wanted(query, weight, key), 1e-4)


@pytest.mark.interpreter
@pytest.mark.parametrize("ratio, start", [(1, None), (2, 55), (3, [170, 0, 55])])
@pytest.mark.parametrize("tokens, dtype", [(1, torch.float32), (70, torch.bfloat16)])
def test_counted_is_foretold(ratio, start, tokens, dtype, draw):
    tensors = inputs(draw, 8, 3, tokens, 1_100, 5, 12, dtype)
    with bounds.counting() as counts:
        indexer_scores(*tensors, ratio=ratio, impl="triton",
                       start=torch.tensor(start) if isinstance(start, list) else start)
    tile = (64, 1_024) if tokens == 70 else (1, 2_048)  # the interpreter's
    foretold = indexer_scores.traffic(
        batch=3, tokens=tokens, entries=1_100, heads=5, dim=12, ratio=ratio, start=start,
        blocks=tile, itemsize=dtype.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (
        foretold["bytes_read"], foretold["bytes_written"])


@pytest.mark.interpreter
def test_a_key_is_read_once_for_all_heads(draw):
    tensors = inputs(draw, 9, 2, 11, 150, 12, 20)
    with bounds.counting() as counts:
        indexer_scores(*tensors, impl="triton")
    assert counts["key"].loads == tensors[2].numel()


@pytest.mark.parametrize("options, words", [
    ({"ratio": 0}, "ratio is 0; expected the tokens of an entry"),
    ({"start": torch.tensor([3])}, r"start has shape \(1,\); expected \(2,\)"),
    ({"impl": "gpu"}, "impl is 'gpu'"),
    ({"weight_BTI": torch.zeros(2, 5, 4)}, r"weight has shape \(2, 5, 4\) .* I is 4 there and 3"),
    ({"key_BSD": torch.zeros(2, 9, 7)}, r"key has shape \(2, 9, 7\) .* D is 7 there and 8"),
    ({"key_BSD": torch.zeros(2, 9, 8).bfloat16()}, "key has dtype torch.bfloat16"),
])
def test_errors_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        indexer_scores(**{"query_BTID": torch.zeros(2, 5, 3, 8), "impl": "torch",
                          "weight_BTI": torch.zeros(2, 5, 3), "key_BSD": torch.zeros(2, 9, 8),
                          **options})
