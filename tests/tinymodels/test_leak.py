"""Groups alone: which rule tells of tokens to come."""

import pytest
import torch

from tinymodels import leak
from tinymodels.attention.seen import complete_groups
from tinymodels.step import Step


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("m", [2, 3, 5, 7])
def test_only_started_groups_leak(m, seed):
    for name, rule in leak.RULES.items():
        moved = leak.changes(19, m, rule, seed)
        told = leak.leaks(moved)
        if name == "started":
            place = torch.arange(19)
            same = place[:, None] // m == place // m
            assert torch.equal(told, same.tril(-1))
        else:
            assert not told.any()
        assert (moved.diagonal(0) > 1e-9).any()


def test_the_right_rule_is_the_models():
    step = Step(torch.zeros(2, 23, dtype=torch.long))
    for m in (2, 3, 5):
        visible = complete_groups(step, 23 // m, m).sum(1).tolist()
        assert visible == [min(leak.complete(t, m), 23 // m) for t in range(23)]
        late = [leak.before(t, m) for t in range(23)]
        assert all(a - b == (t % m == m - 1) for t, (a, b) in enumerate(zip(visible, late)))


def test_a_group_is_pooled_by_channels():
    value, gate = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(1)).double()
    entries = leak.pool(value, gate, 3)
    assert entries.shape == (3, 5)
    for d in range(5):
        e = gate[3:6, d].exp()
        assert entries[1, d] == pytest.approx((e * value[3:6, d]).sum() / e.sum())
    torch.testing.assert_close(entries[2], value[6])


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="0 tokens in groups of 4"):
        leak.changes(0, 4, leak.complete)
    with pytest.raises(ValueError, match="9 tokens in groups of 0"):
        leak.changes(9, 0, leak.complete)
