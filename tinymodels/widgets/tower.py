"""The tower of V4.1: encoder below, decoder above, and who runs at each moment of a request.

A prompt comes in four chunks, then the decoder catches up, then three words are written. What is
drawn is what has run: one area for the tokens of a chunk and the layers they went through, so
that areas are layer-tokens.
"""

from dataclasses import dataclass

from ..config import ModelConfig
from ..published import V4_1_FLASH
from . import plot
from .base import Control, View, Widget, script

PROMPTS = (64, 128, 256, 512, 1024, 4096)
WHO = {"ced": "CED", "all": "every layer for every token"}
CHUNKS, WORDS = 4, 3
MOMENTS = (
    *(f"chunk {i + 1}" for i in range(CHUNKS)),
    "after the prompt",
    *(f"word {i + 1}" for i in range(WORDS)),
)
REPLAY = CHUNKS  # the moment after the last chunk
HALVES = ("encoder", "decoder")


@dataclass(frozen=True)
class Run:
    """Tokens `first` to `end` go through one half at one moment."""

    moment: int
    half: str
    first: int
    end: int

    @property
    def tokens(self) -> int:
        return self.end - self.first


def half_layers(config: ModelConfig) -> dict[str, int]:
    first = config.decoder_start
    return {"encoder": first, "decoder": len(config) - first}


def window(config: ModelConfig) -> int:
    return max(layer.attention.window for layer in config.layers)


def runs(config: ModelConfig, prompt: int, who: str) -> tuple[Run, ...]:
    """All that runs from the first chunk to the last word, in order.

    Errors: ValueError for an unknown way, or a prompt that four chunks do not share evenly.
    """
    if who not in WHO:
        raise ValueError(f"who is {who!r}; it can be one of {', '.join(WHO)}")
    if prompt < CHUNKS or prompt % CHUNKS:
        raise ValueError(f"a prompt of {prompt} tokens cannot be read in {CHUNKS} equal chunks")
    size, made = prompt // CHUNKS, []
    for i in range(CHUNKS):
        for half in HALVES if who == "all" else HALVES[:1]:
            made.append(Run(i, half, i * size, (i + 1) * size))
    if who == "ced":
        made.append(Run(REPLAY, "decoder", max(0, prompt - window(config)), prompt))
    for i in range(WORDS):
        made += [Run(REPLAY + 1 + i, half, prompt + i, prompt + i + 1) for half in HALVES]
    return tuple(made)


def layer_tokens(config: ModelConfig, done: tuple[Run, ...]) -> int:
    layers = half_layers(config)
    return sum(layers[run.half] * run.tokens for run in done)


def _says(moment: int, who: str, prompt: int, near: int) -> str:
    if moment > REPLAY:
        return "A word is written: it goes through all forty layers."
    if who == "all":
        if moment == REPLAY:
            return "Nothing is left to do: every layer has read every token."
        return "The chunk goes through all forty layers."
    if moment < REPLAY:
        return "The encoder reads. One projection of its last state fills the decoder's far memory."
    last = f"the last {near} tokens" if near < prompt else f"all {prompt} tokens"
    return f"The decoder catches up: {last} go through it, to fill its windows."


def look(moment: int, prompt: int, who: str) -> View:
    """What has run up to this moment, what runs now, what was never run."""
    config = V4_1_FLASH
    every = runs(config, prompt, who)
    done = tuple(run for run in every if run.moment <= moment)
    spent, near = layer_tokens(config, done), min(prompt, window(config))
    written = max(0, moment - REPLAY)
    known = (moment + 1) * prompt // CHUNKS if moment < REPLAY else prompt + written
    whole = len(config) * known
    now = _says(moment, who, prompt, near)
    share = 100 * spent / whole
    sums = f"All forty layers for all {known:,} tokens: {whole:,}. Here {share:.3g} % of that."
    place = f"{prompt:,} tokens of prompt, {MOMENTS[moment]}"
    return View(
        number=f"{spent:,}",
        unit=f"layer-tokens so far · {place}",
        lines=(now, sums),
        alt=f"Two halves of twenty layers, tokens from left to right. {place}. {now}"
        f" {spent:,} of {whole:,} layer-tokens.",
        say=f"{MOMENTS[moment]}. {now} {spent:,} layer-tokens.",
        chart={
            "areas": [
                {
                    "half": run.half,
                    "word": run.first - prompt if run.first >= prompt else None,
                    "at": min(1, run.first / prompt),
                    "end": min(1, run.end / prompt),
                    "now": run.moment == moment,
                }
                for run in done
            ],
            "projects": who == "ced" and moment < REPLAY,
            "known": min(1, known / prompt),
            "prompt": f"{prompt:,} tokens of prompt",
        },
    )


