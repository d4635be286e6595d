"""sparse_attention against an attention over one list of rows at a time, in numpy."""

import numpy as np
import pytest
import torch

from kernels import bounds, gates, sparse_attention
from kernels.check import poisoned

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]


def listed(query, entry, index, window=None, lengths=None, reach=None, sink=None, value_dim=None,
           scale=None):
    """One token, one head and one row after another, in fp64."""
    query, *parts = (None if x is None else x.detach().double().cpu().numpy()
                     for x in (query, entry, window, sink))
    entry, window, sink = parts
    batch, tokens, heads, dim = query.shape
    value_dim, scale = value_dim or dim, scale or dim**-0.5
    output = np.zeros((batch, tokens, heads, value_dim))
    for b, t, h in np.ndindex(batch, tokens, heads):
        rows = [] if entry is None else [entry[b, s] for s in index[b, t].tolist() if s >= 0]
        if window is not None:
            own = (window.shape[1] if lengths is None else int(lengths[b])) - tokens + t
            first = max(0, own + 1 - (reach or window.shape[1]))
            rows += [window[b, w] for w in range(first, own + 1)]
        if rows:
            score = np.array([row @ query[b, t, h] * scale for row in rows])
            logits = score if sink is None else np.append(score, sink[h])
            weight = np.exp(score - logits.max()) / np.exp(logits - logits.max()).sum()
            output[b, t, h] = weight @ np.stack(rows)[:, :value_dim]
    return torch.from_numpy(output)


def lists(seed, batch, tokens, entries, k, empty=(0,), dtype=torch.int32):
    """Random distinct entries in position order; the last places of token t's list are -1."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.full((batch, tokens, k), -1, dtype=dtype)
    for b, t in np.ndindex(batch, tokens):
        count = k - empty[(b * tokens + t) % len(empty)]
        index[b, t, :count] = torch.randperm(entries, generator=generator)[:count].sort()[0]
    return index


def close(output, wanted, tolerance=1e-5):
    assert torch.isfinite(output).all()
    torch.testing.assert_close(output.cpu().double(), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("tokens, heads, dim, entries, k, rows, reach, splits", [
    (1, 3, 40, 37, 9, 12, None, None),
    (5, 6, 24, 129, 33, 12, 7, 2),
    (3, 5, 96, 19, 1, 3, 1, 3),
    (2, 1, 5, 1, 1, 127, 5, None),
])
def test_equals_one_row_after_another(impl, seed, tokens, heads, dim, entries, k, rows, reach,
                                      splits, draw, device):
    query, entry = draw(seed, 3, tokens, heads, dim), draw(seed + 1, 3, entries, dim)
    window, sink = draw(seed + 2, 3, rows, dim), draw(seed + 3, heads)
    index = lists(seed, 3, tokens, entries, k, empty=(0, 1, k)).to(device)
    with poisoned():
        output = sparse_attention(query, entry, index, window_BWD=window, reach=reach,
                                  sink_H=sink, splits=splits, impl=impl)
    assert output.shape == query.shape
    close(output, listed(query, entry, index, window, None, reach, sink))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("value_dim, dim", [(40, 46), (64, 76), (1, 5)])
@pytest.mark.parametrize("splits", [None, 4])
def test_latent_and_rope(impl, value_dim, dim, splits, draw, device):
    # The form of V3.2: no window, no sink, and the value is the first part of the key.
    query, entry = draw(0, 2, 3, 6, dim), draw(1, 2, 150, dim)
    index = lists(2, 2, 3, 150, 70, empty=(0, 69, 70)).to(device)
    with poisoned():
        output = sparse_attention(query, entry, index, value_dim=value_dim, scale=0.3,
                                  splits=splits, impl=impl)
    close(output, listed(query, entry, index, value_dim=value_dim, scale=0.3))
    assert (output.flatten(0, 1)[2] == 0).all() and (output.flatten(0, 1)[5] == 0).all()


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 16 rows in the interpreter, so that lists have many and splits are real."""
    module = gates.module("sparse_attention")
    usual = module._blocks
    monkeypatch.setattr(module, "_blocks", lambda *args: {**usual(*args), "BLOCK_S": 16})


@pytest.mark.triton_runs
@pytest.mark.parametrize("splits", [1, 2, 5, 64])
@pytest.mark.parametrize("growing", [0.0, 0.03, -0.03])
def test_many_blocks_and_splits(splits, growing, draw, device, small_blocks):
    # Scores may grow from block to block; with 64 splits most are empty; a list that ends
    # early leaves whole blocks of -1 at the end of a split, one that is empty nothing else.
    query, entry = draw(3, 2, 2, 3, 20), draw(4, 2, 300, 20)
    entry += growing * query[:, :1, 0] * torch.arange(300, device=device)[:, None] / 10
    window = draw(5, 2, 45, 20)
    index = lists(6, 2, 2, 300, 90, empty=(0, 50, 90)).to(device)
    with poisoned():
        output = sparse_attention(query, entry, index, window_BWD=window, reach=40,
                                  sink_H=draw(7, 3), splits=splits, impl="triton")
    close(output, listed(query, entry, index, window, None, 40, draw(7, 3)), 1e-4)


