"""The derivation ladder: six ideas, switched on one after another, from 389,120 bytes to 890.

Each idea builds on those before it, so switching one on switches those on as well, and
switching one off switches off what builds on it. Every state is a model: a published one, or
one change away from it. Its bytes are computed by `tinymodels.ledger`.
"""

from dataclasses import dataclass
from functools import cache
from math import log10

from ..ledger import Step, steps
from . import plot
from .base import Control, View, Widget, script

STATUS = {
    "C": "stated by its makers",
    "R": "read off a published chart",
    "D": "computed here; nobody has printed it",
}
AXIS = (100, 10_000_000)  # bytes a token, a tenfold step everywhere
TICKS = ((100, "100"), (1_000, "1,000"), (10_000, "10,000"), (100_000, "100,000"), (10**6, "1M"))


@dataclass(frozen=True)
class Rung:
    """An idea. name: as a setting. label: its switch. words: what it does, plainly. chapter:
    where it is explained. stands, alone: the ledger's steps with its bytes and its own share.
    also: a sentence on what else is different in that model."""

    name: str
    label: str
    words: str
    chapter: str
    stands: str
    alone: str
    also: str


RUNGS = (
    Rung(
        "gqa",
        "GQA",
        "eight query heads share one key and value",
        "05",
        "V1",
        "V1",
        "This is the first DeepSeek model.",
    ),
    Rung(
        "latent",
        "latent",
        "one short summary serves all heads",
        "06",
        "V2",
        "V2",
        "Also new: 128 query heads, and 60 layers instead of 95.",
    ),
    Rung(
        "fp8",
        "FP8",
        "8 bits a number instead of 16",
        "07",
        "V3.2",
        "V3.2",
        "Also new: 61 layers, each with a key of 132 bytes more, to choose what is read.",
    ),
    Rung(
        "groups",
        "groups",
        "several tokens become one entry",
        "08",
        "V4-Flash",
        "V4-Flash",
        "Also new: 43 layers; 2 of them see the newest 128 tokens only.",
    ),
    Rung(
        "sharing",
        "sharing",
        "4 layers keep entries for all the others",
        "09, 10",
        "V4.1 in FP8",
        "V4.1 in bf16",
        "Also new: 40 layers, and smaller groups: 2 tokens, or 1.",
    ),
    Rung(
        "fp4",
        "FP4",
        "4 bits a number instead of 8",
        "11",
        "V4.1-Flash",
        "V4.1-Flash",
        "Nothing else is new.",
    ),
)


@dataclass(frozen=True)
class State:
    """One rung reached. factor: what its idea alone divides the bytes of this model by."""

    label: str
    model: str
    rate: int | float
    status: str
    arithmetic: str
    words: str
    factor: float | None
    also: str


@cache
def states() -> tuple[State, ...]:
    """From no idea at all to all six."""
    known: dict[str, Step] = {step.name: step for step in steps()}
    first = known["V1"]
    mha = State(
        "none of them",
        "V1 without GQA",
        first.without,
        "D",
        "95 × 2 × 64 × 128 × 2",
        "every query head keeps keys and values of its own",
        None,
        "",
    )
    return (
        mha,
        *(
            State(
                rung.label,
                known[rung.stands].name,
                known[rung.stands].rate,
                known[rung.stands].status,
                known[rung.stands].arithmetic.replace(" x ", " × "),
                rung.words,
                known[rung.alone].factor,
                rung.also,
            )
            for rung in RUNGS
        ),
    )


def along(rate: float) -> float:
    """Where a rate stands on the chart's axis, 0 to 1."""
    low, high = (log10(end) for end in AXIS)
    return (log10(rate) - low) / (high - low)


def _lines(state: State, first: float) -> tuple[str, ...]:
    rate = state.rate
    terms = f"{state.arithmetic} = {plot.exact(rate)}"
    if state.factor is None:
        return terms, f"Before any of the ideas {state.words}.", f"{rate / first:.0f} times V1."
    worth = f"{state.label}: {state.words}. In this model it alone divides by {state.factor:.3g}."
    against = f", {first / rate:,.1f} times less than V1" if rate < first else ""
    return f"{terms}{against}", worth, state.also


def look(reached: int) -> View:
    """What the ladder shows with the first `reached` ideas on, 0 to 6."""
    every = states()
    here, first = every[reached], every[1].rate
    number = plot.exact(here.rate)
    rows = [
        {
            "label": state.label,
            "model": f"{state.model} [{state.status}]" if i <= reached else "",
            "text": plot.exact(state.rate) if i <= reached else "",
            "end": along(state.rate) if i <= reached else None,
            "here": i == reached,
        }
        for i, state in enumerate(every)
    ]
    seen = ", then ".join(plot.exact(state.rate) for state in every[: reached + 1])
    return View(
        number=number,
        unit=f"bytes a token · {here.model}, {STATUS[here.status]} [{here.status}]",
        lines=_lines(here, first),
        alt=f"Bars on a logarithmic scale, bytes a token: {seen}.",
        say=f"{here.label}: {number} bytes a token.",
        chart={"rows": rows, "ticks": [{"at": along(t), "text": text} for t, text in TICKS]},
    )


def controls() -> tuple[Control, ...]:
    return tuple(
        Control(
            rung.name,
            rung.label,
            "checkbox",
            (False, True),
            ("off", "on"),
            f"{rung.words} · chapter\u00a0{rung.chapter}",
        )
        for rung in RUNGS
    )


def _on(reached: int) -> dict:
    """The switches with the first `reached` ideas on."""
    return {rung.name: i < reached for i, rung in enumerate(RUNGS)}


class Ladder(Widget):
    """Six switches and one falling number. `reached` ideas are on at first: 1 is V1."""

    _esm = script("ladder.js")

    def __init__(self, reached: int = 1):
        if reached not in range(len(RUNGS) + 1):
            raise ValueError(f"reached is {reached!r}; it is a number of ideas, 0 to {len(RUNGS)}")
        super().__init__("The ladder: from 389,120 bytes a token to 890", controls(), _on(reached))

    def all_settings(self):
        return [_on(reached) for reached in range(len(RUNGS) + 1)]

    def settle(self, settings: dict, changed: str | None = None) -> dict:
        settings = super().settle(settings)
        names = [rung.name for rung in RUNGS]
        if changed in names:
            at = names.index(changed)
            return _on(at + 1 if settings[changed] else at)
        off = [name for name in names if not settings[name]]
        return _on(names.index(off[0]) if off else len(names))

    def look(self, settings: dict) -> View:
        return look(sum(settings.values()))

    def draw(self, view: View):
        fig, ax = plot.figure(6.8, 3.1)
        rows = view.chart["rows"]
        for at, row in enumerate(rows):
            if row["end"] is None:
                continue
            ax.barh(at, row["end"], 0.55, color=plot.LIGHT["accent" if row["here"] else "bar"])
            weight = "bold" if row["here"] else "normal"
            text = f"{row['text']}   {row['model']}"
            ax.text(row["end"] + 0.012, at, text, va="center", fontweight=weight)
        ax.set_yticks(range(len(rows)), [row["label"] for row in rows])
        ax.set_xticks(*zip(*((tick["at"], tick["text"]) for tick in view.chart["ticks"])))
        ax.set(xlim=(0, 1.3), xlabel="bytes a token; each mark is ten times the one before")
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        plot.headed(fig, f"{view.number} bytes a token", view.lines[0])
        return fig


def ladder(reached: int = 1) -> Ladder:
    """The ladder with the first `reached` ideas switched on."""
    return Ladder(reached)
