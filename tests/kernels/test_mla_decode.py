"""mla_decode against an attention whose key is latent and rope side by side, in numpy."""

import pytest
import torch

from kernels import bounds, mla_decode
from kernels.check import poisoned

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]
SCALE = 0.3


@pytest.fixture
def wanted(reference):
    """The key is [latent; rope], one for all heads; the value is the latent."""
    def attend(query, rope_query, latent, rope, lengths=None):
        return reference(torch.cat([query, rope_query], 3),
                         torch.cat([latent, rope], 2)[:, :, None], latent[:, :, None],
                         scale=SCALE, lengths=lengths)

    return attend


def inputs(draw, seed, batch, entries, heads, latent, rope, dtype=torch.float32):
    return (draw(seed, batch, 1, heads, latent, dtype=dtype),
            draw(seed + 1, batch, 1, heads, rope, dtype=dtype),
            draw(seed + 2, batch, entries, latent, dtype=dtype),
            draw(seed + 3, batch, entries, rope, dtype=dtype))


def close(output, answer, tolerance=1e-5):
    assert torch.isfinite(output).all()
    torch.testing.assert_close(output.cpu().double(), answer, rtol=0, atol=tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("entries, heads, latent, rope, splits", [
    (1, 3, 5, 3, None), (127, 6, 40, 12, 1), (129, 5, 24, 6, 2), (131, 3, 96, 20, 3),
])
def test_equals_the_reference(impl, seed, entries, heads, latent, rope, splits, draw, wanted):
    tensors = inputs(draw, seed, 3, entries, heads, latent, rope)
    with poisoned():
        output = mla_decode(*tensors, scale=SCALE, splits=splits, impl=impl)
    assert output.shape == (3, 1, heads, latent)
    close(output, wanted(*tensors))


@pytest.mark.triton_runs
@pytest.mark.parametrize("gain", [0.5, 2.0, -3.0])
def test_a_maximum_that_grows_from_block_to_block(gain, draw, wanted):
    # Blocks hold 256 entries at this width; each brings higher scores than all before it.
    tensors = inputs(draw, 4, 2, 700, 3, 200, 12)
    tensors[0].copy_(tensors[0].abs() * (1 if gain > 0 else -1))
    step_S = torch.arange(700, device=tensors[2].device) // 256
    tensors[2].mul_(0.05).add_(0.02 * gain * step_S[None, :, None])
    with poisoned():
        output = mla_decode(*tensors, scale=SCALE, splits=1, impl="triton")
    close(output, wanted(*tensors), 1e-5)


@pytest.mark.triton_runs
@pytest.mark.parametrize("splits", [2, 5, 64])
def test_any_number_of_splits_merges_to_the_same(splits, draw, wanted):
    # Blocks hold 256 entries at this width, so 64 splits leave most of them empty.
    tensors = inputs(draw, 2, 2, 700, 3, 200, 12)
    tensors[2][:, 650] = tensors[0][:, 0, 0] * 9  # one split outweighs the others
    with poisoned():
        output = mla_decode(*tensors, scale=SCALE, splits=splits, impl="triton")
    close(output, wanted(*tensors), 1e-4)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("splits", [None, 3])
def test_lengths_and_nan_in_unused_slots(impl, splits, draw, device, wanted):
    tensors = inputs(draw, 3, 4, 77, 5, 20, 6)
    lengths = torch.tensor([77, 40, 1, 0], device=device)
    for row, length in enumerate(lengths.tolist()):
        tensors[2][row, length:] = torch.nan
        tensors[3][row, length:] = torch.nan
    with poisoned():
        output = mla_decode(*tensors, scale=SCALE, lengths=lengths, splits=splits, impl=impl)
    close(output, wanted(*tensors, lengths=lengths))
    assert (output[3] == 0).all()  # no entry at all: every split is empty


@pytest.mark.parametrize("impl", IMPLS)
def test_latent_and_rope_side_by_side_in_one_cache(impl, draw, wanted):
    cache = draw(2, 3, 40, 33)  # capacity 40
    latent, rope = cache[:, 3:34, :24], cache[:, 3:34, 24::2]
    query, rope_query = draw(1, 29, 6, 3).permute(2, 1, 0)[:, None].split([24, 5], dim=3)
    tensors = query, rope_query, latent, rope
    assert not any(x.is_contiguous() for x in tensors)
    close(mla_decode(*tensors, scale=SCALE, impl=impl), wanted(*tensors))


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_16_bit(dtype, tolerance, draw, wanted):
    tensors = inputs(draw, 4, 2, 77, 6, 40, 12, dtype)
    output = mla_decode(*tensors, scale=SCALE, splits=2, impl="triton")
    assert output.dtype == dtype
    close(output.double(), wanted(*tensors), tolerance)


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw, wanted):
    stride = 2**30 + 40
    tensors = list(inputs(draw, 5, 3, 19, 5, 12, 6, torch.float16))
    for which in (2, 3):
        flat = torch.from_file(str(tmp_path / f"{which}.bin"), shared=True,
                               size=2 * stride + 4096, dtype=torch.float16)
        view = flat.as_strided(tensors[which].shape, (stride, 36, 1))
        view.copy_(tensors[which])
        tensors[which] = view
    with bounds.checking_overflow():
        output = mla_decode(*tensors, scale=SCALE, splits=2, impl="triton")
    close(output.double(), wanted(*tensors), 3e-3)


@pytest.mark.interpreter
@pytest.mark.parametrize("lengths", [None, [150, 0, 31]])
@pytest.mark.parametrize("splits, dtype", [(1, torch.float32), (3, torch.bfloat16)])
def test_counted_is_foretold_and_a_row_is_read_once(lengths, splits, dtype, draw):
    tensors = inputs(draw, 6, 3, 150, 6, 20, 12, dtype)
    with bounds.counting() as counts:
        mla_decode(*tensors, scale=SCALE, splits=splits, impl="triton",
                   lengths=None if lengths is None else torch.tensor(lengths))
    foretold = mla_decode.traffic(
        batch=3, entries=150, heads=6, latent_dim=20, rope_dim=12, lengths=lengths,
        splits=splits, itemsize=dtype.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (
        foretold["bytes_read"], foretold["bytes_written"])
    visible = 450 if lengths is None else sum(lengths)
    assert counts["latent"].loads == visible * 20 and counts["rope"].loads == visible * 12


@pytest.mark.parametrize("options, words", [
    ({"splits": 0}, "splits is 0"), ({"impl": "gpu"}, "impl is 'gpu'"),
    ({"lengths": torch.tensor([3])}, r"lengths has shape \(1,\); expected \(2,\)"),
    ({"query_BTHC": torch.zeros(2, 2, 6, 8), "rope_query_BTHR": torch.zeros(2, 2, 6, 4)},
     "T is 2, expected 1 new token"),
    ({"rope_BSR": torch.zeros(2, 9, 5)}, r"rope has shape \(2, 9, 5\) .* R is 5 there and 4"),
])
def test_errors_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        mla_decode(**{"query_BTHC": torch.zeros(2, 1, 6, 8), "scale": 1.0, "impl": "torch",
                      "rope_query_BTHR": torch.zeros(2, 1, 6, 4),
                      "latent_BSC": torch.zeros(2, 9, 8), "rope_BSR": torch.zeros(2, 9, 4),
                      **options})
