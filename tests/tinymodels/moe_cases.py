"""Experts of every generation at odd sizes, and the same layer as a loop over tokens in floats."""

import math

import torch

from tinymodels.config import MoE
from tinymodels.moe import MoEFeedForward

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


def silu(x):
    return x / (1 + math.exp(-x))


def network(matrices, x, limit):
    """SwiGLU of one token in Python floats, from W_gate, W_up and W_down."""
    gate_FX, up_FX, down_XF = (matrix.tolist() for matrix in matrices)
    hidden = []
    for gate_row, up_row in zip(gate_FX, up_FX):
        gate = sum(w * v for w, v in zip(gate_row, x))
        up = sum(w * v for w, v in zip(up_row, x))
        if limit is not None:
            gate, up = min(gate, limit), max(-limit, min(up, limit))
        hidden.append(silu(gate) * up)
    return [sum(w * h for w, h in zip(row, hidden)) for row in down_XF]


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
    y = [0.0] * WIDTH
    if c.shared:
        shared = layer.shared
        y = network((shared.gate.weight, shared.up.weight, shared.down.weight), x, c.limit)
    for e, weight in routed(layer.router, x, token).items():
        y = [a + weight * b for a, b in zip(y, network(layer.experts.matrices(e), x, c.limit))]
    return y
