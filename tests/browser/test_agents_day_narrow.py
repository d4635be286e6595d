"""An agent's day on a phone: nothing of it lies outside a narrow screen, whatever the setting."""

import pytest
from lab_driver import PATIENCE_MS
from widget_makers import MAKERS, page_of

OUTSIDE = """() => [...document.querySelectorAll(".kvc *")]
  .filter((node) => node.closest(".kvc-say") === null)
  .filter((node) => {
    const box = node.getBoundingClientRect();
    return box.width && (box.left < 0 || box.right > innerWidth);
  })
  .map((node) => node.textContent.slice(0, 40) || node.tagName)"""


@pytest.mark.parametrize("width", [400, 320])
def test_nothing_moves_sideways(new_page, width):
    widget = MAKERS["AgentsDay"]()
    page = new_page(width, 900)
    page.set_default_timeout(PATIENCE_MS)
    page.expose_function("askPython", lambda asked: dict(widget.shown))
    page.set_content(page_of(widget, False))
    page.locator(".kvc").wait_for()
    for control in widget._controls:
        for value in (control.values[0], control.values[-1]):
            widget.set(**{control.name: value})
            page.evaluate(
                "shown => { state.shown = shown; heard.forEach((call) => call()); }",
                dict(widget.shown),
            )
            assert page.evaluate(OUTSIDE) == [], widget.settings
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints == []
