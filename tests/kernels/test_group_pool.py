"""group_pool against a loop in numpy and against the compressor of `tinymodels`."""

import numpy as np
import pytest
import torch

from kernels import bounds, gates, group_pool
from kernels.check import poisoned
from tinymodels.attention.csa import overlapping

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]
CASES = [  # tokens, ratio, width, overlap, after_another, bias
    (9, 1, 5, False, False, False),
    (41, 2, 40, False, False, False),
    (2, 2, 12, False, False, True),
    (38, 3, 24, False, False, True),
    (255, 127, 6, False, False, True),
    (256, 128, 9, False, False, True),
    (4, 4, 24, True, False, True),
    (39, 4, 40, True, False, True),
    (30, 3, 7, True, True, True),
    (8, 4, 12, True, True, False),
]
cases = pytest.mark.parametrize("tokens, ratio, width, overlap, after_another, bias", CASES)


@pytest.fixture
def inputs(draw):
    def make(seed, tokens, ratio, width, overlap=False, bias=False, dtype=torch.float32):
        channels = 2 * width if overlap else width
        drawn = [draw(seed, 3, tokens, channels, dtype=dtype),
                 draw(seed + 1, 3, tokens, channels, dtype=dtype)]
        return (*drawn, draw(seed + 2, ratio, channels, dtype=dtype) if bias else None)

    return make


def pooled(value, gate, bias, ratio, width, overlap, after_another):
    """One entry at a time, one row at a time, in fp64."""
    value, gate = value.double().cpu().numpy(), gate.double().cpu().numpy()
    bias = 0 if bias is None else np.tile(bias.double().cpu().numpy(), (value.shape[1], 1))
    gate = gate + (0 if np.isscalar(bias) else bias[:value.shape[1]])
    entries = []
    for group in range(int(after_another), value.shape[1] // ratio):
        first = group * ratio
        rows = [(token, slice(-width, None)) for token in range(first, first + ratio)]
        if overlap and group:
            rows += [(token, slice(0, width)) for token in range(first - ratio, first)]
        weight = np.exp(np.stack([gate[:, token, part] for token, part in rows]))
        parts = np.stack([value[:, token, part] for token, part in rows])
        entries.append((weight * parts).sum(0) / weight.sum(0))
    return torch.from_numpy(np.stack(entries, 1))


def close(entry, wanted, tolerance=1e-5):
    assert torch.isfinite(entry).all()
    torch.testing.assert_close(entry.cpu().double(), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 5])
@cases
def test_equals_the_loop(impl, seed, tokens, ratio, width, overlap, after_another, bias, inputs):
    value, gate, bias_MC = inputs(seed, tokens, ratio, width, overlap, bias)
    with poisoned():
        entry = group_pool(value, gate, ratio, bias_MC=bias_MC, overlap=overlap,
                           after_another=after_another, impl=impl)
    close(entry, pooled(value, gate, bias_MC, ratio, width, overlap, after_another))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("after_another", [False, True])
def test_overlaps_as_in_tinymodels(impl, after_another, inputs):
    value, gate, bias = inputs(2, 24, 4, 12, overlap=True, bias=True)
    count = 6 - after_another
    biased = gate + bias.repeat(6, 1)
    value_BGRD = overlapping(value.double(), count, 4, after_another, 0.0)
    gate_BGRD = overlapping(biased.double(), count, 4, after_another, -torch.inf)
    entry = group_pool(value, gate, 4, bias_MC=bias, overlap=True, after_another=after_another,
                       impl=impl)
    close(entry, (gate_BGRD.softmax(2) * value_BGRD).sum(2).cpu())


@pytest.mark.parametrize("impl", IMPLS)
def test_one_token_more_or_less_where_a_text_is_cut(impl, inputs):
    # Entries of the second part, given one group of the first, are those of the whole text.
    value, gate, bias = inputs(1, 40, 4, 12, overlap=True, bias=True)
    options = dict(bias_MC=bias, overlap=True, impl=impl)
    whole = group_pool(value, gate, 4, **options)
    part = group_pool(value[:, 20:], gate[:, 20:], 4, after_another=True, **options)
    close(part, whole[:, 6:].cpu().double(), 1e-6)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("overlap", [False, True])
