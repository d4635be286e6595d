"""Who owns, who borrows: V4.1's forty layers floor by floor, and what each adds to the cache.

The sharing can be changed: as it was released, one owner for each half, or nothing shared. Every
state is a `ModelConfig`, and its bytes are the ledger's.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from .. import ledger
from ..config import Layer, ModelConfig
from ..ledger.ladder import unshared
from ..plan import LayerPlan, plan
from ..published import V4_1_FLASH
from ..published_v4 import INDEX_SOURCES, KV_SOURCES, V4_1_RATIOS, csa2_layers
from . import plot
from .base import Control, View, Widget, script

SHARING = {
    "released": "as released: 4 owners",
    "halves": "one owner for each half",
    "none": "every layer owns",
}
ROWS = {"bf16": "bf16", "fp8": "FP8", "fp4": "FP4"}
MODES = {"window": "window", "full": "Full", "reindex": "Reindex", "reuse": "Reuse"}
WORDS = {
    "window": "It has a window only, no far memory.",
    "full": "It makes its own entries and keys, and chooses among them.",
    "reindex": "It reads the entries of layer {owner}, and chooses anew by a query of its own.",
    "reuse": "It reads the entries of layer {owner}, and those that layer {chooser} chose.",
}
HALF = 20  # layers of the encoder, and of the decoder


@dataclass(frozen=True)
class Floor:
    """One layer. owner, chooser: the layers whose entries and choice it reads, itself among
    them; None where there are none. rate: bytes that one more token adds here."""

    number: int
    mode: str
    owner: int | None
    chooser: int | None
    rate: float

    def says(self) -> str:
        words = WORDS[self.mode].format(owner=self.owner, chooser=self.chooser)
        return f"Layer {self.number}, {MODES[self.mode]}. {words}"


@cache
def model(sharing: str) -> ModelConfig:
    """V4.1-Flash with other sharing lists. Errors: ValueError for an unknown name."""
    if sharing not in SHARING:
        raise ValueError(f"sharing is {sharing!r}; it can be one of {', '.join(SHARING)}")
    if sharing == "none":
        return unshared(V4_1_FLASH)
    if sharing == "released":
        return V4_1_FLASH
    first, owner = (V4_1_FLASH.layers[i].attention for i in (0, HALF))
    names = ("heads", "head_dim", "rope_dim", "q_rank", "out_groups", "out_rank", "window")
    attentions = csa2_layers(
        V4_1_RATIOS,
        kv_sources=(KV_SOURCES[0], HALF),
        index_sources=INDEX_SOURCES,
        candidates=owner.candidates,
        indexer=owner.indexer,
        near=first.rope,
        far=owner.rope,
        **{name: getattr(owner, name) for name in names},
    )
    layers = tuple(Layer(a, layer.ffn) for a, layer in zip(attentions, V4_1_FLASH.layers))
    return V4_1_FLASH.with_(layers=layers)


@cache
def floors(sharing: str, row: Any) -> tuple[Floor, ...]:
    """All forty, from the lowest."""
    made, described = [], model(sharing)
    for layer, planned in zip(described.layers, plan(described, row)):
        a, i = layer.attention, planned.layer
        far = a.mode != "window"
        chooser = a.index_source if a.mode == "reuse" else i
        made.append(
            Floor(i, a.mode, planned.owner if far else None, chooser if far else None,
                  _adds(planned))
        )  # fmt: skip
    return tuple(made)


def _adds(planned: LayerPlan) -> float:
    stores = (store for store in (planned.main, planned.index) if store is not None)
    return sum(store.layout.nbytes / store.ratio for store in stores)


def look(layer: int, sharing: str, row: Any) -> View:
    """One floor among all, and what the whole tower keeps of a token."""
    every = floors(sharing, row)
    here, rate = every[layer], ledger.rate(model(sharing), row)
    owners = [floor for floor in every if floor.mode == "full"]
    readers = [f for f in every if f.owner == here.owner is not None]
    most = max(floor.rate for floor in every)
    each = max(f.rate for f in owners)  # the last owner has an entry for every token
    halves = sum(f.rate < each for f in owners)
    count = f"{halves} / 2" if halves > 1 else "1 / 2"
    terms = f"({count} + {len(owners) - halves}) × {plot.exact(each)} = {plot.exact(rate)}"
    shared = f" {len(readers)} layers read these entries." if len(readers) > 1 else ""
    number = plot.exact(rate)
    return View(
        number=number,
        unit=f"bytes a token · {SHARING[sharing]}, {ROWS[row]}",
        lines=(here.says() + shared, f"{len(owners)} owners: {terms} bytes a token."),
        alt=f"Forty layers in two towers. {here.says()} Owners:"
        f" {', '.join(str(f.number) for f in owners)}. Together {number} bytes a token.",
        say=f"{here.says()} {number} bytes a token.",
        chart={
            "floors": [
                {
                    "label": str(floor.number),
                    "mode": MODES[floor.mode],
                    "end": floor.rate / most,
                    "text": plot.exact(floor.rate) if floor.rate else "",
                    "shares": floor.owner == here.owner is not None,
                    "here": floor is here,
                }
                for floor in every
            ],
            "here": layer,
            "owner": here.owner,
            "chooser": here.chooser,
        },
    )


def controls() -> tuple[Control, ...]:
    numbers = tuple(range(len(V4_1_FLASH)))
    return (
        Control("layer", "layer", "range", numbers, tuple(map(str, numbers)), "0 is the lowest"),
        Control(
            "sharing", "sharing", "select", tuple(SHARING), tuple(SHARING.values()),
            "only the first was built; the others show what it saves",
        ),
        Control(
            "row", "numbers of a row", "select", tuple(ROWS), tuple(ROWS.values()),
            "FP4 comes in chapter 11",
        ),
    )  # fmt: skip


class Floors(Widget):
    """The tower of V4.1, with one layer looked at."""

    _esm = script("floors.js")

    def __init__(self, layer: int = 27, sharing: str = "released", row: str = "bf16"):
        start = {"layer": layer, "sharing": sharing, "row": row}
        super().__init__("Who owns, who borrows", controls(), start)

    def look(self, settings: dict) -> View:
        return look(**settings)

    def draw(self, view: View):
        return _picture(view)


def _picture(view: View):
    chart = view.chart
    fig, towers = plot.figure(7.6, 4.6, columns=2)
    for tower, ax in enumerate(towers):
        rows = chart["floors"][tower * HALF : (tower + 1) * HALF]
        for at, floor in enumerate(rows):
            strong = floor["here"]
            shade = "accent" if floor["shares"] else "bar"
            if floor["shares"]:
                ax.axhspan(at - 0.5, at + 0.5, color=plot.LIGHT["track"], linewidth=0)
            weight = "bold" if strong else "normal"
            ax.text(0.02, at, floor["mode"], va="center", fontsize=7.5, fontweight=weight)
            ax.barh(at, floor["end"] * 0.5, 0.6, left=0.28, color=plot.LIGHT[shade])
            ax.text(0.3 + floor["end"] * 0.5, at, floor["text"], va="center", fontsize=7.5)
        first = tower * HALF
        marks = [f"{'▸ ' if f['here'] else ''}{f['label']}" for f in rows]
        ax.set_yticks(range(HALF), marks, fontsize=7.5)
        for name, style in (("owner", "-"), ("chooser", ":")):
            to = chart[name]
            if to is not None and first <= chart["here"] < first + HALF and to != chart["here"]:
                x = 0.94 if name == "owner" else 0.98
                ends = (chart["here"] - first, to - first)
                ax.plot((x, x), ends, style, color=plot.LIGHT["accent"], label=name)
                ax.plot(x, ends[1], "v", color=plot.LIGHT["accent"], markersize=4)
        ax.set(xlim=(0, 1.0), ylim=(-0.6, HALF - 0.4), xticks=[])
        ax.set_title(("encoder", "decoder")[tower], fontsize=9)
        ax.grid(visible=False)
        ax.tick_params(axis="y", length=0)
    fig.suptitle(f"{view.number} {view.unit}", x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    fig.supxlabel("\n".join(view.lines), x=0.01, ha="left", fontsize=8.5)
    return fig
