"""The X-ray shows what happened: its trace against storage, and against what must happen."""

import pytest
import torch
from small_model import LABELS, TOKENS, make_model

from tinymodels.widgets import XRay, record
from tinymodels.widgets.xray import look

LAYERS, PROMPT = 3, 3


def test_each_step_writes_the_new_rows_and_reads_all(trace):
    assert len(trace.steps) == 1 + len(TOKENS) - PROMPT
    for step in trace.steps:
        start, end = step.tokens
        assert step.written == ((start, end),) * LAYERS
        assert step.read == ((0, end),) * LAYERS
        assert step.computed == (end - start,) * LAYERS
        assert step.again == (end,) * LAYERS
        assert step.agree


def test_steps_cover_the_tokens_once(trace):
    spans = [step.tokens for step in trace.steps]
    assert spans == [(0, 3), (3, 4), (4, 5), (5, 6), (6, 7)]


def test_bytes_are_those_of_the_storage(model, trace):
    cache = model.new_cache(1, len(TOKENS))
    for step in trace.steps:
        start, end = step.tokens
        model(torch.tensor([TOKENS[start:end]]), cache)
        assert step.held == cache.bytes()["total"] == end * LAYERS * 2 * 3 * 10 * 2


def test_rows_said_to_be_written_are_the_bytes_that_changed(model, trace):
    cache = model.new_cache(1, len(TOKENS))
    for step in trace.steps:
        before = [kept.main.buffers["row"].clone() for kept in cache.layers]
        model(torch.tensor([TOKENS[slice(*step.tokens)]]), cache)
        for layer, kept in enumerate(cache.layers):
            changed = (kept.main.buffers["row"] != before[layer]).any(-1)[0].nonzero().flatten()
            assert changed.tolist() == list(range(*step.written[layer]))


def test_a_model_that_reads_less_is_seen_to_read_less(model):
    """The trace is recorded, not assumed: a store that hands out two rows is found out."""
    from tinymodels.cache.rows import Rows

    whole = Rows.extend

    def short(self, new):
        return {name: x[:, -2:] for name, x in whole(self, new).items()}

    Rows.extend = short
    try:
        trace = record(model, TOKENS, LABELS)
    finally:
        Rows.extend = whole
    assert trace.steps[4].read == ((3, 5),) * LAYERS
    assert "k" in look(trace, 4).chart["panels"][0]["rows"][0]


def test_recording_leaves_the_model_as_it_was(model):
    record(model, TOKENS)
    assert all(not layer.attention._forward_pre_hooks for layer in model.layers)


@pytest.mark.parametrize("at", range(5))
def test_cells_and_totals_agree_with_the_steps(trace, at):
    view = look(trace, at)
    start, end = trace.steps[at].tokens
    with_cache, without = view.chart["panels"]
    missing = "." * (len(TOKENS) - end)
    new = "n" * (end - start)
    assert with_cache["rows"] == ["r" * start + new + missing] * LAYERS
    assert without["rows"] == ["a" * start + new + missing] * LAYERS
    ends = [step.tokens[1] for step in trace.steps[: at + 1]]
    assert view.number == str(LAYERS * end)
    assert [t["text"] for t in view.chart["totals"]] == [str(LAYERS * n) for n in (end, sum(ends))]
    assert with_cache["names"][0] == "layer 2"


def test_the_last_bar_without_a_cache_fills_the_axis(trace):
    assert look(trace, 4).chart["totals"][1]["end"] == 1


def test_without_the_comparison_there_is_one_panel(trace):
    view = look(trace, 2, compare=False)
    assert len(view.chart["panels"]) == len(view.chart["totals"]) == 1
    assert "without" not in view.unit + " ".join(view.lines)


def test_line_breaks_in_a_label_are_visible(model):
    trace = record(model, TOKENS[:2], ["a\n", "b"])
    assert trace.labels == ("a↵", "b")


def test_numbers_stand_for_tokens_without_labels(model):
    assert record(model, TOKENS[:2]).labels == ("7", "3")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": ()}, "tokens is empty"),
        ({"prompt": 0}, "prompt is 0"),
        ({"prompt": 8}, "it is 1 to 7"),
        ({"labels": ("a", "b")}, "2 labels for 7 tokens"),
    ],
)
def test_a_recording_that_makes_no_sense_is_refused(model, given, message):
    with pytest.raises(ValueError, match=message):
        record(model, **{"tokens": TOKENS, **given})


def test_a_model_with_a_window_is_not_for_this_picture():
    with pytest.raises(ValueError, match="layer 0 keeps no row for each token"):
        record(make_model(window=3), TOKENS)


def test_the_tokens_are_spoken_and_shown(trace):
    widget = XRay(trace)
    widget.set(step=2)
    assert "<bos>Ada lives in[ a]" in repr(widget)
    assert widget.view.say.startswith("token 5, ' a'")
