"""The bytes explorer: layers, kv heads, head dim, number format and context -> bytes.

    bytes a token = 2 (a key and a value) x layers x kv heads x head dim x bytes per number

The formula holds where every layer keeps keys and values of its own: the first DeepSeek, Llama,
Qwen2 and most models before the latent ones.
"""

from dataclasses import asdict, dataclass
from math import log10

from ..config import GQA, ModelConfig
from ..presets import tiny_v1
from ..published import PUBLISHED
from . import plot
from .base import Control, View, Widget, script

OWN = "your own"
BITS = {32: "4 (fp32)", 16: "2 (bf16)", 8: "1 (FP8)", 4: "0.5 (FP4)"}
LAYERS = tuple(range(1, 129))
KV_HEADS = (1, 2, 4, 8, 16, 32, 64, 128)
HEAD_DIMS = (16, 32, 64, 96, 128, 192, 256)
CONTEXTS = tuple(2**power for power in range(7, 21))


@dataclass(frozen=True)
class Shape:
    """What decides the bytes. bits: width of one stored number. context: tokens held."""

    layers: int
    kv_heads: int
    head_dim: int
    bits: int = 16
    context: int = 4096

    def rate(self) -> int:
        """Bytes that one more token adds."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bits // 8

    def total(self) -> int:
        """Bytes after `context` tokens."""
        return self.rate() * self.context

    def formula(self) -> str:
        size = {32: "4", 16: "2", 8: "1", 4: "0.5"}[self.bits]
        return (
            f"2 (key and value) × {_count(self.layers, 'layer')}"
            f" × {_count(self.kv_heads, 'kv head')} × {self.head_dim} × {size}"
            f" {'byte' if size == '1' else 'bytes'}"
        )


def shape_of(config: ModelConfig) -> Shape:
    """The shape of a model whose layers all keep keys and values of their own, without a window.

    Raises ValueError for any other model: the formula does not hold for it.
    """
    kinds = {layer.attention for layer in config.layers}
    kind = kinds.pop()
    if kinds or not isinstance(kind, GQA) or kind.window or kind.kv_source is not None:
        raise ValueError(f"{config.name}: its layers do not all keep all keys and values")
    return Shape(len(config), kind.kv_heads, kind.head_dim)


# Shapes of other houses: the released config.json of each, and the reports of LLaMA 65B
# (arXiv 2302.13971, table 2) and Llama 2 7B (arXiv 2307.09288).
PRESETS: dict[str, Shape] = {
    "tiny V1, the model of this course": shape_of(tiny_v1()),
    "DeepSeek 67B (V1)": shape_of(PUBLISHED["deepseek-67b"].config),
    "LLaMA 65B (MHA)": Shape(80, 64, 128),
    "Llama 2 7B (MHA)": Shape(32, 32, 128),
    "Llama 3.1 8B (GQA)": Shape(32, 8, 128),
    "Qwen2 7B (GQA)": Shape(28, 4, 128),
    "Falcon 7B (MQA)": Shape(32, 1, 64),
}


@dataclass(frozen=True)
class Yardstick:
    """Something whose size one knows. many: how several of it are called."""

    label: str
    many: str
    nbytes: int
    text: str


YARDSTICKS = (
    Yardstick("a photo", "photos of 3 MB", 3_000_000, "3 MB"),
    Yardstick("a phone's memory", "phones' memories of 8 GB", 8_000_000_000, "8 GB"),
    Yardstick("one 80 GB card", "cards of 80 GB", 80_000_000_000, "80 GB"),
)
AXIS = (1e3, 1e14)  # 1 kB to 100 TB: whatever the controls say lies between
TICKS = ((1e3, "1 kB"), (1e6, "1 MB"), (1e9, "1 GB"), (1e12, "1 TB"))


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def compare(nbytes: int, stick: Yardstick) -> str:
    """How `nbytes` stand to a yardstick: "17,001 photos of 3 MB", "64 % of one 80 GB card"."""
    share = nbytes / stick.nbytes
    if share >= 9.95:
        return f"{share:,.0f} {stick.many}"
    if share >= 1.05:
        return f"{share:.1f} {stick.many}"
    percent = 100 * share
    if percent < 0.1:
        return f"less than 0.1 % of {stick.label}"
    return f"{percent:.{0 if percent >= 10 else 1}f} % of {stick.label}"


def along(nbytes: float) -> float:
    """Where a number of bytes stands on the chart's axis, 0 to 1."""
    low, high = (log10(end) for end in AXIS)
    return (log10(nbytes) - low) / (high - low)


