"""MLA: two forms with the same numbers, what is kept, and what nothing visible means."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinymodels.attention.mla import MLA, absorbing_is_cheaper, masked_softmax, softmax_scale
from tinymodels.attention.rope import rotate
from tinymodels.config import MLA as Config
from tinymodels.config import Rope, Yarn
from tinymodels.parts import Parts, reference_absorb
from tinymodels.published import PUBLISHED
from tinymodels.step import Step

WIDTH = 33
PLAIN = Config(heads=5, nope_dim=7, rope_dim=6, v_dim=9, kv_rank=11, q_rank=13, rope=Rope(6))
DIRECT = Config(heads=3, nope_dim=6, rope_dim=10, v_dim=21, kv_rank=15, q_rank=None, rope=Rope(10))
STRETCHED = Config(
    heads=3,
    nope_dim=10,
    rope_dim=6,
    v_dim=7,
    kv_rank=9,
    q_rank=11,
    rope=Rope(6, yarn=Yarn(factor=7, original_context=23, mscale_all_dim=0.9)),
)
by_config = pytest.mark.parametrize("config", [PLAIN, DIRECT, STRETCHED])


def made(config: Config, seed: int) -> MLA:
    draw = torch.Generator().manual_seed(seed)
    layer = MLA(WIDTH, config, Parts()).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) * 0.4 + (p.dim() == 1))
    return layer


def states(length: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, WIDTH, generator=draw, dtype=torch.float64)


def step(length: int, start: int = 0) -> Step:
    return Step(torch.zeros(2, length, dtype=torch.int64), start)


def both_forms(layer, query, rows, visible):
    out = []
    for layer.form in ("expanded", "absorbed"):
        out.append(layer.attend(query, rows, visible))
    layer.form = None
    return out


# ------------------------------------------------------------------ two forms


@by_config
@settings(max_examples=15, deadline=None)
@given(entries=st.integers(1, 41), new=st.integers(1, 41), seed=st.integers(0, 99))
def test_expanded_is_absorbed(config, entries, new, seed):
    """For any number of queries and rows, whatever is visible, and rows that see nothing."""
    layer = made(config, seed)
    query, _ = layer.project(states(new, seed), step(new, start=entries))
    _, rows = layer.project(states(entries, seed + 1), step(entries))
    visible = torch.rand(2, new, entries, generator=torch.Generator().manual_seed(seed)) < 0.6
    expanded, absorbed = both_forms(layer, query, rows, visible)
    torch.testing.assert_close(expanded, absorbed, rtol=0, atol=1e-10)
    blind = ~visible.any(-1)
    assert (expanded[blind] == 0).all() and (absorbed[blind] == 0).all()
    assert expanded.isfinite().all() and (expanded[~blind].abs().amax(-1) > 0).all()


@by_config
def test_both_forms_have_the_same_gradients(config):
    layer, x = made(config, 3), states(12, 4).requires_grad_()
    grads = []
    for layer.form in ("expanded", "absorbed"):
        out, _ = layer(x, step(12))
        grads.append(torch.autograd.grad((out**2).sum(), [x, *layer.parameters()]))
    for a, b in zip(*grads, strict=True):
        assert a.abs().max() > 0
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_decode_absorbs_and_a_long_prompt_expands():
    v3 = PUBLISHED["deepseek-v3"].config.layers[0].attention
    assert absorbing_is_cheaper(v3, new=1, entries=4_000)
    assert not absorbing_is_cheaper(v3, new=4_000, entries=4_000)


# ------------------------------------------------------------------ one head at a time


@by_config
def test_the_equations_one_query_at_a_time(config):
    layer, x = made(config, 5).requires_grad_(False), states(9, 6)
    got, _ = layer(x, step(9))
    up_k, up_v = layer.kv_up.weight.view(config.heads, -1, config.kv_rank).split(
        [config.nope_dim, config.v_dim], dim=1
    )
    source = x if config.q_rank is None else layer.query_norm(layer.query_down(x))
    query = layer.query(source).view(2, 9, config.heads, -1)
    down = layer.kv_down(x)
    mean = (down[..., : config.kv_rank] ** 2).mean(-1, keepdim=True)
    latent = down[..., : config.kv_rank] / (mean + 1e-6).sqrt() * layer.kv_norm.weight
    turned = rotate(down[..., config.kv_rank :], config.rope, torch.arange(9))
    for b, t in ((0, 0), (1, 4), (0, 8)):
        heads = []
        for h in range(config.heads):
            nope, rope = query[b : b + 1, t : t + 1, h].split(
                [config.nope_dim, config.rope_dim], -1
            )
            rope = rotate(rope, config.rope, torch.tensor([t]))
            scores = [
                float(nope[0, 0] @ (up_k[h] @ latent[b, s]) + rope[0, 0] @ turned[b, s])
                for s in range(t + 1)
            ]
            weights = (torch.tensor(scores, dtype=torch.float64) * softmax_scale(config)).softmax(0)
            heads.append(sum(w * (up_v[h] @ latent[b, s]) for s, w in enumerate(weights)))
        want = layer.output(torch.cat(heads))
        torch.testing.assert_close(got[b, t], want, rtol=0, atol=1e-10)


def test_scale():
    assert softmax_scale(PLAIN) == 13**-0.5
    v3 = PUBLISHED["deepseek-v3"].config.layers[0].attention
    assert softmax_scale(v3) == pytest.approx(192**-0.5 * (0.1 * math.log(40) + 1) ** 2)
    assert softmax_scale(STRETCHED) == pytest.approx(0.25 * (0.09 * math.log(7) + 1) ** 2)


# ------------------------------------------------------------------ what is kept


@by_config
def test_rows_are_the_normed_latent_and_the_turned_key(config):
    layer, x = made(config, 7), states(8, 8)
    _, rows = layer.project(x, step(8, start=5))
    latent, key = layer.kv_down(x).split([config.kv_rank, config.rope_dim], dim=-1)
    assert set(rows) == {"latent", "rope"}
    torch.testing.assert_close(rows["latent"], layer.kv_norm(latent), rtol=0, atol=1e-12)
    turned = rotate(key, config.rope, torch.arange(5, 13))
    torch.testing.assert_close(rows["rope"], turned, rtol=0, atol=1e-12)


@by_config
def test_only_distances_count(config):
    """The same text a thousand positions later looks back in the same way."""
    layer, x = made(config, 9), states(10, 10)
    here, there = (layer.project(x, step(10, start)) for start in (0, 1_000))
    visible = torch.ones(10, 10, dtype=torch.bool).tril()
    torch.testing.assert_close(
        layer.look(*here, visible), layer.look(*there, visible), rtol=0, atol=1e-9
    )
    weights = layer.look(*here, visible)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, config.heads, 10).double())
    assert (weights.masked_select(~visible) == 0).all()


def test_masked_softmax_is_defined_where_nothing_is_visible():
    score = torch.tensor([[3.0, -1.0, 2.0], [1e30, 5.0, 4.0]]).double().requires_grad_()
    visible = torch.tensor([[False, False, False], [False, True, True]])
    weights = masked_softmax(score, visible)
    assert weights[0].tolist() == [0, 0, 0]
    torch.testing.assert_close(weights[1, 1:], torch.tensor([5.0, 4.0]).double().softmax(0))
    (weights**2).sum().backward()
    assert score.grad.isfinite().all() and (score.grad[~visible] == 0).all()


# ------------------------------------------------------------------ shared by layers of a pass


def test_once_makes_a_thing_once_for_each_chunk():
    made_for = []

    def make(step, size):
        made_for.append((step.start, size))
        return object()

    first = step(3)
    second, changed = replace(first, start=3), replace(first, losses=())
    assert first.once(make, 5) is first.once(make, 5) is not first.once(make, 6)
    assert changed.once(make, 5) is first.once(make, 5) is not second.once(make, 5)
    assert made_for == [(0, 5), (0, 6), (3, 5)]


# ------------------------------------------------------------------ a learner's own absorption


@by_config
def test_a_part_of_ones_own_is_asked_and_gives_the_same(config):
    """Decode and a chunk after a prompt, both absorbed, from one's own function."""
    asked = []

    def own(nope, rope, *rest):
        asked.append(nope.shape[1])
        return reference_absorb(nope, rope, *rest)

    layer, mine = made(config, 7).requires_grad_(False), MLA(WIDTH, config, Parts(absorb=own))
    mine = mine.double().requires_grad_(False)
    mine.load_state_dict(layer.state_dict())
    for new in (1, 4, 12):
        query, _ = layer.project(states(new, 8), step(new, start=12 - new))
        _, rows = layer.project(states(12, 9), step(12))
        layer.form, mine.form = "expanded", "absorbed"
        torch.testing.assert_close(
            mine.attend(query, rows), layer.attend(query, rows), rtol=0, atol=1e-10
        )
    assert asked == [1, 4, 12]
    mine.form = "expanded"
    mine.attend(query, rows)
    assert asked == [1, 4, 12]
