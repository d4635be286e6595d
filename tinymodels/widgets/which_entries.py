"""Which entries (here: rows): what one question of a recall text reads in each layer, and where
its answer is.

`record` lets a V3.2 model read one text with several k; the widget only looks that up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import plot
from .base import Control, View, Widget, script

if TYPE_CHECKING:  # a record can be shown without torch
    from torch import nn

    from ..data import Recall

READS = (1, 2, 4, 8, 24, 96)


@dataclass(frozen=True)
class Look:
    """One question at one k. layers: for each, the positions read, and the part of the attention
    to all entries that lies on them. right: whether the answer was found."""

    layers: tuple[tuple[tuple[int, ...], float], ...]
    right: bool


@dataclass(frozen=True)
class Looks:
    """All questions of one text. asked: where each is asked. needles: where its answer was given.
    looks: by k, then question."""

    tokens: int
    asked: tuple[int, ...]
    needles: tuple[int, ...]
    keys: tuple[str, ...]
    looks: dict[int, tuple[Look, ...]]


def record(model: "nn.Module", made: "Recall", reads: Sequence[int] = READS) -> Looks:
    """Every question of the text, for every k. Errors: ValueError for a model of another kind."""
    import torch

    from .. import tokenizer
    from ..choices import wishes
    from ..few_entries import with_top_k

    tokens_BT = torch.tensor([made.tokens])
    asked = tuple(answer - 1 for answer in made.answers)  # the position that must say it
    needles = tuple(at - d for at, d in zip(asked, made.distances))
    looks = {}
    for k in reads:
        few = with_top_k(model, k).requires_grad_(False)
        said_T = few(tokens_BT)[0].argmax(-1)
        found = wishes(few, tokens_BT)
        looks[k] = tuple(
            Look(
                tuple(
                    (
                        tuple(wish.taken_BTS[0, at].nonzero().flatten().tolist()),
                        wish.served_BT[0, at].item(),
                    )
                    for wish in found
                ),
                int(said_T[at]) == made.tokens[at + 1],
            )
            for at in asked
        )
    keys = tuple(tokenizer.decode([made.tokens[at]]).strip() for at in asked)
    return Looks(len(made.tokens), asked, needles, keys, looks)


# ---------------------------------------------------------------- what the reader sees


def look(looks: Looks, question: int, k: int) -> View:
    """One question: a strip of the text for each layer, with what is read."""
    one, at = looks.looks[k][question], looks.asked[question]
    needle, word = looks.needles[question], looks.keys[question]
    visible = at + 1
    hits = [i for i, (read, _) in enumerate(one.layers) if needle in read]
    where = f"layer {hits[0]}" if len(hits) == 1 else "layers " + ", ".join(map(str, hits))
    return View(
        number=f"{min(k, visible)} of {visible}",
        unit="rows read in each layer",
        lines=(
            f"“{word}” is asked at token {at}; its answer was given at token {needle},"
            f" {at - needle} before.",
            (f"The answer's own row is read in {where}. " if hits else "No layer reads it. ")
            + ("The model finds it." if one.right else "The model does not find it."),
        ),
        alt=f"A strip for each of {len(one.layers)} layers: which of {visible} rows are read"
        f" at token {at}. The answer, at token {needle}, is read in {where if hits else 'none'}.",
        say=f"{k} rows, question {question + 1}: {'found' if one.right else 'not found'}.",
        chart={
            "layers": [
                {"label": f"layer {i}", "end": min(1.0, part), "text": f"{part:.0%}"}
                for i, (_, part) in enumerate(one.layers)
            ],
            "reads": [
                {"at": s / looks.tokens, "layer": i, "needle": s == needle}
                for i, (read, _) in enumerate(one.layers)
                for s in read
            ],
            "asked": [{"at": at / looks.tokens}],
            "needle": [{"at": needle / looks.tokens}],
            "tokens": str(looks.tokens),
            "one": 1 / looks.tokens,
        },
    )


def controls(looks: Looks) -> tuple[Control, ...]:
    questions, reads = tuple(range(len(looks.asked))), tuple(looks.looks)
    return (
        Control(
            "question", "question", "range", questions,
            tuple(f"{q + 1}: {key}" for q, key in zip(questions, looks.keys)),
            "of those at the end of the text",
        ),
        Control("k", "rows read", "range", reads, tuple(map(str, reads)), "in each layer"),
    )  # fmt: skip


class WhichEntries(Widget):
    """What each layer reads for a question."""

    _esm = script("which_entries.js")

    def __init__(self, looks: Looks, question: int = 0, k: int = 8):
        self._looks = looks
        super().__init__("Which rows", controls(looks), {"question": question, "k": k})

    def all_settings(self):
        questions, reads = (control.values for control in self._controls)
        return [{"question": q, "k": k} for q in questions for k in reads]

    def look(self, settings: dict) -> View:
        return look(self._looks, settings["question"], settings["k"])

    def draw(self, view: View):
        return _picture(view)


def _picture(view: View):
    chart, layers = view.chart, view.chart["layers"]
    fig, ax = plot.figure(8.4, 2.9)
    tokens, asked = int(chart["tokens"]), chart["asked"][0]["at"]
    for i, layer in enumerate(layers):
        ax.barh(i, asked * tokens, 0.7, color="#EDEDED")
        ax.text(tokens * 1.01, i, layer["text"], va="center", fontsize=9)
    for mark in chart["reads"]:
        colour = plot.VERMILION if mark["needle"] else plot.LIGHT["bar"]
        height = 0.9 if mark["needle"] else 0.7
        ax.barh(mark["layer"], 1.2, height, left=mark["at"] * tokens, color=colour)
    ax.axvline(chart["needle"][0]["at"] * tokens + 0.5, color=plot.VERMILION, linewidth=0.8)
    ax.set_yticks(range(len(layers)), [layer["label"] for layer in layers])
    ax.set(xlim=(0, tokens), ylim=(len(layers) - 0.4, -0.6), xlabel="token")
    ax.set_xticks((0, asked * tokens), ("0", f"asked at {asked * tokens:.0f}"))
    ax.set_title(f"{view.number} {view.unit}; at the right: attention that lies on them",
                 fontsize=10, loc="left")  # fmt: skip
    ax.grid(visible=False)
    fig.supxlabel(view.lines[1], x=0.01, ha="left", fontsize=9)
    return fig
