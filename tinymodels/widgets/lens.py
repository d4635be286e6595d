"""The logit lens over layers and positions: what a model would say if it stopped right there.

`lens_reading` runs a model once over a text and notes, for every token and after every layer,
the likeliest words, how undecided the guess is, and the rank of what the model says in the end.
The widget only shows what was noted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .base import Control, View, Widget, script

TOP = 5
Pieces = Callable[[list[int]], list[str]]


@dataclass(frozen=True)
class Guess:
    """One cell. best: the likeliest words with their probabilities. rank: the place of the
    model's final word in this guess. undecided: the guess's entropy in bits."""

    best: tuple[tuple[str, float], ...]
    rank: int
    undecided: float


@dataclass(frozen=True)
class Reading:
    """A text, seen through the lens. guesses[t][0] is made from the embedding of token t alone,
    guesses[t][i] after i layers, the last one by the whole model."""

    labels: tuple[str, ...]
    guesses: tuple[tuple[Guess, ...], ...]

    @property
    def layers(self) -> int:
        return len(self.guesses[0]) - 1


def lens_reading(model, ids: Sequence[int], pieces: Pieces | None = None) -> Reading:
    """Read a text of one token or more. Errors: ValueError for an empty one."""
    import torch

    from .. import lens

    ids = [int(token) for token in ids]
    if not ids:
        raise ValueError("ids is empty; give at least one token")
    logits_LTV = lens.guesses(model, torch.tensor([ids], device=model.device))[:, 0]
    final_T = logits_LTV[-1].argmax(-1)
    rank_LT = lens.rank(logits_LTV, final_T.expand(len(logits_LTV), -1)).tolist()
    bits_LT = lens.entropy(logits_LTV).tolist()
    share_LTk, token_LTk = logits_LTV.softmax(-1).topk(TOP)
    name = _names(pieces)
    labels = name(ids)

    def guess(layer: int, t: int) -> Guess:
        words, shares = name(token_LTk[layer, t].tolist()), share_LTk[layer, t].tolist()
        return Guess(tuple(zip(words, shares)), rank_LT[layer][t], bits_LT[layer][t])

    rows = (tuple(guess(i, t) for i in range(len(rank_LT))) for t in range(len(ids)))
    return Reading(tuple(labels), tuple(rows))


def _names(pieces: Pieces | None) -> Callable[[list[int]], list[str]]:
    """Tokens as one sees them: words bare, a space and a line's end as signs."""
    from ..tokenizer import BOS, VOCABULARY
    from ..tokenizer import pieces as course

    def words(ids: list[int]) -> list[str]:
        if pieces is not None:
            return pieces(ids)
        return [course([i if i < VOCABULARY else BOS])[0] for i in ids]

    return lambda ids: [word.replace("\n", "↵").strip(" ") or "␣" for word in words(ids)]


# ---------------------------------------------------------------- what the reader sees


def state(layer: int) -> str:
    return "from the embedding" if layer == 0 else f"after layer {layer - 1}"


def look(reading: Reading, token: int, layer: int) -> View:
    """The guess after `layer` layers (0: none) at one token, among all the others."""
    here = reading.guesses[token][layer]
    final = reading.guesses[token][-1].best[0][0]
    first, share = here.best[0]
    alike = 2**here.undecided
    told = " ".join(reading.labels[max(0, token - 11) : token + 1])
    right = "the same as in the end" if first == final else f"in the end it is “{final}”"
    lines = (
        f"Read so far: {'… ' if token > 11 else ''}{told}",
        f"First guess {state(layer)}: “{first}”, {share:.0%}; {right}.",
        f"As undecided as between {alike:,.1f} words ({here.undecided + 0.0:.2f} bits).",
    )
    ranks = ", ".join(f"{guess.rank:,}" for guess in reading.guesses[token])
    return View(
        number=f"rank {here.rank:,}",
        unit=f"for “{final}”, the model’s own next word · {state(layer)}",
        lines=lines,
        alt=(
            f"A grid of {len(reading.labels)} tokens by {reading.layers + 1} depths, the likeliest"
            f" next word in each cell. At “{reading.labels[token]}” the final word has the ranks"
            f" {ranks}, from the embedding up."
        ),
        say=f"{state(layer)}: “{first}”, {share:.0%}, rank {here.rank:,} for “{final}”.",
        chart={
            "columns": ["embedding", *(f"layer {i}" for i in range(reading.layers))],
            "rows": [_row(reading, t) for t in range(len(reading.labels))],
            "here": [token, layer],
            "guesses": [
                {"label": word, "text": f"{p:.1%}", "end": min(1.0, p)} for word, p in here.best
            ],
        },
    )


def _row(reading: Reading, token: int) -> dict:
    guesses = reading.guesses[token]
    final = guesses[-1].best[0][0]
    cells = [
        {"text": g.best[0][0], "share": round(g.best[0][1], 3), "final": g.best[0][0] == final}
        for g in guesses
    ]
    return {"label": reading.labels[token], "cells": cells}


def controls(readings: Sequence[Reading]) -> tuple[Control, ...]:
    longest = max(len(reading.labels) for reading in readings)
    at, depth = tuple(range(-longest, 0)), tuple(range(readings[0].layers + 1))
    ends = tuple(f"{-1 - i} before the last" if i < -1 else "the last" for i in at)
    names = tuple(" ".join(reading.labels[-8:]) for reading in readings)
    return (
        Control("text", "text ends", "select", tuple(range(len(readings))), names),
        Control("token", "token", "range", at, ends),
        Control("layer", "the guess", "range", depth, tuple(map(state, depth))),
    )


class LogitLens(Widget):
    """Look into a model at any token, after any layer. readings: one a text, of one model."""

    _esm = script("lens.js")

    def __init__(self, readings: Sequence[Reading]):
        self._readings = tuple(readings)
        if not self._readings:
            raise ValueError("readings is empty; give at least one, from lens_reading(...)")
        if len({reading.layers for reading in self._readings}) > 1:
            raise ValueError("the readings have different numbers of layers; take one model")
        start = {"text": 0, "token": -1, "layer": self._readings[0].layers // 2}
        super().__init__("Logit lens", controls(self._readings), start)

    def settle(self, settings: dict, changed: str | None = None) -> dict:
        """Tokens are counted from the end (-1), because a shorter text has fewer of them."""
        settings = super().settle(settings)
        first = -len(self._readings[settings["text"]].labels)
        return {**settings, "token": -1 if changed == "text" else max(settings["token"], first)}

    def look(self, settings: dict) -> View:
        reading = self._readings[settings["text"]]
        return look(reading, len(reading.labels) + settings["token"], settings["layer"])

    def draw(self, view: View):
        from .lens_picture import draw

        return draw(view)