@pytest.mark.triton_runs
@pytest.mark.parametrize("splits", [1, 3])
def test_leading_blocks_with_nothing_in_them(splits, draw, device, small_blocks):
    query, entry = draw(3, 1, 1, 3, 20), draw(4, 1, 80, 20)
    index = torch.full((1, 1, 70), -1, dtype=torch.int32, device=device)
    index[0, 0, 50:53] = torch.tensor([7, 2, 79])  # unsorted, after three blocks of -1
    with poisoned():
        output = sparse_attention(query, entry, index, splits=splits, impl="triton")
    close(output, listed(query, entry, index))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("sink", [None, 0.5])
@pytest.mark.parametrize("splits", [None, 3])
def test_a_token_that_sees_nothing_gets_zeros(impl, sink, splits, draw, device):
    query, entry, window = draw(0, 3, 2, 5, 12), draw(1, 3, 30, 12), draw(2, 3, 20, 12)
    index = torch.full((3, 2, 7), -1, device=device)
    lengths = torch.tensor([0, 1, 20], device=device)
    sink = None if sink is None else torch.full((5,), sink, device=device)
    with poisoned():
        output = sparse_attention(query, entry, index, window_BWD=window, window_lengths=lengths,
                                  sink_H=sink, splits=splits, impl=impl)
    assert (output[0] == 0).all() and (output[1, 0] == 0).all()
    close(output, listed(query, entry, index, window, lengths, None, sink))


@pytest.mark.parametrize("impl", IMPLS)
def test_nan_where_nothing_is_read(impl, draw, device):
    query, entry, window = draw(0, 2, 2, 3, 12), draw(1, 2, 30, 12), draw(2, 2, 20, 12)
    index = lists(3, 2, 2, 30, 5, empty=(0, 2)).to(device)
    options = dict(window_lengths=torch.tensor([20, 9], device=device), reach=4, impl=impl)
    clean = sparse_attention(query, entry, index, window_BWD=window, **options)
    for b in range(2):
        used = index[b].flatten().tolist()
        entry[b, [s for s in range(30) if s not in used]] = torch.nan
        end = (20, 9)[b]
        window[b, end:], window[b, :end - 5] = torch.nan, torch.nan
    with poisoned():
        output = sparse_attention(query, entry, index, window_BWD=window, **options)
    assert torch.equal(output, clean)


@pytest.mark.parametrize("impl", IMPLS)
def test_a_ring_in_any_order(impl, draw, device):
    query, entry, window = draw(0, 2, 1, 3, 12), draw(1, 2, 30, 12), draw(2, 2, 9, 12)
    index = lists(3, 2, 1, 30, 5).to(device)
    in_order = sparse_attention(query, entry, index, window_BWD=window, impl=impl)
    turned = sparse_attention(query, entry, index, window_BWD=window.roll(4, 1), impl=impl)
    close(turned, in_order.cpu().double(), 1e-6)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("size", [30.0, -30.0])
def test_sinks_that_take_all_or_nothing(impl, size, draw, device):
    query, entry = draw(0, 2, 2, 3, 12), draw(1, 2, 30, 12)
    index = lists(3, 2, 2, 30, 5).to(device)
    sink = torch.tensor([size, -torch.inf, 0.0], device=device)
    output = sparse_attention(query, entry, index, sink_H=sink, impl=impl)
    close(output, listed(query, entry, index, sink=sink))
    without = sparse_attention(query, entry, index, impl=impl)
    close(output[:, :, 1], without[:, :, 1].cpu().double(), 1e-6)
    if size > 0:
        assert output[:, :, 0].abs().max() < 1e-8


@pytest.mark.parametrize("impl", IMPLS)
def test_scores_of_any_size(impl, draw, device):
    # Scores near -1e5 all over: a finite mask value such as -1e4 would exceed them.
    query, entry = draw(0, 1, 2, 3, 12).abs() * 100, -draw(1, 1, 30, 12).abs() * 1000
    index = lists(3, 1, 2, 30, 9, empty=(4, 0)).to(device)
    output = sparse_attention(query, entry, index, scale=1.0, impl=impl)
    close(output / 1000, listed(query, entry, index, scale=1.0) / 1000)


