"""The cache X-ray: what a decode writes and reads, row by row, with a cache and without one.

`record` lets a model write, twice at every step, and notes what really happened: which rows each
layer stored, which rows its attention was handed, and at how many positions each layer computed
keys and values. The widget only plays that trace back.
"""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import plot
from .base import Control, View, Widget, script

if TYPE_CHECKING:  # a trace can be shown without torch
    from ..transformer import Transformer

Span = tuple[int, int]  # positions: the first, and one past the last
Pieces = Callable[[list[int]], list[str]]  # token ids -> what each is called


@dataclass(frozen=True)
class Step:
    """One call of the model: `tokens` are the positions given to it.

    written, read: a span of rows for each layer, from its cache. computed, again: positions at
    which each layer made keys and values, with the cache and without one. held: bytes in the
    cache afterwards. chosen: the likeliest next token, with the cache and without one.
    """

    tokens: Span
    written: tuple[Span, ...]
    read: tuple[Span, ...]
    computed: tuple[int, ...]
    again: tuple[int, ...]
    held: int
    chosen: tuple[str, str]


@dataclass(frozen=True)
class Trace:
    """A recorded decode: what each token in the cache is called, and the steps."""

    labels: tuple[str, ...]
    layers: int
    steps: tuple[Step, ...]


def record(
    model: "Transformer", prompt: Sequence[int], new: int = 12, pieces: Pieces | None = None
) -> Trace:
    """Let `model` read `prompt` at once and write `new` tokens, the likeliest each time.

    pieces: says what tokens are called; the course's tokenizer where it is None. Raises
    ValueError for an empty prompt, fewer than one new token, and a model whose layers do not
    keep one row a token each.
    """
    import torch

    tokens = [int(token) for token in prompt]
    if not tokens:
        raise ValueError("prompt is empty; give at least one token")
    if new < 1:
        raise ValueError(f"new is {new}; it is the number of tokens to write, 1 or more")
    cache = model.new_cache(1, len(tokens) + new - 1)
    for layer, kept in enumerate(cache.layers):
        if kept.main is None or kept.plan.main.ratio != 1:
            raise ValueError(f"layer {layer} keeps no row for each token; the X-ray shows those")
    seen, chosen, start = [], [], 0
    with torch.no_grad():
        for _ in range(new):
            end = len(tokens)
            ids_BT = torch.tensor([tokens], device=model.device)
            with _watched(model, cache) as kept:
                with_cache = int(model(ids_BT[:, start:], cache)[0, -1].argmax())
            with _watched(model, None) as afresh:
                without = int(model(ids_BT)[0, -1].argmax())
            seen.append(((start, end), kept, afresh["computed"], cache.bytes()["total"]))
            chosen.append((with_cache, without))
            tokens.append(with_cache)
            start = end
    return _trace(tokens[:-1], seen, chosen, pieces)


def _trace(tokens: list[int], seen: list, chosen: list, pieces: Pieces | None) -> Trace:
    pieces = pieces or _course_pieces

    def named(ids: list[int]) -> tuple[str, ...]:
        return tuple(label.replace("\n", "↵") for label in pieces(ids))

    steps = []
    for (span, kept, again, held), both in zip(seen, chosen):
        ours, theirs = (named([*tokens[: span[1]], token])[-1] for token in both)
        wrote, read, computed = (tuple(kept[what]) for what in ("written", "read", "computed"))
        steps.append(Step(span, wrote, read, computed, tuple(again), held, (ours, theirs)))
    return Trace(named(tokens), len(seen[0][2]), tuple(steps))


def _course_pieces(ids: list[int]) -> list[str]:
    """The course's tokenizer; an untrained model may choose numbers that it has no word for."""
    from ..tokenizer import BOS, VOCABULARY, pieces

    words = pieces([token if token < VOCABULARY else BOS for token in ids])
    return [word if token < VOCABULARY else f"#{token}" for token, word in zip(ids, words)]


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
    lines.append(_choice(step, compare))
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


def _choice(step: Step, compare: bool) -> str:
    with_cache, without = step.chosen
    if not compare:
        return f"Next token: {with_cache!r}."
    if with_cache == without:
        return f"Next token, either way: {with_cache!r}."
    return (
        f"Next token: {with_cache!r}, without a cache {without!r};"
        " rows are rounded to 16 bits when they are stored."
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
    """Play a recorded decode."""

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


def xray(trace: Trace, step: int = 0) -> XRay:
    """The X-ray of a recorded decode: `xray(record(model, prompt, new=12))`."""
    return XRay(trace, step)
