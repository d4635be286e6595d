"""The X-ray shows what happened: its trace against storage, and against what must happen."""

from dataclasses import replace

import pytest
import torch
from small_model import NEW, PROMPT, WORDS, make_model, pieces

from tinymodels.widgets import XRay, record
from tinymodels.widgets.xray import look

LAYERS, LENGTH = 3, len(PROMPT) + NEW - 1


@pytest.fixture(scope="module")
def tokens(model):
    """What the model writes, by the package's own loop; the last is never read again."""
    text_BT = model.generate(torch.tensor([PROMPT]), NEW, temperature=0)
    return text_BT[0].tolist()


def test_each_step_writes_the_new_rows_and_reads_all(trace):
    spans = [step.tokens for step in trace.steps]
    assert spans == [(0, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    for step in trace.steps:
        start, end = step.tokens
        assert step.written == ((start, end),) * LAYERS
        assert step.read == ((0, end),) * LAYERS
        assert step.computed == (end - start,) * LAYERS
        assert step.again == (end,) * LAYERS


def test_the_text_is_what_the_model_writes(trace, tokens):
    labels = [WORDS[token].replace("\n", "↵") for token in tokens]
    assert list(trace.labels) == labels[:-1]
    assert [step.chosen for step in trace.steps] == [(word, word) for word in labels[3:]]


def test_bytes_are_those_of_the_storage(model, trace, tokens):
    cache = model.new_cache(1, LENGTH)
    for step in trace.steps:
        start, end = step.tokens
        model(torch.tensor([tokens[start:end]]), cache)
        assert step.held == cache.bytes()["total"] == end * LAYERS * 2 * 3 * 10 * 2


def test_rows_said_to_be_written_are_the_bytes_that_changed(model, trace, tokens):
    cache = model.new_cache(1, LENGTH)
    for step in trace.steps:
        before = [kept.main.buffers["row"].clone() for kept in cache.layers]
        model(torch.tensor([tokens[slice(*step.tokens)]]), cache)
        for layer, kept in enumerate(cache.layers):
            changed = (kept.main.buffers["row"] != before[layer]).any(-1)[0].nonzero().flatten()
            assert changed.tolist() == list(range(*step.written[layer]))


def test_a_model_that_reads_less_is_seen_to_read_less(model, monkeypatch):
    """The trace is recorded, not assumed: a store that hands out two rows is found out."""
    from tinymodels.cache.rows import Rows

    whole = Rows.extend
    monkeypatch.setattr(
        Rows, "extend", lambda self, new: {n: x[:, -2:] for n, x in whole(self, new).items()}
    )
    trace = record(model, PROMPT[:1], NEW, pieces)
    assert trace.steps[4].read == ((3, 5),) * LAYERS
    assert look(trace, 4).chart["panels"][0]["rows"] == ["kkkrn"] * LAYERS


def test_recording_leaves_the_model_as_it_was(model):
    record(model, PROMPT, 2, pieces)
    assert all(not layer.attention._forward_pre_hooks for layer in model.layers)


@pytest.mark.parametrize("at", range(NEW))
def test_cells_and_totals_agree_with_the_steps(trace, at):
    view = look(trace, at)
    start, end = trace.steps[at].tokens
    with_cache, without = view.chart["panels"]
    missing = "." * (LENGTH - end)
    new = "n" * (end - start)
    assert with_cache["rows"] == ["r" * start + new + missing] * LAYERS
    assert without["rows"] == ["a" * start + new + missing] * LAYERS
    ends = [step.tokens[1] for step in trace.steps[: at + 1]]
    assert view.number == str(LAYERS * end)
    assert [t["text"] for t in view.chart["totals"]] == [str(LAYERS * n) for n in (end, sum(ends))]
    assert with_cache["names"][0] == "layer 2"


def test_the_last_bar_without_a_cache_fills_the_axis(trace):
    assert look(trace, NEW - 1).chart["totals"][1]["end"] == 1


def test_without_the_comparison_there_is_one_panel(trace):
    view = look(trace, 2, compare=False)
    assert len(view.chart["panels"]) == len(view.chart["totals"]) == 1
    assert "without" not in view.unit + " ".join(view.lines)


def test_a_choice_that_differs_is_said(trace):
    steps = (replace(trace.steps[0], chosen=(" a", " tent")), *trace.steps[1:])
    text = " ".join(look(replace(trace, steps=steps), 0).lines)
    assert "Next token: ' a', without a cache ' tent'; rows are rounded" in text


def test_the_courses_tokenizer_names_tokens_by_itself(model):
    from tinymodels import tokenizer

    trace = record(model, PROMPT, 1)
    assert list(trace.labels) == tokenizer.pieces(PROMPT)


def test_a_token_without_a_word_has_its_number():
    from tinymodels import tokenizer
    from tinymodels.widgets.xray import _course_pieces

    ids = [tokenizer.BOS, tokenizer.VOCABULARY, tokenizer.VOCABULARY - 1]
    assert _course_pieces(ids)[:2] == ["<bos>", f"#{tokenizer.VOCABULARY}"]


@pytest.mark.parametrize(
    ("given", "message"),
    [({"prompt": ()}, "prompt is empty"), ({"new": 0}, "new is 0")],
)
def test_a_recording_that_makes_no_sense_is_refused(model, given, message):
    with pytest.raises(ValueError, match=message):
        record(model, **{"prompt": PROMPT, **given})


def test_a_model_with_a_window_is_not_for_this_picture():
    with pytest.raises(ValueError, match="layer 0 keeps no row for each token"):
        record(make_model(window=3), PROMPT)


def test_the_tokens_are_spoken_and_shown(trace):
    widget = XRay(trace)
    widget.set(step=1)
    word = trace.labels[3]
    assert f"[{word}]" in repr(widget)
    assert widget.view.say.startswith(f"token 4, {word!r}")
