"""Rows in other formats: their bytes, what comes back, what a trained model makes of them."""

import math

import pytest
import torch

from tinymodels import checkpoints, data, ledger, row_formats
from tinymodels.formats import FP4, fake_quantise, round_trip
from tinymodels.presets import tiny_v1, tiny_v4_1
from tinymodels.published import get
from tinymodels.transformer import Transformer

CONFIG = get("deepseek-v4.1-flash").config
WRITERS = [n for n in checkpoints.available() if n.startswith("tiny_v4_1-text")]
TRAINED = [n for n in checkpoints.available() if n.startswith("tiny_v4_1-recall")]


@pytest.fixture(scope="module")
def small():
    return Transformer(tiny_v4_1(), seed=3).requires_grad_(False)


def test_bytes_of_a_row_at_real_size():
    sizes = {name: row_formats.layout_of(name, 512).nbytes for name in row_formats.FORMATS}
    assert sizes == {"bf16": 1024, "FP8": 528, "MXFP4": 272, "FP4": 288}
    with pytest.raises(ValueError, match="'FP6'; known are bf16, FP8, MXFP4, FP4"):
        row_formats.layout_of("FP6", 512)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_format_loses_more_than_the_one_before_it(seed):
    rows = torch.randn(3, 37, 96, generator=torch.Generator().manual_seed(seed))
    lost = [row_formats.error(rows, name) for name in ("bf16", "FP8", "FP4", "MXFP4")]
    assert lost == sorted(lost) and lost[0] < 0.01 < lost[1] < 0.05 < lost[2] < lost[3] < 0.2


def test_a_cache_in_the_deployed_formats_is_the_deployed_cache(small):
    tokens = torch.randint(256, (2, 37), generator=torch.Generator().manual_seed(1))
    ours, theirs = row_formats.cache_in(small, 2, 37), small.new_cache(2, 37)
    assert torch.equal(small(tokens, ours), small(tokens, theirs))
    assert ours.bytes() == theirs.bytes()
    near, far = (
        row_formats.cache_in(small, 2, 37, *pair) for pair in (("FP4", "FP4"), ("FP8", "bf16"))
    )
    for cache in (near, far):
        small(tokens, cache)
    assert near.bytes()["window"] * 33 == ours.bytes()["window"] * 18  # 32 numbers a row
    assert near.bytes()["global"] == ours.bytes()["global"] < far.bytes()["global"]
    assert far.bytes()["window"] == ours.bytes()["window"]


def test_only_a_model_with_windows_and_shared_rows_is_taken():
    with pytest.raises(ValueError, match="tiny_v1 has no windows"):
        row_formats.cache_in(Transformer(tiny_v1()), 1, 9)


def test_an_effect_is_none_if_nothing_changes(small):
    texts = row_formats.hard_texts(2, 200, 11, seed=5)
    found = row_formats.effects(small, texts, [("bf16", "bf16"), ("FP4", "FP4")])
    assert found["bf16", "bf16"].kl == 0 < found["FP4", "FP4"].kl


def test_hard_texts_ask_for_what_was_said():
    texts = row_formats.hard_texts(3, 256, 48)
    assert texts.tokens.shape == (3, 256)
    places = (texts.known != data.IGNORED).nonzero().tolist()
    assert len(places) == 3 * 16
    for b, at in places:
        row = texts.tokens[b].tolist()
        key, value = row[at], texts.known[b, at].item()
        assert row[at + 1] == value
        assert (key, value) in zip(row[: at - 1], row[1:at])
    other = row_formats.hard_texts(3, 256, 48, seed=1)
    assert not torch.equal(texts.tokens, other.tokens)


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 64])
def test_a_cache_of_real_size_holds_what_the_ledger_says(tokens):
    cache = row_formats.filled(CONFIG, tokens)
    assert cache.bytes()["global"] == 1068 * (tokens // 2) + 356 * tokens
    if tokens == 64:
        assert cache.bytes()["global"] / tokens == 890 == ledger.rate(CONFIG)
        rows = [layer.main.packed() for layer in cache.layers if layer.main is not None]
        assert len(rows) == 4 and all(row.shape[-1] == 288 for row in rows)
        assert all(row.float().std(-1).min() > 1 for row in rows)  # written, not reserved


def test_rows_of_real_size_are_the_rounded_latents():
    packed, whole = (row_formats.filled(CONFIG, 6, 2, kind) for kind in ("packed", "float32"))
    for near, exact in zip(packed.layers, whole.layers):
        if near.main is None:
            continue
        latent = exact.main.read()["latent"]
        assert torch.equal(near.main.read()["latent"], round_trip(latent, FP4, 16))
        length = latent.norm(dim=-1)
        torch.testing.assert_close(length, torch.full_like(length, math.sqrt(512)))


# ---------------------------------------------------------------- what the chapter says


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", TRAINED)
def test_four_bits_hurt_more_near_than_far(name, seed):
    model = checkpoints.load(name).requires_grad_(False)
    texts = row_formats.hard_texts(6, seed=seed)
    pairs = [("FP8", "bf16"), ("FP4", "bf16"), ("bf16", "FP8"), ("bf16", "FP4")]
    found = row_formats.effects(model, texts, pairs)
    near8, near4, far8, far4 = (found[pair].kl for pair in pairs)
    assert near4 > 1.3 * far4 and near4 > 1.5 * near8 and far4 > 1.5 * far8
    assert found[pairs[1]].right > 0.9
    assert all(found[pair].right == 1 for pair in (pairs[0], *pairs[2:]))


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("name", WRITERS)
def test_on_text_four_bits_near_cost_most(name, step):
    """One batch of eight texts can say the opposite (the fourth does), so there are 32."""
    model = checkpoints.load(name).requires_grad_(False)
    texts = data.batch("text", 0, step, data.Stage(32, 256), held_out=True)
    pairs = [("FP4", "bf16"), ("FP8", "bf16"), ("bf16", "FP8"), ("bf16", "FP4")]
    near, *others = row_formats.effects(model, texts, pairs).values()
    assert near.kl > 4 * others[-1].kl
    assert near.more > 0.005 and near.more > 3 * max(other.more for other in others)


@pytest.mark.parametrize("name", TRAINED)
def test_rows_of_a_trained_model_lose_a_tenth_in_four_bits(name):
    model = checkpoints.load(name).requires_grad_(False)
    made = row_formats.latents(model, row_formats.hard_texts(2).tokens)
    assert sorted(made) == [1, 4]
    for latent in made.values():
        eight, micro, four = (row_formats.error(latent, f) for f in ("FP8", "MXFP4", "FP4"))
        assert eight < 0.04 and 0.07 < four < 0.12 and 1.1 < micro / four < 1.5


def test_what_was_cut_off_has_no_gradient():
    x = torch.tensor([[7.0, 1.3, -3.5, 0.2]], requires_grad=True)
    out = fake_quantise(x, FP4, 16)
    out.sum().backward()
    assert out.tolist() == [[6.75, 1.125, -3.375, 0.0]]
    assert x.grad.tolist() == [[0.0, 1.0, 1.0, 1.0]]
