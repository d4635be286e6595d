"""One of each widget on small data, for what must hold for all of them; and a page to put it on."""

import importlib
import inspect
import json
import pkgutil

import torch

from tinymodels import data, widgets
from tinymodels.dice import Dice
from tinymodels.widgets.base import Widget, stylesheet

WORDS = ("<bos>", "Ada", " Ben", " lives", " in", " a", " tent", ".", " red", "s", "e", "\n", "?")
# As base.js meets it in a notebook: what Python says comes back a moment later.
PAGE = """<!doctype html><html lang="en" data-jp-theme-light="{light}"><head><meta charset="utf-8">
<title>a widget</title><style>body {{ background: {ground}; margin: 16px; }} {css}</style></head>
<body><main id="here"></main><script>
(() => {{
const module = (() => {{ {module}\nreturn ({export}); }})();
const state = {state};
const heard = new Set();
Object.assign(window, {{ state, heard }});
module.render({{ el: document.getElementById("here"), model: {{
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; }},
  on: (name, call) => heard.add(call),
  off: (name, call) => heard.delete(call),
  save_changes: async () => {{
    state.shown = await window.askPython(state.asked);
    heard.forEach((call) => call());
  }},
}} }});
}})();
</script></body></html>"""


def _small_model():
    from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform
    from tinymodels.transformer import Transformer

    attention = GQA(6, 3, 10, rope=Rope(10, pairs="half"))
    config = ModelConfig("small", 13, 30, uniform(3, attention, Dense(17)), context=40)
    return Transformer(config, seed=3).eval()


def pieces(ids):
    return [WORDS[token] for token in ids]


def _lens():
    model = _small_model()
    return widgets.LogitLens([widgets.lens_reading(model, (0, 1, 3, 4, 6, 7), pieces)])


def _additions():
    from tinymodels.widgets.additions import PLAIN, Recording, Run, Text

    def run(change, place, *votes):
        return Run(change, place, votes, tuple(1.5 + abs(v) for v in votes), " key", 0.25)

    runs = (run(PLAIN, "", 0.25, -1.5, 6.75), run("without ffn 0", "ffn 0", 0.25, -1.5, 0.0))
    texts = (Text("Ada has the", "key", "lamp", runs), Text("Ben has the", "cup", "key", runs))
    return widgets.Additions(Recording(("embedding", "attention 0", "ffn 0"), texts))


def _router():
    from tinymodels.config import MoE
    from tinymodels.moe import Router
    from tinymodels.widgets.router_load import record

    config = MoE(8, 7, 2, scoring="sqrtsoftplus", selection_bias=True, normalise=True)
    router = Router(5, config)
    draw = torch.Generator().manual_seed(2)
    router.gate.weight.data.normal_(generator=draw)
    batches = [0.6 + torch.randn(11, 5, generator=draw) for _ in range(6)]
    return widgets.RouterLoad(record(router, batches, gammas=(0.0, 0.01, 0.2)))


def _rank_error():
    from tinymodels import checkpoints
    from tinymodels.widgets.rank_error import record

    model = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)
    seen, held = (data.batch("text", 0, 0, data.Stage(2, 64), held_out=h) for h in (False, True))
    return widgets.RankError(record(model, seen, held, ranks=(8, 24, 32, 64)))


def _microscope():
    from tinymodels.widgets.byte_microscope import ByteMicroscope, record

    latent = torch.randn(512, generator=torch.Generator().manual_seed(0))
    return ByteMicroscope(record(latent, layer=8, tokens=(10, 11), readers=range(8, 14)))


def _agents_day():
    from tinymodels.serving.day import agents_day
    from tinymodels.widgets.agents_day import AgentsDay, record

    return AgentsDay(record(agents_day(agents=3, hours=2)), budget=316227766)


def _which_entries():
    from tinymodels.presets import tiny_v3_2
    from tinymodels.transformer import Transformer
    from tinymodels.widgets.which_entries import WhichEntries, record

    model = Transformer(tiny_v3_2(), seed=2).requires_grad_(False)
    return WhichEntries(record(model, data.recall(Dice("widget", 1), 77, 6), (5, 8)), k=5)


def _plain(name):
    def make():
        return found()[name]()

    return make


MAKERS = {
    "BytesExplorer": _plain("BytesExplorer"),
    "Ladder": _plain("Ladder"),
    "XRay": lambda: widgets.XRay(widgets.record(_small_model(), (7, 3, 3), 5, pieces)),
    "LedgerTable": lambda: widgets.ledger_widget(through="12"),
    "LogitLens": _lens,
    "Additions": _additions,
    "RouterLoad": _router,
    "Bill": lambda: widgets.Bill("DeepSeek-V3", context=32768, batch=8, card="H200", cards=16),
    "RankError": _rank_error,
    "Floors": _plain("Floors"),
    "GroupLeak": _plain("GroupLeak"),
    "ByteMicroscope": _microscope,
    "AgentsDay": _agents_day,
    "Tower": _plain("Tower"),
    "Frontier": _plain("Frontier"),
    "WhichEntries": _which_entries,
}


def found() -> dict[str, type]:
    """All widgets that the package has, by the name of their class."""
    classes = {}
    for module in pkgutil.iter_modules(widgets.__path__):
        loaded = importlib.import_module(f"{widgets.__name__}.{module.name}")
        for name, kind in inspect.getmembers(loaded, inspect.isclass):
            if issubclass(kind, Widget) and kind is not Widget:
                classes[name] = kind
    return classes


def page_of(widget: Widget, dark: bool) -> str:
    """The HTML of a page with one widget; `askPython` must be exposed to it."""
    from tinymodels.widgets import plot

    module, export = widget._esm.rsplit("export default", 1)
    names = ("title", "controls", "start", "shown", "views", "leads")
    own = [n for n in widget.trait_names(sync=True) if n not in widget._dom_classes]
    state = {name: getattr(widget, name) for name in names}
    for name in own:  # what a widget sends beside the shell's own
        value = getattr(widget, name)
        if not name.startswith("_") and isinstance(value, (str, int, float, bool, list, dict)):
            state.setdefault(name, value)
    return PAGE.format(
        light=str(not dark).lower(),
        ground=(plot.DARK if dark else plot.LIGHT)["ground"],
        css=stylesheet(),
        module=module,
        export=export.strip().rstrip(";"),
        state=json.dumps(state).replace("</", "<\\/"),
    )
