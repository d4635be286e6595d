"""How the load of experts is evened out: V3's bias, V2's loss."""

import pytest
import torch

from tinymodels import moe, presets
from tinymodels.moe import Router
from tinymodels.transformer import Transformer

from .moe_cases import V2, V2_LITE, V4, WIDTH, made

by_seed = pytest.mark.parametrize("seed", [1, 2, 3])


def test_one_step_of_balance():
    bias = torch.tensor([0.5, 0.0, -0.5, 0.25])
    load = torch.tensor([7, 1, 4, 4])  # mean 4
    assert moe.balanced(bias, load, 0.125).tolist() == [0.375, 0.125, -0.5, 0.25]
    far = torch.tensor([0, 0, 1, 19])  # mean 5, median 0: the mean decides
    assert moe.balanced(bias, far, 0.125).tolist() == [0.625, 0.125, -0.375, 0.125]
    router = Router(WIDTH, V4)
    router.balance(torch.arange(13), gamma=0.5)
    assert router.bias.tolist() == [0.5] * 6 + [0] + [-0.5] * 6


@by_seed
def test_the_balance_loss_is_that_of_the_paper(seed):
    """By loops: f_e P_e of each text by itself."""
    layer, x, _ = made(V2, seed)
    routing = layer.router(x)
    total = 0.0
    for experts_Tk, scores_TE in zip(routing.experts_BTk.tolist(), routing.scores_BTE.tolist()):
        for e in range(21):
            fell = sum(e in chosen for chosen in experts_Tk) * 21 / (5 * 11)
            total += fell * sum(s[e] for s in scores_TE) / 11
    assert moe.balance_loss(routing).item() == pytest.approx(total / 3, rel=1e-12)
    even = torch.arange(21).view(1, 7, 3)
    assert moe.balance_loss(moe.Routing(even, even, torch.full((1, 7, 21), 1 / 21))).item() == (
        pytest.approx(1)
    )


@by_seed
def test_the_loss_evens_out_a_router_without_a_bias(seed):
    draw = torch.Generator().manual_seed(seed)
    router = Router(WIDTH, V2_LITE)
    x = torch.randn(3, 211, WIDTH, generator=draw) + 1.0
    first = router(x).load(13).float()
    optimiser = torch.optim.Adam(router.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        moe.balance_loss(router(x)).backward()
        optimiser.step()
    assert router(x).load(13).float().std() < first.std() / 2


def test_a_model_without_bias_teaches_its_routers_and_others_do_not():
    tokens = torch.randint(256, (2, 9))
    model = Transformer(presets.tiny_v2(), seed=1)
    _, losses = model.with_losses(tokens)
    assert len(losses) == 3  # one a layer with experts
    sum(losses).backward()
    for layer in model.layers[1:]:
        assert layer.ffn.router.gate.weight.grad.abs().sum() > 0
    for preset in (presets.tiny_v1, presets.tiny_v3, presets.tiny_v4):
        _, losses = Transformer(preset(), seed=1).with_losses(tokens)
        assert len(losses) == 0 or preset is presets.tiny_v4


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
