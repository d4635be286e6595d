"""The thin shell around a widget: controls in, a `View` out, and a picture for everyone else.

A widget is a pure function `look(settings) -> View`. Everything a reader sees stands in the
View: the numbers, the sentences, the marks of the chart as fractions of its axis. The browser
(`base.js` and one file a widget) only draws it, and matplotlib draws the same View as the still
picture that a notebook shows wherever no kernel runs.

Two ways lead from a control to a new View. Where the settings are few, all Views are sent once
(`views`) and the browser looks the new one up, even while the kernel is busy. Where they are
many, the browser sends `asked` and Python answers with `shown`; the Views one key press away
come along (`ahead`), so that the next press need not wait for Python either.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from matplotlib.figure import Figure

from . import plot

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Control:
    """One native input: a range over `values`, a select of them, or a checkbox.

    texts: what each value is called, one for each. note: a line of plain words beside it.
    """

    name: str
    label: str
    kind: str  # "range", "select", "checkbox"
    values: tuple
    texts: tuple[str, ...]
    note: str = ""

    def __post_init__(self):
        if self.kind not in ("range", "select", "checkbox"):
            raise ValueError(f"control {self.name}: {self.kind!r} is no kind of input known here")
        if len(self.values) != len(self.texts) or not self.values:
            raise ValueError(
                f"control {self.name}: {len(self.values)} values and {len(self.texts)} texts;"
                " each value has one text"
            )
        if self.kind == "checkbox" and self.values != (False, True):
            raise ValueError(f"control {self.name}: a checkbox has the values False and True")


@dataclass(frozen=True)
class View:
    """What the reader sees at one setting.

    number, unit: the one figure that matters, and what it counts. lines: short sentences under
    it. chart: what the widget's own file draws. alt: the picture in words. say: one sentence
    that a screen reader speaks after a change.
    """

    number: str
    unit: str
    lines: tuple[str, ...]
    alt: str
    say: str
    chart: dict = field(default_factory=dict)


def key(settings: dict) -> str:
    """The name of a setting in `views`; `base.js` builds the same one."""
    return json.dumps(list(settings.values()), separators=(",", ":"), ensure_ascii=False)


def script(name: str) -> str:
    """The browser's part of a widget: what all share, then its own file."""
    return "\n".join((_FOLDER / part).read_text(encoding="utf-8") for part in ("base.js", name))


def stylesheet() -> str:
    """The style of all widgets, with the colours of `plot.py` for both themes."""

    def variables(theme: dict) -> str:
        return " ".join(f"--kvc-{name}: {colour};" for name, colour in theme.items())

    css = (_FOLDER / "base.css").read_text(encoding="utf-8")
    return (
        f".kvc {{ {variables(plot.LIGHT)} }}\n"
        f'[data-jp-theme-light="false"] .kvc {{ {variables(plot.DARK)} }}\n{css}'
    )


class Widget(anywidget.AnyWidget):
    """What all widgets share. A subclass gives `title`, `_esm`, `look` and `draw`."""

    _css = stylesheet()

    title = traitlets.Unicode().tag(sync=True)
    controls = traitlets.List().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)  # where Reset leads back to
    asked = traitlets.Dict().tag(sync=True)  # browser -> Python: {settings, changed, turn}
    shown = traitlets.Dict().tag(sync=True)  # Python -> browser: {settings, view, turn, ahead}
    views = traitlets.Dict().tag(sync=True)  # {key: {settings, view}}, where all are sent
    leads = traitlets.Dict().tag(sync=True)  # {key + changed: key}, where a move moves others too

    def __init__(self, title: str, controls: tuple[Control, ...], start: dict, **traits: Any):
        self._controls = controls
        start = self.settle(start)
        super().__init__(
            title=title,
            controls=[asdict(control) for control in controls],
            start=start,
            shown=self._see(start, 0),
            **self._everything(),
            **traits,
        )

    # -------- what a subclass says

    def look(self, settings: dict) -> View:
        """The View at `settings`. Pure."""
        raise NotImplementedError

    def draw(self, view: View) -> Figure:
        """The View as a still picture."""
        raise NotImplementedError

    def settle(self, settings: dict, changed: str | None = None) -> dict:
        """Settings that agree with each other after `changed` was moved. Raises ValueError for
        a value that no control has."""
        for control in self._controls:
            if control.name not in settings:
                raise ValueError(f"{control.name} is missing; the settings are {settings}")
            if settings[control.name] not in control.values:
                raise ValueError(
                    f"{control.name} is {settings[control.name]!r};"
                    f" it can be one of {', '.join(map(str, control.values))}"
                )
        return {control.name: settings[control.name] for control in self._controls}

    def all_settings(self) -> Iterable[dict]:
        """Every state of the controls, where they are few enough to send all Views at once."""
        return ()

    # -------- the shell

    @property
    def settings(self) -> dict:
        """Where the controls stand."""
        return dict(self.shown["settings"])

    @property
    def view(self) -> View:
        """What is shown now."""
        return self.look(self.settings)

    def set(self, **changes) -> None:
        """Move controls from Python: `widget.set(layers=4)`."""
        unknown = set(changes) - {control.name for control in self._controls}
        if unknown:
            names = ", ".join(control.name for control in self._controls)
            raise ValueError(f"{', '.join(sorted(unknown))} is no control; there are {names}")
        for name, value in changes.items():
            settled = self.settle({**self.settings, name: value}, name)
            self.shown = self._see(settled, self.shown["turn"])

    def _everything(self) -> dict:
        views, leads = {}, {}
        for settings in self.all_settings():
            views[key(settings)] = self._sight(settings)
            for control in self._controls:
                for value in control.values:
                    wanted = {**settings, control.name: value}
                    settled = key(self.settle(wanted, control.name))
                    if settled != key(wanted):
                        leads[key(wanted) + control.name] = settled
        return {"views": views, "leads": leads}

    def _see(self, settings: dict, turn: int) -> dict:
        ahead = {} if self.all_settings() else self._ahead(settings)
        return {**self._sight(settings), "turn": turn, "ahead": ahead}

    def _sight(self, settings: dict) -> dict:
        return {"settings": settings, "view": asdict(self.look(settings))}

    def _ahead(self, settings: dict) -> dict:
        """{key + changed: what is seen there} for one press of an arrow key, Home or End."""
        found = {}
        for control in self._controls:
            at = control.values.index(settings[control.name])
            near = control.values[max(0, at - 1) : at + 2]
            for value in {*near, control.values[0], control.values[-1]}:
                wanted = {**settings, control.name: value}
                settled = self.settle(wanted, control.name)
                found[key(wanted) + control.name] = self._sight(settled)
        return found

    @traitlets.observe("asked")
    def _answer(self, change) -> None:
        asked = change["new"]
        settled = self.settle(asked["settings"], asked.get("changed"))
        self.shown = self._see(settled, asked["turn"])

    def __repr__(self) -> str:
        view = self.view
        return "\n".join((f"{self.title}: {view.number} {view.unit}", *view.lines))

    def _repr_mimebundle_(self, **kwargs) -> tuple[dict, dict]:
        live = super()._repr_mimebundle_(**kwargs)
        data = dict(live[0] if isinstance(live, tuple) else live or {})
        still, metadata = plot.bundle(self.draw(self.view), self.view.alt)
        return {**data, **still, "text/plain": repr(self)}, metadata
