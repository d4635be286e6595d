"""Every lesson, opened in JupyterLab and run from top to bottom, its widgets moved by keyboard."""

from pathlib import Path

import pytest
from lab_driver import ROOT, chart_of, hide_sidebar, lab, move, open_notebook, run_all
from lab_driver import wait_for_change as changed

LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def running():
    with lab(ROOT) as server:
        yield server


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_runs_and_its_widgets_move(running, new_page, pictures, lesson):
    before = (ROOT / "notebooks" / lesson).read_bytes()
    page = new_page(1400, 1000)
    open_notebook(page, running, f"notebooks/{lesson}")
    hide_sidebar(page)
    run_all(page)
    page.wait_for_timeout(1000)
    shown = page.locator(".kvc")
    for at in range(shown.count()):
        _move_all(page, shown.nth(at))
        shown.nth(at).screenshot(path=pictures / f"{Path(lesson).stem}_{at}.png")
    wordless = page.locator(".jp-OutputArea img:not([alt])").count()
    assert wordless == 0, f"{wordless} pictures cannot be read aloud"
    assert page.complaints == []
    assert (ROOT / "notebooks" / lesson).read_bytes() == before
    print(f"\n{lesson}: {shown.count()} widgets moved, pictures in {pictures}")


def _move_all(page, widget) -> None:
    controls = widget.locator("input, select")
    assert controls.count() > 0
    for at in range(controls.count()):
        before = chart_of(widget)
        move(page, controls.nth(at))
        changed(page, widget, before)
    widget.get_by_role("button", name="Reset").press("Enter")
