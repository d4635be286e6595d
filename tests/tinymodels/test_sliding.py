"""Window attention with a sink and the inverse rotation, against a loop over queries."""

import math
from dataclasses import replace

import pytest
import torch

from tinymodels.attention import sliding
from tinymodels.attention.output import GroupedOutput
from tinymodels.attention.seen import complete_groups, in_window, softmax_with_sink
from tinymodels.attention.sliding import (
    Sliding,
    rotate_tail,
)
from tinymodels.cache import ModelCache
from tinymodels.config import CSA2, Dense, Grouped, ModelConfig, Rope, uniform
from tinymodels.step import Step

SHAPES = dict(
    heads=6, head_dim=14, rope_dim=6, q_rank=11, out_groups=3, out_rank=5, window=5, ratio=0
)
V4 = Grouped(rope=Rope(6), **SHAPES)
V4_1 = CSA2(mode="window", rope=Rope(6), **SHAPES)
X, EPS = 13, 1e-6


def made(config, seed=0):
    module = Sliding(X, config, EPS).double().requires_grad_(False)
    draw = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.copy_(torch.randn(p.shape, generator=draw) * 0.5)
    return module


def inputs(length, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, X, generator=draw).double()


def step_of(length, start=0):
    return Step(torch.zeros(2, length, dtype=torch.int64), start)


def by_loop(module, x_TX):
    """One sequence, query by query and head by head."""
    c = module.config

    def turned(v, position, sign=1):
        v = v.clone()
        for i in range(c.rope_dim // 2):
            a = sign * position * c.rope.theta ** (-2 * i / c.rope_dim)
            at = c.head_dim - c.rope_dim + 2 * i
            first, second = v[at].item(), v[at + 1].item()
            v[at] = first * math.cos(a) - second * math.sin(a)
            v[at + 1] = first * math.sin(a) + second * math.cos(a)
        return v

    def rms(v):
        return v / (v.square().mean() + EPS).sqrt()

    kept, rows = [], []
    for t, x in enumerate(x_TX):
        kept.append(turned(rms(module.kv.weight @ x) * module.kv_norm.weight, t))
        latent = rms(module.query_down.weight @ x) * module.query_norm.weight
        query_HD = (module.query.weight @ latent).view(c.heads, c.head_dim)
        near, out_HD = kept[max(0, t - c.window + 1) : t + 1], []
        for head, query in enumerate(query_HD):
            query = turned(rms(query) if isinstance(c, Grouped) else query, t)
            power = [math.exp(query @ k / c.head_dim**0.5) for k in near]
            whole = sum(power) + math.exp(module.sink[head])
            mixed = sum(p / whole * k for p, k in zip(power, near, strict=True))
            out_HD.append(turned(mixed, t, -1))
        size = c.heads // c.out_groups
        groups = [torch.cat(out_HD[g * size : (g + 1) * size]) for g in range(c.out_groups)]
        reduced = [
            module.output.reduce[g * c.out_rank : (g + 1) * c.out_rank] @ group
            for g, group in enumerate(groups)
        ]
        rows.append(module.output.expand.weight @ torch.cat(reduced))
    return torch.stack(rows)


@pytest.mark.parametrize("config", [V4, V4_1], ids=["V4", "V4.1"])
@pytest.mark.parametrize("length", [1, 4, 5, 6, 12])
def test_it_is_the_loop(config, length):
    module, x = made(config, length), inputs(length, length)
    got, _ = module(x, step_of(length))
    for b in range(2):
        torch.testing.assert_close(got[b], by_loop(module, x[b]), rtol=0, atol=1e-11)


@pytest.mark.parametrize("sizes", [[1] * 12, [4, 8], [7, 1, 4]])
def test_any_chunking_over_a_ring(sizes):
    module, x = made(V4_1), inputs(12)
    config = ModelConfig("window", 17, X, uniform(1, V4_1, Dense(3)), 99)
    layer = ModelCache(config, 2, 12, "float64").layers[0]
    got, start = [], 0
    for size in sizes:
        out, _ = module(x[:, start : start + size], step_of(size, start), layer)
        got.append(out)
        start += size
    whole, _ = module(x, step_of(12))
    torch.testing.assert_close(torch.cat(got, dim=1), whole, rtol=0, atol=1e-12)


def test_moving_a_text_changes_nothing(monkeypatch):
    """Positions enter as distances only; without the inverse rotation they would not."""
    module, x = made(V4), inputs(9)

    def moved_by(distance):
        here, _ = module(x, step_of(9))
        there, _ = module(x, step_of(9, start=distance))
        return (here - there).abs().max()

    assert moved_by(1_000) < 1e-9
    monkeypatch.setattr(
        sliding,
        "rotate_tail",
        lambda x, turn, back=False: x if back else rotate_tail(x, turn),
    )
    assert moved_by(1_000) > 1e-2


def test_window_edges():
    step = step_of(3, start=4)  # positions 4, 5, 6
    seen = in_window(step, 6, window=3)  # rows of positions 1 to 6
    assert seen.int().tolist() == [[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1]]


def test_groups_are_seen_when_they_are_whole():
    counts = complete_groups(step_of(9), 2, 4).sum(-1).tolist()
    assert counts == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert complete_groups(step_of(4, start=5), 9, 1).sum(-1).tolist() == [6, 7, 8, 9]


def test_a_sink_takes_weight_and_gives_nothing():
    score = torch.randn(2, 4, 3, 7).double()
    visible = torch.rand(2, 4, 1, 7) < 0.6
    visible[0, 1] = False
    sink = torch.tensor([-2.0, 0.5, 40.0]).double()
    (got,) = softmax_with_sink([score.masked_fill(~visible, -torch.inf)], sink)
    power = score.exp() * visible
    want = power / (power.sum(-1, keepdim=True) + sink.exp()[:, None])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    assert (got[0, 1] == 0).all()  # nothing visible: exact zeros, no NaN


@pytest.mark.parametrize("sink", [-1e9, 1e9])
def test_extreme_sinks_are_finite(sink):
    score, visible = torch.randn(1, 2, 1, 3), torch.tensor([[[[True] * 3], [[False] * 3]]])
    (got,) = softmax_with_sink([score.masked_fill(~visible, -torch.inf)], torch.tensor([sink]))
    assert got.isfinite().all()
    assert (got[:, 1] == 0).all()
    assert got[:, 0].sum().item() == pytest.approx(0 if sink > 0 else 1)


def test_groups_must_divide_the_heads():
    with pytest.raises(ValueError, match="out_groups is 4; it must divide the 6 heads"):
        GroupedOutput(6, 14, 4, 5, X)
    with pytest.raises(ValueError, match="out_groups is 4"):
        Sliding(X, replace(V4, out_groups=4), EPS)
