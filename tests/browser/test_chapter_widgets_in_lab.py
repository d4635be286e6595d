"""The widgets of chapters 03 to 13 in JupyterLab: by keyboard, at two widths, light and dark."""

from dataclasses import dataclass

import nbformat
import pytest
from lab_driver import chart_of, hide_sidebar, lab, move, open_notebook, run_all, wait_for_change
from test_widgets_in_lab import CONTRASTS, CUT

ENDS = ("Home", "End")


@dataclass(frozen=True)
class Driven:
    """How one widget is driven.

    region, control: their names for a screen reader. moved: how many controls are moved, from the
    first. all_of_them: there are no more. reset: back to the start before the pictures are taken.
    places: keys pressed on `control`, or, where `chosen`, the words to choose there.
    """

    name: str
    region: str
    control: str
    moved: int
    cells: tuple[str, ...]
    all_of_them: bool = False
    reset: bool = False
    places: tuple[str, ...] = ENDS
    chosen: bool = False


WIDGETS = (
    Driven(
        "additions",
        "What each layer adds to the stream",
        "change one piece",
        3,
        (
            "from tinymodels import checkpoints, swaps\n"
            "from tinymodels.widgets.additions import Additions, record\n"
            'model = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)\n'
            "recording = record(model, swaps.swaps(2))",
            "widget = Additions(recording); widget",
        ),
        reset=True,
        places=("nothing changed", "without ffn 0", "attention 2 from the other text"),
        chosen=True,
    ),
    Driven(
        "router_load",
        "Router load",
        "step",
        3,
        (
            "import torch\n"
            "from tinymodels.config import MoE\n"
            "from tinymodels.moe import Router\n"
            "from tinymodels.widgets.router_load import RouterLoad, record\n"
            'config = MoE(8, 16, 2, scoring="sqrtsoftplus", selection_bias=True, normalise=True)\n'
            "draw = torch.Generator().manual_seed(2)\n"
            "router = Router(30, config)\n"
            "router.gate.weight.data.normal_(0, 0.3, generator=draw)\n"
            "batches = [0.3 + torch.randn(300, 30, generator=draw) for _ in range(21)]\n"
            "balance = record(router, batches)",
            "widget = RouterLoad(balance); widget",
        ),
    ),
    Driven(
        "bill",
        "The bill",
        "requests that write together",
        7,
        (
            "from tinymodels.widgets import Bill\n"
            'widget = Bill("DeepSeek-V4-Flash", context=32768, batch=16); widget',
        ),
        all_of_them=True,
    ),
    Driven(
        "rank_error",
        "Rank and error",
        "numbers kept",
        2,
        (
            "from tinymodels import checkpoints, data\n"
            "from tinymodels.widgets.rank_error import RankError, record\n"
            'model = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)\n'
            'seen = data.batch("text", 0, 0, data.Stage(2, 128))\n'
            'held = data.batch("text", 0, 0, data.Stage(2, 128), held_out=True)\n'
            "ranks = record(model, seen, held)",
            "widget = RankError(ranks); widget",
        ),
    ),
    Driven(
        "which_entries",
        "Which rows",
        "rows read",
        2,
        (
            "from tinymodels import checkpoints, data\n"
            "from tinymodels.dice import Dice\n"
            "from tinymodels.widgets.which_entries import WhichEntries, record\n"
            'model = checkpoints.load("tiny_v3_2-recall-seed0").requires_grad_(False)\n'
            'looks = record(model, data.recall(Dice("widget", 0), 256, 40))',
            "widget = WhichEntries(looks, question=3, k=24); widget",
        ),
    ),
    Driven(
        "group_leak",
        "Group leak",
        "changed token",
        3,
        ("from tinymodels.widgets.group_leak import GroupLeak", "widget = GroupLeak(); widget"),
    ),
    Driven(
        "tower",
        "Who runs when",
        "moment",
        3,
        ("from tinymodels.widgets import Tower\nwidget = Tower(); widget",),
        reset=True,
        places=("Home", *["ArrowRight"] * 7),
    ),
    Driven(
        "floors",
        "Who owns, who borrows",
        "layer",
        3,
        ("from tinymodels.widgets import Floors\nwidget = Floors(); widget",),
    ),
    Driven(
        "byte_microscope",
        "Byte microscope",
        "number",
        2,
        (
            "import torch\n"
            "from tinymodels.widgets.byte_microscope import ByteMicroscope, record\n"
            "latent = torch.randn(512, generator=torch.Generator().manual_seed(0))\n"
            "slide = record(latent, layer=8, tokens=(10, 11), readers=range(8, 14))",
            "widget = ByteMicroscope(slide); widget",
        ),
    ),
    Driven(
        "agents_day",
        "An agent's day",
        "memory",
        3,
        (
            "from tinymodels.serving.day import agents_day\n"
            "from tinymodels.widgets.agents_day import AgentsDay, record\n"
            'widget = AgentsDay(record(agents_day(agents=3, hours=2)), "V3", 316227766); widget',
        ),
        all_of_them=True,
    ),
    Driven(
        "frontier",
        "The frontier",
        "what is asked",
        3,
        ("from tinymodels.widgets import Frontier\nwidget = Frontier(); widget",),
        reset=True,
        places=("games: 48 pairs", "games: text of 512 tokens", "stories: loss"),
        chosen=True,
    ),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """One JupyterLab with a notebook for each widget."""
    folder = tmp_path_factory.mktemp("widgets")
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    for driven in WIDGETS:
        cells = [nbformat.v4.new_code_cell(cell) for cell in driven.cells]
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = kernel
        nbformat.write(notebook, folder / f"{driven.name}.ipynb")
    with lab(folder) as server:
        yield server


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("driven", WIDGETS, ids=lambda driven: driven.name)
def test_every_control_moves_and_nothing_is_cut(running, new_page, pictures, driven, dark):
    page = new_page(1400)
    open_notebook(page, running, f"{driven.name}.ipynb", dark)
    hide_sidebar(page)
    run_all(page)
    widget = page.get_by_role("region", name=driven.region)
    widget.locator("svg").wait_for()
    controls = widget.locator("input, select")
    if driven.all_of_them:
        assert controls.count() == driven.moved
    for at in range(driven.moved):
        before = chart_of(widget)
        move(page, controls.nth(at))
        wait_for_change(page, widget, before)
    if driven.reset:
        widget.get_by_role("button", name="Reset").press("Enter")
    control = widget.get_by_label(driven.control, exact=True)
    theme = "dark" if dark else "light"
    for width in (1400, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        for at, place in enumerate(driven.places):
            if driven.chosen:
                control.select_option(label=place)
            else:
                control.press(place)
            page.wait_for_timeout(300)
            pale = [(words, round(c, 2)) for words, c in widget.evaluate(CONTRASTS) if c < 4.5]
            assert pale == [], (width, at, place)
            assert widget.evaluate(CUT) == [], (width, at, place)
            picture = f"{driven.name}_{at}_{width}_{theme}.png"
            widget.screenshot(path=pictures / picture)
    print(f"\npictures in {pictures}")
    assert page.complaints == []
