"""Every widget, without exception: by keyboard, with names, legible, and not by hue alone.

A widget that is new must be made in widget_makers.py; until then a test here fails by its name.
"""

import itertools

import pytest
from lab_driver import PATIENCE_MS, chart_of, move
from test_widgets_in_lab import CONTRASTS
from widget_makers import MAKERS, found, page_of

from tinymodels.widgets import plot

THEMES = {"light": False, "dark": True}
GREY = 1.4  # how much lighter one of two colours must be that mean different things
NAMED = {
    "slider",
    "combobox",
    "checkbox",
    "button",
    "image",
    "img",
    "region",
    "table",
    "spinbutton",
}
# The colours that shapes of a picture are filled or drawn with, as the browser computes them;
# `track` and `rule` only guide the eye, and text has its own test.
COLOURS = """(root) => {
  const seen = new Set();
  for (const shape of root.querySelectorAll("svg rect, svg circle, svg path, svg polyline")) {
    if (shape.closest("defs") || shape.matches(".track, .rule, .empty")) continue;
    const style = getComputedStyle(shape);
    if (!shape.getBoundingClientRect().width) continue;
    if (Number(style.fillOpacity) < 1 || Number(style.opacity) < 1) continue;
    if (style.fill.startsWith("rgb")) seen.add(style.fill);
  }
  return [...seen];
}"""
FOCUS = """() => {
  const node = document.activeElement;
  const style = getComputedStyle(node);
  const name = node.id || node.className;
  return [node.tagName, name, style.outlineStyle, parseFloat(style.outlineWidth)];
}"""


@pytest.fixture(scope="module")
def made():
    return {name: make() for name, make in MAKERS.items()}


@pytest.fixture(params=sorted(MAKERS))
def widget(request, made):
    return made[request.param]


@pytest.fixture(scope="module")
def page_for(new_page):
    """page_for(widget) -> the one page of a widget, in which it is answered by Python."""
    pages = {}

    def get(widget):
        if type(widget) not in pages:
            page = pages[type(widget)] = new_page(1000, 900)
            page.set_default_timeout(PATIENCE_MS)

            def answer(asked):
                widget.asked = asked
                return dict(widget.shown)

            page.expose_function("askPython", answer)
        return pages[type(widget)]

    return get


@pytest.fixture(params=THEMES)
def shown(request, widget, page_for):
    """(page, the widget's section) at 1,000 pixels, as it is at first."""
    page = page_for(widget)
    page.set_viewport_size({"width": 1000, "height": 900})
    widget.shown = widget._see(widget.start, 0)
    page.set_content(page_of(widget, THEMES[request.param]))
    section = page.locator(".kvc")
    section.wait_for()
    return page, section


def test_every_widget_is_looked_at():
    assert set(found()) == set(MAKERS), "make the new widget in tests/browser/widget_makers.py"


def test_each_control_is_reached_and_moves_by_keyboard(shown, widget):
    page, section = shown
    controls = section.locator("input, select, button")
    count = controls.count()
    assert count == len(widget._controls) + 1  # and Reset
    reached = []
    for _ in range(count + 2):
        page.keyboard.press("Tab")
        tag, name, line, width = page.evaluate(FOCUS)
        if tag == "BODY":
            break
        assert line != "none" and width >= 1, f"{name} shows no focus"
        reached.append(tag)
    assert sorted(tag for tag in reached if tag != "DIV") == sorted(
        controls.nth(at).evaluate("node => node.tagName") for at in range(count)
    )
    for at, control in enumerate(widget._controls):
        if len(control.values) < 2:
            continue
        node = section.locator("input, select").nth(at)
        before = section.locator(".kvc-body").inner_text() + chart_of(section)
        last = widget.settings[control.name] == control.values[-1]
        if control.kind == "select" and last:
            node.press("ArrowUp")
        else:
            move(page, node)
        page.wait_for_function(
            "([root, before]) => root.querySelector('.kvc-body').innerText"
            " + root.querySelector('.kvc-chart').innerHTML !== before",
            arg=[section.element_handle(), before],
        )
        assert node.evaluate("node => document.activeElement === node"), control.name
    assert page.complaints == []


def test_all_has_a_name_for_a_screen_reader(shown, widget):
    page, section = shown
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    nameless, roles = [], []
    for node in nodes:
        role = node.get("role", {}).get("value")
        if node.get("ignored") or role not in NAMED:
            continue
        roles.append(role)
        name = node.get("name", {}).get("value", "").strip()
        if not name:
            nameless.append(role)
    assert nameless == []
    assert "region" in roles and "button" in roles
    kinds = {"range": "slider", "select": "combobox", "checkbox": "checkbox"}
    for control in widget._controls:
        assert kinds[control.kind] in roles
    bare = section.locator("svg:not([aria-label]):not([aria-hidden]):not([role=presentation])")
    assert bare.count() == 0
    for at in range(section.locator("input[type=range]").count()):
        assert section.locator("input[type=range]").nth(at).get_attribute("aria-valuetext")


def test_a_change_is_spoken(shown, widget):
    page, section = shown
    say = section.locator("[aria-live=polite]")
    assert say.count() == 1 and say.inner_text() == ""
    movable = [i for i, control in enumerate(widget._controls) if len(control.values) > 1]
    if not movable:
        pytest.skip("nothing can be moved")
    move(page, section.locator("input, select").nth(movable[0]))
    page.wait_for_function("node => node.textContent.length > 10", arg=say.element_handle())


def test_words_stand_out_at_both_ends_of_each_control(shown, widget):
    page, section = shown
    for width in (1000, 400):
        page.set_viewport_size({"width": width, "height": 900})
        for settings in ends(widget):
            show(page, widget, settings)
            pale = [(word, round(c, 2)) for word, c in section.evaluate(CONTRASTS) if c < 4.5]
            assert pale == [], (width, settings)


def test_no_meaning_by_hue_alone(shown, widget):
    """Two colours that stand for different things differ in lightness too, so that they are told
    apart in grey, in print, and by those who see no hue."""
    page, section = shown
    for settings in ends(widget):
        show(page, widget, settings)
        colours = sorted({hexed(colour) for colour in section.evaluate(COLOURS)})
        alike = [
            (one, other)
            for one, other in itertools.combinations(colours, 2)
            if plot.contrast(one, other) < GREY
        ]
        assert alike == [], settings


@pytest.mark.parametrize("theme", [plot.LIGHT, plot.DARK], ids=THEMES)
def test_the_colours_themselves_differ_in_grey(theme):
    for one, other in itertools.combinations(("ground", "accent", "soft", "bar"), 2):
        assert plot.contrast(theme[one], theme[other]) >= GREY, (one, other)
    assert plot.contrast("#009E73", "#D55E00") < GREY  # a green and a red that do not


def hexed(colour: str) -> str:
    parts = colour[colour.index("(") + 1 : -1].replace(",", " ").split()[:3]
    return "#" + "".join(f"{round(float(part)):02x}" for part in parts)


def ends(widget):
    """The settings with one control at either end."""
    yield widget.start
    for control in widget._controls:
        for value in {control.values[0], control.values[-1]}:
            yield widget.settle({**widget.start, control.name: value}, control.name)


def show(page, widget, settings):
    """Bring the page to some settings, as Python would."""
    widget.shown = widget._see(settings, widget.shown["turn"] + 1)
    page.evaluate(
        "shown => { state.shown = shown; heard.forEach((call) => call()); }", dict(widget.shown)
    )
