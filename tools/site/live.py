"""The ladder and the bytes explorer without a kernel.

The browser runs the widgets' own files. In a notebook Python answers them; here a script does.
The ladder has seven Views, and all are written out. The explorer has 401,408 settings, so its
arithmetic stands a second time in explorer_look.js; its tables (models, yardsticks, the axis) are
written out from Python, and tests compare what it answers with Python's Views, word for word.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tinymodels.widgets import base, explorer, ladder
from tinymodels.widgets.base import Widget

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Live:
    """name: of the widget. start: its settings as JSON."""

    name: str
    start: str


def live(text: str) -> Live | None:
    """The live twin of a widget whose words a notebook stores, None where it has none.

    Raises ValueError where the words are of a widget with a twin, but of no state that it starts
    from: the notebook was then built with other numbers than the package has now.
    """
    if not text.startswith(_titles()):
        return None
    start = _states().get(text)
    if start is None:
        words = text.splitlines()[0]
        raise ValueError(f"no start of a widget says '{words}'; rebuild the notebook")
    return start


@cache
def _titles() -> tuple[str, ...]:
    return tuple(f"{made.title}:" for made in (ladder.Ladder(), explorer.BytesExplorer()))


@cache
def _states() -> dict[str, Live]:
    """The words of each state that `Ladder(...)` and `BytesExplorer(...)` can start from."""
    found = {}
    for reached in range(len(ladder.RUNGS) + 1):
        one = ladder.Ladder(reached)
        found[repr(one)] = Live("ladder", json.dumps(one.settings))
    other = explorer.BytesExplorer()
    for model in explorer.PRESETS:
        other.set(model=model)
        for context in explorer.CONTEXTS:
            settings = other.settle({**other.settings, "context": context}, "context")
            view = other.look(settings)
            words = "\n".join((f"{other.title}: {view.number} {view.unit}", *view.lines))
            found.setdefault(words, Live("explorer", json.dumps(settings)))
    return found


def tables() -> dict:
    """The numbers that explorer_look.js works with."""
    return {
        "presets": {name: asdict(shape) for name, shape in explorer.PRESETS.items()},
        "own": explorer.OWN,
        "yardsticks": [asdict(stick) for stick in explorer.YARDSTICKS],
        "axis": list(explorer.AXIS),
        "ticks": [{"at": explorer.along(value), "text": text} for value, text in explorer.TICKS],
    }


def scripts() -> dict[str, str]:
    """The files of the live widgets: name of a file -> JavaScript."""
    one = ladder.Ladder()
    parts = {
        "ladder": (
            base.script("ladder.js"),
            one,
            "undefined",
            {"views": one.views, "leads": one.leads},
        ),
        "explorer": (
            base.script("explorer.js"),
            explorer.BytesExplorer(),
            f"(() => {{\n{_own('explorer_look.js')}\nreturn looker({_json(tables())});\n}})()",
            {"views": {}, "leads": {}},
        ),
    }
    return {
        f"{name}.js": _script(name, text, widget, answer, sent)
        for name, (text, widget, answer, sent) in parts.items()
    }


def _own(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _json(value) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _script(name: str, text: str, widget: Widget, answer: str, sent: dict) -> str:
    """One plain script: no import, for a page opened from a disk may load none."""
    module, export = text.rsplit("export default", 1)
    state = {
        "title": widget.title,
        "controls": widget.controls,
        "shown": {**widget.shown, "ahead": {}},
        "start": widget.start,
        **sent,
    }
    return (
        f"window.kvcLive = window.kvcLive || {{}};\n"
        f"window.kvcLive[{_json(name)}] = {{\n"
        f"state: {_json(state)},\nlook: {answer},\n"
        f"render: (() => {{\n{module}\nreturn ({export.strip().rstrip(';')}).render;\n}})(),\n}};\n"
    )
