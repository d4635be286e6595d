"""The frontier: what each tiny model can do beside what it keeps, and who is worth its bytes.

One row a model, those that keep least first, one mark a seed. A line goes down the rows and marks
the best so far: who lies on it does better than all that keep less. All figures come from
`quality.py`; nothing is run here.
"""

from .. import checkpoints, quality
from ..quality import short
from . import plot
from .base import Control, View, Widget, script

STANDS = {
    "on": "on the frontier",
    "beaten": "beaten by {}",
    "open": "too close to {}",
    "missing": "not trained yet",
}


def look(asked: str, weigh: str, model: str, ours: bool) -> View:
    """One measure against one cost, and one model held against the generation before it."""
    measure, costs = quality.MEASURES[asked], quality.costs(weigh)
    if not ours:
        del costs[quality.OWN]
    found = {name: quality.values(name, measure) for name in costs}
    stand = quality.standings(costs, found, measure.more_is_better)
    order = sorted(costs, key=costs.get)
    there = [name for name in order if found[name]]
    on = [short(name) for name in there if stand[name].how == "on"]
    scale = _Scale([x for values in found.values() for x in values], measure)
    rows = [_row(name, found[name], costs, stand[name], scale, model) for name in order]
    words = {"on": "on the frontier", "beaten": "beaten", "open": "too close to call"}
    told = [f"{short(n)} {_seeds(found[n], measure)}, {words[stand[n].how]}" for n in there]
    return View(
        number=f"{len(on)} of {len(there)}",
        unit=f"on the frontier: {', '.join(on)}",
        lines=(
            _verdict(model, found[model], stand[model], measure),
            _step(model, weigh, costs, found, measure),
        ),
        alt=f"{asked}, against {weigh}, least first: {'; '.join(told)}.",
        say=f"{asked}, by {weigh}: on the frontier {', '.join(on)}. "
        f"{short(model)}: {_stands(stand[model])}.",
        chart={"rows": rows, "ends": scale.texts, "line": _line(rows), "asked": asked,
               "weigh": weigh},
    )  # fmt: skip


class _Scale:
    """From a figure to its place, 0 to 1; what is better lies further right."""

    def __init__(self, values: list[float], measure: quality.Measure):
        low, high = min(values), max(values)
        if measure.more_is_better:
            high = 1.0
        room = max(high - low, 0.02 if measure.more_is_better else 0.01)
        low = max(0.0, low - 0.12 * room) if measure.more_is_better else low
        self.worst, self.best = (low, high) if measure.more_is_better else (low + room * 1.12, low)
        self.texts = [measure.text(self.worst), measure.text(self.best)]

    def place(self, value: float) -> float:
        return round((value - self.worst) / (self.best - self.worst), 4)


def _row(name, values, costs, stand, scale, model) -> dict:
    marks = [{"at": scale.place(x)} for x in values]
    return {
        "label": short(name),
        "cost": plot.exact(costs[name]),
        "end": costs[name] / max(costs.values()),
        "marks": marks,
        "mean": sum(m["at"] for m in marks) / len(marks) if marks else None,
        "how": stand.how,
        "stands": _stands(stand),
        "here": name == model,
    }


def _line(rows: list[dict]) -> list[dict]:
    """The best mean of all rows so far, row by row."""
    best, made = None, []
    for number, row in enumerate(rows):
        if row["mean"] is not None and (best is None or row["mean"] > best):
            best = row["mean"]
        if best is not None:
            made.append({"row": number, "at": best})
    return made


def _stands(stand: quality.Standing) -> str:
    return STANDS[stand.how].format(short(stand.by) if stand.by else "")


def _seeds(values: list[float], measure: quality.Measure) -> str:
    """ "99.2% to 100.0% (3 seeds)"; one figure where all seeds round to the same."""
    low, high = measure.text(min(values)), measure.text(max(values))
    count = f"{len(values)} seed{'s' if len(values) > 1 else ''}"
    return f"{low if low == high else f'{low} to {high}'} ({count})"


def _verdict(model: str, values: list[float], stand: quality.Standing, measure) -> str:
    if not values:
        return f"{short(model)} is not trained on this yet."
    by = short(stand.by) if stand.by else ""
    return (
        f"{short(model)}: {_seeds(values, measure)}. "
        + {
            "on": "Nothing that takes less does as well"
            + ("." if len(values) > 1 else "; one seed, so by luck?"),
            "beaten": f"{by} takes less, and its weakest seed does as well as the best one here.",
            "open": f"{by} takes less and does as well on average; with so few seeds, by luck?",
        }[stand.how]
    )


