"""What each layer adds to the residual stream: votes for the answer, and sizes, piece by piece.

`record` runs a trained model on pairs of texts (see `swaps.py`): as it is, with one sublayer
taken out, and with one sublayer's answer at the last token taken from the other text. The widget
only shows what was recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import plot
from .base import Control, View, Widget, script

if TYPE_CHECKING:  # a recording can be shown without torch
    from ..swaps import Swap
    from ..transformer import Transformer

PLAIN = "nothing changed"


@dataclass(frozen=True)
class Run:
    """One pass, seen at the last token. change: what was done, in words; place: to which piece.

    votes: each piece's part of the lead of the answer over the other word, in logits. sizes: the
    length of each piece. said, share: the likeliest next word and its probability.
    """

    change: str
    place: str
    votes: tuple[float, ...]
    sizes: tuple[float, ...]
    said: str
    share: float


@dataclass(frozen=True)
class Text:
    """One pair of texts with all its runs; the first one has nothing changed."""

    text: str
    answer: str
    other: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Recording:
    pieces: tuple[str, ...]
    texts: tuple[Text, ...]


def record(model: "Transformer", pairs: Sequence["Swap"]) -> Recording:
    """Run every pair in every way. Raises ValueError for no pairs, or a model without one plain
    stream."""
    from .. import swaps
    from ..contributions import ablated, contributions, patched, sublayers

    if not pairs:
        raise ValueError("pairs is empty; give at least one, such as swaps.swaps(3)")
    places = tuple(sublayers(model))
    texts = []
    for pair in pairs:
        made = swaps.tokens([pair])
        other = contributions(model, made.swapped_BT)
        runs = [_run(model, made, PLAIN, "", {})]
        runs += [_run(model, made, f"without {p}", p, {p: ablated}) for p in places]
        runs += [
            _run(model, made, f"{p} from the other text", p, {p: patched(other[p])}) for p in places
        ]
        texts.append(Text(pair.text, pair.answer, pair.other, tuple(runs)))
    return Recording(("embedding", *places), tuple(texts))


def _run(model, made, change: str, place: str, changes) -> Run:
    from .. import tokenizer
    from ..contributions import changed, contributions, votes

    with changed(model, changes):
        pieces = contributions(model, made.text_BT)
    whole_BTX = sum(pieces.values())
    share_V = model.close(whole_BTX)[0, -1].softmax(-1)
    best = int(share_V.argmax())
    said = tokenizer.pieces([best])[0] if best < tokenizer.VOCABULARY else f"#{best}"
    cast = votes(model, pieces, made.answer_B, made.other_B)
    return Run(
        change,
        place,
        tuple(round(float(vote_B[0]), 4) for vote_B in cast.values()),
        tuple(round(float(piece[0, -1].norm()), 4) for piece in pieces.values()),
        said,
        round(float(share_V[best]), 4),
    )


# ---------------------------------------------------------------- what the reader sees


def look(recording: Recording, text: int, change: str, show: str) -> View:
    """The picture of one run. show: "votes" or "sizes"."""
    told = recording.texts[text]
    run = next(run for run in told.runs if run.change == change)
    lead = sum(run.votes)
    best = max(range(len(run.votes)), key=lambda i: run.votes[i])
    lines = (
        "Read: " + told.text.replace("\n", " "),
        f"The model says {run.said!r}, {run.share:.1%} sure.",
        f"Most votes for {told.answer!r}: {recording.pieces[best]}, {signed(run.votes[best])}.",
        _change_in_words(told, run),
    )
    draw = _votes if show == "votes" else _sizes
    chart = draw(recording, told, run)
    return View(
        number=signed(lead),
        unit=f"lead of {told.answer!r} over {told.other!r}, in logits",
        lines=lines,
        alt=f"{chart['title']}: "
        + ", ".join(f"{bar['label']} {bar['text']}" for bar in chart["bars"])
        + f". The model says {run.said!r}.",
        say=f"{change}: the model says {run.said!r}, lead {signed(lead)}",
        chart=chart,
    )


def signed(value: float) -> str:
    """One digit with its sign; what rounds to nothing has none."""
    text = f"{value:+.1f}"
    return "0.0" if text[1:] == "0.0" else text


def _change_in_words(told: Text, run: Run) -> str:
    if not run.place:
        return "Every piece is the model's own."
    before = sum(told.runs[0].votes)
    moved = f"The lead was {signed(before)} before."
    if run.change.startswith("without"):
        return f"Here {run.place} runs and adds nothing; later pieces make do without it. {moved}"
    return (
        f"At the last token, {run.place} adds what it found where {told.answer!r} and "
        f"{told.other!r} are swapped. {moved}"
    )


def _votes(recording: Recording, told: Text, run: Run) -> dict:
    """Each bar begins where the one before ended: the last one ends at the lead."""
    low, high = _reach(told)
    bars, total = [], 0.0

    def along(value: float) -> float:
        return (value - low) / (high - low)

    for name, vote in zip(recording.pieces, run.votes):
        bars.append(
            {
                "label": name,
                "text": signed(vote),
                "at": along(min(total, total + vote)),
                "end": along(max(total, total + vote)),
                "kind": "for" if vote >= 0 else "against",
                "changed": name == run.place,
            }
        )
        total += vote
    kind = "for" if total >= 0 else "against"
    ends = sorted((along(0), along(total)))
    whole = {"label": "all together", "text": signed(total), "kind": kind, "changed": False}
    bars.append(whole | {"at": ends[0], "end": ends[1]})
    title = f"votes for {told.answer!r} (right) or {told.other!r} (left)"
    return {"title": title, "bars": bars, "zero": [{"at": along(0)}]}


def _reach(told: Text) -> tuple[float, float]:
    """The lowest and the highest total that any run of a text passes: all share one axis."""
    low = high = 0.0
    for run in told.runs:
        total = 0.0
        for vote in run.votes:
            total += vote
            low, high = min(low, total), max(high, total)
    return low, max(high, low + 1e-9)


def _sizes(recording: Recording, told: Text, run: Run) -> dict:
    most = max(size for each in recording.texts for other in each.runs for size in other.sizes)
    bars = [
        {
            "label": name,
            "text": f"{size:.1f}",
            "at": 0.0,
            "end": size / most,
            "kind": "for",
            "changed": name == run.place,
        }
        for name, size in zip(recording.pieces, run.sizes)
    ]
    return {"title": "size of each piece at the last token", "bars": bars, "zero": [{"at": 0.0}]}


def draw(view: View):
    """The still picture: the same bars, from top to bottom in the order they are added."""
    bars, light = view.chart["bars"], plot.LIGHT
    clear = {"facecolor": light["ground"], "edgecolor": "none", "pad": 0.6}
    fig, ax = plot.figure(6.4, 0.9 + 0.24 * len(bars))
    for y, bar in enumerate(bars):
        face = light["accent" if bar["kind"] == "for" else "bar"]
        ax.barh(y, bar["end"] - bar["at"], left=bar["at"], height=0.62, color=face)
        ax.text(max(bar["end"], 0) + 0.012, y, bar["text"], va="center", fontsize=8, bbox=clear)
    ax.axvline(view.chart["zero"][0]["at"], color=light["quiet"], linewidth=0.9)
    names = [bar["label"] + (" (changed)" if bar["changed"] else "") for bar in bars]
    ax.set_yticks(range(len(bars)), names)
    ax.set(xlim=(-0.01, 1.12), ylim=(len(bars) - 0.4, -0.6), xticks=[])
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    plot.headed(fig, f"{view.number} {view.unit}", view.chart["title"])
    return fig


def controls(recording: Recording) -> tuple[Control, ...]:
    texts = tuple(range(len(recording.texts)))
    names = tuple(
        f"{i + 1}: {told.answer} or {told.other}" for i, told in enumerate(recording.texts)
    )
    changes = tuple(run.change for run in recording.texts[0].runs)
    return (
        Control("text", "text", "select", texts, names),
        Control(
            "change",
            "change one piece",
            "select",
            changes,
            changes,
            "take a sublayer out, or swap in its answer from the text where the things are swapped",
        ),
        Control(
            "show",
            "show",
            "select",
            ("votes", "sizes"),
            ("votes for the answer", "sizes"),
        ),
    )


class Additions(Widget):
    """What each layer adds to the stream: `Additions(record(model, swaps.swaps(3)))`."""

    _esm = script("additions.js")

    def __init__(self, recording: Recording, text: int = 0, change: str = PLAIN):
        self._recording = recording
        start = {"text": text, "change": change, "show": "votes"}
        super().__init__("What each layer adds to the stream", controls(recording), start)

    def all_settings(self):
        return [
            {"text": i, "change": run.change, "show": show}
            for i, told in enumerate(self._recording.texts)
            for run in told.runs
            for show in ("votes", "sizes")
        ]

    def look(self, settings: dict) -> View:
        return look(self._recording, **settings)

    def draw(self, view: View):
        return draw(view)
