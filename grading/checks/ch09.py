"""Chapter 09: CED. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from grading.checks.ch09_exact import EXACT
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch09_replay import REPLAY
from grading.misconceptions.ch09_rows import ROWS
from grading.misconceptions.ch09_runs import RUNS
from grading.references import ch09 as reference

NOTEBOOK = "09__ced"

# ---------------------------------------------------------------- 09.1

FROM_START = "a text from its first token"
LATER = "a later chunk"
MAKES = ("stream", "encoder", "kv", "norm", "rope", "start", "eps")


def row_cases(draw: Draw) -> tuple[Case, ...]:
    """From position 0, a later chunk, a single token. eps is large enough to be missed."""
    width, tokens, start = draw.sizes(3)
    dim = (14, 15, 17)[draw.integer(0, 2)]
    rope = 6
    encoder = draw.integer(3, 4)
    decoder = next(n for n in (3, 6, 7, 9) if not {n, encoder + n} & {width, tokens, 8, 16})
    batch = 2
    cases = []
    for part, more, at in ((FROM_START, tokens, 0), (LATER, tokens, start + 20), (LATER, 1, start)):
        inputs = {
            "stream": draw.normal(encoder + decoder, batch, more, width),
            "encoder": encoder,
            "kv": draw.normal(decoder, dim, width, scale=0.4),
            "norm": 1 + draw.normal(decoder, dim, scale=0.4),
            "rope": rope,
            "start": at,
            "eps": 0.07,
        }
        says = (
            f"L={encoder + decoder}, encoder={encoder}, B={batch}, T={more}, D={dim}, "
            f"rope={rope}, X={width}, start={at}"
        )
        cases.append(Case(part, says, inputs))
    return tuple(cases)


DECODER_ROWS = Exercise(
    id="09.1",
    title="The decoder's far memory",
    notebook=NOTEBOOK,
    parts=(Part(FROM_START, 2), Part(LATER, 2)),
    cases=row_cases,
    run=lambda answer, inputs: {"rows": answer(*(inputs[name] for name in MAKES))},
    expected=lambda inputs: {
        "rows": Expected(reference.decoder_rows(*(inputs[name] for name in MAKES)), "LBTD")
    },
    hints=(
        tied(
            "x_BTX = stream_LBTX[encoder - 1] is what leaves the encoder. Every decoder layer uses "
            "it.",
            "own_stream", "own_output", "last_state", "one_late", "one_early", "first_state",
            "same_layer_below", "one_matrix",
        ),
        tied(
            "row = x_BTX @ kv_EDX[e].T; then row / (row.square().mean(-1, keepdim=True) + "
            "eps).sqrt() * norm_ED[e].",
            "no_norm", "no_norm_weight", "no_eps", "eps_outside", "sum_for_mean",
            "norm_over_tokens", FROM_START,
        ),
        tied(
            "row[..., -rope:] are the numbers that turn: rotate(row[..., -rope:], Rope(rope), "
            "positions).",
            "not_turned", "head_turned", "all_turned", "turned_back", "turned_before_norm",
        ),
        tied(
            "positions = torch.arange(start, start + T). torch.cat puts both pieces of a row "
            "together, torch.stack the layers.",
            "from_zero", "one_place_late", LATER,
        ),
    ),
    misconceptions=ROWS,
)  # fmt: skip

# ---------------------------------------------------------------- 09.2

LONG = "a prompt longer than the window"
SHORT = "a prompt that the window holds"
WHO = ("prompt", "written", "layers", "encoder", "window")


def run_cases(draw: Draw) -> tuple[Case, ...]:
    """Far longer than the window, by one token, as long, shorter; something is written, or not."""
    window, encoder, decoder = draw.sizes(3)
    written = draw.integer(2, 6)
    lengths = (
        (LONG, 3 * window + 2, written),
        (LONG, window + 1, written + 1),
        (LONG, 2 * window + 5, 0),
        (SHORT, window, written),
        (SHORT, window - 2, written + window),
    )
    cases = []
    for part, prompt, more in lengths:
        values = prompt, more, encoder + decoder, encoder, window
        says = ", ".join(f"{name} {value}" for name, value in zip(WHO, values))
        cases.append(Case(part, says, dict(zip(WHO, values))))
    return tuple(cases)


def run_table(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """True and False count as 1 and 0, also where they are written so, 1.0 and 0.0 too."""
    table = answer(*(inputs[name] for name in WHO))
    if isinstance(table, torch.Tensor) and bool(((table == 0) | (table == 1)).all()):
        table = table.long()
    return {"table": table}


WHO_RUNS = Exercise(
    id="09.2",
    title="Which tokens the decoder runs",
    notebook=NOTEBOOK,
    parts=(Part(LONG, 2), Part(SHORT, 1)),
    cases=run_cases,
    run=run_table,
    expected=lambda inputs: {
        "table": Expected(
            reference.who_runs(*(inputs[name] for name in WHO)), "LT", kind="integer"
        )
    },
    hints=(
        tied(
            "Begin with torch.zeros(layers, prompt + written, dtype=torch.bool). Rows 0 to encoder "
            "- 1 are True everywhere: table[:encoder] = True.",
            "encoder_stops", "one_layer_more", "one_layer_less", "upside_down", "words_missing",
        ),
        tied(
            "The decoder's rows are True from some token on, to the end. Which is the first? The "
            "prompt's last `window` tokens begin at prompt - window.",
            "all_run", "no_replay", "first_tokens", "one_short", "one_more", "only_the_last",
            "window_of_all", "decoder_writes_nothing", LONG,
        ),
        tied("max(0, prompt - window), for short prompts.", "negative_start", SHORT),
    ),
    misconceptions=RUNS,
)  # fmt: skip

# ---------------------------------------------------------------- 09.3

BOUNDED = "a window or less of a longer prompt"
MORE = "more than a window"
WHOLE = "a prompt shorter than the run"
RUN = "tokens that went through layers"


def replay_cases(draw: Draw) -> tuple[Case, ...]:
    """A window, less, more than a window, all that windows reach, and a prompt that is shorter."""
    window, width = (5, 6, 7)[draw.integer(0, 2)], (9, 10, 12)[draw.integer(0, 2)]
    layers, batch = 3, draw.integer(2, 3)
    reach = layers * (window - 1) + 1
    lengths = (
        (BOUNDED, 3 * window + 4, window),
        (BOUNDED, 2 * window + 3, window - 2),
        (MORE, reach + 9, window + 4),
        (MORE, reach + 7, reach),
        (WHOLE, 2 * window + 1, 3 * window),
    )
    cases = []
    for part, tokens, run in lengths:
        inputs = {
            "x": draw.normal(batch, tokens, width),
            "down": draw.normal(layers, 5, width, scale=0.56),
            "up": draw.normal(layers, width, 5, scale=0.56),
            "window": window,
            "run": run,
        }
        says = f"B={batch}, T={tokens}, X={width}, {layers} layers, window={window}, run={run}"
        cases.append(Case(part, says, inputs))
    return tuple(cases)


def layer_of(weight_XX):
    """A layer without parameters of its own: each token adds a mix of those it sees."""

    def layer(x_BTX, visible_TT):
        weight_XX_ = weight_XX.to(x_BTX.dtype)
        score_BTT = x_BTX @ x_BTX.mT / x_BTX.shape[-1]
        share_BTT = score_BTT.masked_fill(~visible_TT, -float("inf")).softmax(-1)
        return x_BTX + torch.tanh(share_BTT @ x_BTX @ weight_XX_.T)

    return layer


def squares(inputs: Mapping[str, Any]) -> Any:
    """Each layer's matrix, made of two so that no drawn tensor has two axes of one size."""
    return inputs["up"] @ inputs["down"]


