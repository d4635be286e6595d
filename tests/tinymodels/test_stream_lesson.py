"""What chapter 03 says about depth and mixing, run with the lesson's own cells."""

from pathlib import Path

import pytest
import torch

from tinymodels.residual import sinkhorn
from tools.percent import read

SOURCE = Path(__file__).resolve().parents[2] / "sources/lessons/03__residual_stream.py"
SEEDS = range(3)


@pytest.fixture(scope="module")
def lesson():
    """The names that the lesson's cells on norms define."""
    names = {"torch": torch}
    wanted = "class PreNorm(Block)", "class PostNorm(Block)", "def fresh(", "def gradients("
    for cell in read(SOURCE).cells:
        if any(text in cell.text for text in wanted):
            exec(cell.text.split("KINDS = ")[0], names)
    return names


def spread(lesson, kind, layers):
    """Largest over smallest gradient of all layers, for each seed."""
    found = (lesson["gradients"](lesson[kind], layers, seed) for seed in SEEDS)
    return [max(by_layer) / min(by_layer) for by_layer in found]


def test_at_64_layers_pre_norm_is_even_post_norm_is_not_and_without_addition_all_is_lost(lesson):
    pre, post, none = (spread(lesson, k, 64) for k in ("PreNorm", "PostNorm", "NothingAdded"))
    assert max(pre) < 30
    assert min(post) > 2 * max(pre)
    assert min(none) > 1e6 and min(none) > 1000 * max(post)


def test_at_8_layers_the_two_norms_do_not_differ_much(lesson):
    pre, post = (spread(lesson, kind, 8) for kind in ("PreNorm", "PostNorm"))
    assert max(pre) < 6 and max(post) < 6


def test_post_norm_with_small_answers_behaves_at_32_layers(lesson):
    """As the models of the course are born: outputs shrunk by the square root of the depth."""
    from torch.nn.functional import cross_entropy

    from tinymodels import data
    from tinymodels.presets import tiny_v1
    from tinymodels.transformer import Transformer

    for seed in SEEDS:
        stack = Transformer(tiny_v1(layers=32), seed=seed)
        with torch.no_grad():
            stack.embed.weight.mul_(50)
            for p in stack.layers.parameters():
                if p.dim() > 1:
                    p.mul_(50 / p.shape[-1] ** 0.5)
        for layer in stack.layers:
            layer.__class__ = lesson["PostNorm"]
        batch = data.batch("text", seed, 0, data.Stage(2, 32))
        cross_entropy(stack(batch.tokens).flatten(0, 1), batch.targets.flatten()).backward()
        by_layer = [layer.ffn.down.weight.grad.norm().item() for layer in stack.layers]
        assert max(by_layer) / min(by_layer) < 10


@pytest.mark.parametrize("seed", [5, 6])
def test_sinkhorns_columns_are_exact_and_rows_come_near(seed):
    draw = torch.Generator().manual_seed(seed)
    logits_BTNN = 2 * torch.randn(1, 1000, 4, 4, generator=draw).double()
    rows = []
    for turns in (1, 3, 10, 20):
        comb_BTNN = sinkhorn(logits_BTNN, turns, 1e-6)
        rows.append((comb_BTNN.sum(-1) - 1).abs())
        if turns > 1:
            assert (comb_BTNN.sum(-2) - 1).abs().max() < 1e-5
    worst = [float(gap.max()) for gap in rows]
    assert worst == sorted(worst, reverse=True) and 1e-4 < worst[-1] < 0.1
    assert rows[-1].median() < 1e-5
