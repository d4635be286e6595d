"""Chapter 07's widget in JupyterLab: by keyboard, at two widths, light and dark."""

import nbformat
import pytest
from lab_driver import chart_of, hide_sidebar, lab, move, open_notebook, run_all, wait_for_change
from test_widgets_in_lab import CONTRASTS, CUT

CELLS = (
    "from tinymodels import checkpoints, data\n"
    "from tinymodels.dice import Dice\n"
    "from tinymodels.widgets.which_entries import WhichEntries, record\n"
    'model = checkpoints.load("tiny_v3_2-recall-seed0").requires_grad_(False)\n'
    'looks = record(model, data.recall(Dice("widget", 0), 256, 40))',
    "widget = WhichEntries(looks, question=3, k=24); widget",
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("which_entries")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["kernelspec"] = kernel
    nbformat.write(notebook, folder / "which_entries.ipynb")
    with lab(folder) as server:
        yield server


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_control_moves_and_nothing_is_cut(running, new_page, pictures, dark):
    page = new_page(1400)
    open_notebook(page, running, "which_entries.ipynb", dark)
    hide_sidebar(page)
    run_all(page)
    widget = page.get_by_role("region", name="Which entries")
    widget.locator("svg").wait_for()
    for at in range(2):
        before = chart_of(widget)
        move(page, widget.locator("input, select").nth(at))
        wait_for_change(page, widget, before)
    read = widget.get_by_label("entries read", exact=True)
    for width in (1400, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        for key in ("Home", "End"):
            read.press(key)
            page.wait_for_timeout(300)
            pale = [(words, round(c, 2)) for words, c in widget.evaluate(CONTRASTS) if c < 4.5]
            assert pale == [], (width, key)
            assert widget.evaluate(CUT) == [], (width, key)
            theme = "dark" if dark else "light"
            widget.screenshot(path=pictures / f"which_entries_{key}_{width}_{theme}.png")
    print(f"\npictures in {pictures}")
    assert page.complaints == []
