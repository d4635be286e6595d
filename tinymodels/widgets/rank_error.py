"""Rank and error: how many numbers of a trained model's keys and values one can leave out.

`record` cuts a model at each rank, before RoPE and after, and measures it on held-out text. The
widget only looks that up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import plot
from .base import Control, View, Widget, script

if TYPE_CHECKING:  # a record can be shown without torch
    from torch import nn

    from ..data import Batch

RANKS = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64)
PLACES = {False: "before RoPE", True: "after RoPE"}
MOST_LOSS = 4.0  # nats; the picture ends here, the words do not


@dataclass(frozen=True)
class Cut:
    """A model with `rank` numbers a layer. errors: by layer, the missing length of the rows over
    the whole. loss, right: on held-out text."""

    rank: int
    errors: tuple[float, ...]
    loss: float
    right: float


@dataclass(frozen=True)
class Ranks:
    """Every cut of one model. numbers: a row's, uncut. before, after: cuts by where they are
    made, rank by rank."""

    numbers: int
    layers: int
    loss: float
    right: float
    before: tuple[Cut, ...]
    after: tuple[Cut, ...]

    def cuts(self, turned: bool) -> tuple[Cut, ...]:
        return self.after if turned else self.before

    def cut(self, turned: bool, rank: int) -> Cut:
        """Errors: ValueError for a rank that was not measured."""
        for cut in self.cuts(turned):
            if cut.rank == rank:
                return cut
        known = ", ".join(str(cut.rank) for cut in self.before)
        raise ValueError(f"rank {rank} was not measured; there are {known}")

    def bytes(self, rank: int) -> int:
        """Of a token, in bf16, over all layers."""
        return 2 * rank * self.layers


def record(model: "nn.Module", seen: "Batch", held: "Batch", ranks: Sequence[int] = RANKS) -> Ranks:
    """Directions are found on the texts `seen`; everything is measured on the texts `held`.

    The model is left as it is. Errors: ValueError for a model without plain attention, and for a
    rank that its rows do not have.
    """
    from ..low_rank import error, narrowed, quality, rows, spaces

    whole, made = quality(model, held), {}
    for turned in PLACES:
        found = spaces(rows(model, seen.tokens, turned))
        asked, cuts = rows(model, held.tokens, turned), []
        for rank in ranks:
            now = quality(narrowed(model, found, rank, turned), held)
            errors = tuple(error(row, space, rank) for row, space in zip(asked, found))
            cuts.append(Cut(rank, errors, now.loss, now.right))
        made[turned] = tuple(cuts)
    numbers = len(found[0].strength_D)
    return Ranks(numbers, len(found), whole.loss, whole.right, made[False], made[True])


# ---------------------------------------------------------------- what the reader sees


def look(ranks: Ranks, rank: int, turned: bool) -> View:
    """One cut among all: bytes, loss, and what is missing in each layer."""
    cut, held, all_held = ranks.cut(turned, rank), ranks.bytes(rank), ranks.bytes(ranks.numbers)
    missing = ", ".join(f"{e:.1%}" for e in cut.errors)
    more = cut.loss - ranks.loss
    lines = (
        f"{rank} of {ranks.numbers} numbers a layer: {held / all_held:.0%} of the"
        f" {plot.exact(all_held)} bytes.",
        f"Loss {cut.loss:.3f}, {_against(more)}."
        f" Right words, where they can be known: {cut.right:.0%} (uncut {ranks.right:.0%}).",
    )
    return View(
        number=plot.exact(held),
        unit=f"bytes a token · cut {PLACES[turned]}",
        lines=lines,
        alt=f"Cut {PLACES[turned]} to {rank} numbers a layer. Missing in the layers: {missing}."
        f" Loss {cut.loss:.3f} nats, uncut {ranks.loss:.3f}.",
        say=f"{rank} numbers {PLACES[turned]}: loss {cut.loss:.3f}.",
        chart={
            "errors": [
                {"label": f"layer {i}", "end": min(1.0, e), "text": f"{e:.1%}"}
                for i, e in enumerate(cut.errors)
            ],
            "before": _path(ranks, False),
            "after": _path(ranks, True),
            "here": [
                {
                    "at": rank / ranks.numbers,
                    "end": min(1.0, cut.loss / MOST_LOSS),
                    "text": f"{cut.loss:.2f}",
                }
            ],
            "uncut": [{"end": min(1.0, ranks.loss / MOST_LOSS), "text": f"{ranks.loss:.2f}"}],
            "most": f"{MOST_LOSS:g}",
            "bytes": plot.exact(all_held),
            "turned": turned,
        },
    )


def _against(more: float) -> str:
    if abs(more) < 5e-4:
        return "the same as uncut"
    return f"{abs(more):.3f} {'more' if more > 0 else 'less'} than uncut"


def _path(ranks: Ranks, turned: bool) -> list[dict]:
    """The losses that fit on the picture, rank by rank."""
    return [
        {"at": cut.rank / ranks.numbers, "end": cut.loss / MOST_LOSS}
        for cut in ranks.cuts(turned)
        if cut.loss <= MOST_LOSS
    ]


def controls(ranks: Ranks) -> tuple[Control, ...]:
    measured = tuple(cut.rank for cut in ranks.before)
    return (
        Control(
            "rank", "numbers kept", "range", measured, tuple(map(str, measured)),
            f"of {ranks.numbers}, in each layer",
        ),
        Control(
            "turned", "cut", "select", tuple(PLACES), tuple(PLACES.values()),
            "keys as they are made, or as they are kept",
        ),
    )  # fmt: skip


class RankError(Widget):
    """Cut a recorded model at any rank."""

    _esm = script("rank_error.js")

    def __init__(self, ranks: Ranks, rank: int = 32, turned: bool = False):
        self._ranks = ranks
        super().__init__("Rank and error", controls(ranks), {"rank": rank, "turned": turned})

    def all_settings(self):
        measured, places = (control.values for control in self._controls)
        return [{"rank": r, "turned": t} for r in measured for t in places]

    def look(self, settings: dict) -> View:
        return look(self._ranks, settings["rank"], settings["turned"])

    def draw(self, view: View):
        return _picture(view)


def _picture(view: View):
    chart = view.chart
    fig, (errors, losses) = plot.figure(8.4, 2.9, columns=2)
    bars = chart["errors"]
    places = range(len(bars))
    errors.barh(places, [bar["end"] for bar in bars], 0.6, color=plot.LIGHT["bar"])
    for place, bar in zip(places, bars):
        inside = bar["end"] > 0.8
        errors.text(
            bar["end"] + (-0.01 if inside else 0.01), place, bar["text"],
            va="center", ha="right" if inside else "left",
        )  # fmt: skip
    errors.set_yticks(places, [bar["label"] for bar in bars])
    errors.set(xlim=(0, 1.0), ylim=(len(bars) - 0.5, -0.5), xticks=[])
    errors.set_title("missing from the rows", fontsize=9)
    most = float(chart["most"])
    for name, style in (("before", "-"), ("after", "--")):
        marks = chart[name]
        colour = plot.LIGHT["accent" if (name == "after") == chart["turned"] else "quiet"]
        losses.plot(
            [m["at"] for m in marks], [m["end"] * most for m in marks], style,
            color=colour, label=f"{name} RoPE",
        )  # fmt: skip
    here, uncut = chart["here"][0], chart["uncut"][0]["end"] * most
    losses.plot([here["at"]], [here["end"] * most], "o", color=plot.LIGHT["accent"], clip_on=False)
    losses.axhline(uncut, color=plot.LIGHT["ink"], linewidth=1)
    losses.set(xlim=(0, 1.0), ylim=(0, most), xlabel="bytes a token")
    losses.set_xticks((0, 1), ("0", chart["bytes"]))
    losses.set_title("loss (line: uncut)", fontsize=9)
    losses.legend()
    fig.suptitle(f"{view.number} {view.unit}", x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    fig.supxlabel(view.lines[1], x=0.01, ha="left", fontsize=9)
    return fig
