"""The lens widget shows what the model guesses there: against the model cut off after a layer."""

import copy

import pytest
import torch
from small_model import WORDS, make_model, pieces

from tinymodels.widgets import LogitLens, lens_reading
from tinymodels.widgets.lens import look

IDS = (0, 1, 3, 4, 6, 7)


def cut_off(model, layers):
    """A model of the first layers alone: it never knew that there were more."""
    shorter = copy.deepcopy(model)
    shorter.layers = shorter.layers[:layers]
    return shorter


@pytest.mark.parametrize("layers", range(4))
def test_guesses_are_those_of_a_shorter_model(model, readings, layers):
    logits_TV = cut_off(model, layers)(torch.tensor([IDS]))[0]
    final_T = model(torch.tensor([IDS]))[0].argmax(-1)
    for t, row in enumerate(readings[0].guesses):
        share = logits_TV[t].softmax(-1)
        order = share.argsort(descending=True)[:5].tolist()
        assert [word for word, _ in row[layers].best] == [WORDS[i].strip(" ").replace("\n", "↵")
                                                          for i in order]  # fmt: skip
        assert [p for _, p in row[layers].best] == pytest.approx(share[order].tolist(), abs=1e-5)
        assert row[layers].rank == 1 + (logits_TV[t] > logits_TV[t, final_T[t]]).sum()
        bits = torch.distributions.Categorical(logits=logits_TV[t]).entropy() / torch.log(
            torch.tensor(2.0)
        )
        assert row[layers].undecided == pytest.approx(bits.item(), abs=1e-4)


def test_labels_are_what_was_read(readings):
    assert list(readings[0].labels) == ["<bos>", "Ada", "lives", "in", "tent", "."]
    assert readings[0].layers == 3


def test_the_last_column_always_agrees_with_itself(readings):
    for t in range(6):
        view = look(readings[0], t, 3)
        assert view.number == "rank 1" and "the same as in the end" in view.lines[1]
        assert view.chart["rows"][t]["cells"][3]["final"] is True


@pytest.mark.parametrize("token, layer", [(0, 0), (4, 1), (5, 3)])
def test_the_view_says_what_stands_in_the_cell(readings, token, layer):
    view, guess = look(readings[0], token, layer), readings[0].guesses[token][layer]
    assert view.chart["here"] == [token, layer]
    word, share = guess.best[0]
    assert view.chart["rows"][token]["cells"][layer]["text"] == word
    assert f"“{word}”, {share:.0%}" in view.lines[1]
    assert view.number == f"rank {guess.rank}"
    assert f"{2**guess.undecided:,.1f} words" in view.lines[2]
    assert [bar["label"] for bar in view.chart["guesses"]] == [w for w, _ in guess.best]


def test_a_shorter_text_is_never_read_beyond_its_end(readings):
    widget = LogitLens(readings)
    assert widget.settings == {"text": 0, "token": -1, "layer": 1}
    assert widget.view == look(readings[0], 5, 1)
    widget.set(token=-6)
    assert widget.view == look(readings[0], 0, 1)
    widget.set(text=1)
    assert widget.view == look(readings[1], 3, 1)  # a new text is shown at its end
    widget.set(token=-6)
    assert widget.settings["token"] == -4 and widget.view == look(readings[1], 0, 1)


def test_the_courses_tokenizer_names_words_by_itself(model):
    from tinymodels import tokenizer

    ids = tokenizer.encode("Ada")[:1] + [1, 2]
    reading = lens_reading(model, ids)
    assert list(reading.labels) == ["<bos>", "↵", "␣"]


def test_what_cannot_be_shown_is_refused(model, readings):
    with pytest.raises(ValueError, match="ids is empty"):
        lens_reading(model, ())
    with pytest.raises(ValueError, match="readings is empty"):
        LogitLens([])
    other = make_model(seed=4)
    other.layers = other.layers[:2]
    with pytest.raises(ValueError, match="different numbers of layers"):
        LogitLens([*readings, lens_reading(other, IDS, pieces)])