def controls() -> tuple[Control, ...]:
    return (
        Control("moment", "moment", "range", tuple(range(len(MOMENTS))), MOMENTS,
                "move it step by step"),
        Control("prompt", "prompt", "select", PROMPTS, tuple(f"{n:,} tokens" for n in PROMPTS),
                "the window has 128"),
        Control("who", "who runs", "select", tuple(WHO), tuple(WHO.values())),
    )  # fmt: skip


class Tower(Widget):
    """Encoder and decoder, and when each runs."""

    _esm = script("tower.js")

    def __init__(self, moment: int = 0, prompt: int = 512, who: str = "ced"):
        start = {"moment": moment, "prompt": prompt, "who": who}
        super().__init__("Who runs when", controls(), start)

    def look(self, settings: dict) -> View:
        return look(**settings)

    def draw(self, view: View):
        return _picture(view)

    def all_settings(self):
        for moment in range(len(MOMENTS)):
            for prompt in PROMPTS:
                for who in WHO:
                    yield {"moment": moment, "prompt": prompt, "who": who}


WIDE, GAP, WORD = 1.0, 0.03, 0.055  # of the prompt, before the words, of one word


def _picture(view: View):
    chart = view.chart
    fig, ax = plot.figure(6.6, 3.0)
    heights = {"encoder": 0, "decoder": 1.12}
    right = WIDE + GAP + WORDS * WORD
    for low in heights.values():
        ax.barh(low + 0.5, WIDE, 1, color=plot.LIGHT["track"])
        for i in range(WORDS):
            left = WIDE + GAP + i * WORD
            ax.barh(low + 0.5, WORD * 0.85, 1, left=left, color=plot.LIGHT["track"])
        for layer in range(1, 20):
            ax.plot((0, right), (low + layer / 20,) * 2, color="white", linewidth=0.4, zorder=5)
    for area in chart["areas"]:
        left, width = area["at"], area["end"] - area["at"]
        if area["word"] is not None:
            left, width = WIDE + GAP + area["word"] * WORD, WORD * 0.85
        shade = plot.LIGHT["accent" if area["now"] else "soft"]
        ax.barh(heights[area["half"]] + 0.5, width, 1, left=left, color=shade)
    if chart["projects"]:
        left = max(a["at"] for a in chart["areas"] if a["now"])
        middle = (left + chart["known"]) / 2
        ax.annotate(
            "",
            (middle, 1.3),
            (middle, 1.0),
            zorder=6,
            arrowprops={"arrowstyle": "->", "color": plot.LIGHT["ink"], "lw": 1.6},
        )
    ax.set_yticks([0.5, 1.62], ["encoder\nlayers 0-19", "decoder\nlayers 20-39"])
    ax.set_xticks([0.5, WIDE + GAP + WORDS * WORD / 2], [chart["prompt"], "words"])
    ax.set(xlim=(-0.01, right + 0.01), ylim=(-0.05, 2.17))
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    fig.suptitle(f"{view.number} {view.unit}", x=0.01, ha="left", fontsize=11, fontweight="bold")
    fig.supxlabel("\n".join(view.lines), x=0.01, ha="left", fontsize=8.5)
    return fig
