"""hyper_connection against `tinymodels.residual`: chains of sublayers, and one pass of reading."""

import pytest
import torch

from kernels import bounds, gates, hyper_connection
from kernels.check import poisoned
from tinymodels.config import HyperConnections
from tinymodels.residual import Carried, SinglePassHyper, project_flat

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]
SIZES = [(3, 19, 4, 40), (2, 7, 3, 24), (3, 1, 2, 5), (1, 65, 1, 12), (2, 33, 4, 300)]


@pytest.fixture
def sublayers(draw):
    """Residuals of two sublayers, random but for their shapes."""
    def make(copies, width, seed=0, iterations=20):
        config = HyperConnections(copies=copies, sinkhorn_iterations=iterations, single_pass=True)
        pair = []
        for place in range(2):
            hyper = SinglePassHyper(width, config, norm_eps=1e-6).requires_grad_(False)
            for number, name in enumerate(("fn", "base", "scale")):
                parameter = getattr(hyper, name)
                parameter.copy_(draw(seed + 3 * place + number, *parameter.shape))
            hyper.fn /= width ** 0.5
            pair.append(hyper)
        return pair

    return make


def call(first, second, copies, found, impl, **options):
    flat = project_flat(copies, first.fn, 1e-6)
    return hyper_connection(copies, found, flat, first.base, first.scale, second.fn,
                            norm_eps=1e-6, impl=impl, **options)


def wanted(first, second, copies, found):
    """What tinymodels makes of it, in fp64."""
    first, second = first.double(), second.double()
    pre = torch.zeros(copies.shape[:3], dtype=torch.float64)
    stream = first.write(Carried(copies.double().cpu(), pre), None, found.double().cpu())
    return stream.copies_BTNX, second.read(stream)[0], project_flat(stream.copies_BTNX, second.fn,
                                                                    1e-6)


def close(outputs, right, tolerance=1e-5):
    for output, one in zip(outputs, right, strict=True):
        assert torch.isfinite(output).all()
        torch.testing.assert_close(output.cpu().double(), one, rtol=0, atol=tolerance)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("batch, tokens, copies, width", SIZES)
def test_equals_tinymodels(impl, seed, batch, tokens, copies, width, sublayers, draw):
    pair = sublayers(copies, width, seed)
    stream = draw(seed + 8, batch, tokens, copies, width)
    found = draw(seed + 9, batch, tokens, width)
    with poisoned():
        outputs = call(*pair, stream, found, impl)
    close(outputs, wanted(*pair, stream, found))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_any_number_of_iterations(impl, iterations, sublayers, draw):
    pair = sublayers(3, 12, 1, iterations)
    stream, found = draw(2, 2, 5, 3, 12), draw(3, 2, 5, 12)
    outputs = call(*pair, stream, found, impl, iterations=iterations)
    close(outputs, wanted(*pair, stream, found))


@pytest.mark.parametrize("impl", IMPLS)
def test_flat_numbers_feed_the_next_call(impl, sublayers, draw):
    first, second = sublayers(4, 20, 3)
    stream, found = draw(4, 2, 9, 4, 20), draw(5, 2, 9, 20)
    new, _, flat = call(first, second, stream, found, impl)
    outputs = hyper_connection(new, found, flat, second.base, second.scale, first.fn,
                               norm_eps=1e-6, impl=impl)
    close(outputs, wanted(second, first, new, found), 2e-5)


@pytest.mark.parametrize("impl", IMPLS)
def test_mixing_neither_adds_nor_loses(impl, sublayers, draw):
    # Nothing found, all copies equal: columns of comb add up to 1, so they stay what they are.
    pair = sublayers(4, 12, 2)
    stream = draw(6, 2, 7, 1, 12).expand(2, 7, 4, 12)
    new = call(*pair, stream, torch.zeros_like(stream[:, :, 0]), impl)[0]
    assert (new - stream).abs().max() < 1e-4


