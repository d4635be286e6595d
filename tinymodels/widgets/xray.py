"""The cache X-ray: what a decode writes and reads, row by row, with a cache and without one.

`record` runs a model twice over the same tokens and notes what really happened: which rows each
layer stored, which rows its attention was handed, and at how many positions each layer computed
keys and values. The widget only plays that trace back.
"""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import plot
from .base import Control, View, Widget, script

if TYPE_CHECKING:  # a trace can be shown without torch
    from ..transformer import Transformer

Span = tuple[int, int]  # positions: the first, and one past the last


@dataclass(frozen=True)
class Step:
    """One call of the model: `tokens` are the positions given to it.

    written, read: a span of rows for each layer, from its cache. computed, again: positions at
    which each layer made keys and values, with the cache and without one. held: bytes in the
    cache afterwards. agree: whether both ways chose the same next token.
    """

    tokens: Span
    written: tuple[Span, ...]
    read: tuple[Span, ...]
    computed: tuple[int, ...]
    again: tuple[int, ...]
    held: int
    agree: bool


@dataclass(frozen=True)
class Trace:
    """A recorded decode: what each token is called, and the steps."""

    labels: tuple[str, ...]
    layers: int
    steps: tuple[Step, ...]


def record(
    model: "Transformer",
    tokens: Sequence[int],
    labels: Sequence[str] | None = None,
    prompt: int = 1,
) -> Trace:
    """Run `model` over `tokens`, the first `prompt` at once, then one at a time.

    labels: what to call each token; its number where none is given. Raises ValueError for no
    tokens, a prompt that is not 1 to len(tokens), labels of another number, and a model whose
    layers do not keep one row a token each.
    """
    import torch

    tokens = [int(token) for token in tokens]
    labels = [str(token) for token in tokens] if labels is None else list(labels)
    if not tokens:
        raise ValueError("tokens is empty; give at least one token")
    if not 1 <= prompt <= len(tokens):
        raise ValueError(f"prompt is {prompt}; with {len(tokens)} tokens it is 1 to {len(tokens)}")
    if len(labels) != len(tokens):
        raise ValueError(f"there are {len(labels)} labels for {len(tokens)} tokens")
    cache = model.new_cache(1, len(tokens))
    for layer, kept in enumerate(cache.layers):
        if kept.main is None or kept.plan.main.ratio != 1:
            raise ValueError(f"layer {layer} keeps no row for each token; the X-ray shows those")
    ids_BT = torch.tensor([tokens], device=model.device)
    ends = range(prompt, len(tokens) + 1)
    steps = []
    with torch.no_grad():
        for start, end in zip((0, *ends[:-1]), ends):
            with _watched(model, cache) as with_cache:
                logits_V = model(ids_BT[:, start:end], cache)[0, -1]
            with _watched(model, None) as without:
                plain_V = model(ids_BT[:, :end])[0, -1]
            steps.append(
                Step(
                    tokens=(start, end),
                    written=tuple(with_cache["written"]),
                    read=tuple(with_cache["read"]),
                    computed=tuple(with_cache["computed"]),
                    again=tuple(without["computed"]),
                    held=cache.bytes()["total"],
                    agree=bool(logits_V.argmax() == plain_V.argmax()),
                )
            )
    shown = (label.replace("\n", "↵") for label in labels)
    return Trace(tuple(shown), len(cache.layers), tuple(steps))


@contextmanager
def _watched(model, cache):
    """Note what passes: positions into each layer's attention, rows in and out of each store."""
    seen = {"computed": [], "written": [], "read": []}
    hooks = [
        layer.attention.register_forward_pre_hook(
            lambda _, given: seen["computed"].append(given[0].shape[1])
        )
        for layer in model.layers
    ]
    stores = [] if cache is None else [kept.main for kept in cache.layers]
    for store in stores:
        store.extend = _noting(store, seen)
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
        for store in stores:
            del store.extend  # the method of the class is back


def _noting(store, seen):
    extend = store.extend

    def noting(new):
        before = store.length
        rows = extend(new)
        handed = next(iter(rows.values())).shape[1]
        seen["written"].append((before, store.length))
        seen["read"].append((store.length - handed, store.length))
        return rows

    return noting


# ---------------------------------------------------------------- what the reader sees


