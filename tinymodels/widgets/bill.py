"""The bill: model x context x requests x number formats x cards -> what fits, what is waited for.

The bytes explorer asks what one token costs. Here that is given by a model, any of those below or
one read from a config.json, and the question is what a machine can do with it.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .. import ledger
from ..config import ModelConfig
from ..families import load
from ..published import PUBLISHED
from ..released import RELEASED
from ..roofline import SPEEDS, Decode, Weights, decode, weights_of
from . import plot
from .base import Control, View, Widget, script

LABELS = {
    "DeepSeek 67B (V1)": "deepseek-67b",
    "DeepSeek-V2": "deepseek-v2",
    "DeepSeek-V3": "deepseek-v3",
    "DeepSeek-V3.2": "deepseek-v3.2",
    "DeepSeek-V4-Flash": "deepseek-v4-flash",
    "DeepSeek-V4.1-Flash": "deepseek-v4.1-flash",
}
CONTEXTS = tuple(2**power for power in range(10, 21))
BATCHES = tuple(2**power for power in range(11))
CARDS = (1, 2, 4, 8, 16, 32)
WEIGHT_BITS = {16: "16 bits", 8: "8 bits", 4: "4 bits"}
CACHE_BITS = {0: "as the model keeps it", 16: "16 bits", 8: "8 bits", 4: "4 bits"}
PARTS = (
    ("weight_reading", "reading the weights"),
    ("weight_computing", "multiplying with the weights"),
    ("cache_reading", "reading the caches"),
    ("cache_computing", "looking over the caches"),
)


@dataclass(frozen=True)
class Model:
    """A model whose bill can be made out."""

    config: ModelConfig
    weights: Weights


@cache
def known(label: str) -> Model:
    """One of LABELS, or of the models of other houses."""
    if label in LABELS:
        return Model(PUBLISHED[LABELS[label]].config, weights_of(LABELS[label]))
    found = RELEASED[label]
    weights = Weights(found.weights, found.active, found.experts, found.top_k)
    return Model(found.config(label), weights)


@dataclass(frozen=True)
class Costs:
    """The bill at one setting, in bytes and seconds."""

    memory: int
    weights: int
    request: int
    batch: int
    step: Decode

    @property
    def fit(self) -> int:
        """Requests that fit beside the weights."""
        return max(0, self.memory - self.weights) // self.request

    @property
    def needed(self) -> int:
        return self.weights + self.batch * self.request

    @property
    def fits(self) -> bool:
        return self.needed <= self.memory


def costs(
    model: Model, context: int, batch: int, weight_bits: int, cache_bits: int, card: str, cards: int
) -> Costs:
    """cache_bits 0: the rows as the model keeps them."""
    kv_bits = cache_bits or None
    return Costs(
        cards * ledger.gpu(card).memory,
        model.weights.total * weight_bits // 8,
        ledger.exact(model.config, context, kv_bits=kv_bits)["total"],
        batch,
        decode(
            model.config, context, batch, card, cards, model.weights, weight_bits, kv_bits
        ),
    )  # fmt: skip


def seconds_text(seconds: float) -> str:
    """About three digits: 0.00512 -> "5.12 ms". What takes under a microsecond is called so."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size:
            count = seconds / size
            return f"{count:,.{2 if count < 9.995 else 1 if count < 99.95 else 0}f} {unit}"
    return "under 1 µs"


def _requests(n: int) -> str:
    return "1 request" if n == 1 else f"{n:,} requests"


def look(model: Model, settings: dict) -> View:
    """Everything the bill shows."""
    s = settings
    c = costs(
        model, s["context"], s["batch"], s["weight_bits"], s["cache_bits"], s["card"], s["cards"]
    )
    caches = c.batch * c.request
    short = plot.bytes_short
    machine = f"{s['cards']} × {s['card']}"
    memory = f"{machine}: {short(c.memory)}. Weights {short(c.weights)}, "
    memory += f"one request of {s['context']:,} tokens {short(c.request)}."
    if c.fits:
        asked = (
            f"{_requests(c.batch)}: {short(c.needed)} in all, {short(c.memory - c.needed)} free."
        )
    else:
        over = c.needed - c.memory
        asked = f"{_requests(c.batch)}: {short(c.needed)} in all, {short(over)} too many."
    would = "A step takes" if c.fits else "If it did fit, a step would take"
    speed = (
        f"{would} at least {seconds_text(c.step.seconds)}: {c.step.tokens_a_second:,.0f} tokens a "
        f"second in all, {1 / c.step.seconds:,.0f} for each request."
    )
    bound = f"Most of that is {c.step.bound_by}."
    lines = [memory, asked, speed, bound]
    if s["context"] > model.config.context:
        lines.append(
            f"The model was made for {model.config.context:,} tokens; beyond, this is arithmetic."
        )
    verdict = "fits" if c.fit == 1 else "fit"
    return View(
        number=f"{c.fit:,}",
        unit=f"{'request' if c.fit == 1 else 'requests'} of {s['context']:,} tokens {verdict}",
        lines=tuple(lines),
        alt=f"Memory of {machine}, {short(c.memory)}: weights {short(c.weights)}, caches of "
        f"{_requests(c.batch)} {short(caches)}. Below, what a step waits for: "
        + ", ".join(f"{what} {seconds_text(getattr(c.step, name))}" for name, what in PARTS)
        + ".",
        say=f"{_requests(c.fit)} {verdict}. {asked} Most of the time is {c.step.bound_by}.",
        chart=_chart(c, s["cache_bits"]),
    )