def test_nan_where_nothing_is_read(impl, overlap, inputs):
    value, gate, bias = inputs(3, 23, 4, 10, overlap, bias=True)
    clean = group_pool(value, gate, 4, bias_MC=bias, overlap=overlap, impl=impl)
    value[:, 20:], gate[:, 20:] = torch.nan, torch.nan  # an unfinished group
    if overlap:  # the last group has none after it
        value[:, 16:20, :10], gate[:, 16:20, :10] = torch.nan, torch.nan
    with poisoned():
        entry = group_pool(value, gate, 4, bias_MC=bias, overlap=overlap, impl=impl)
    assert torch.equal(entry, clean)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("size", [200.0, -200.0])
def test_large_gates(impl, size, inputs):
    value, gate, _ = inputs(4, 12, 3, 20)
    gate = gate + size  # exp alone would overflow, or leave a sum of 0
    gate[:, 4] += 90.0
    entry = group_pool(value, gate, 3, impl=impl)
    close(entry, pooled(value, gate - size, None, 3, 20, False, False), 1e-4)
    assert (entry[:, 1] - value[:, 4]).abs().max() < 1e-6


@pytest.mark.parametrize("impl", IMPLS)
def test_views(impl, draw):
    both, bias = draw(1, 24, 3, 2, 21).permute(1, 3, 2, 0), draw(2, 12, 3).t()
    value, gate = both[:, 1:, 0, ::2], both[:, 1:, 1, ::2]
    assert not any(x.is_contiguous() for x in (value, gate, bias))
    entry = group_pool(value, gate, 3, bias_MC=bias, impl=impl)
    close(entry, pooled(value, gate, bias, 3, 12, False, False))


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_16_bit(dtype, tolerance, inputs):
    value, gate, bias = inputs(6, 23, 4, 12, overlap=True, bias=True, dtype=dtype)
    entry = group_pool(value, gate, 4, bias_MC=bias, overlap=True, impl="triton")
    assert entry.dtype == dtype
    close(entry, pooled(value, gate, bias, 4, 12, True, False), tolerance)


@pytest.mark.interpreter
@cases
def test_counted_is_foretold(tokens, ratio, width, overlap, after_another, bias, inputs):
    value, gate, bias_MC = inputs(0, tokens, ratio, width, overlap, bias)
    with bounds.counting() as counts, bounds.checking_overflow():
        group_pool(value, gate, ratio, bias_MC=bias_MC, overlap=overlap,
                   after_another=after_another, impl="triton")
    groups = tokens // ratio - after_another
    block = gates.module("group_pool")._blocks(groups, ratio, width, overlap)["BLOCK_G"]
    said = group_pool.traffic(batch=3, tokens=tokens, ratio=ratio, width=width, overlap=overlap,
                              after_another=after_another, bias=bias, block=block)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw):
    tensors = []
    for seed in (2, 3):
        flat = torch.from_file(str(tmp_path / f"{seed}.bin"), shared=True, size=2**31 + 4_000,
                               dtype=torch.float16)
        view = flat.as_strided((3, 6, 12), (2**30 + 40, 12, 1))
        view.copy_(draw(seed, 3, 6, 12, dtype=torch.float16))
        tensors.append(view)
    with bounds.checking_overflow():
        entry = group_pool(*tensors, 3, impl="triton")
    close(entry, pooled(*tensors, None, 3, 12, False, False), 3e-3)


@pytest.mark.parametrize("options, words", [
    ({"ratio": 0}, "ratio is 0; expected a whole number from 1 to 128"),
    ({"ratio": 129}, "ratio is 129"),
    ({"ratio": 14}, "value has 13 tokens; expected at least 14"),
    ({"after_another": True}, "after_another is True without overlap"),
    ({"ratio": 7, "overlap": True, "after_another": True}, "expected at least 14"),
    ({"bias_MC": torch.zeros(4, 6)}, r"bias has shape \(4, 6\); expected 3 rows"),
    ({"bias_MC": torch.zeros(3, 5)}, "C is 5 there and 6 in value"),
    ({"gate_BSC": torch.zeros(2, 12, 6)}, r"gate has shape \(2, 12, 6\)"),
    ({"impl": "gpu"}, "impl is 'gpu'"),
])
def test_errors_name_the_argument(options, words):
    value = torch.zeros(2, 13, 6)
    call = {"gate_BSC": value, "ratio": 3, "impl": "torch", **options}
    with pytest.raises(ValueError, match=words):
        group_pool(value, call.pop("gate_BSC"), call.pop("ratio"), **call)


def test_an_odd_number_of_channels_has_no_halves():
    with pytest.raises(ValueError, match="value has 5 channels; with overlap expected an even"):
        group_pool(torch.zeros(2, 9, 5), torch.zeros(2, 9, 5), 3, overlap=True)
