"""Chapter 12's widget in JupyterLab: by keyboard, at two widths, light and dark."""

import nbformat
import pytest
from lab_driver import chart_of, hide_sidebar, lab, move, open_notebook, run_all, wait_for_change
from test_widgets_in_lab import CONTRASTS, CUT

CELL = (
    "from tinymodels.serving.day import agents_day\n"
    "from tinymodels.widgets.agents_day import AgentsDay, record\n"
    'widget = AgentsDay(record(agents_day(agents=3, hours=2)), "V3", 316227766); widget'
)
CONTROLS = 3


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("day")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["kernelspec"] = kernel
    nbformat.write(notebook, folder / "day.ipynb")
    with lab(folder) as server:
        yield server


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_control_moves_and_nothing_is_cut(running, new_page, pictures, dark):
    page = new_page(1400)
    open_notebook(page, running, "day.ipynb", dark)
    hide_sidebar(page)
    run_all(page)
    widget = page.get_by_role("region", name="An agent's day")
    widget.locator("svg").wait_for()
    assert widget.locator("input, select").count() == CONTROLS
    for at in range(CONTROLS):
        before = chart_of(widget)
        move(page, widget.locator("input, select").nth(at))
        wait_for_change(page, widget, before)
    memory = widget.get_by_label("memory", exact=True)
    for width in (1400, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        for key in ("Home", "End"):
            memory.press(key)
            page.wait_for_timeout(300)
            pale = [(words, round(c, 2)) for words, c in widget.evaluate(CONTRASTS) if c < 4.5]
            assert pale == [], (width, key)
            assert widget.evaluate(CUT) == [], (width, key)
            theme = "dark" if dark else "light"
            widget.screenshot(path=pictures / f"agents_day_{key}_{width}_{theme}.png")
    print(f"\npictures in {pictures}")
    assert page.complaints == []
