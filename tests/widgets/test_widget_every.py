"""What holds for each widget at every setting of every control."""

import json
from dataclasses import asdict, fields

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from tinymodels.widgets import plot
from tinymodels.widgets.base import Control, View, key

MANY = 40  # of a control with more values, the still picture is drawn at some

# What a widget with a test file of its own is asked as well: `from test_widget_every import *`.
__all__ = [
    "test_a_saved_notebook_holds_words_and_the_same_picture",
    "test_a_value_that_no_control_has_is_named",
    "test_controls_have_names_for_every_value",
    "test_every_mark_lies_on_the_chart",
    "test_every_position_has_a_whole_view",
    "test_reset_leads_back",
    "test_still_text_is_dark_enough",
    "test_the_browser_is_answered",
    "test_the_still_picture_is_whole_at_every_position",
    "test_views_one_press_away_are_those_python_would_send",
    "test_views_sent_ahead_are_those_python_would_send",
]


def positions(widget):
    """Each control moved over its whole range, the others where they start."""
    for control in widget._controls:
        for value in control.values:
            yield control, {**widget.start, control.name: value}


def texts_outside(fig) -> list[str]:
    """Words of a figure that its edge cuts."""
    fig.draw_without_rendering()
    frame = fig.bbox
    found = []
    for text in fig.findobj(Text):
        if not text.get_text() or (text.axes is not None and not _shown(text)):
            continue
        box = text.get_window_extent()
        if box.x0 < -2 or box.y0 < -2 or box.x1 > frame.x1 + 2 or box.y1 > frame.y1 + 2:
            found.append(text.get_text())
    return found


def _shown(text) -> bool:
    """An axis that is switched off still has its numbers, unseen."""
    return text.axes.axison or text in text.axes.texts


def test_every_position_has_a_whole_view(widget):
    for control, wanted in positions(widget):
        settled = widget.settle(wanted, control.name)
        view = widget.look(settled)
        assert isinstance(view, View)
        for field in fields(View):
            assert getattr(view, field.name), (settled, field.name)
        assert all(view.lines), settled
        assert view == widget.look(settled)
        for word in ("None", "nan", "inf ", "{", "e+"):
            assert word not in " ".join((view.number, view.unit, *view.lines, view.alt, view.say))
        json.dumps(asdict(view), allow_nan=False)


def test_every_mark_lies_on_the_chart(widget):
    def ends(chart):
        for value in chart.values():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                for mark in value:
                    yield from (mark[k] for k in ("end", "at") if mark.get(k) is not None)

    for control, wanted in positions(widget):
        found = list(ends(widget.look(widget.settle(wanted, control.name)).chart))
        assert found and all(0 <= end <= 1 for end in found), wanted


@pytest.mark.parametrize("apart", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_the_still_picture_is_whole_at_every_position(widget, apart):
    """Each is a quarter of a second: in a hurry, every third position of a control and its last."""
    for control, wanted in positions(widget):
        place, last = control.values.index(wanted[control.name]), len(control.values) - 1
        if place != last and place % (MANY if last >= MANY else apart):
            continue
        fig = widget.draw(widget.look(widget.settle(wanted, control.name)))
        assert texts_outside(fig) == [], wanted
        assert fig.get_facecolor() == (1, 1, 1, 1)


def test_still_text_is_dark_enough(widget):
    fig = widget.draw(widget.view)
    fig.draw_without_rendering()
    for text in fig.findobj(Text):
        assert plot.contrast(to_hex(text.get_color()), plot.LIGHT["ground"]) >= 4.5, text.get_text()


def test_a_saved_notebook_holds_words_and_the_same_picture(widget):
    data, metadata = widget._repr_mimebundle_()
    again, _ = widget._repr_mimebundle_()
    assert data["image/png"] == again["image/png"]
    assert data["text/plain"] == repr(widget)
    assert metadata["image/png"]["alt"] == widget.view.alt
    assert "object at 0x" not in repr(widget)
    assert widget.view.number in repr(widget)


def test_a_value_that_no_control_has_is_named(widget):
    name = widget._controls[0].name
    with pytest.raises(ValueError, match=f"{name} is 'seventeen'"):
        widget.set(**{name: "seventeen"})
    with pytest.raises(ValueError, match="speed is no control"):
        widget.set(speed=3)


def test_reset_leads_back(widget):
    first = widget.view
    for control in widget._controls:
        widget.set(**{control.name: control.values[-1]})
        widget.set(**{control.name: control.values[0]})
    widget.asked = {"settings": widget.start, "changed": "reset", "turn": 99}
    assert widget.settings == widget.start and widget.view == first
    assert widget.shown["turn"] == 99


def test_the_browser_is_answered(widget):
    control = widget._controls[-1]
    value = next(v for v in control.values if v != widget.settings[control.name])
    wanted = {**widget.settings, control.name: value}
    widget.asked = {"settings": wanted, "changed": control.name, "turn": 1}
    assert widget.shown["view"] == asdict(widget.look(widget.settings))
    assert widget.settings == widget.settle(wanted, control.name)


def test_views_sent_ahead_are_those_python_would_send(widget):
    for name, sent in widget.views.items():
        assert name == key(sent["settings"])
        assert sent["view"] == asdict(widget.look(sent["settings"]))
        for control in widget._controls:
            for value in control.values:
                wanted = {**sent["settings"], control.name: value}
                lead = widget.leads.get(key(wanted) + control.name, key(wanted))
                assert lead == key(widget.settle(wanted, control.name))
                assert lead in widget.views


def test_controls_have_names_for_every_value(widget):
    for control in widget._controls:
        assert control.label and len(control.texts) == len(control.values)
        assert all(control.texts)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "knob"}, "'knob' is no kind"),
        ({"texts": ("a",)}, "2 values and 1 texts"),
        ({"kind": "checkbox"}, "values False and True"),
    ],
)
def test_a_control_that_cannot_work_is_refused(given, message):
    whole = {"kind": "range", "values": (1, 2), "texts": ("one", "two"), **given}
    with pytest.raises(ValueError, match=message):
        Control("n", "n", **whole)


def test_views_one_press_away_are_those_python_would_send(widget):
    ahead = widget.shown["ahead"]
    assert bool(ahead) != bool(widget.views)
    for name, sent in ahead.items():
        moved = [c for c in widget._controls if name.endswith(c.name)]
        values = json.loads(name[: name.rindex("]") + 1])
        wanted = dict(zip(widget.settings, values))
        (control,) = (c for c in moved if name == key(wanted) + c.name)
        settled = widget.settle(wanted, control.name)
        assert sent == {"settings": settled, "view": asdict(widget.look(settled))}
