"""Experts and routers against a loop over tokens in float64 and against transformers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tinymodels import moe
from tinymodels.config import MoE
from tinymodels.moe import MoEFeedForward, Router, watch_routing
from tinymodels.parts import Parts

V2 = MoE(11, 21, top_k=5, shared=2, groups=7, top_groups=3, scale=16.0)
V2_LITE = MoE(11, 13, top_k=3, shared=2)
V3 = MoE(
    width=9,
    experts=21,
    top_k=5,
    shared=1,
    scoring="sigmoid",
    selection_bias=True,
    groups=7,
    top_groups=3,
    normalise=True,
    scale=2.5,
)
V4 = MoE(
    width=7,
    experts=13,
    top_k=3,
    shared=1,
    scoring="sqrtsoftplus",
    selection_bias=True,
    normalise=True,
    scale=1.5,
    limit=0.3,
)
V4_HASH = MoE(
    width=7,
    experts=13,
    top_k=3,
    shared=1,
    scoring="sqrtsoftplus",
    normalise=True,
    scale=1.5,
    limit=0.3,
    hash_routed=True,
)
UNSHARED = MoE(5, 6, top_k=2)
KINDS = {"V2": V2, "V2-Lite": V2_LITE, "V3": V3, "V4": V4, "V4 hash": V4_HASH, "bare": UNSHARED}
by_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())
by_seed = pytest.mark.parametrize("seed", [1, 2, 3])
WIDTH, VOCAB = 15, 37


def made(config, seed, dtype=torch.float64):
    """A layer with weights large enough to reach the clamp, and its inputs: batch 3, 11 tokens."""
    draw = torch.Generator().manual_seed(seed)
    layer = MoEFeedForward(WIDTH, config, vocab=VOCAB).to(dtype)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) * 0.5)
        if layer.router.bias is not None:
            layer.router.bias.copy_(torch.randn(config.experts, generator=draw) * 0.3)
        if layer.router.table is not None:
            order = torch.rand(VOCAB, config.experts, generator=draw).argsort(-1)
            layer.router.table.copy_(order[:, : config.top_k])
    x = torch.randn(3, 11, WIDTH, generator=draw).to(dtype)
    return layer, x, torch.randint(VOCAB, (3, 11), generator=draw)


# ---------------------------------------------------------------- the same, token by token


def silu(x):
    return x / (1 + math.exp(-x))


def network(ffn, x, limit):
    """SwiGLU of one token in Python floats."""
    hidden = []
    for gate_row, up_row in zip(ffn.gate.weight.tolist(), ffn.up.weight.tolist()):
        gate = sum(w * v for w, v in zip(gate_row, x))
        up = sum(w * v for w, v in zip(up_row, x))
        if limit is not None:
            gate, up = min(gate, limit), max(-limit, min(up, limit))
        hidden.append(silu(gate) * up)
    return [sum(w * h for w, h in zip(row, hidden)) for row in ffn.down.weight.tolist()]


def score(logits, scoring):
    if scoring == "softmax":
        total = sum(math.exp(l) for l in logits)
        return [math.exp(l) / total for l in logits]
    if scoring == "sigmoid":
        return [1 / (1 + math.exp(-l)) for l in logits]
    return [math.sqrt(math.log1p(math.exp(l))) for l in logits]


def routed(router, x, token):
    """{expert: weight} of one token, by sorting (score, index) pairs in Python."""
    c = router.config
    s = score(
        [sum(w * v for w, v in zip(row, x)) for row in router.gate.weight.tolist()], c.scoring
    )
    bias = [0.0] * c.experts if router.bias is None else router.bias.tolist()
    by = [a + b for a, b in zip(s, bias)]
    if router.table is not None:
        chosen = router.table[token].tolist()
    else:
        size = c.experts // c.groups
        groups = [list(range(g * size, (g + 1) * size)) for g in range(c.groups)]
        count = 2 if c.selection_bias else 1
        groups.sort(key=lambda g: -sum(sorted((by[e] for e in g), reverse=True)[:count]))
        allowed = sorted(e for g in groups[: c.top_groups] for e in g)
        chosen = sorted(allowed, key=lambda e: -by[e])[: c.top_k]
    total = sum(s[e] for e in chosen) if c.normalise else 1
    return {e: s[e] / total * c.scale for e in chosen}


def expected(layer, x, token):
    c = layer.config
    y = network(layer.shared, x, c.limit) if c.shared else [0.0] * WIDTH
    for e, weight in routed(layer.router, x, token).items():
        y = [a + weight * b for a, b in zip(y, network(layer.experts[e], x, c.limit))]
    return y


@by_seed
@by_kind
def test_equals_a_loop_over_tokens(config, seed):
    layer, x, tokens = made(config, seed)
    y = layer(x, tokens)
    for b in range(3):
        for t in range(11):
            want = torch.tensor(expected(layer, x[b, t].tolist(), int(tokens[b, t])), dtype=x.dtype)
            assert (y[b, t] - want).abs().max() < 1e-10 * max(1, want.abs().max())


@by_kind
def test_float32_is_close_to_float64(config):
    layer, x, tokens = made(config, seed=4)
    want = layer(x, tokens)
    got = layer.float()(x.float(), tokens)
    assert got.dtype == torch.float32
    assert (got - want).abs().max() < 1e-5 * want.abs().max()


# ---------------------------------------------------------------- transformers' own routers


def parity(theirs, config, seed):
    """Same experts, same weights as their router with our weights, in float32."""
    layer, x, ids = made(config, seed, torch.float32)
    ours = layer.router(x, ids)
    theirs.weight.data = layer.router.gate.weight.data.clone()
    if config.selection_bias:
        theirs.e_score_correction_bias = layer.router.bias.clone()
    if config.hash_routed:
        theirs.tid2eid = layer.router.table.clone()
        _, weights, experts = theirs(x, ids)
    else:
        _, weights, experts = theirs(x)
    experts, order = experts.view(3, 11, -1).sort(-1)
    weights = weights.view(3, 11, -1).gather(-1, order)
    our_experts, order = ours.experts_BTk.sort(-1)
    assert torch.equal(our_experts, experts)
    assert torch.allclose(ours.weights_BTk.gather(-1, order), weights, rtol=1e-5, atol=0)


@by_seed
@pytest.mark.parametrize("config", [V2, V2_LITE], ids=["V2", "V2-Lite"])
def test_router_of_transformers_v2(config, seed):
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2

    theirs = v2.DeepseekV2TopkRouter(
        v2.DeepseekV2Config(
            hidden_size=WIDTH,
            num_attention_heads=5,
            n_routed_experts=config.experts,
            num_experts_per_tok=config.top_k,
            routed_scaling_factor=config.scale,
            topk_method="greedy" if config.groups == 1 else "group_limited_greedy",
            n_group=config.groups,
            topk_group=config.top_groups,
        )
    )
    parity(theirs, config, seed)


@by_seed
def test_router_of_transformers_v3(seed):
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

    theirs = v3.DeepseekV3TopkRouter(
        v3.DeepseekV3Config(
            hidden_size=WIDTH,
            n_routed_experts=V3.experts,
            num_experts_per_tok=V3.top_k,
            routed_scaling_factor=V3.scale,
            n_group=V3.groups,
            topk_group=V3.top_groups,
            norm_topk_prob=True,
        )
    )
    parity(theirs, V3, seed)


@by_seed
@pytest.mark.parametrize("config", [V4, V4_HASH], ids=["bias", "hash"])
def test_routers_of_transformers_v4(config, seed):
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4

    theirs = v4.DeepseekV4HashRouter if config.hash_routed else v4.DeepseekV4TopKRouter
    their_config = v4.DeepseekV4Config(
        hidden_size=WIDTH,
        vocab_size=VOCAB,
        n_routed_experts=config.experts,
        num_experts_per_tok=config.top_k,
        routed_scaling_factor=config.scale,
        scoring_func="sqrtsoftplus",
    )
    parity(theirs(their_config), config, seed)


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
    for part in (layer.shared, *(layer.experts[e] for e in used)):
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
    assert set(seen) == {0.3} and len(seen) >= 4


# ---------------------------------------------------------------- balance


def test_one_step_of_balance():
    bias = torch.tensor([0.5, 0.0, -0.5, 0.25])
    load = torch.tensor([7, 1, 4, 4])  # mean 4
    assert moe.balanced(bias, load, 0.125).tolist() == [0.375, 0.125, -0.5, 0.25]
    router = Router(WIDTH, V4)
    router.balance(torch.arange(13), gamma=0.5)
    assert router.bias.tolist() == [0.5] * 6 + [0] + [-0.5] * 6


@by_seed
def test_balance_evens_out_a_skewed_router(seed):
    draw = torch.Generator().manual_seed(seed)
    router = Router(WIDTH, V4)
    x = torch.randn(3, 211, WIDTH, generator=draw) + 1.0  # a common part: some experts win always
    first = router(x).load(13)
    weight = router.gate.weight.clone()
    for _ in range(300):
        router.balance(router(x).load(13), gamma=0.005)
    last = router(x).load(13)
    assert first.sum() == last.sum() == 3 * 211 * V4.top_k
    mean = 3 * 211 * V4.top_k / 13
    assert first.max() > 1.5 * mean
    assert last.max() < 1.15 * mean and last.min() > 0.85 * mean
    assert torch.equal(weight, router.gate.weight)  # no weight moved, no loss was needed


def test_gradients_reach_experts_and_gate_and_leave_the_bias():
    layer, x, tokens = made(V3, seed=7)
    layer(x, tokens).square().sum().backward()
    assert layer.router.gate.weight.grad.abs().sum() > 0
    used = set(layer.router(x).experts_BTk.flatten().tolist())
    for e, expert in enumerate(layer.experts):
        assert (expert.up.weight.grad is not None) == (e in used)
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
        (lambda: layer(x, tokens + VOCAB), "the table has 37 rows"),
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