def look(shape: Shape) -> View:
    """Everything the explorer shows for one shape."""
    total, tokens = shape.total(), f"{shape.context:,} tokens"
    text = plot.bytes_short(total)
    photo, phone, card = (compare(total, stick) for stick in YARDSTICKS)
    bars = [{"label": "this cache", "text": text, "end": along(total), "ours": True}]
    for stick in YARDSTICKS:
        mark = {"text": stick.text, "end": along(stick.nbytes), "ours": False}
        bars.append({"label": stick.label, **mark})
    return View(
        number=f"{shape.rate():,}",
        unit="byte a token" if shape.rate() == 1 else "bytes a token",
        lines=(
            shape.formula(),
            f"{tokens}: {plot.bytes_text(total)}",
            f"That is {photo}, {phone}, {card}.",
        ),
        alt=f"A cache of {text} at {tokens}, on a logarithmic scale beside a photo of 3 MB,"
        " a phone's memory of 8 GB and one card of 80 GB.",
        say=f"{shape.rate():,} bytes a token, {text} at {tokens}: {card}.",
        chart={"bars": bars, "ticks": [{"at": along(t), "text": text} for t, text in TICKS]},
    )


def controls() -> tuple[Control, ...]:
    def numbers(name, label, values, note=""):
        return Control(name, label, "range", values, tuple(f"{v:,}" for v in values), note)

    models = (OWN, *PRESETS)
    return (
        Control("model", "model", "select", models, models),
        numbers("layers", "layers", LAYERS),
        numbers("kv_heads", "kv heads", KV_HEADS),
        numbers("head_dim", "head dim", HEAD_DIMS),
        Control("bits", "bytes per number", "select", tuple(BITS), tuple(BITS.values())),
        numbers("context", "context, tokens", CONTEXTS),
    )


class BytesExplorer(Widget):
    """Move a control, see the bytes."""

    _esm = script("explorer.js")

    def __init__(self, model: str = "DeepSeek 67B (V1)", context: int = 4096):
        if model not in PRESETS:
            raise ValueError(f"no model {model!r}; there are {', '.join(PRESETS)}")
        start = {"model": model, **_numbers(PRESETS[model]), "context": context}
        super().__init__("Bytes explorer", controls(), start)

    def settle(self, settings: dict, changed: str | None = None) -> dict:
        """A model chosen sets the shape; a shape moved finds its model, or is one's own."""
        settings = super().settle(settings)
        if changed == "model" and settings["model"] != OWN:
            chosen = _numbers(PRESETS[settings["model"]])
            return {**settings, **chosen, "context": settings["context"]}
        if changed != "model":
            here = _shape({**settings, "context": 4096})
            settings["model"] = next((n for n, s in PRESETS.items() if s == here), OWN)
        return settings

    def look(self, settings: dict) -> View:
        return look(_shape(settings))

    def draw(self, view: View):
        fig, ax = plot.figure(6.8, 2.3)
        bars = view.chart["bars"]
        colours = [plot.LIGHT["accent" if bar["ours"] else "bar"] for bar in bars]
        ax.barh(range(len(bars)), [b["end"] for b in bars], height=0.5, color=colours)
        for row, bar in enumerate(bars):
            ax.text(bar["end"] + 0.012, row, bar["text"], va="center")
        ax.set_yticks(range(len(bars)), [bar["label"] for bar in bars])
        ax.set_xticks(*zip(*((tick["at"], tick["text"]) for tick in view.chart["ticks"])))
        ax.set(xlim=(0, 1.12), xlabel="each mark is a thousand times the one before")
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        plot.headed(fig, f"{view.number} {view.unit}", view.lines[0])
        return fig


def _numbers(shape: Shape) -> dict:
    """The settings that a shape stands for."""
    return asdict(shape)


def _shape(settings: dict) -> Shape:
    return Shape(**{name: value for name, value in settings.items() if name != "model"})


def explorer(model: str = "DeepSeek 67B (V1)", context: int = 4096) -> BytesExplorer:
    """The bytes explorer, starting from one of its models."""
    return BytesExplorer(model, context)