@pytest.mark.parametrize("impl", IMPLS)
def test_equals_one_softmax_under_a_mask(impl, draw, device):
    query, far, near = draw(0, 2, 4, 3, 32), draw(1, 2, 21, 32), draw(2, 2, 10, 32)
    index, sink = lists(4, 2, 4, 21, 8, empty=(0, 3)).long().to(device), draw(5, 3)
    back = torch.arange(6, 10, device=device)[:, None] - torch.arange(10, device=device)
    near_BTS = ((back >= 0) & (back < 5)).expand(2, -1, -1)
    far_BTS = (index[..., None] == torch.arange(21, device=device)).any(2)
    visible = torch.cat([near_BTS, far_BTS], 2)[:, :, None]
    rows = torch.cat([near, far], 1).double()
    score = torch.einsum("bthd,bsd->bths", query.double(), rows) * 32**-0.5
    weight = score.exp() * visible / ((score.exp() * visible).sum(3, keepdim=True)
                                      + sink.double().exp()[:, None])
    output = sparse_attention(query, far, index, window_BWD=near, reach=5, sink_H=sink, impl=impl)
    close(output, torch.einsum("bths,bsd->bthd", weight, rows).cpu())


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("entries, k", [(None, None), (0, 0), (7, 0), (0, 4)])
def test_no_far_entries_yet(impl, entries, k, draw, device):
    query, window = draw(0, 2, 3, 5, 12), draw(1, 2, 9, 12)
    entry = None if entries is None else draw(2, 2, entries, 12)
    index = None if k is None else torch.full((2, 3, k), -1, device=device)
    with poisoned():
        output = sparse_attention(query, entry, index, window_BWD=window, reach=4, impl=impl)
        nothing = sparse_attention(query, entry, index, impl=impl)
    close(output, listed(query, None, None, window, None, 4))
    assert (nothing == 0).all() and nothing.shape == query.shape


@pytest.mark.parametrize("impl", IMPLS)
def test_listed_twice_counts_twice(impl, draw, device):
    query, entry = draw(0, 1, 1, 3, 12), draw(1, 1, 9, 12)
    index = torch.tensor([[[4, 4, 1]]], device=device)
    close(sparse_attention(query, entry, index, impl=impl), listed(query, entry, index))


@pytest.mark.parametrize("impl", IMPLS)
def test_views_of_any_stride(impl, draw, device):
    query = draw(0, 12, 5, 3, 2).permute(3, 2, 1, 0)
    entry = draw(1, 24, 31, 2).permute(2, 1, 0)[:, 1:, ::2]
    window = draw(2, 2, 40, 12)[:, ::4]
    index = lists(3, 7, 3, 30, 2).permute(2, 1, 0).to(device)
    assert not any(x.is_contiguous() for x in (query, entry, window, index))
    output = sparse_attention(query, entry, index, window_BWD=window, impl=impl)
    close(output, listed(query, entry, index, window))


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
@pytest.mark.parametrize("splits", [1, 2])
def test_16_bit(dtype, tolerance, splits, draw, device):
    query, entry = draw(0, 2, 3, 6, 40, dtype=dtype), draw(1, 2, 77, 40, dtype=dtype)
    window, index = draw(2, 2, 9, 40, dtype=dtype), lists(3, 2, 3, 77, 33).to(device)
    output = sparse_attention(query, entry, index, window_BWD=window, sink_H=draw(4, 6),
                              splits=splits, impl="triton")
    assert output.dtype == dtype
    close(output.double(), listed(query, entry, index, window, sink=draw(4, 6)), tolerance)


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw):
    def far_apart(name, tensor, strides):
        size = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, strides))
        flat = torch.from_file(str(tmp_path / name), shared=True, size=size, dtype=tensor.dtype)
        view = flat.as_strided(tensor.shape, strides)
        view.copy_(tensor)
        return view

    query = draw(0, 3, 2, 5, 12, dtype=torch.float16)
    entry, window = draw(1, 3, 19, 12, dtype=torch.float16), draw(2, 3, 5, 12, dtype=torch.float16)
    index = lists(3, 3, 2, 19, 4)
    with bounds.checking_overflow():
        output = sparse_attention(
            query, far_apart("entry", entry, (36, 2**27 + 8, 1)),
            far_apart("index", index, (8, 2**30 + 4, 1)),
            window_BWD=far_apart("window", window, (2**30 + 40, 36, 1)), splits=2, impl="triton")
    close(output.double(), listed(query, entry, index, window), 3e-3)


@pytest.mark.interpreter
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("lengths", [None, [23, 0, 9]])
@pytest.mark.parametrize("dtype, kind", [(torch.float32, torch.int64), (torch.bfloat16,
                                                                        torch.int32)])