def look(trace: Trace, at: int, compare: bool = True) -> View:
    """The picture after step `at`; compare: with the decode that keeps nothing beside it."""
    step, past = trace.steps[at], trace.steps[: at + 1]
    new = [sum(s.computed) for s in past]
    again = [sum(s.again) for s in past]
    written = sum(b - a for a, b in step.written)
    old = sum(b - a for a, b in step.read) - written
    lines = [
        f"This step: {written} rows written, {old} older rows read and used again.",
        f"The cache holds {plot.bytes_text(step.held)}.",
    ]
    if compare:
        lines.append(f"Without a cache this step computes {again[-1]} rows, {sum(again)} so far.")
    panels = [_panel("with a cache", trace, step, _with_cache)]
    if compare:
        panels.append(_panel("without a cache", trace, step, _without))
    most = sum(sum(s.again if compare else s.computed) for s in trace.steps)
    totals = [("computed with a cache", sum(new))]
    if compare:
        totals.append(("computed without a cache", sum(again)))
    text = _so_far(trace, step)
    return View(
        number=f"{sum(new):,}",
        unit="key-value rows computed so far" + (f"; {sum(again):,} without" if compare else ""),
        lines=(f"Read so far: {text}", *lines),
        alt=f"A grid of {trace.layers} layers by {len(trace.labels)} tokens. " + " ".join(lines),
        say=f"{_name(trace, at)}: {lines[0]}",
        chart={
            "labels": list(trace.labels),
            "given": list(step.tokens),
            "panels": panels,
            "totals": [{"label": t, "text": f"{n:,}", "end": n / most} for t, n in totals],
        },
    )


def _so_far(trace: Trace, step: Step) -> str:
    start, end = step.tokens
    before = "".join(trace.labels[max(0, start - 12) : start])
    given = "".join(trace.labels[start:end])
    return f"{'…' if start > 12 else ''}{before}[{given}]"


def _name(trace: Trace, at: int) -> str:
    start, end = trace.steps[at].tokens
    if end - start > 1:
        return f"the prompt, {end - start} tokens"
    return f"token {end}, {trace.labels[start]!r}"


def _panel(title: str, trace: Trace, step: Step, kind) -> dict:
    """Cells by layer, the lowest layer last: one letter a cell, see the key of the chart."""
    width = len(trace.labels)
    rows = [kind(step, layer, width) for layer in reversed(range(trace.layers))]
    names = [f"layer {layer}" for layer in reversed(range(trace.layers))]
    counts = {"n": 0, "a": 0, "r": 0}
    for letter in "".join(rows):
        if letter in counts:
            counts[letter] += 1
    words = [f"{counts['n']} computed"]
    if counts["a"]:
        words.append(f"{counts['a']} computed again")
    if counts["r"]:
        words.append(f"{counts['r']} read")
    return {"title": title, "count": ", ".join(words), "rows": rows, "names": names}


def _with_cache(step: Step, layer: int, width: int) -> str:
    """n: computed and written now. r: written earlier, read now. k: kept, not read. .: not yet."""
    written, read = step.written[layer], step.read[layer]

    def letter(position: int) -> str:
        if written[0] <= position < written[1]:
            return "n"
        if read[0] <= position < read[1]:
            return "r"
        return "k" if position < written[0] else "."

    return "".join(letter(position) for position in range(width))


def _without(step: Step, layer: int, width: int) -> str:
    """n: computed for the first time. a: computed again. .: not yet."""
    start, end = step.tokens
    first = end - step.again[layer]
    cells = ("n" if p >= start else "a" for p in range(first, end))
    return "." * first + "".join(cells) + "." * (width - end)


def controls(trace: Trace) -> tuple[Control, ...]:
    at = tuple(range(len(trace.steps)))
    return (
        Control("step", "step", "range", at, tuple(_name(trace, i) for i in at)),
        Control(
            "compare",
            "also without a cache",
            "checkbox",
            (False, True),
            ("off", "on"),
            "the same tokens, and nothing kept between two of them",
        ),
    )


class XRay(Widget):
    """Play a recorded decode: `XRay(record(model, tokens, labels))`."""

    _esm = script("xray.js")

    def __init__(self, trace: Trace, step: int = 0):
        self._trace = trace
        super().__init__("Cache X-ray", controls(trace), {"step": step, "compare": True})

    def all_settings(self):
        steps = range(len(self._trace.steps))
        return [{"step": i, "compare": compare} for i in steps for compare in (False, True)]

    def look(self, settings: dict) -> View:
        return look(self._trace, settings["step"], settings["compare"])

    def draw(self, view: View):
        from .xray_picture import draw

        return draw(view)