def _step(model: str, weigh: str, costs: dict, found: dict, measure: quality.Measure) -> str:
    """What changed from the model before, in cost, in quality, in training."""
    before = quality.FOLLOWS[model]
    if not before:
        return "The first generation: there is none before it."
    ratio = costs[model] / costs[before]
    parts = [f"{weigh} {plot.exact(costs[before])} → {plot.exact(costs[model])} (× {ratio:.2f})"]
    if found[model] and found[before]:
        old, new = (measure.text(sum(found[n]) / len(found[n])) for n in (before, model))
        parts.append(f"{'right' if measure.more_is_better else 'loss'} {old} → {new}")
    minutes = [_minutes(n, measure.task) for n in (before, model)]
    if all(minutes):
        parts.append(f"training {minutes[0]:.0f} → {minutes[1]:.0f} minutes")
    return f"From {short(before)} to {short(model)}: {'; '.join(parts)}."


def _minutes(name: str, task: str) -> float | None:
    """Of training, seed 0, one thread; None where it is not known."""
    there = f"{name}-{task}-seed0"
    if there not in checkpoints.available():
        return None
    return checkpoints.describe(there)["cpu_seconds"] / 60


def controls() -> tuple[Control, ...]:
    asked, costs, models = tuple(quality.MEASURES), tuple(quality.COSTS), tuple(quality.FOLLOWS)
    return (
        Control("asked", "what is asked", "select", asked, asked, "training saw 256 tokens a game"),
        Control("weigh", "what it costs", "select", costs, costs),
        Control(
            "model", "look at", "select", models, tuple(map(short, models)),
            "against the generation before it",
        ),
        Control("ours", "with ours", "checkbox", (False, True), ("no", "yes"),
                "two layers, made for the games alone"),
    )  # fmt: skip


class Frontier(Widget):
    """Choose what is asked and what it costs; see who is worth it."""

    _esm = script("frontier.js")

    def __init__(
        self,
        asked: str = "games: 48 pairs",
        weigh: str = "bytes a token",
        model: str = "tiny_v4_1",
        ours: bool = False,
    ):
        start = {"asked": asked, "weigh": weigh, "model": model, "ours": ours}
        super().__init__("The frontier", controls(), start)

    def settle(self, settings: dict, changed: str | None = None) -> dict:
        """Ours is looked at only where it is shown: the control that was moved last decides."""
        settled = super().settle(settings, changed)
        if settled["model"] == quality.OWN and not settled["ours"]:
            settled |= {"model": "tiny_v1"} if changed == "ours" else {"ours": True}
        return settled

    def look(self, settings: dict) -> View:
        return look(**settings)

    def draw(self, view: View):
        return _picture(view)


def _picture(view: View):
    chart, rows, light = view.chart, view.chart["rows"], plot.LIGHT
    fig, (cost, marks) = plot.figure(8.4, 3.6, columns=2)
    fig.set_layout_engine("none")  # words beside the rows need a fixed place
    cost.set_position((0.08, 0.25, 0.28, 0.59))
    marks.set_position((0.46, 0.25, 0.35, 0.59))
    for number, row in enumerate(rows):
        weight = "bold" if row["here"] else "normal"
        colour = light["accent" if row["here"] else "ink"]
        cost.barh(number, row["end"], 0.6, color=light["accent" if row["here"] else "bar"])
        for ax, at, words in ((cost, row["end"] + 0.02, row["cost"]), (marks, 1.04, row["stands"])):
            ax.text(at, number, words, va="center", weight=weight, fontsize=8)
        places = [m["at"] for m in row["marks"]]
        filled = colour if row["how"] == "on" else light["ground"]
        size = 7 if row["here"] else 5
        marks.plot(places, [number] * len(places), "o", markersize=size, color=colour,
                   markerfacecolor=filled, clip_on=False)  # fmt: skip
    xs = [p["at"] for p in chart["line"] for _ in (0, 1)]
    ys = [p["row"] + side for p in chart["line"] for side in (-0.5, 0.5)]
    marks.plot(xs, ys, "--", color=light["ink"], linewidth=1, zorder=0)
    cost.set_yticks(range(len(rows)), [row["label"] for row in rows])
    for ax in (cost, marks):
        ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, 1.0))
        ax.grid(visible=False)
    cost.set(xlim=(0, 1.25), xticks=[])
    cost.spines["bottom"].set_visible(False)
    marks.set_yticks([])
    marks.set_xticks((0, 1), chart["ends"])
    marks.set_xlabel("further right is better; filled: on the frontier", fontsize=8, labelpad=1)
    cost.set_title(chart["weigh"], fontsize=9)
    marks.set_title(chart["asked"], fontsize=9)
    fig.suptitle(f"{view.number} {view.unit}", x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    fig.supxlabel("\n".join(view.lines), x=0.01, y=0.01, ha="left", fontsize=9)
    return fig
