"""An agent's day: what is shown is what a replay of the trace gives, and the bill adds up.

What holds for each widget is asked of this one too, at every setting.
"""

import pytest
from test_widget_every import (  # noqa: F401 - collected here, for the widget below
    test_a_saved_notebook_holds_words_and_the_same_picture,
    test_a_value_that_no_control_has_is_named,
    test_controls_have_names_for_every_value,
    test_every_mark_lies_on_the_chart,
    test_every_position_has_a_whole_view,
    test_reset_leads_back,
    test_still_text_is_dark_enough,
    test_the_browser_is_answered,
    test_the_still_picture_is_whole_at_every_position,
    test_views_one_press_away_are_those_python_would_send,
)

from tinymodels import ledger
from tinymodels.serving.day import agents_day, replay
from tinymodels.widgets.agents_day import (
    BUDGETS,
    MISS_PRICES,
    MODELS,
    AgentsDay,
    _tokens,
    look,
    pieces,
    record,
)
from tools.site.dark import FITS


@pytest.fixture(scope="module")
def trace():
    return agents_day(agents=3, hours=2, seed=2)


@pytest.fixture(scope="module")
def recorded(trace):
    return record(trace)


@pytest.fixture
def widget(recorded):
    return AgentsDay(recorded, budget=BUDGETS[3])


def test_every_hit_is_that_of_a_replay(trace, recorded):
    for model in MODELS:
        for budget in BUDGETS[::3]:
            want = replay(trace, ledger.rate(MODELS[model]), budget)
            assert recorded.hits(model, budget) == want.hit, (model, budget)
    assert recorded.sent == sum(r.input_length for r in trace)
    assert recorded.written == sum(r.output_length for r in trace)


def test_a_budget_holds_what_its_bytes_say():
    assert pieces("V4.1-Flash", 10**9) == 10**9 // (512 * 890) == 2194
    assert pieces("V3", 10**9) == 10**9 // (512 * 70_272) == 27


def test_swept_over_all_values(recorded):
    """More memory or a smaller row never finds less; the bill is the ledger's."""
    for price in MISS_PRICES:
        for model in MODELS:
            hits = []
            for budget in BUDGETS:
                settings = {"budget": budget, "model": model, "miss_price": price}
                view = look(recorded, settings, BUDGETS)
                hits.append(recorded.hits(model, budget))
                share = hits[-1] / recorded.sent
                cost = ledger.bill(
                    hits[-1],
                    recorded.sent - hits[-1],
                    recorded.written,
                    hit_price=0.003,
                    miss_price=price,
                    output_price=0.6,
                )
                assert view.number == f"{share:.1%}"
                assert f"${cost.total:,.2f}:" in view.lines[2] and "assumed" in view.lines[2]
                assert view.chart["here"][0]["end"] == share
                assert sum(curve["on"] for curve in view.chart["curves"]) == 1
            assert hits == sorted(hits)
    for budget in BUDGETS:
        by_model = [recorded.hits(model, budget) for model in MODELS]  # rows ever smaller
        assert by_model == sorted(by_model)


def test_all_models_stand_side_by_side(recorded):
    """Held, found and paid at one budget, beside a day without any memory."""
    for budget in (BUDGETS[0], BUDGETS[5]):
        settings = {"budget": budget, "model": "V3.2", "miss_price": 0.07}
        view = look(recorded, settings, BUDGETS)
        none, *bars = view.chart["bill"]
        assert [bar["label"] for bar in bars] == list(MODELS)
        assert (none["held"], none["found"], none["end"]) == ("0", "0.0%", 1.0)
        assert [bar["label"] for bar in bars if bar["on"]] == ["V3.2"] and not none["on"]
        whole = recorded.sent * 0.07 + recorded.written * 0.6
        assert none["text"] == f"${whole / 1e6:,.2f}"
        for bar in bars:
            hits = recorded.hits(bar["label"], budget)
            paid = hits * 0.003 + (recorded.sent - hits) * 0.07 + recorded.written * 0.6
            assert bar["text"] == f"${paid / 1e6:,.2f}" and bar["found"] in view.alt
            assert bar["end"] == pytest.approx(paid / whole)
        assert f"{bars[1]['found']} of the tokens" in f"{view.number} {view.unit}"


@pytest.mark.parametrize(
    ("tokens", "short"),
    [(0, "0"), (512, "512"), (1024, "1.02 k"), (13_824, "13.8 k"), (112_128, "112 k"),
     (999_424, "999 k"), (999_936, "1.00 M"), (1_123_328, "1.12 M"), (112_359_424, "112 M")],
)  # fmt: skip
def test_tokens_are_written_short(tokens, short):
    assert _tokens(tokens) == short


def test_the_still_picture_fits_a_phone(widget):
    """A wider one is moved sideways there."""
    assert widget._repr_mimebundle_()[1]["image/png"]["width"] <= FITS


def test_it_says_whose_day_it_is(trace):
    settings = {"budget": BUDGETS[0], "model": "V3", "miss_price": 0.14}
    for name, begins in (("", f"{len(trace):,} requests"), ("my day", "my day: ")):
        view = look(record(trace, BUDGETS[:2], name), settings, BUDGETS[:2])
        assert view.lines[1].startswith(begins)


def test_an_empty_trace_is_refused():
    with pytest.raises(ValueError, match="the trace is empty"):
        record([])
