"""Rank of keys and values: what a cut does, and what chapter 06 says about the shipped models."""

import pytest
import torch

from tinymodels import checkpoints, data, low_rank
from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform
from tinymodels.presets import tiny_v2
from tinymodels.transformer import Transformer
from tinymodels.widgets.rank_error import record

SHIPPED = [name for name in checkpoints.available() if name.startswith("tiny_v1-")]
by_seed = pytest.mark.parametrize("seed", [0, 1, 2])


def small(seed):
    attention = GQA(heads=6, kv_heads=3, head_dim=10, rope=Rope(10))
    model = Transformer(
        ModelConfig("small", 97, 45, uniform(2, attention, Dense(33)), 99), seed=seed
    )
    return model.requires_grad_(False)


def tokens(seed, rows=3):
    return torch.randint(97, (rows, 31), generator=torch.Generator().manual_seed(seed))


@by_seed
def test_a_table_of_known_rank_has_it(seed):
    draw = torch.Generator().manual_seed(seed)
    row = torch.randn(50, 5, generator=draw) @ torch.randn(5, 23, generator=draw)
    (space,) = low_rank.spaces([row])
    assert space.rank(1 - 1e-6) == 5
    assert low_rank.error(row, space, 5) < 1e-6 < 0.01 < low_rank.error(row, space, 4)
    values = torch.linalg.svdvals(row.double())
    torch.testing.assert_close(
        space.strength_D, values**2 / (values**2).sum(), atol=1e-8, rtol=1e-5
    )
    missing = space.strength_D[3:].sum().sqrt().item()  # Eckart and Young
    assert low_rank.error(row, space, 3) == pytest.approx(missing, rel=1e-4)
    with pytest.raises(ValueError, match="share is 1.5"):
        space.rank(1.5)


@by_seed
@pytest.mark.parametrize("turned", [False, True])
def test_all_numbers_kept_is_the_model_and_fewer_is_not(seed, turned):
    model, text = small(seed), tokens(seed)
    before = [p.clone() for p in model.parameters()]
    rows = low_rank.rows(model, text, turned)
    assert [row.shape for row in rows] == [(93, 60)] * 2
    found = low_rank.spaces(rows)
    want = model(text)
    whole = low_rank.narrowed(model, found, 60, turned)(text)
    torch.testing.assert_close(whole, want, rtol=0, atol=1e-5)
    gaps = [
        (low_rank.narrowed(model, found, rank, turned)(text) - want).norm() for rank in (2, 20, 40)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > 0.01 * gaps[0]
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    torch.testing.assert_close(model(text), want)


def test_a_cut_before_rope_is_a_latent():
    """Keys and values of the cut model lie in `rank` directions, turned keys in more."""
    model, text = small(4), tokens(4, rows=6)
    found = low_rank.spaces(low_rank.rows(model, text, False))
    narrow = low_rank.narrowed(model, found, 7, turned=False)
    # The first layer reads the same stream in both models.
    cut = low_rank.spaces(low_rank.rows(narrow, text, False)[:1])[0]
    assert cut.rank(1 - 1e-6) == 7
    assert low_rank.spaces(low_rank.rows(narrow, text, True)[:1])[0].rank(1 - 1e-6) > 20


def test_what_cannot_be_cut_is_refused():
    latent = Transformer(tiny_v2())
    with pytest.raises(ValueError, match="layer 0 has MLA"):
        low_rank.rows(latent, tokens(0), False)
    model = small(0)
    found = low_rank.spaces(low_rank.rows(model, tokens(0), False))
    for rank in (0, 61):
        with pytest.raises(ValueError, match=f"rank is {rank}; a row has 60 numbers"):
            low_rank.narrowed(model, found, rank, False)


# ---------------------------------------------------------------- what the chapter says


@pytest.mark.parametrize("name", SHIPPED)
def test_turned_keys_need_more_directions_in_every_layer(name):
    model = checkpoints.load(name).requires_grad_(False)
    text = data.batch(name.split("-")[1], 0, 0, data.Stage(4, 256), held_out=True)
    before, after = (
        [s.rank(0.99) for s in low_rank.spaces(low_rank.rows(model, text.tokens, turned))]
        for turned in (False, True)
    )
    assert all(b + 5 <= a for b, a in zip(before, after, strict=True)), (before, after)
    if "-text-" in name:  # recall models read random names and fill more of their space
        assert all(b <= 42 for b in before) and before[1] <= 24, before


@pytest.mark.parametrize("name", [name for name in SHIPPED if "-text-" in name])
def test_half_of_the_numbers_are_enough_before_rope_and_not_after(name):
    model = checkpoints.load(name).requires_grad_(False)
    seen = data.batch("text", 0, 0, data.Stage(8, 256))
    held = data.batch("text", 0, 0, data.Stage(4, 256), held_out=True)
    ranks = record(model, seen, held, ranks=(16, 24, 32))
    assert ranks.cut(False, 32).loss - ranks.loss < 0.02
    for rank in (16, 24, 32):
        before, after = (ranks.cut(turned, rank).loss - ranks.loss for turned in (False, True))
        assert after > 0.05 and after > 3 * before, (rank, before, after)
