"""Pooling groups of tokens (CSA, HCA), against a loop over groups and channels."""

import math

import pytest
import torch

from tinymodels.attention.csa import CSA, Compressor
from tinymodels.attention.indexer import chosen
from tinymodels.cache import groups
from tinymodels.config import Grouped, Indexer, Rope
from tinymodels.step import Step

X, D, EPS = 13, 10, 1e-6


def randomised(module, seed):
    draw = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=draw, dtype=torch.float64) * 0.7
    return module.requires_grad_(False)


def compressor(ratio, overlap, seed=0, position_bias=True):
    return randomised(Compressor(X, D, ratio, EPS, overlap, position_bias), seed)


def inputs(length, seed=0, batch=2):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, X, generator=draw, dtype=torch.float64)


def step_of(length, start=0):
    return Step(torch.zeros(2, length, dtype=torch.int64), start)


def by_loop(module, x_TX):
    """Latents of one sequence's complete groups."""
    m, latents = module.ratio, []
    value, gate = x_TX @ module.value.weight.T, x_TX @ module.gate.weight.T
    if module.position_bias is not None:
        gate = gate + module.position_bias[torch.arange(len(x_TX)) % m]
    for j in range(len(x_TX) // m):
        # (token, channel offset): a token's first D numbers are for the group after its own
        rows = [(t, D if module.overlap else 0) for t in range(j * m, j * m + m)]
        if module.overlap and j:
            rows += [(t, 0) for t in range(j * m - m, j * m)]
        pooled = torch.empty(D, dtype=torch.float64)
        for d in range(D):
            power = [math.exp(gate[t, off + d]) for t, off in rows]
            parts = [p * value[t, off + d] for p, (t, off) in zip(power, rows, strict=True)]
            pooled[d] = sum(parts) / sum(power)
        latents.append(pooled / (pooled.square().mean() + EPS).sqrt() * module.norm.weight)
    return torch.stack(latents) if latents else torch.empty(0, D, dtype=torch.float64)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("ratio", [2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 5, 6, 14, 15])
def test_it_is_the_loop(length, ratio, overlap):
    module, x = compressor(ratio, overlap, length), inputs(length, ratio)
    got, positions = module(x, step_of(length), None)
    assert positions.tolist() == [j * ratio for j in range(length // ratio)]
    for b in range(2):
        torch.testing.assert_close(got[b], by_loop(module, x[b]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("ratio", [2, 3, 5])
@pytest.mark.parametrize("sizes", [[1] * 17, [4, 1, 12], [16, 1], [5, 5, 7]])
def test_any_chunking(sizes, ratio, overlap):
    module, x = compressor(ratio, overlap), inputs(17, 3)
    state = torch.zeros(2, groups.state_values(ratio, D, overlap), dtype=torch.float64)
    got, places, start = [], [], 0
    for size in sizes:
        latent, positions = module(x[:, start : start + size], step_of(size, start), state)
        got.append(latent)
        places += positions.tolist()
        start += size
    want, positions = module(x, step_of(17), None)
    assert places == positions.tolist()
    torch.testing.assert_close(torch.cat(got, dim=1), want, rtol=0, atol=1e-12)


def test_a_group_of_one_is_its_token():
    module, x = compressor(1, False, position_bias=False), inputs(7)
    assert module.gate is None
    got, positions = module(x, step_of(7, start=5), None)
    assert positions.tolist() == list(range(5, 12))
    torch.testing.assert_close(got, module.norm(module.value(x)), rtol=0, atol=0)


def test_a_group_changes_with_its_own_tokens_only():
    """CSA: its own m and the m before them. HCA: its own m."""
    for overlap in (False, True):
        module, x = compressor(3, overlap), inputs(15)
        before, _ = module(x, step_of(15), None)
        for t in range(15):
            other = x.clone()
            other[:, t] += 1
            after, _ = module(other, step_of(15), None)
            changed = (after != before).any(-1).any(0).nonzero().flatten().tolist()
            assert changed == [j for j in (t // 3, t // 3 + overlap) if j <= 4][: 1 + overlap]


# ------------------------------------------------------------------ the whole layer

SHAPES = dict(
    heads=6, head_dim=14, rope_dim=6, q_rank=11, out_groups=3, out_rank=5, window=4, ratio=3
)
INDEXER = Indexer(heads=5, dim=10, top_k=2, rope_dim=6)


def layer(indexer, seed=0):
    config = Grouped(rope=Rope(6, theta=160.0), indexer=indexer, **SHAPES)
    return randomised(CSA(X, config, EPS), seed)


def read_by(module, length, seed=0):
    """Which groups each query reads, [T, G] of the first sequence: those it changes with."""
    x = inputs(length, seed)
    far, seen = module.far, []
    base, _ = module(x, step_of(length))
    for j in range(length // 3):

        def shifted(*args, j=j):
            entries = far(*args).clone()
            entries[:, j] += 1
            return entries

        module.far = shifted
        out, _ = module(x, step_of(length))
        seen.append((out != base).any(-1)[0])
    module.far = far
    return torch.stack(seen, dim=1)


def test_hca_reads_every_complete_group_and_no_other():
    want = torch.arange(5) < ((torch.arange(15) + 1) // 3)[:, None]
    assert torch.equal(read_by(layer(None), 15), want)


@pytest.mark.parametrize("seed", [0, 1])
def test_csa_reads_the_best_groups_by_a_loop(seed):
    module, x, c = layer(INDEXER, seed), inputs(15, seed), INDEXER
    got = read_by(module, 15, seed)
    latent = module.query_latent(x)
    keys = module.indexer.keys(x, step_of(15), None)[0]
    queries = module.indexer.queries(latent, step_of(15))[0]
    weights = module.indexer.head_weight(x)[0]
    for t in range(15):
        visible = (t + 1) // 3
        scores = []
        for j in range(visible):
            heads = [
                weights[t, i] * max(0.0, float(queries[t, i] @ keys[j])) for i in range(c.heads)
            ]
            scores.append(float(sum(heads)))
        best = sorted(range(visible), key=lambda j: (-scores[j], j))[: c.top_k]
        want = chosen(torch.tensor([sorted(best)], dtype=torch.int64), 5)[0]
        assert torch.equal(got[t], want), t