def test_counted_is_foretold_and_a_row_is_read_once(splits, lengths, dtype, kind, draw):
    query, entry = draw(0, 3, 2, 6, 20, dtype=dtype), draw(1, 3, 150, 20, dtype=dtype)
    window, index = draw(2, 3, 23, 20, dtype=dtype), lists(3, 3, 2, 150, 40, (0, 15, 40), kind)
    with bounds.counting() as counts, bounds.checking_overflow():
        sparse_attention(query, entry, index, window_BWD=window, reach=12, sink_H=draw(4, 6),
                         splits=splits, value_dim=12, impl="triton",
                         window_lengths=None if lengths is None else torch.tensor(lengths))
    found = int((index >= 0).sum())
    said = sparse_attention.traffic(
        batch=3, tokens=2, heads=6, head_dim=20, value_dim=12, chosen=40, found=found, rows=23,
        reach=12, window_lengths=lengths, sink=True, splits=splits, itemsize=dtype.itemsize,
        index_itemsize=kind.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])
    near = 6 * 12 if lengths is None else 2 * 12 + 0 + 8 + 9
    assert counts["entry"].loads == found * 20 and counts["window"].loads == near * 20
    assert said["flops"] == 2 * (found + near) * 6 * (20 + 12)


@pytest.mark.interpreter
def test_two_blocks_of_heads_read_a_row_twice(draw, monkeypatch):
    module = gates.module("sparse_attention")
    usual = module._blocks
    monkeypatch.setattr(module, "_blocks", lambda *args: {**usual(*args), "BLOCK_H": 4})
    query, entry, index = draw(0, 2, 2, 7, 20), draw(1, 2, 30, 20), lists(2, 2, 2, 30, 9)
    with bounds.counting() as counts:
        output = sparse_attention(query, entry, index, sink_H=draw(3, 7), impl="triton")
    close(output, listed(query, entry, index, sink=draw(3, 7)))
    said = sparse_attention.traffic(batch=2, tokens=2, heads=7, head_dim=20, chosen=9, sink=True,
                                    block=4, itemsize=4)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])
    assert counts["entry"].loads == 2 * 2 * 2 * 9 * 20


@pytest.mark.parametrize("options, words", [
    ({"splits": 0}, "splits is 0"), ({"impl": "gpu"}, "impl is 'gpu'"),
    ({"entry_BSD": torch.zeros(2, 9, 5)}, r"entry has shape \(2, 9, 5\); expected \[2, S, 8\]"),
    ({"entry_BSD": torch.zeros(2, 9, 8).half()}, "entry has dtype torch.float16"),
    ({"entry_BSD": None}, "index is given and entry is None"),
    ({"index_BTk": None}, "entry is given and index is None"),
    ({"index_BTk": torch.zeros(2, 4, 3).int()}, r"index has shape \(2, 4, 3\); expected \[2, 3, k"),
    ({"index_BTk": torch.zeros(2, 3, 4)}, "index is torch.float32; expected a tensor"),
    ({"index_BTk": torch.full((2, 3, 4), 9)}, "index goes from 9 to 9; expected -1 .* to 8"),
    ({"index_BTk": torch.full((2, 3, 4), -2)}, "index goes from -2 to -2"),
    ({"window_BWD": torch.zeros(2, 2, 8)}, "query has 3 tokens and window 2 rows"),
    ({"window_BWD": torch.zeros(1, 5, 8)}, r"window has shape \(1, 5, 8\); expected \[2, W, 8\]"),
    ({"window_BWD": torch.zeros(2, 5, 8), "reach": 0}, "reach is 0"),
    ({"window_BWD": torch.zeros(2, 5, 8), "window_lengths": torch.tensor([1])},
     r"lengths has shape \(1,\); expected \(2,\)"),
    ({"reach": 4}, "window_lengths or reach is given and window is None"),
    ({"sink_H": torch.zeros(5)}, r"sink is \(5,\); expected a tensor of shape \(6,\)"),
    ({"sink_H": torch.zeros(6).int()}, "sink has dtype torch.int32"),
    ({"value_dim": 9}, "value_dim is 9; expected None or a whole number from 1 to 8"),
])
def test_errors_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        sparse_attention(**{"query_BTHD": torch.zeros(2, 3, 6, 8), "impl": "torch",
                            "entry_BSD": torch.zeros(2, 9, 8),
                            "index_BTk": torch.zeros(2, 3, 4).int(), **options})


@pytest.mark.triton_runs
def test_what_is_too_large_for_the_kernel(draw, device):
    query, entry = draw(0, 1, 1, 2, 600), draw(1, 1, 3, 600)
    index = torch.zeros(1, 1, 2, dtype=torch.int32, device=device)
    for options, words in (({}, "value has head dim 600; expected at most 512"),
                           ({"value_dim": 400}, "expected at most 128 more"),
                           ({"value_dim": 512, "splits": 33}, "splits is 33; .* at most 32")):
        with pytest.raises(ValueError, match=words):
            sparse_attention(query, entry, index, impl="triton", **options)
