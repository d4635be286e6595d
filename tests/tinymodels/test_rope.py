"""RoPE against complex numbers, and its one property: scores depend on distance alone."""

import pytest
import torch

from tinymodels.attention.rope import angles, frequencies, rotate
from tinymodels.config import Rope, Yarn

PAIRS = ["adjacent", "half"]


def as_complex(x, pairs):
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs == "adjacent" else (x[..., :half], x[..., half:])
    return torch.complex(a.contiguous(), b.contiguous())


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("theta", [10_000.0, 500.0])
def test_rotation_is_complex_multiplication(pairs, theta):
    rope = Rope(6, theta, pairs)
    x = torch.randn(2, 5, 3, 6, dtype=torch.float64)
    positions = torch.tensor([0, 1, 7, 100, 1_000_000])
    turned = as_complex(rotate(x, rope, positions), pairs)
    for t, p in enumerate(positions.tolist()):
        for i in range(3):
            angle = torch.tensor(p * theta ** (-2 * i / 6), dtype=torch.float64)
            want = as_complex(x, pairs)[:, t, :, i] * torch.polar(torch.ones(()).double(), angle)
            torch.testing.assert_close(turned[:, t, :, i], want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pairs", PAIRS)
def test_scores_depend_on_distance_alone(pairs):
    rope = Rope(10, pairs=pairs)
    q, k = torch.randn(2, 1, 1, 1, 10, dtype=torch.float64).unbind()

    def score(p, s):
        return (rotate(q, rope, torch.tensor([p])) * rotate(k, rope, torch.tensor([s]))).sum()

    torch.testing.assert_close(score(12, 5), score(1_007, 1_000), rtol=0, atol=1e-9)
    assert (score(12, 5) - score(12, 6)).abs() > 1e-3


@pytest.mark.parametrize("pairs", PAIRS)
def test_turning_back_undoes(pairs):
    rope = Rope(6, pairs=pairs, yarn=Yarn(16, 100))
    x, positions = torch.randn(3, 4, 6, dtype=torch.float64), torch.tensor([3, 50, 60, 999])
    back = rotate(rotate(x, rope, positions), rope, positions, back=True)
    torch.testing.assert_close(back, x, rtol=0, atol=1e-12)


def test_yarn_leaves_fast_pairs_and_slows_slow_ones():
    plain, slowed = Rope(64, 160_000.0), Rope(64, 160_000.0, yarn=Yarn(16, 65_536))
    ratio = frequencies(plain) / frequencies(slowed)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(16)
    assert (ratio[1:] >= ratio[:-1] - 1e-12).all()


def test_angles_stay_exact_far_out():
    assert angles(Rope(2), torch.tensor([10**7]))[0, 0].item() == 10**7


def test_misshapen_input_is_named():
    with pytest.raises(ValueError, match=r"expected \[B, 4, ..., 6\]"):
        rotate(torch.zeros(2, 3, 6), Rope(6), torch.arange(4))
    with pytest.raises(ValueError, match="must be even"):
        Rope(7)
