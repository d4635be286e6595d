"""Experts: routing, weighing and balance, against a loop over tokens in Python floats.

Parity with implementations of others: test_parity_moe.py.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinymodels import moe
from tinymodels.config import MoE
from tinymodels.moe import MoEFeedForward, Router, watch_routing
from tinymodels.parts import Parts

from .moe_cases import KINDS, V2, V3, V4, V4_HASH, VOCAB, WIDTH, expected, made

by_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())
by_seed = pytest.mark.parametrize("seed", [1, 2, 3])


@by_seed
@by_kind
def test_equals_a_loop_over_tokens(config, seed):
    layer, x, tokens = made(config, seed)
    y = layer(x, tokens)
    for b in range(3):
        for t in range(11):
            want = torch.tensor(expected(layer, x[b, t].tolist(), int(tokens[b, t])), dtype=x.dtype)
            assert (y[b, t] - want).abs().max() < 1e-10 * max(1, want.abs().max())


@by_seed
@by_kind
def test_one_token_alone_says_what_it_says_among_others(config, seed):
    """One token is computed in another way than many."""
    layer, x, tokens = made(config, seed)
    together = layer(x, tokens)
    ways = []
    for name in ("_one_token", "_sorted"):
        way = getattr(layer.experts, name)
        setattr(layer.experts, name, lambda *a, way=way, name=name: ways.append(name) or way(*a))
    for b, t in ((0, 0), (1, 4), (2, 10)):
        alone = layer(x[b : b + 1, t : t + 1], tokens[b : b + 1, t : t + 1])
        assert (alone[0, 0] - together[b, t]).abs().max() < 1e-12 * together[b, t].abs().max()
    layer(x, tokens)
    assert ways == ["_one_token"] * 3 + ["_sorted"]


@by_kind
def test_both_ways_have_the_same_gradient(config):
    layer, x, tokens = made(config, seed=3)
    routing = layer.router(x, tokens)
    experts, x = routing.experts_BTk.flatten(0, 1)[:1], x.flatten(0, 1)[:1].requires_grad_()
    wanted = (layer.experts.gate_up, layer.experts.down, x)
    grads = [
        torch.autograd.grad(way(x, experts).square().sum(), wanted)
        for way in (layer.experts._one_token, layer.experts._sorted)
    ]
    for a, b in zip(*grads):
        assert a.abs().max() > 0 and (a - b).abs().max() < 1e-10 * a.abs().max()


@by_kind
def test_float32_is_close_to_float64(config):
    layer, x, tokens = made(config, seed=4)
    want = layer(x, tokens)
    got = layer.float()(x.float(), tokens)
    assert got.dtype == torch.float32
    assert (got - want).abs().max() < 1e-5 * want.abs().max()


def test_bfloat16_states_are_scored_in_float32():
    layer, x, _ = made(V4, seed=5)
    router, x = layer.router.bfloat16(), x.bfloat16()
    got = router(x)
    want = router.float()(x.float())
    assert got.weights_BTk.dtype == torch.float32
    assert torch.equal(got.experts_BTk, want.experts_BTk)
    assert torch.equal(got.weights_BTk, want.weights_BTk)
    assert layer.bfloat16()(x).dtype == torch.bfloat16


@by_kind
def test_parameters(config):
    layer = MoEFeedForward(WIDTH, config, vocab=VOCAB)
    networks = config.experts + config.shared
    want = config.experts * WIDTH + networks * 3 * WIDTH * config.width
    assert sum(p.numel() for p in layer.parameters()) == want


# ---------------------------------------------------------------- single rules


def test_of_equal_scores_the_lowest_index_wins():
    scores = torch.tensor([[0.5, 0.7, 0.5, 0.7, 0.5, 0.1]])
    assert moe.best(scores, 4).tolist() == [[1, 3, 0, 2]]
    assert moe.best(torch.ones(2, 1000), 5).tolist() == [[0, 1, 2, 3, 4]] * 2


def test_of_equal_groups_the_lowest_wins():
    assert moe.choose(torch.full((1, 21), 0.25), V2).tolist() == [[0, 1, 2, 3, 4]]
    assert moe.choose(torch.full((1, 21), 0.25), V3, torch.zeros(21)).tolist() == [[0, 1, 2, 3, 4]]


def test_groups_count_their_best_in_v2_and_their_two_best_in_v3():
    groups = {"groups": 3, "top_groups": 1}
    scores = torch.tensor([[0.9, 0.1, 0.1, 0.6, 0.6, 0.1, 0.8, 0.2, 0.1]])
    best = moe.choose(scores, MoE(5, 9, top_k=2, **groups))
    assert best.tolist() == [[0, 1]]
    two_best = moe.choose(scores, MoE(5, 9, top_k=2, **groups), torch.zeros(9))
    assert two_best.tolist() == [[3, 4]]


def test_the_bias_chooses_and_does_not_weigh():
    layer, x, _ = made(V4, seed=5)
    before = layer.router(x)
    with torch.no_grad():
        layer.router.bias.zero_()[4] = 100.0
    after = layer.router(x)
    assert (after.experts_BTk[..., 0] == 4).all() and not (before.experts_BTk == 4).all()
    assert torch.allclose(after.weights_BTk.sum(-1), torch.full((3, 11), 1.5).double())
    assert (after.weights_BTk[..., 0] < 1.5).all()  # by score, not by a score of 100


def test_sqrtsoftplus_is_finite_and_right_far_out():
    x = torch.tensor([-80.0, -17.0, 0.0, 17.0, 80.0], requires_grad=True)
    s = moe.scores(x, "sqrtsoftplus")
    want = [math.sqrt(math.log1p(math.exp(v))) for v in x.tolist()]
    assert torch.allclose(s, torch.tensor(want), rtol=1e-6, atol=0) and (s > 0).all()
    s.sum().backward()
    assert x.grad.isfinite().all() and (x.grad > 0).all()


def test_weights_without_and_with_normalising():
    scores = torch.tensor([[0.5, 0.2, 0.3]])
    chosen = torch.tensor([[0, 2]])
    plain = MoE(5, 3, top_k=2, scale=2.0)
    assert torch.allclose(moe.weigh(scores, chosen, plain), torch.tensor([[1.0, 0.6]]))
    even = MoE(5, 3, top_k=2, scale=2.0, normalise=True)
    assert torch.allclose(moe.weigh(scores, chosen, even), torch.tensor([[1.25, 0.75]]))
    assert moe.weigh(torch.zeros(1, 3), chosen, even).tolist() == [[0, 0]]  # never 0 / 0


def test_the_clamp_reaches_experts_and_the_shared_one():
    """The inputs do reach it: without the limit either part would differ."""
    layer, x, tokens = made(V4, seed=6)
    y = layer(x, tokens)
    used = set(layer.router(x, tokens).experts_BTk.flatten().tolist())
    assert len(used) > V4.top_k
    for part in (layer.shared, layer.experts):
        part.limit = None
        assert (layer(x, tokens) - y).abs().max() > 1e-6
        part.limit = V4.limit


def test_a_learners_swiglu_is_used_everywhere():
    seen = []

    def mine(gate, up, limit=None):
        seen.append(limit)
        return gate * 0

    layer = MoEFeedForward(WIDTH, V4, Parts(swiglu=mine), vocab=VOCAB)
    assert layer(torch.randn(2, 5, WIDTH)).abs().max() == 0
    assert seen == [0.3, 0.3]  # the experts together, and the shared one


def test_gradients_reach_experts_and_gate_and_leave_the_bias():
    layer, x, tokens = made(V3, seed=7)
    layer(x, tokens).square().sum().backward()
    assert layer.router.gate.weight.grad.abs().sum() > 0
    used = set(layer.router(x).experts_BTk.flatten().tolist())
    assert 5 < len(used) < 21
    for stack in (layer.experts.gate_up, layer.experts.down):
        moved_E = stack.grad.abs().amax((1, 2)) > 0
        assert moved_E.nonzero().flatten().tolist() == sorted(used)
    assert "router.bias" in layer.state_dict() and "router.bias" not in dict(
        layer.named_parameters()
    )


# ---------------------------------------------------------------- what was chosen


def test_watching_collects_every_pass_and_then_stops():
    layers = torch.nn.Sequential(MoEFeedForward(WIDTH, V3), MoEFeedForward(WIDTH, V2))
    x = torch.randn(2, 7, WIDTH)
    with watch_routing(layers) as seen:
        layers(x)
        layers(x[:, :3])
    layers(x)
    assert list(seen) == ["0.router", "1.router"]
    assert [r.experts_BTk.shape for r in seen["0.router"]] == [(2, 7, 5), (2, 3, 5)]
    load = seen["0.router"][0].load(V3.experts)
    assert load.shape == (21,) and load.sum() == 2 * 7 * 5
    assert load.tolist() == layers[0].router(x).load(21).tolist()


@by_kind
def test_experts_of_a_token_are_distinct_and_in_reach(config):
    layer, x, tokens = made(config, seed=8)
    chosen = layer.router(x, tokens).experts_BTk.flatten(0, 1).tolist()
    size = config.experts // config.groups
    for experts in chosen:
        assert len(set(experts)) == config.top_k
        assert len({e // size for e in experts}) <= config.top_groups or config.groups == 1


@given(vocab=st.integers(1, 60), experts=st.integers(1, 20), data=st.data())
@settings(max_examples=50, deadline=None)
def test_the_first_table_is_distinct_and_even(vocab, experts, data):
    k = data.draw(st.integers(1, experts))
    table = moe.first_table(MoE(5, experts, top_k=k, hash_routed=True), vocab)
    assert all(len(set(row)) == k for row in table.tolist())
    load = torch.bincount(table.flatten(), minlength=experts)
    assert load.max() - load.min() <= 1


# ---------------------------------------------------------------- one path, and causality


@by_kind
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_any_chunking_gives_the_same(config, chunk):
    layer, x, tokens = made(config, seed=9)
    whole = layer(x, tokens)
    pieces = [layer(a, b) for a, b in zip(x.split(chunk, 1), tokens.split(chunk, 1))]
    assert (torch.cat(pieces, 1) - whole).abs().max() < 1e-10


@by_kind
def test_tokens_do_not_touch_each_other(config):
    layer, x, tokens = made(config, seed=10)
    before = layer(x, tokens)
    x, tokens = x.clone(), tokens.clone()
    x[:, 6:] += 1
    tokens[:, 6:] = (tokens[:, 6:] + 1) % VOCAB
    after = layer(x, tokens)
    assert (after[:, :6] - before[:, :6]).abs().max() < 1e-12
    assert ((after[:, 6:] - before[:, 6:]).abs().amax(-1) > 1e-3).all()


def test_no_tokens():
    for config in KINDS.values():
        layer, x, tokens = made(config, seed=1)
        assert layer(x[:, :0], tokens[:, :0]).shape == (3, 0, WIDTH)


# ---------------------------------------------------------------- refusals


def test_refusals():
    layer, x, tokens = made(V4_HASH, seed=2)
    cases = [
        (lambda: layer(x), "token ids are missing"),
        (lambda: layer(x, tokens[:, 1:]), "shape \\(3, 10\\)"),
        (
            lambda: layer(x, tokens.clamp(min=1).fill_(VOCAB)),
            "from 37 to 37; the table has 37 rows",
        ),
        (lambda: layer(x, tokens.clone().fill_(-1)), "from -1 to -1"),
        (lambda: Router(WIDTH, V4_HASH), "give `vocab`"),
        (lambda: Router(WIDTH, V2).balance(torch.arange(21)), "selection_bias"),
        (lambda: Router(WIDTH, MoE(5, 21, top_k=2, groups=4)), "must divide 21"),
        (lambda: Router(WIDTH, MoE(5, 21, top_k=2, groups=7, top_groups=8)), "must be 1 to 7"),
        (lambda: Router(WIDTH, MoE(5, 21, top_k=7, groups=7, top_groups=2)), "must be 1 to 6"),
        (lambda: Router(WIDTH, MoE(5, 6, top_k=7)), "must be 1 to 6"),
        (lambda: moe.scores(x, "relu"), "'relu'"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
