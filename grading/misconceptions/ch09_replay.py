"""Named mistakes in exercise 09.3: a bounded replay."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def near(back_TT: torch.Tensor, window: int) -> torch.Tensor:
    return (back_TT >= 0) & (back_TT < window)


def newest(x_BTX: torch.Tensor, window: int, run: int) -> torch.Tensor:
    return x_BTX[:, -run:]


def answer(
    takes: Callable = newest,
    visible: Callable = near,
    order: Callable = lambda layers: layers,
    gives: Callable = lambda x_BTX: x_BTX[:, -1],
    chained: bool = True,
) -> Callable:
    """The replay with every choice open; the defaults make it right."""

    def bounded_replay(x_BTX, layers, window, run):
        x_BTX = first = takes(x_BTX, window, run)
        position = torch.arange(x_BTX.shape[1])
        seen_TT = visible(position[:, None] - position, window)
        for layer in order(layers):
            x_BTX = layer(x_BTX if chained else first, seen_TT)
        return gives(x_BTX)

    return bounded_replay


def sees_the_first(back_TT, window):
    seen = near(back_TT, window)
    seen[:, 0] = True
    return seen


def diagonal_too(back_TT, seen):
    return seen | (back_TT == 0)


def whole_first_layer(x_BTX, layers, window, run):
    """The first layer sees the whole prompt; the text is cut only then."""
    position = torch.arange(x_BTX.shape[1])
    x_BTX = layers[0](x_BTX, near(position[:, None] - position, window))
    if len(layers) == 1:
        return x_BTX[:, -1]
    return answer()(x_BTX, layers[1:], window, run)


def hidden_before(x_BTX, layers, window, run):
    """All tokens run; those before the replay see themselves and are seen by nobody else."""
    position = torch.arange(x_BTX.shape[1])
    back_TT = position[:, None] - position
    there_T = position >= len(position) - run
    for layer in layers:
        x_BTX = layer(x_BTX, diagonal_too(back_TT, near(back_TT, window) & there_T))
    return x_BTX[:, -1]


REPLAY = (
    Misconception(
        "whole_prompt",
        "The whole prompt is run, so `run` makes no difference. That is exact, and it is what a "
        "replay is to save.",
        answer(takes=lambda x, window, run: x),
    ),
    Misconception(
        "first_tokens",
        "The first `run` tokens of the prompt are run. It is the last ones: windows hold the "
        "newest tokens.",
        answer(takes=lambda x, window, run: x[:, :run]),
    ),
    Misconception(
        "always_a_window",
        "The last `window` tokens are run, whatever `run` says. They differ where more are run "
        "than a window holds.",
        answer(takes=lambda x, window, run: x[:, -window:]),
    ),
    Misconception(
        "one_short",
        "One token too few is run.",
        answer(takes=lambda x, window, run: x[:, max(0, x.shape[1] - run + 1) :]),
    ),
    Misconception(
        "one_more",
        "One token too many is run.",
        answer(takes=lambda x, window, run: x[:, -run - 1 :]),
    ),
    Misconception(
        "last_left_out",
        "The prompt's last token is left out of the run.",
        answer(takes=lambda x, window, run: x[:, -run - 1 : -1]),
    ),
    Misconception(
        "no_window",
        "A token sees all tokens before it that were run. It sees window - 1 of them at most.",
        answer(visible=lambda back, window: back >= 0),
    ),
    Misconception(
        "wide_window",
        "A token sees `window` tokens before itself. Itself among them there are `window`, so "
        "window - 1 before it.",
        answer(visible=lambda back, window: (back >= 0) & (back <= window)),
    ),
    Misconception(
        "narrow_window",
        "A token sees one token too few: itself and window - 1 before it.",
        answer(visible=lambda back, window: diagonal_too(back, near(back, window - 1))),
    ),
    Misconception(
        "sees_ahead",
        "A token sees tokens that come after it.",
        answer(visible=lambda back, window: back.abs() < window),
    ),
    Misconception(
        "everything_visible",
        "Every token sees every other. It sees itself and the window - 1 before it.",
        answer(visible=lambda back, window: torch.ones_like(back, dtype=torch.bool)),
    ),
    Misconception(
        "upside_down",
        "The last token sees only itself. visible_TT[i, j] says whether i looks at j, and j comes "
        "before i; perhaps rows and columns of the mask are swapped.",
        answer(visible=lambda back, window: near(-back, window)),
    ),
    Misconception(
        "sees_the_first",
        "Every token also sees the first one that was run. Only its window is visible.",
        answer(visible=sees_the_first),
    ),
    Misconception(
        "first_layer_whole",
        "The first layer runs the whole prompt, and the text is cut only after it. The decoder "
        "does not run what is before the replay at all.",
        whole_first_layer,
    ),
    Misconception(
        "hidden_not_left_out",
        "The last token is right, but the whole prompt went through the layers, with what lies "
        "before the replay hidden. It is to be left out: that is the work a replay saves.",
        hidden_before,
    ),
    Misconception(
        "nothing_visible",
        "Some token sees nothing at all, so the stream became NaN. visible_TT is True where a "
        "token may look; perhaps True and False are swapped.",
        answer(visible=lambda back, window: ~near(back, window)),
    ),
    Misconception(
        "layers_reversed",
        "The layers run in the wrong order: the first in the list comes first.",
        answer(order=lambda layers: layers[::-1]),
    ),
    Misconception(
        "not_chained",
        "Each layer gets the stream that left the encoder. It gets what the layer before gave.",
        answer(chained=False),
    ),
    Misconception(
        "one_layer",
        "Only the first layer is run.",
        answer(order=lambda layers: layers[:1]),
    ),
    Misconception(
        "first_given",
        "The stream of the first token that was run is given; asked is the last one's.",
        answer(gives=lambda x_BTX: x_BTX[:, 0]),
    ),
    Misconception(
        "all_given",
        "All tokens that were run are given. Asked is the last one: [:, -1].",
        answer(gives=lambda x_BTX: x_BTX),
    ),
    Misconception(
        "mean_given",
        "The mean of all tokens is given. Asked is the last one.",
        answer(gives=lambda x_BTX: x_BTX.mean(1)),
    ),
)
