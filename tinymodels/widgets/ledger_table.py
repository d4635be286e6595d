"""The ledger: one row a chapter, and in each row formula = measured = published.

`ledger_widget(through="01")` stands at the end of every chapter and is one row longer each time.
"""

from dataclasses import dataclass

from . import plot
from .base import Control, View, Widget, script
from .ladder import AXIS, along
from .ledger_entries import Bytes, entries


@dataclass(frozen=True)
class Line:
    """One row with its numbers. published: as printed, with its status, or why there is none."""

    chapter: str
    what: str
    formula: str
    rate: Bytes
    measured: Bytes
    published: str


def lines(through: str) -> tuple[Line, ...]:
    """The rows up to a chapter, computed and measured now."""
    found = []
    for entry in entries(through):
        if entry.printed:
            published = f"{entry.printed} [{entry.status}]"
        else:
            published = "not printed [D]" if entry.status else "our own"
        numbers = (entry.rate(), entry.measure())
        found.append(Line(entry.chapter, entry.what, entry.formula, *numbers, published))
    return tuple(found)


def _end(rate: Bytes, most: Bytes, plain: bool) -> float:
    """Where the bar ends, 0 to 1."""
    if plain or not rate:
        return rate / most if most else 0.0
    return along(rate)


def look(every: tuple[Line, ...], plain: bool) -> View:
    """The table, its bars on a logarithmic axis or on a plain one."""
    newest = every[-1]
    most = max(line.rate for line in every)
    rows = [
        {
            "chapter": line.chapter,
            "what": line.what,
            "formula": line.formula,
            "rate": plot.exact(line.rate),
            "measured": plot.exact(line.measured),
            "published": line.published,
            "end": _end(line.rate, most, plain),
        }
        for line in every
    ]
    axis = "plain" if plain else "logarithmic"
    scale = (
        f"Bars: a plain axis from 0 to {plot.exact(most)}."
        if plain
        else f"Bars: a logarithmic axis from {AXIS[0]:,} to {AXIS[1]:,}."
    )
    equal = "=" if newest.rate == newest.measured else "≠"
    check = (
        f"formula {plot.exact(newest.rate)} {equal} measured {plot.exact(newest.measured)}"
        f"; published: {newest.published}"
    )
    return View(
        number=plot.exact(newest.rate),
        unit=f"bytes a token · {newest.what}",
        lines=(check, f"{scale} C: stated. R: read off a chart. D: computed here only."),
        alt=f"The ledger on a {axis} axis, bytes a token: "
        + ", ".join(f"{row['what']} {row['rate']}" for row in rows)
        + ".",
        say=f"The bars are on a {axis} axis.",
        chart={"rows": rows},
    )


PLAIN = Control(
    "plain",
    "plain axis",
    "checkbox",
    (False, True),
    ("off", "on"),
    "equal steps instead of tenfold ones: see what becomes of the small numbers",
)


class LedgerTable(Widget):
    """The rows up to a chapter, measured when the widget is made."""

    _esm = script("ledger_table.js")

    def __init__(self, through: str):
        self._lines = lines(through)
        super().__init__(f"The ledger, through chapter {through}", (PLAIN,), {"plain": False})

    def all_settings(self):
        return [{"plain": False}, {"plain": True}]

    def look(self, settings: dict) -> View:
        return look(self._lines, settings["plain"])

    def draw(self, view: View):
        return _picture(view)

    def __repr__(self) -> str:
        rows = self.view.chart["rows"]
        heads = ("ch", "bytes a token of", "formula", "=", "measured", "published")
        table = [heads] + [
            tuple(row[k] for k in ("chapter", "what", "formula", "rate", "measured", "published"))
            for row in rows
        ]
        widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
        right = (False, False, False, True, True, False)
        return "\n".join(
            "  ".join(
                c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right)
            ).rstrip()
            for row in table
        )


def ledger_table(through: str) -> LedgerTable:
    """The ledger up to a chapter: `ledger_table(through="01")`. Raises ValueError for a chapter
    that has no row."""
    return LedgerTable(through)


ledger_widget = ledger_table


def _picture(view: View):
    rows = view.chart["rows"]
    fig, (table, bars) = plot.figure(8.4, 1.1 + 0.3 * len(rows), columns=2)
    fig.get_layout_engine().set(w_pad=0, wspace=0)
    table.set(xlim=(0, 1), ylim=(len(rows), -1))
    table.axis("off")
    places = ((0.02, "left"), (0.09, "left"), (0.7, "right"), (0.94, "right"))
    heads = ("", "bytes a token of", "formula", "measured")
    for y, cells in enumerate([heads, *(_cells(row) for row in rows)], start=-1):
        weight = "bold" if y == len(rows) - 1 else "normal"
        for (x, side), cell in zip(places, cells):
            colour = plot.LIGHT["quiet" if y < 0 else "ink"]
            table.text(x, y + 0.5, cell, ha=side, va="center", fontweight=weight, color=colour)
    for y, row in enumerate(rows):
        newest = y == len(rows) - 1
        colour = plot.LIGHT["accent" if newest else "bar"]
        bars.barh(y + 0.5, 0.66 * row["end"], 0.5, color=colour)
        weight = "bold" if newest else "normal"
        bars.text(
            0.66 * row["end"] + 0.015, y + 0.5, row["published"], va="center", fontweight=weight
        )
    bars.text(0, -0.5, "published", va="center", color=plot.LIGHT["quiet"])
    bars.set(xlim=(0, 1), ylim=(len(rows), -1))
    bars.axis("off")
    plot.headed(fig, f"{view.number} {view.unit}")
    return fig


def _cells(row: dict) -> tuple[str, ...]:
    return row["chapter"], row["what"], row["rate"], row["measured"]
