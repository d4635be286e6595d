"""Rank and error: what is recorded is what a cut model does, and the words say what is shown.

What holds for each widget is asked of this one too, at every setting.
"""

import pytest
import torch
from test_widget_every import *  # noqa: F403 - its tests, for the widget below

from tinymodels import low_rank
from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform
from tinymodels.data import Batch
from tinymodels.transformer import Transformer
from tinymodels.widgets.rank_error import MOST_LOSS, Cut, RankError, Ranks, look, record

SOME = (1, 6, 15, 24)


def made(seed):
    """A model of two layers whose rows have 24 numbers, and two batches of its texts."""
    attention = GQA(heads=4, kv_heads=2, head_dim=6, rope=Rope(6))
    config = ModelConfig("small", 37, 21, uniform(2, attention, Dense(33)), 99)
    model = Transformer(config, seed=seed).requires_grad_(False)
    draw = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(2):
        tokens = torch.randint(37, (3, 20), generator=draw)
        batches.append(Batch(tokens[:, :-1], tokens[:, 1:], tokens[:, 1:]))
    return model, *batches


@pytest.fixture(scope="module")
def ranks():
    return record(*made(1), ranks=SOME)


@pytest.fixture
def widget(ranks):
    return RankError(ranks, rank=15)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_cut_is_what_the_cut_model_does(seed):
    model, seen, held = made(seed)
    ranks = record(model, seen, held, ranks=SOME)
    assert (ranks.numbers, ranks.layers) == (24, 2)
    assert ranks.loss == pytest.approx(low_rank.quality(model, held).loss)
    for turned in (False, True):
        found = low_rank.spaces(low_rank.rows(model, seen.tokens, turned))
        asked = low_rank.rows(model, held.tokens, turned)
        for cut in ranks.cuts(turned):
            now = low_rank.quality(low_rank.narrowed(model, found, cut.rank, turned), held)
            assert (cut.loss, cut.right) == pytest.approx((now.loss, now.right))
            errors = [low_rank.error(r, s, cut.rank) for r, s in zip(asked, found)]
            assert cut.errors == pytest.approx(errors)
        errors = torch.tensor([cut.errors for cut in ranks.cuts(turned)])
        assert (errors.diff(dim=0) < 0).all() and (errors[-1] < 1e-3).all()


def test_words_and_marks_say_the_same(ranks):
    for turned in (False, True):
        for rank in SOME:
            cut, view = ranks.cut(turned, rank), look(ranks, rank, turned)
            assert view.number == str(2 * rank * 2)  # bf16, two layers
            assert f"{rank} of 24 numbers" in view.lines[0] and "of the 96 bytes" in view.lines[0]
            assert f"Loss {cut.loss:.3f}" in view.lines[1]
            assert [bar["text"] for bar in view.chart["errors"]] == [f"{e:.1%}" for e in cut.errors]
            assert view.chart["here"][0]["end"] * MOST_LOSS == pytest.approx(cut.loss)
            assert view.chart["here"][0]["at"] == rank / 24
            assert ("after RoPE" in view.unit) == turned


def test_a_loss_beyond_the_picture_stays_at_its_edge_and_in_the_words():
    far = Cut(1, (0.9,), 9.5, 0.0)
    ranks = Ranks(2, 1, 0.5, 1.0, (far, Cut(2, (0.0,), 0.5, 1.0)), (far, Cut(2, (0.4,), 9.5, 0.0)))
    view = look(ranks, 1, False)
    assert view.chart["here"][0]["end"] == 1 and "Loss 9.500, 9.000 more" in view.lines[1]
    assert len(view.chart["before"]) == 1 and view.chart["after"] == []
    assert "the same as uncut" in look(ranks, 2, False).lines[1]
    RankError(ranks, rank=1).draw(view)


def test_an_unmeasured_rank_is_named(ranks):
    with pytest.raises(ValueError, match="rank 7 was not measured; there are 1, 6, 15, 24"):
        ranks.cut(False, 7)
