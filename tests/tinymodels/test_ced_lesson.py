"""What chapter 09 says: where a replay is exact, how its error falls and fades, what rows need."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tinymodels import ced, checkpoints, data, ledger, replay
from tinymodels.dice import Dice
from tinymodels.presets import tiny_v1, tiny_v4_1
from tinymodels.transformer import Transformer

TRAINED = [name for name in checkpoints.available() if name.startswith("tiny_v4_1-recall")]
WRITERS = [name for name in checkpoints.available() if name.startswith("tiny_v4_1-text")]
LAYERS = 4  # of the decoder
EXACT, NOISE = 1e-9, 1e-12


def tokens_of(length, batch=3, seed=0):
    return torch.randint(256, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("window", [5, 16])
def test_the_error_ends_where_the_formula_says(window, seed):
    model, tokens = replay.random_model(window, seed), tokens_of(75, seed=seed)
    enough = LAYERS * (window - 1) + 1
    exact = model(tokens)[:, -1]
    found = {
        run: replay.error(replay.last_logits(model, tokens, run), exact)
        for run in (1, window, enough - 1, enough, enough + 3)
    }
    assert found[enough] < NOISE and found[enough + 3] < NOISE
    assert found[enough - 1] > EXACT
    assert found[1] > found[window] > found[enough - 1]


@pytest.mark.parametrize("window", [5, 16])
def test_the_error_is_gone_after_so_many_words(window):
    prompt, fades = 3 * window + 2, (LAYERS - 1) * (window - 1)
    model = replay.random_model(window)
    errors = replay.fading(model, tokens_of(prompt + fades + 4), prompt)
    assert max(errors[fades:]) < NOISE < EXACT < errors[fades - 1]
    assert max(errors[:window]) > 0.01


@pytest.mark.parametrize("length", [1, 7, 16, 17, 40])
def test_without_a_cache_it_is_what_prefill_does(length):
    model, tokens = replay.random_model(), tokens_of(length)
    memory = model.new_cache(3, length, "float64")
    want = model.prefill(tokens, memory)
    got = replay.last_logits(model, tokens, min(length, ced.window(model.config)))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    off = replay.error(got, model(tokens)[:, -1])
    assert off < NOISE if length <= 16 else off > 0.01


@pytest.mark.parametrize("name", TRAINED)
def test_trained_models_err_little_and_recall_as_before(name):
    model = checkpoints.load(name).requires_grad_(False)
    made = [data.recall(Dice("chapter 09", 0, i), 256, 48) for i in range(8)]
    tokens = torch.tensor([m.tokens for m in made])
    exact_right, right, errors = [], [], []
    for at in made[0].answers[::4]:
        exact = model(tokens[:, :at])[:, -1]
        got = replay.last_logits(model, tokens[:, :at], 16)
        errors.append(replay.error(got, exact))
        exact_right.append((exact.argmax(-1) == tokens[:, at]).double().mean())
        right.append((got.argmax(-1) == tokens[:, at]).double().mean())
    assert sum(exact_right) > 0.97 * len(exact_right)
    assert sum(right) > sum(exact_right) - 0.03 * len(right)
    assert 1e-6 < max(errors) < 0.15


@pytest.mark.parametrize("name", WRITERS)
def test_the_next_word_needs_the_replay_and_one_window_is_enough(name):
    model = checkpoints.load(name).requires_grad_(False)
    lines = data.batch("text", 0, 0, data.Stage(24, 160), held_out=True)

    def loss(run):
        found = [
            cross_entropy(
                replay.last_logits(model, lines.tokens[:, :n], run or n), lines.targets[:, n - 1]
            )
            for n in (40, 70, 100, 130, 150)
        ]
        return float(sum(found)) / len(found)

    exact = loss(None)
    assert loss(16) < exact + 0.1
    assert loss(1) > 1.5 * exact


def error_of(model, tokens, window):
    got = replay.last_logits(model, tokens, window)
    return replay.error(got, model(tokens)[:, -1])


def test_a_window_leaves_an_error_until_it_holds_the_whole_prompt():
    """More tokens are run, and each looks further back."""
    tokens = tokens_of(60)
    for window in (4, 8, 16, 32, 57):
        assert 0.01 < error_of(replay.random_model(window), tokens, window) < 0.5
    assert error_of(replay.random_model(60), tokens, 60) < NOISE


def test_the_error_rises_beyond_the_window_and_stays_bounded():
    """On the mean of six models; a single one goes up and down."""
    models, tokens = [replay.random_model(seed=seed) for seed in range(6)], tokens_of(120, seed=5)
    errors = {
        length: [error_of(model, tokens[:, :length], 16) for model in models]
        for length in (17, 60, 120)
    }
    assert all(0.01 < error < 0.5 for each in errors.values() for error in each)
    just, middle, late = (sum(each) / 6 for each in errors.values())
    assert just < middle and late < 1.25 * middle


def test_what_the_rows_of_a_layer_need():
    """Far: the encoder's part at most. Near: every layer below. V1: every layer below."""
    config = tiny_v1()
    v1 = Transformer(config.with_(layers=config.layers * 2)).double().requires_grad_(False)
    model, tokens = replay.random_model(), tokens_of(13)
    below = torch.ones(8, 8).tril(-1).bool()
    assert torch.equal(replay.needed(v1, tokens, "main"), below)
    assert torch.equal(replay.needed(model, tokens, "window"), below)
    far = replay.needed(model, tokens, "main")
    assert torch.equal(far[4:], below[4:5].expand(4, 8))
    assert far[1:4, 0].all() and not far[:4, 1:].any() and not far[0].any()


def test_weights_are_as_before_after_the_look():
    model = replay.random_model()
    before = [weight.clone() for weight in model.parameters()]
    replay.needed(model, tokens_of(5), "main")
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_replay_that_cannot_be_is_named():
    with pytest.raises(ValueError, match="tiny_v1 has no decoder half"):
        replay.last_logits(Transformer(tiny_v1()), tokens_of(5), 2)
    for run in (0, 6):
        with pytest.raises(ValueError, match=f"run is {run}; it must be from 1 to the prompt's 5"):
            replay.last_logits(replay.random_model(), tokens_of(5), run)
    assert ced.window(replay.with_window(tiny_v4_1(), 7)) == 7


def test_what_the_article_says_loosely():
    """Fewer active parameters than V4-Flash: in prefill 8 < 13, in decode 16 > 13."""
    billions = {
        (name, phase): round(ledger.active(name, phase) / 1e9)
        for name in ("deepseek-v4-flash", "deepseek-v4.1-flash")
        for phase in ("prefill", "decode")
    }
    assert list(billions.values()) == [13, 13, 8, 16]
