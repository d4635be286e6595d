"""Three schedules of mHC: what they count, and that they compute what the model computes."""

import pytest
import torch

from kernels import hyper_connection
from tinymodels.config import HyperConnections
from tinymodels.norm import RMSNorm
from tinymodels.residual import Carried, Hyper, SinglePassHyper
from tinymodels.traffic import Memory, fused, separate, single

SIZES = [(2, 7, 3, 10), (3, 1, 4, 6), (2, 5, 1, 9)]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def pair(kind, copies, width, seed):
    config = HyperConnections(copies, single_pass=kind is SinglePassHyper)
    made = []
    for place in range(2):
        module = kind(width, config, 1e-6).double().requires_grad_(False)
        for i, p in enumerate(module.parameters()):
            p.copy_(draw(*p.shape, seed=seed + 10 * place + i))
        made.append(module)
    return tuple(made)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("batch", "tokens", "copies", "width"), SIZES)
def test_v4_in_four_passes_and_in_two(batch, tokens, copies, width, seed):
    before, after = pair(Hyper, copies, width, seed)
    norm = RMSNorm(width, 1e-6).double().requires_grad_(False)
    norm.weight.copy_(draw(width, seed=5))
    copies_BTNX = draw(batch, tokens, copies, width, seed=seed + 3)
    found_BTX = draw(batch, tokens, width, seed=seed + 4)
    _, mixes = before.read(copies_BTNX)
    new_BTNX = before.write(copies_BTNX, mixes, found_BTX)
    wanted = new_BTNX, norm(after.read(new_BTNX)[0])
    for schedule, each in ((separate, 4 * copies + 4), (fused, 3 * copies + 2)):
        memory = Memory()
        made = schedule(memory, (before, after), norm, mixes, copies_BTNX, found_BTX)
        for got, right in zip(made, wanted, strict=True):
            torch.testing.assert_close(got, right, rtol=0, atol=1e-12)
        assert memory.moved == each * width * batch * tokens


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("batch", "tokens", "copies", "width"), SIZES)
def test_v4_1_in_one_pass(batch, tokens, copies, width, seed):
    before, after = pair(SinglePassHyper, copies, width, seed)
    norm = RMSNorm(width, 1e-6).double()
    copies_BTNX = draw(batch, tokens, copies, width, seed=seed + 3)
    found_BTX = draw(batch, tokens, width, seed=seed + 4)
    stream = before.write(Carried(copies_BTNX, draw(batch, tokens, copies)), None, found_BTX)
    memory = Memory()
    new_BTNX, input_BTX = single(memory, before, norm, copies_BTNX, found_BTX)
    torch.testing.assert_close(new_BTNX, stream.copies_BTNX, rtol=0, atol=1e-12)
    torch.testing.assert_close(input_BTX, norm(after.read(stream)[0]), rtol=0, atol=1e-12)
    assert memory.moved == (2 * copies + 2) * width * batch * tokens
    assert memory.numbers_read == memory.numbers_written


def test_the_kernel_says_the_same_of_its_streams():
    """Its own formula, with the small change of mixes and weights taken away."""
    tokens, copies, width = 64, 4, 5_120
    said = hyper_connection.traffic(tokens=tokens, copies=copies, width=width, itemsize=2)
    mixes = 8 * tokens * copies * (copies + 2)
    assert said["bytes_written"] - mixes == (copies + 1) * width * 2 * tokens
