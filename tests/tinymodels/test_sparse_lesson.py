"""What chapter 07 says of its trained scorer, over all text models that are there."""

from dataclasses import replace

import pytest
import torch

from tinymodels import checkpoints, data
from tinymodels.attention.dsa import Indexer
from tinymodels.attention.indexer import divergence, index_scores, top_k
from tinymodels.attention.mla import in_order
from tinymodels.attention.seen import chosen
from tinymodels.attention.weights import attention_weights
from tinymodels.config import Indexer as Shape
from tinymodels.presets import LATENT
from tinymodels.step import Step

TEXT = [name for name in checkpoints.available() if name.startswith("tiny_v1-text-")]
T, K, LAYER = 128, 16, 2


def watched(model, number, held_out=False):
    tokens = data.batch("text", 0, number, data.Stage(4, T), held_out).tokens
    inputs = []
    note = model.layers[LAYER].attention.register_forward_pre_hook(
        lambda module, given: inputs.append(given[0])
    )
    model(tokens)
    note.remove()
    return inputs[0], attention_weights(model, tokens)[LAYER].mean(1)


@pytest.mark.parametrize("name", TEXT)
def test_a_small_scorer_learns_to_follow_a_layer(name):
    """Most of the true best 16, and nine tenths of their attention, on texts it never saw."""
    model = checkpoints.load(name).requires_grad_(False)
    visible, step = in_order(T, T), Step(torch.zeros(1, T, dtype=torch.long))
    torch.manual_seed(1)
    scorer = Indexer(64, replace(LATENT, q_rank=None, indexer=Shape(4, 16, K, rope_dim=8)))
    lessons, (exam_x, exam_share) = (
        [watched(model, n) for n in range(10)],
        watched(model, 0, held_out=True),
    )

    def scores(x):
        query, weight, rows = scorer.project(x, x, step)
        return index_scores(query, weight, rows["index"])

    @torch.no_grad()
    def hits():
        mine, true = (chosen(top_k(s, visible, K), T) for s in (scores(exam_x), exam_share))
        served, most = ((exam_share * c)[:, 64:].sum(-1).mean() for c in (mine, true))
        late = torch.arange(T)[:, None] >= 64
        missed, hit = (exam_share[true & late & c].mean() for c in (~mine, mine))
        part = ((mine & true)[:, 64:].sum(-1) / K).mean()
        return part.item(), (served / most).item(), (missed / hit).item()

    before = hits()
    rule = torch.optim.Adam(scorer.parameters(), lr=1e-2)
    for n in range(60):
        x, share = lessons[n % len(lessons)]
        rule.zero_grad()
        divergence(scores(x), share, visible).mean().backward()
        rule.step()
    found, served, weight = hits()
    assert before[0] < 0.35 and found > 0.6 and found > 2 * before[0]
    assert served > 0.9
    assert weight < 0.4 and before[2] > 0.7  # a true row that it misses, to one that it finds
