"""An agent's day: memory for stored prefixes -> tokens held -> found again -> dollars.

All models stand side by side at one budget, so that the whole chain is seen at once. `record`
sends a trace through memories of many sizes, once for all; the widget only looks that up.
What a model keeps of a token decides how many tokens a budget holds, and nothing else here does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import fill

from .. import ledger
from ..serving.day import BLOCK, Request, replay
from . import plot
from .base import Control, View, Widget, script

MODELS = {
    "V3": "deepseek-v3",
    "V3.2": "deepseek-v3.2",
    "V4-Flash": "deepseek-v4-flash",
    "V4.1-Flash": "deepseek-v4.1-flash",
}
BUDGETS = tuple(round(10 ** (7 + step / 4)) for step in range(17))  # 10 MB to 100 GB
MISS_PRICES = (0.03, 0.07, 0.14, 0.3)  # assumed: V4.1's is not published
HIT_PRICE, OUTPUT_PRICE = 0.003, 0.6  # V4.1-Flash, off-peak (status C)


@dataclass(frozen=True)
class Recorded:
    """Tokens of a trace: all that were sent, written, and found for each number of pieces.

    name: whose day it is, said in the widget; empty if nobody gave one.
    """

    requests: int
    sent: int
    written: int
    found: dict[int, int]
    name: str = ""

    def hits(self, model: str, budget: int) -> int:
        return self.found[pieces(model, budget)]


@cache
def pieces(model: str, budget: int) -> int:
    """How many pieces of 512 tokens a budget holds, by what the model keeps of a token."""
    return int(budget // (BLOCK * ledger.rate(MODELS[model])))


def record(trace: Sequence[Request], budgets: Sequence[int] = BUDGETS, name: str = "") -> Recorded:
    """Every model at every budget. Errors: ValueError for an empty trace."""
    if not trace:
        raise ValueError("the trace is empty; load one, or make one with agents_day()")
    most = len({name for r in trace for name in r.hash_ids})
    wanted = sorted({pieces(model, budget) for model in MODELS for budget in budgets})
    found, written = {}, sum(r.output_length for r in trace)
    enough = None
    for count in wanted:
        if enough is None or count < most:
            enough = replay(trace, 1, count * BLOCK).hit
        found[count] = enough  # more than all there is finds no more
    return Recorded(len(trace), sum(r.input_length for r in trace), written, found, name)


def dollars(day: Recorded, hits: int, miss_price: float) -> ledger.Bill:
    return ledger.bill(
        hits, day.sent - hits, day.written,
        hit_price=HIT_PRICE, miss_price=miss_price, output_price=OUTPUT_PRICE,
    )  # fmt: skip


def look(day: Recorded, settings: dict, budgets: Sequence[int]) -> View:
    """All models at one budget, one of them in full, and the curves of all."""
    model, budget, price = settings["model"], settings["budget"], settings["miss_price"]
    hits, size = day.hits(model, budget), plot.bytes_short(budget)
    share, bill = hits / day.sent, dollars(day, hits, price)
    rate = plot.exact(ledger.rate(MODELS[model]))
    whose = f"{day.name}: " if day.name else ""
    lines = (
        f"{rate} bytes a token: {size} hold {pieces(model, budget) * BLOCK:,} tokens.",
        f"{whose}{day.requests:,} requests sent {day.sent:,} tokens; {hits:,} were found.",
        f"{_usd(bill.total)}: hits {_usd(bill.hit)}, misses {_usd(bill.miss)} (at an assumed"
        f" {_usd(price)} a million), answers {_usd(bill.output)}.",
    )
    bars = _bars(day, settings)
    others = ", ".join(f"{bar['label']} {bar['found']} {bar['text']}" for bar in bars)
    return View(
        number=f"{share:.1%}",
        unit=f"of the tokens are found again · {model}, {size}",
        lines=lines,
        alt=f"Tokens found again against memory, one curve a model, all of the same shape. Found"
        f" again at {size}, and what the day costs: {others}.",
        say=f"{model}, {size}: {share:.1%} found, {_usd(bill.total)}.",
        chart={
            "curves": [
                {
                    "label": name,
                    "on": name == model,
                    "marks": [
                        {"at": _place(b, budgets), "end": day.hits(name, b) / day.sent}
                        for b in budgets
                    ],
                }
                for name in MODELS
            ],
            "here": [{"at": _place(budget, budgets), "end": share, "text": f"{share:.1%}"}],
            "bill": bars,
            "whole": f"what the day costs, with {size}",
            "ticks": [
                {"at": _place(b, budgets), "text": plot.bytes_short(b)}
                for b in budgets
                if b in (budgets[0], budgets[-1]) or f"{b}".rstrip("0") == "1"
            ],
        },
    )


def _usd(amount: float) -> str:
    return f"${amount:,.2f}"


def _place(budget: int, budgets: Sequence[int]) -> float:
    return budgets.index(budget) / (len(budgets) - 1)


def _bars(day: Recorded, settings: dict) -> list[dict]:
    """What is held, found and paid: without any memory, and by each model's rows. A full bar is
    what the day costs without any hit."""
    budget, price = settings["budget"], settings["miss_price"]
    whole = dollars(day, 0, price).total

    def bar(label: str, held: int, hits: int) -> dict:
        total = dollars(day, hits, price).total
        return {
            "label": label,
            "held": _tokens(held),
            "found": f"{hits / day.sent:.1%}",
            "text": _usd(total),
            "end": total / whole,
            "on": label == settings["model"],
        }

    held = {name: pieces(name, budget) * BLOCK for name in MODELS}
    return [
        bar("no memory", 0, 0),
        *(bar(name, held[name], day.hits(name, budget)) for name in MODELS),
    ]


def _tokens(n: int) -> str:
    """About three digits: 13,824 -> "13.8 k", 1,123,328 -> "1.12 M"."""
    for size, unit in ((10**6, " M"), (1000, " k")):
        if n >= 0.9995 * size:  # 999,936 is 1.00 M
            return f"{n / size:#.3g}".rstrip(".") + unit
    return str(n)


class AgentsDay(Widget):
    """Give a recorded day a memory, and see what it finds and what that costs."""

    _esm = script("agents_day.js")

    def __init__(self, day: Recorded, model="V4.1-Flash", budget=10**9, miss_price=0.14,
                 budgets: Sequence[int] = BUDGETS):  # fmt: skip
        self._day, self._budgets = day, tuple(budgets)
        sizes = tuple(plot.bytes_short(b) for b in budgets)
        prices = tuple(_usd(p) for p in MISS_PRICES)
        controls = (
            Control("budget", "memory", "range", tuple(budgets), sizes, "for stored prefixes"),
            Control("model", "rows of", "select", tuple(MODELS), tuple(MODELS)),
            Control(
                "miss_price", "price of a miss", "select", MISS_PRICES, prices,
                "a million tokens, assumed",
            ),
        )  # fmt: skip
        start = {"budget": budget, "model": model, "miss_price": miss_price}
        super().__init__("An agent's day", controls, start)

    def look(self, settings: dict) -> View:
        return look(self._day, settings, self._budgets)

    def draw(self, view: View):
        return _picture(view)


def _picture(view: View):
    """Narrow enough to be read on a phone without moving it: curves above, bills below."""
    chart = view.chart
    fig, (curves, bill) = plot.figure(5.2, 4.6, rows=2)
    for curve, style in zip(chart["curves"], ("-", "--", "-.", ":")):
        colour = plot.LIGHT["accent" if curve["on"] else "quiet"]
        marks = curve["marks"]
        xs, ys = [m["at"] for m in marks], [m["end"] for m in marks]
        curves.plot(xs, ys, style, color=colour, label=curve["label"])
    here = chart["here"][0]
    curves.plot([here["at"]], [here["end"]], "o", color=plot.LIGHT["accent"], clip_on=False)
    curves.set(xlim=(0, 1.0), ylim=(0, 1.02))
    ticks = chart["ticks"]
    curves.set_xticks([tick["at"] for tick in ticks], [tick["text"] for tick in ticks])
    curves.set_yticks((0, 0.5, 1), ("0", "50 %", "100 %"))
    curves.set_title("tokens found again, by memory", fontsize=9)
    curves.legend(fontsize=8, loc="lower right")
    bars, places = chart["bill"], range(len(chart["bill"]))
    colours = [plot.LIGHT["accent" if bar["on"] else "bar"] for bar in bars]
    bill.barh(places, [bar["end"] for bar in bars], 0.6, color=colours)
    for place, bar in zip(places, bars):
        words = f"{bar['held']} held, {bar['found']} found, {bar['text']}"
        bill.text(bar["end"] + 0.02, place, words, va="center", fontsize=8, parse_math=False)
    bill.set_yticks(places, [bar["label"] for bar in bars])
    bill.grid(visible=False)
    bill.set(xlim=(0, 1.9), ylim=(len(bars) - 0.5, -0.5), xticks=[])
    bill.set_title(chart["whole"], fontsize=9)
    fig.suptitle(f"{view.number} {view.unit}", x=0.01, ha="left", fontsize=10, fontweight="bold")
    words = fill(view.lines[2], 60)
    fig.supxlabel(words, x=0.01, ha="left", fontsize=8, parse_math=False)
    return fig