def _chart(c: Costs, cache_bits: int) -> dict:
    """Marks as shares: of the longer of memory and need, and of the longest wait. Bits that were
    chosen are named, since they may be those that the model keeps anyway."""
    whole = max(c.memory, c.needed)
    slowest = max(getattr(c.step, name) for name, _ in PARTS)
    short = plot.bytes_short
    parts = [
        {"what": "weights", "text": short(c.weights), "at": 0.0, "end": c.weights / whole},
        {
            "what": "caches",
            "text": short(c.batch * c.request) + (f" at {cache_bits} bits" if cache_bits else ""),
            "at": c.weights / whole,
            "end": c.needed / whole,
        },
    ]
    times = []
    for name, what in PARTS:
        seconds = getattr(c.step, name)
        times.append(
            {
                "label": what,
                "text": seconds_text(seconds),
                "end": seconds / slowest,
                "most": what == c.step.bound_by,
            }
        )
    room = [{"text": f"{short(c.memory)} there are", "at": c.memory / whole}]
    return {"parts": parts, "room": room, "times": times}


def controls(models: tuple[str, ...]) -> tuple[Control, ...]:
    def numbers(name, label, values):
        return Control(name, label, "range", values, tuple(f"{v:,}" for v in values))

    def named(name, label, texts):
        return Control(name, label, "select", tuple(texts), tuple(texts.values()))

    return (
        Control("model", "model", "select", models, models),
        numbers("context", "context, tokens", CONTEXTS),
        numbers("batch", "requests that write together", BATCHES),
        named("weight_bits", "a weight takes", WEIGHT_BITS),
        named("cache_bits", "a cached number takes", CACHE_BITS),
        Control("card", "card", "select", tuple(SPEEDS), tuple(SPEEDS)),
        numbers("cards", "cards", CARDS),
    )


class Bill(Widget):
    """Move a control, see what fits and what writing waits for."""

    _esm = script("bill.js")

    def __init__(
        self,
        model: str = "DeepSeek 67B (V1)",
        context: int = 4096,
        batch: int = 16,
        card: str = "H100",
        cards: int = 8,
        mine: str | Path | ModelConfig | None = None,
        parameters: float | None = None,
        active: float | None = None,
    ):
        """mine: a config.json (or its folder), or a ModelConfig; it is then what is shown first.

        parameters, active: of that model, as a config.json does not say them. Raises ValueError
        for a model that is not known, and for one of yours whose parameters nobody knows.
        """
        self._models = {}
        if mine is not None:
            mine = mine if isinstance(mine, ModelConfig) else load(Path(mine))
            model = f"yours: {mine.name}"
            self._models[model] = Model(mine, _weights(mine, parameters, active))
        names = (*self._models, *LABELS, *RELEASED)
        if model not in names:
            raise ValueError(f"no model {model!r}; there are {', '.join(names)}")
        start = {"model": model, "context": context, "batch": batch, "weight_bits": 16}
        start |= {"cache_bits": 0, "card": card, "cards": cards}
        super().__init__("The bill", controls(names), start)

    def look(self, settings: dict) -> View:
        label = settings["model"]
        return look(self._models[label] if label in self._models else known(label), settings)

    def draw(self, view: View):
        fig, ax = plot.figure(7.2, 2.9)
        chart, light = view.chart, plot.LIGHT
        room, bars = chart["room"][0], chart["times"]
        for part, colour in zip(chart["parts"], (light["bar"], light["accent"])):
            ax.barh(0, part["end"] - part["at"], left=part["at"], height=0.7, color=colour)
        ax.plot([room["at"]] * 2, [-0.6, 0.6], color=light["ink"], linewidth=2)
        rows = [i + 1.8 for i in range(len(bars))]
        colours = [light["accent" if bar["most"] else "bar"] for bar in bars]
        ax.barh(rows, [bar["end"] for bar in bars], height=0.6, color=colours)
        for row, bar in zip(rows, bars):
            ax.text(bar["end"] + 0.01, row, bar["text"], va="center")
        ax.set_yticks([0, *rows], ["memory", *(bar["label"] for bar in bars)])
        ax.set_xticks([])
        ax.set(xlim=(0, 1.13))
        ax.grid(visible=False)
        ax.tick_params(axis="y", length=0)
        ax.spines["bottom"].set_visible(False)
        ax.invert_yaxis()
        words = ", ".join(f"{part['what']} {part['text']}" for part in chart["parts"])
        plot.headed(fig, f"{view.number} {view.unit}", f"{words}; {room['text']}")
        return fig


def _weights(config: ModelConfig, parameters: float | None, active: float | None) -> Weights:
    if parameters is None:
        try:
            return weights_of(config)
        except ValueError:
            raise ValueError(
                f"{config.name}: a configuration does not say how many parameters there are; "
                "add parameters=8.03e9, and active= where a token meets only some of them"
            ) from None
    return Weights(int(parameters), int(parameters if active is None else active))
