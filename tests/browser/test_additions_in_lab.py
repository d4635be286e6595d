"""Chapter 03's widget in JupyterLab: by keyboard, at two widths, light and dark."""

import nbformat
import pytest
from lab_driver import chart_of, hide_sidebar, lab, move, open_notebook, run_all, wait_for_change
from test_widgets_in_lab import CONTRASTS, CUT

CELLS = (
    "from tinymodels import checkpoints, swaps\n"
    "from tinymodels.widgets.additions import Additions, record\n"
    'model = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)\n'
    "recording = record(model, swaps.swaps(2))",
    "widget = Additions(recording); widget",
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("additions")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["kernelspec"] = kernel
    nbformat.write(notebook, folder / "additions.ipynb")
    with lab(folder) as server:
        yield server


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_change_is_legible_and_nothing_is_cut(running, new_page, pictures, dark):
    page = new_page(1400)
    open_notebook(page, running, "additions.ipynb", dark)
    hide_sidebar(page)
    run_all(page)
    widget = page.get_by_role("region", name="What each layer adds to the stream")
    widget.locator("svg").wait_for()
    for at in range(3):
        before = chart_of(widget)
        move(page, widget.locator("select").nth(at))
        wait_for_change(page, widget, before)
    widget.get_by_role("button", name="Reset").press("Enter")
    change = widget.get_by_label("change one piece", exact=True)
    for width in (1400, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(300)
        for name in ("nothing changed", "without ffn 0", "attention 2 from the other text"):
            change.select_option(label=name)
            page.wait_for_timeout(300)
            pale = [(words, round(c, 2)) for words, c in widget.evaluate(CONTRASTS) if c < 4.5]
            assert pale == [], (width, name)
            assert widget.evaluate(CUT) == [], (width, name)
            theme = "dark" if dark else "light"
            widget.screenshot(path=pictures / f"{name.replace(' ', '_')}_{width}_{theme}.png")
    print(f"\npictures in {pictures}")
    assert page.complaints == []
