"""Chapter 11's widget in JupyterLab: by keyboard, at two widths, light and dark."""

import nbformat
import pytest
from lab_driver import chart_of, hide_sidebar, lab, move, open_notebook, run_all, wait_for_change
from test_widgets_in_lab import CONTRASTS, CUT

CELLS = (
    "import torch\n"
    "from tinymodels.widgets.byte_microscope import ByteMicroscope, record\n"
    "latent = torch.randn(512, generator=torch.Generator().manual_seed(0))\n"
    "slide = record(latent, layer=8, tokens=(10, 11), readers=range(8, 14))",
    "widget = ByteMicroscope(slide); widget",
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("byte_microscope")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["kernelspec"] = kernel
    nbformat.write(notebook, folder / "byte_microscope.ipynb")
    with lab(folder) as server:
        yield server


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_control_moves_and_nothing_is_cut(running, new_page, pictures, dark):
    page = new_page(1400)
    open_notebook(page, running, "byte_microscope.ipynb", dark)
    hide_sidebar(page)
    run_all(page)
    widget = page.get_by_role("region", name="Byte microscope")
    widget.locator("svg").wait_for()
    for at in range(2):
        before = chart_of(widget)
        move(page, widget.locator("input, select").nth(at))
        wait_for_change(page, widget, before)
    number = widget.get_by_label("number", exact=True)
    for width in (1400, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        for key in ("Home", "End"):
            number.press(key)
            page.wait_for_timeout(300)
            pale = [(words, round(c, 2)) for words, c in widget.evaluate(CONTRASTS) if c < 4.5]
            assert pale == [], (width, key)
            assert widget.evaluate(CUT) == [], (width, key)
            theme = "dark" if dark else "light"
            widget.screenshot(path=pictures / f"byte_microscope_{key}_{width}_{theme}.png")
    print(f"\npictures in {pictures}")
    assert page.complaints == []