def run_replay(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The answer on layers that count the tokens they are given."""
    given = []

    def counted(layer):
        def run(x_BTX, visible_TT):
            given.append(x_BTX[..., 0].numel())
            return layer(x_BTX, visible_TT)

        return run

    layers = [counted(layer_of(weight_XX)) for weight_XX in squares(inputs)]
    stream = answer(inputs["x"], layers, inputs["window"], inputs["run"])
    return {"stream": stream, RUN: sum(given)}


def expected_replay(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    weights = squares(inputs)
    last = reference.bounded_replay(inputs["x"], weights, inputs["window"], inputs["run"])
    batch, tokens, _ = inputs["x"].shape
    enough = len(weights) * batch * min(tokens, inputs["run"])
    return {
        "stream": Expected(np.asarray(last), "BX"),
        RUN: Expected(
            np.array(float(enough)), kind="cost",
            too_much="tokens went through the decoder that the replay leaves out",
        ),
    }  # fmt: skip


BOUNDED_REPLAY = Exercise(
    id="09.3",
    title="Bounded replay",
    notebook=NOTEBOOK,
    parts=(Part(BOUNDED, 1), Part(MORE, 2), Part(WHOLE, 1)),
    cases=replay_cases,
    run=run_replay,
    expected=expected_replay,
    hints=(
        tied(
            "x_BTX[:, -run:] are the last tokens; where there are fewer it takes all.",
            "whole_prompt", "first_tokens", "always_a_window", "one_short", "one_more",
            "last_left_out", "first_layer_whole", "hidden_not_left_out", BOUNDED, WHOLE,
        ),
        tied(
            "position[:, None] - position says how far back j lies from i. Visible are 0 to "
            "window - 1.",
            "no_window", "wide_window", "narrow_window", "sees_ahead", "everything_visible",
            "upside_down", "sees_the_first", "nothing_visible", MORE,
        ),
        tied(
            "for layer in layers: x_BTX = layer(x_BTX, visible_TT). At the end x_BTX[:, -1].",
            "layers_reversed", "not_chained", "one_layer", "first_given", "all_given",
            "mean_given", "shape",
        ),
    ),
    misconceptions=REPLAY,
)  # fmt: skip


def _fit_who_runs(mine):
    """The exercise has the signature of the part: Parts.who_runs."""
    return mine


PARTS = {"09.2": ("who_runs", _fit_who_runs)}

_EITHER_ORDER = "the larger, or the smaller, of two, in either order"
EQUIVALENT: dict[str, dict[str, str]] = {
    "09.2": {"max(0, prompt - window)  ->  max(prompt - window, 0)": _EITHER_ORDER},
    "09.4": {
        "min(prompt, layers * (window - 1) + 1)  ->  "
        "min(layers * (window - 1) + 1, prompt)": _EITHER_ORDER
    },
}

EXERCISES = (DECODER_ROWS, WHO_RUNS, BOUNDED_REPLAY, EXACT)
