"""What each layer adds: the recording is the model's own, and the bars are the recording's."""

import pytest
import torch

from tinymodels import checkpoints, swaps
from tinymodels.contributions import changed, contributions, patched
from tinymodels.presets import tiny_v4
from tinymodels.transformer import Transformer
from tinymodels.widgets.additions import PLAIN, Additions, look, record, signed


@pytest.fixture(scope="module")
def model():
    return checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)


@pytest.fixture(scope="module")
def pairs():
    return [swaps.swap("Ada", "Ben", "key", "lamp"), *swaps.swaps(1)]


@pytest.fixture(scope="module")
def trained(model, pairs):
    return record(model, pairs)


def lead(model, made, changes):
    with changed(model, changes):
        logits_V = model(made.text_BT)[0, -1]
    return float(logits_V[made.answer_B[0]] - logits_V[made.other_B[0]])


def test_leads_are_the_models_own_whatever_is_changed(model, pairs, trained):
    for pair, told in zip(pairs, trained.texts):
        made = swaps.tokens([pair])
        other = contributions(model, made.swapped_BT)
        by_change = {run.change: run for run in told.runs}
        assert len(by_change) == 1 + 2 * 8
        for change, name, make in (
            (PLAIN, "", None),
            ("without ffn 0", "ffn 0", torch.zeros_like),
            ("attention 2 from the other text", "attention 2", patched(other["attention 2"])),
        ):
            run = by_change[change]
            wanted = lead(model, made, {name: make} if name else {})
            assert run.place == name
            assert sum(run.votes) == pytest.approx(wanted, abs=2e-3)


def test_bars_are_a_staircase_that_ends_at_the_lead(trained):
    for told in trained.texts:
        for run in told.runs:
            chart = look(trained, trained.texts.index(told), run.change, "votes").chart
            *bars, whole = chart["bars"]
            at = chart["zero"][0]["at"]
            for bar, vote in zip(bars, run.votes, strict=True):
                begin, end = (bar["at"], bar["end"]) if vote >= 0 else (bar["end"], bar["at"])
                assert begin == pytest.approx(at)
                at = end
            assert at in (pytest.approx(whole["at"]), pytest.approx(whole["end"]))
            marked = [bar["label"] for bar in bars if bar["changed"]]
            assert marked == ([run.place] if run.place else [])


def test_the_change_is_said(trained):
    text = " ".join(look(trained, 0, "without ffn 0", "votes").lines)
    assert "ffn 0 runs and adds nothing" in text and "The lead was +" in text
    text = " ".join(look(trained, 0, "attention 2 from the other text", "sizes").lines)
    assert "'key' and 'lamp' are swapped" in text
    assert "Every piece is the model's own." in look(trained, 0, PLAIN, "votes").lines


def test_all_views_are_sent_and_small(trained):
    widget = Additions(trained)
    assert len(widget.views) == 2 * 17 * 2
    assert sum(len(str(sight)) for sight in widget.views.values()) < 250_000


def test_what_cannot_be_recorded_is_refused(model):
    with pytest.raises(ValueError, match="pairs is empty"):
        record(model, [])
    with pytest.raises(ValueError, match="keeps 4 copies"):
        record(Transformer(tiny_v4()), swaps.swaps(1))


def test_nothing_has_no_sign():
    assert [signed(x) for x in (0.04, -0.04, 0.06, -1.25)] == ["0.0", "0.0", "+0.1", "-1.2"]
