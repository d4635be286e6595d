"""Residual streams: mHC against a loop over copies, and what its mixing promises."""

import pytest
import torch

from tinymodels import mixing
from tinymodels.config import HyperConnections
from tinymodels.presets import tiny_v1, tiny_v4
from tinymodels.residual import (
    Carried,
    Fold,
    Hyper,
    SinglePassHyper,
    build_fold,
    build_residual,
    join,
    newest,
    open_stream,
    sinkhorn,
)
from tinymodels.transformer import Transformer

N, X = 3, 7
MHC, SINGLE = HyperConnections(N), HyperConnections(N, single_pass=True)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def randomised(module, seed=0):
    for i, p in enumerate(module.parameters()):
        p.data = draw(*p.shape, seed=seed + i)
    return module.double().requires_grad_(False)


def by_loop(module, copies_NX, found_X):
    """One token, as the report writes it: (input, new copies, pre)."""
    flat = copies_NX.reshape(-1)
    raw = module.fn @ flat / (flat.square().mean() + module.norm_eps).sqrt()
    eps = module.config.eps
    pre = torch.sigmoid(raw[:N] * module.scale[0] + module.base[:N]) + eps
    post = 2 * torch.sigmoid(raw[N : 2 * N] * module.scale[1] + module.base[N : 2 * N])
    comb = (raw[2 * N :] * module.scale[2] + module.base[2 * N :]).view(N, N).softmax(1) + eps
    comb = comb / (comb.sum(0, keepdim=True) + eps)
    for _ in range(module.config.sinkhorn_iterations - 1):
        comb = comb / (comb.sum(1, keepdim=True) + eps)
        comb = comb / (comb.sum(0, keepdim=True) + eps)
    new = torch.zeros(N, X, dtype=torch.float64)
    for j in range(N):
        new[j] = post[j] * found_X
        for i in range(N):
            new[j] += comb[i, j] * copies_NX[i]
    return sum(pre[i] * copies_NX[i] for i in range(N)), new, pre


@pytest.mark.parametrize("seed", [0, 1])
def test_mhc_is_the_loop(seed):
    module = randomised(Hyper(X, MHC, 1e-6), seed)
    copies, found = draw(2, 5, N, X, seed=seed + 9), draw(2, 5, X, seed=seed + 10)
    x, kept = module.read(copies)
    new = module.write(copies, kept, found)
    for b in range(2):
        for t in range(5):
            want = by_loop(module, copies[b, t], found[b, t])
            torch.testing.assert_close(x[b, t], want[0], rtol=0, atol=1e-12)
            torch.testing.assert_close(new[b, t], want[1], rtol=0, atol=1e-12)


def test_single_pass_reads_with_the_pre_of_before():
    first, second = (randomised(SinglePassHyper(X, SINGLE, 1e-20), s) for s in (3, 4))
    x, found = draw(2, 5, X), draw(2, 5, X, seed=1)
    stream = open_stream(x, SINGLE)
    read, kept = first.read(stream)
    assert torch.equal(read, x)  # one-hot on copy 0
    after = first.write(stream, kept, found)
    read, _ = second.read(after)
    for b in range(2):
        for t in range(5):
            _, new, pre = by_loop(first, stream.copies_BTNX[b, t], found[b, t])
            torch.testing.assert_close(after.copies_BTNX[b, t], new, rtol=0, atol=1e-12)
            want = sum(pre[i] * new[i] for i in range(N))
            torch.testing.assert_close(read[b, t], want, rtol=0, atol=1e-12)
    folded = build_fold(X, SINGLE, 1e-20)(after)
    assert torch.equal(folded, read)  # the last pre folds the copies


