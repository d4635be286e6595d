"""Chapter 09's widget in JupyterLab: by keyboard, at two widths, light and dark."""

import nbformat
import pytest
from lab_driver import chart_of, hide_sidebar, lab, move, open_notebook, run_all, wait_for_change
from test_widgets_in_lab import CONTRASTS, CUT

CELLS = ("from tinymodels.widgets import Tower\nwidget = Tower(); widget",)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tower")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["kernelspec"] = kernel
    nbformat.write(notebook, folder / "tower.ipynb")
    with lab(folder) as server:
        yield server


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_moment_is_legible_and_nothing_is_cut(running, new_page, pictures, dark):
    page = new_page(1400)
    open_notebook(page, running, "tower.ipynb", dark)
    hide_sidebar(page)
    run_all(page)
    widget = page.get_by_role("region", name="Who runs when")
    widget.locator("svg").wait_for()
    for at in range(3):
        before = chart_of(widget)
        move(page, widget.locator("input, select").nth(at))
        wait_for_change(page, widget, before)
    widget.get_by_role("button", name="Reset").press("Enter")
    moment = widget.get_by_label("moment", exact=True)
    for width in (1400, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        moment.press("Home")
        for step in range(8):
            page.wait_for_timeout(200)
            pale = [(words, round(c, 2)) for words, c in widget.evaluate(CONTRASTS) if c < 4.5]
            assert pale == [], (width, step)
            assert widget.evaluate(CUT) == [], (width, step)
            theme = "dark" if dark else "light"
            widget.screenshot(path=pictures / f"tower_{step}_{width}_{theme}.png")
            moment.press("ArrowRight")
    print(f"\npictures in {pictures}")
    assert page.complaints == []