@pytest.mark.parametrize("impl", IMPLS)
def test_views_and_a_stream_of_zeros(impl, sublayers, draw):
    pair = sublayers(3, 12, 4)
    stream = draw(7, 24, 3, 9, 2).permute(3, 2, 1, 0)[:, 2:, :, ::2]
    found = draw(8, 12, 2, 9).permute(1, 2, 0)[:, 2:]
    assert not stream.is_contiguous() and not found.is_contiguous()
    close(call(*pair, stream, found, impl), wanted(*sublayers(3, 12, 4), stream, found))
    zero = torch.zeros(2, 5, 3, 12, device=stream.device)
    pair = sublayers(3, 12, 4)
    assert all((output == 0).all() for output in call(*pair, zero, zero[:, :, 0], impl))


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # 1 / (1 + inf) is right
@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("size", [300.0, -300.0])
def test_large_logits(impl, size, sublayers, draw):
    pair = sublayers(3, 12, 5)
    pair[0].base += size  # exp alone would overflow
    stream, found = draw(9, 2, 5, 3, 12), draw(10, 2, 5, 12)
    outputs = call(*pair, stream, found, impl)
    close(outputs, wanted(*pair, stream, found), 1e-4)


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_16_bit(dtype, tolerance, sublayers, draw):
    pair = sublayers(4, 40, 6)
    stream, found = draw(1, 2, 9, 4, 40, dtype=dtype) / 4, draw(2, 2, 9, 40, dtype=dtype) / 4
    outputs = call(*pair, stream, found, "triton")
    assert [output.dtype for output in outputs] == [dtype, dtype, torch.float32]
    # The next flat numbers belong to the copies as they were stored.
    right = project_flat(outputs[0].double().cpu(), pair[1].fn.double(), 1e-6)
    close(outputs[2:], [right])
    close(outputs[:2], wanted(*pair, stream, found)[:2], tolerance)


@pytest.mark.interpreter
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch, tokens, copies, width", SIZES)
def test_streams_are_read_once_and_written_once(dtype, batch, tokens, copies, width, sublayers,
                                                draw):
    pair = sublayers(copies, width)
    stream = draw(1, batch, tokens, copies, width, dtype=dtype)
    found = draw(2, batch, tokens, width, dtype=dtype)
    with bounds.counting() as counts, bounds.checking_overflow():
        call(*pair, stream, found, "triton")
    moved = sum(counts[name].loads + counts[name].stores
                for name in ("copies", "found", "new", "following"))
    assert moved == (2 * copies + 2) * width * batch * tokens
    block = gates.module("hyper_connection")._blocks(batch * tokens, copies, width)["BLOCK_T"]
    said = hyper_connection.traffic(batch=batch, tokens=tokens, copies=copies, width=width,
                                    block=block, itemsize=dtype.itemsize)
    assert (counts.bytes_read, counts.bytes_written) == (said["bytes_read"], said["bytes_written"])


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, sublayers, draw):
    pair = sublayers(3, 12, 7)
    flat = torch.from_file(str(tmp_path / "copies.bin"), shared=True, size=2**31 + 4_000,
                           dtype=torch.float16)
    stream = flat.as_strided((3, 2, 3, 12), (2**30 + 40, 36, 12, 1))
    stream.copy_(draw(3, 3, 2, 3, 12, dtype=torch.float16))
    found = draw(4, 3, 2, 12, dtype=torch.float16)
    with bounds.checking_overflow():
        outputs = call(*pair, stream, found, "triton")
    close(outputs[:2], wanted(*pair, stream, found)[:2], 4e-3)


@pytest.mark.parametrize("options, words", [
    ({"found_BTX": torch.zeros(2, 5, 11)}, r"found has shape \(2, 5, 11\)"),
    ({"flat_BTM": torch.zeros(2, 5, 14)}, "M is 15 there and 14 in flat"),
    ({"flat_BTM": torch.zeros(2, 4, 15)}, r"flat has shape \(2, 4, 15\); expected \(2, 5, 15\)"),
    ({"scale_3": torch.zeros(4)}, r"scale has shape \(4,\); expected \(3,\)"),
    ({"next_fn_MF": torch.zeros(15, 35)}, r"next_fn has shape \(15, 35\); expected \(15, 36\)"),
    ({"iterations": 0}, "iterations is 0"),
    ({"copies_BTNX": torch.zeros(2, 5, 5, 12)}, "copies holds 5 copies"),
])
def test_errors_name_the_argument(options, words):
    given = dict(copies_BTNX=torch.zeros(2, 5, 3, 12), found_BTX=torch.zeros(2, 5, 12),
                 flat_BTM=torch.zeros(2, 5, 15), base_M=torch.zeros(15), scale_3=torch.zeros(3),
                 next_fn_MF=torch.zeros(15, 36))
    with pytest.raises(ValueError, match=words):
        hyper_connection(**{**given, **options}, impl="torch")