def test_v4_folds_with_weights_of_its_own():
    fold = randomised(Fold(X, MHC, 1e-6))
    copies = draw(2, 5, N, X)
    flat = copies[1, 2].reshape(-1)
    raw = fold.fn @ flat / (flat.square().mean() + 1e-6).sqrt()
    weight = torch.sigmoid(raw * fold.scale + fold.base) + MHC.eps
    torch.testing.assert_close(fold(copies)[1, 2], weight @ copies[1, 2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_comb_is_doubly_stochastic(seed):
    comb = sinkhorn(draw(4, 5, N, N, seed=seed), 20, 1e-6)
    assert (comb > 0).all()
    torch.testing.assert_close(comb.sum(-2), torch.ones(4, 5, N).double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(comb.sum(-1), torch.ones(4, 5, N).double(), rtol=0, atol=1e-3)
    # so mixing never makes the largest copy larger
    copies = draw(4, 5, N, X, seed=seed)
    mixed = comb.transpose(-1, -2) @ copies
    assert (mixed.abs().amax((-2, -1)) <= copies.abs().amax((-2, -1)) * (1 + 1e-5)).all()


def test_plain_adds_bit_for_bit():
    module, x, found = build_residual(X, None, 1e-6), draw(2, 5, X), draw(2, 5, X, seed=1)
    assert not list(module.parameters())
    read, kept = module.read(open_stream(x, None))
    assert read is x
    assert torch.equal(module.write(x, kept, found), x + found)
    assert build_fold(X, None, 1e-6)(x) is x


def test_streams_are_cut_and_joined():
    for config in (None, MHC, SINGLE):
        streams = [open_stream(draw(2, t, X, seed=t), config) for t in (3, 4)]
        both = newest(join(streams), 5)
        parts = both if isinstance(both, Carried) else (both,)
        wholes = [s if isinstance(s, Carried) else (s,) for s in streams]
        for k, part in enumerate(parts):
            want = torch.cat([wholes[0][k], wholes[1][k]], dim=1)[:, 2:]
            assert torch.equal(part, want)


def test_bf16_mixes_in_float32():
    module = randomised(Hyper(X, MHC, 1e-6)).bfloat16()
    copies = draw(2, 5, N, X).bfloat16()
    assert module.mixes(copies).comb_BTNN.dtype is torch.float32
    x, kept = module.read(copies)
    assert x.dtype is torch.bfloat16
    assert module.write(copies, kept, x).dtype is torch.bfloat16


@pytest.mark.parametrize("preset", [tiny_v1, tiny_v4])
def test_every_weight_learns(preset):
    model = Transformer(preset())
    model(torch.randint(256, (2, 40)))[0, -1, 0].backward()
    still = [
        name
        for name, p in model.named_parameters()
        if p.grad is None and "indexer" not in name and ".experts." not in name
    ]
    assert not still


@pytest.mark.parametrize("iterations", [1, 2, 20])
@pytest.mark.parametrize("spread", [0.3, 6.0])
def test_sinkhorn_of_many_tokens_is_that_of_few(monkeypatch, iterations, spread):
    """Value and gradient: many tokens have a gradient written by hand, few have torch's own."""
    logits, toward = spread * draw(3, 29, N, N, seed=7), draw(3, 29, N, N, seed=8)
    found = []
    for few in (0, 1000):
        monkeypatch.setattr(mixing, "FEW", few)
        leaf = logits.clone().requires_grad_()
        comb = sinkhorn(leaf, iterations, 1e-6)
        found.append((comb.detach(), *torch.autograd.grad((comb * toward).sum(), leaf)))
    for many, few in zip(*found, strict=True):
        assert (many - few).abs().max() < 1e-13


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 9.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sinkhorn_of_one_token_is_that_of_two(spread, dtype):
    for seed in range(5):
        one = (spread * draw(1, 1, N, N, seed=seed)).to(dtype)
        got, (want, _) = (
            sinkhorn(one, 20, 1e-6)[0, 0],
            sinkhorn(one.expand(1, 2, N, N), 20, 1e-6)[0],
        )
        assert (got - want).abs().max() < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("tokens", [1, 3, 70])
def test_sinkhorn_without_eps_where_a_column_is_empty(tokens):
    """0 / 0 gives NaN, for one token as for many."""
    logits = torch.tensor([1e4, 0.0, 0.0]).expand(1, tokens, 3, 3)
    assert sinkhorn(logits, 20, 0.0).isnan().any()
    assert sinkhorn(logits, 20, 1e-6).isfinite().all()
