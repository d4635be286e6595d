"""The frontier: what is marked is what was measured, and the words say what is shown.

What holds for each widget is asked of this one too, at every setting.
"""

import pytest
from test_widget_every import *  # noqa: F403 - its tests, for the widget below

from tinymodels import quality
from tinymodels.quality import short
from tinymodels.widgets.frontier import Frontier, _verdict, look

MADE_UP = {
    "tiny_v1": [0.93, 0.97],
    "tiny_v2": [0.9, 0.91],
    "tiny_v2_lite": [0.88, 0.9],
    "tiny_v3": [0.98, 0.99],
    "tiny_v4": [0.5],
}


@pytest.fixture
def widget():
    return Frontier()


def test_rows_marks_and_line_are_what_was_measured(monkeypatch):
    monkeypatch.setattr(quality, "values", lambda name, asked: MADE_UP.get(name, []))
    view = look("games: 16 pairs", "bytes a token", "tiny_v1", ours=True)
    rows = view.chart["rows"]
    assert [row["label"] for row in rows] == [
        "Ours", "V4.1", "V4", "V2-Lite", "V2", "V3.2", "V3", "V1",
    ]  # fmt: skip
    stands = {row["label"]: row["stands"] for row in rows}
    assert stands == {
        "Ours": "not trained yet",
        "V4.1": "not trained yet",
        "V4": "on the frontier",
        "V2-Lite": "on the frontier",
        "V2": "on the frontier",
        "V3.2": "not trained yet",
        "V3": "on the frontier",
        "V1": "beaten by V3",
    }
    assert (view.number, view.unit) == ("4 of 5", "on the frontier: V4, V2-Lite, V2, V3")
    low, high = (float(end.rstrip("%")) / 100 for end in view.chart["ends"])
    for row in rows:
        name = next(n for n in quality.FOLLOWS if short(n) == row["label"])
        shown = [low + mark["at"] * (high - low) for mark in row["marks"]]
        assert shown == pytest.approx(MADE_UP.get(name, []), abs=1e-3)
    line = [point["at"] for point in view.chart["line"]]
    assert line == sorted(line) and [p["row"] for p in view.chart["line"]] == list(range(2, 8))
    assert line[0] == rows[2]["mean"] and line[-1] == rows[6]["mean"]
    assert view.lines[0] == "V1: 93.0% to 97.0% (2 seeds). V3 takes less, and its weakest seed " \
        "does as well as the best one here."  # fmt: skip


def test_a_step_of_a_generation_is_told():
    view = look("games: 48 pairs", "bytes a token", "tiny_v4", ours=False)
    assert view.lines[1].startswith("From V3.2 to V4: bytes a token 360 → 48.75 (× 0.14); right ")
    assert "minutes" in view.lines[1]


def test_less_loss_lies_further_right(monkeypatch):
    losses = {"tiny_v1": [0.8, 0.9], "tiny_v4_1": [1.1]}
    monkeypatch.setattr(quality, "values", lambda name, asked: losses.get(name, []))
    view = look("stories: loss", "parameters", "tiny_v1", ours=False)
    places = {row["label"]: [m["at"] for m in row["marks"]] for row in view.chart["rows"]}
    assert places["V1"][0] > places["V1"][1] > places["V4.1"][0]
    assert view.chart["ends"][1] == "0.800 nats"
    assert view.unit == "on the frontier: V1"


def test_ours_is_looked_at_only_where_it_is_shown(widget):
    widget.set(model=quality.OWN)
    assert widget.settings["ours"] is True
    widget.set(ours=False)
    assert widget.settings["model"] == "tiny_v1"
    assert all(row["label"] != "Ours" for row in widget.view.chart["rows"])


def test_short_names_are_those_of_the_chapters():
    names = ["V1", "V2", "V2-Lite", "V3", "V3.2", "V4", "V4.1", "Ours"]
    assert [short(name) for name in quality.FOLLOWS] == names


def test_one_seed_on_the_frontier_is_doubted():
    loss = quality.MEASURES["stories: loss"]
    alone, two = (
        _verdict("tiny_v4", [0.86] * n, quality.Standing("on"), loss) for n in (1, 2)
    )
    assert alone.endswith("does as well; one seed, so by luck?")
    assert two.endswith("does as well.")
