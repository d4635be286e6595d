"""Named mistakes in exercises 09.2 and 09.4: who runs, and what is exact."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def table(
    first: Callable = lambda prompt, window: max(0, prompt - window),
    end: Callable = lambda prompt, written: prompt + written,
    encoder_end: Callable = lambda prompt, written: prompt + written,
    edge: int = 0,
) -> Callable:
    """The table with every choice open; the defaults make it right."""

    def who_runs(prompt, written, layers, encoder, window):
        made = torch.zeros(layers, prompt + written, dtype=torch.bool)
        made[: encoder + edge, : encoder_end(prompt, written)] = True
        made[encoder + edge :, first(prompt, window) : end(prompt, written)] = True
        return made

    return who_runs


def first_window(prompt, written, layers, encoder, window):
    made = torch.zeros(layers, prompt + written, dtype=torch.bool)
    made[:encoder] = True
    made[encoder:, : min(window, prompt)] = True
    made[encoder:, prompt:] = True
    return made


def window_of_all(prompt, written, layers, encoder, window):
    return table(first=lambda p, w: max(0, prompt + written - window))(
        prompt, written, layers, encoder, window
    )


def upside_down(prompt, written, layers, encoder, window):
    right = table()(prompt, written, layers, layers - encoder, window)
    return right.flip(0)


RUNS = (
    Misconception(
        "all_run",
        "Every layer runs every token. That is what CED saves: the decoder does not run the "
        "prompt, but for its last `window` tokens.",
        table(first=lambda prompt, window: 0),
    ),
    Misconception(
        "no_replay",
        "The decoder runs nothing of the prompt. Its far memory would be there, but its windows "
        "would be empty: the last `window` tokens of the prompt go through it.",
        table(first=lambda prompt, window: prompt),
    ),
    Misconception(
        "first_tokens",
        "The decoder runs the prompt's first tokens. Its windows hold the newest ones, so it is "
        "the last.",
        first_window,
    ),
    Misconception(
        "one_short",
        "The decoder runs one token of the prompt too few: the last `window` of them.",
        table(first=lambda prompt, window: max(0, prompt - window + 1)),
    ),
    Misconception(
        "one_more",
        "The decoder runs one token of the prompt too many: the last `window` of them.",
        table(first=lambda prompt, window: max(0, prompt - window - 1)),
    ),
    Misconception(
        "only_the_last",
        "The decoder runs only the last token of the prompt. Its windows need the last `window`.",
        table(first=lambda prompt, window: prompt - 1),
    ),
    Misconception(
        "negative_start",
        "With a prompt shorter than the window, prompt - window is below zero, and Python counts "
        "it from the end. The replay begins at 0 then.",
        table(first=lambda prompt, window: prompt - window),
    ),
    Misconception(
        "window_of_all",
        "The last `window` tokens are counted from the end of what is written. The replay comes "
        "before the first word, and counts from the end of the prompt.",
        window_of_all,
    ),
    Misconception(
        "decoder_writes_nothing",
        "The decoder does not run what is written. It is the decoder that writes: every written "
        "token goes through all layers.",
        table(end=lambda prompt, written: prompt),
    ),
    Misconception(
        "encoder_stops",
        "The encoder stops after the prompt. A written token goes through all layers, the encoder "
        "first: its rows are far memory too.",
        table(encoder_end=lambda prompt, written: prompt),
    ),
    Misconception(
        "words_missing",
        "Written tokens go through no layer here. They go through all.",
        table(
            end=lambda prompt, written: prompt,
            encoder_end=lambda prompt, written: prompt,
        ),
    ),
    Misconception(
        "one_layer_more",
        "Layer `encoder` runs the whole prompt. Layers count from 0, so it is the decoder's first.",
        table(edge=1),
    ),
    Misconception(
        "one_layer_less",
        "Layer encoder - 1 does not run the whole prompt. It is the encoder's last.",
        table(edge=-1),
    ),
    Misconception(
        "upside_down",
        "The table stands on its head: row 0 is layer 0, and the encoder comes first.",
        upside_down,
    ),
)

# ---------------------------------------------------------------- 09.4


def counted(
    run: Callable = lambda p, w, n: min(p, n * (w - 1) + 1),
    exact: Callable = lambda p, w, n: min(p, n * (w - 1) + 1) <= w,
    words: Callable = lambda p, w, n: (n - 1) * (w - 1),
    always: bool = False,
) -> Callable:
    def exactness(prompt, window, layers):
        given = prompt, window, layers
        right = min(prompt, layers * (window - 1) + 1) <= window
        later = 0 if right and not always else words(*given)
        return run(*given), exact(*given), later

    return exactness


EXACTNESS = (
    Misconception(
        "windows_side_by_side",
        "layers x window tokens are run. A window has the token itself in it, so each layer looks "
        "only window - 1 back.",
        counted(run=lambda p, w, n: min(p, n * w)),
    ),
    Misconception(
        "both_one_too_wide",
        "layers x window tokens are run, and layers x (window - 1) words waited for. A window has "
        "the token itself in it, so each layer looks window - 1 back; and the lowest layer is "
        "right from the start, so one layer less has to be waited for.",
        counted(run=lambda p, w, n: min(p, n * w), words=lambda p, w, n: n * (w - 1)),
    ),
    Misconception(
        "last_forgotten",
        "layers x (window - 1) tokens are run. That is how far the last one looks back; it has "
        "to be run itself, too.",
        counted(run=lambda p, w, n: min(p, n * (w - 1))),
    ),
    Misconception(
        "one_layer_short",
        "The reach of one layer is missing: each of the layers looks back window - 1 tokens.",
        counted(run=lambda p, w, n: min(p, (n - 1) * (w - 1) + 1)),
    ),
    Misconception(
        "one_window",
        "One window of tokens is not enough: what the last token sees has looked back itself, in "
        "the layer below.",
        counted(run=lambda p, w, n: min(p, w)),
    ),
    Misconception(
        "whole_prompt",
        "The whole prompt is always enough, but seldom needed: windows reach back layers x (window "
        "- 1) tokens, and no further.",
        counted(run=lambda p, w, n: p),
    ),
    Misconception(
        "more_than_there_are",
        "More tokens are run than the prompt has.",
        counted(run=lambda p, w, n: n * (w - 1) + 1),
    ),
    Misconception(
        "windows_multiplied",
        "The windows are multiplied with each other. Reaches add up, layer by layer.",
        counted(run=lambda p, w, n: min(p, w**n)),
    ),
    Misconception(
        "exact_below_only",
        "A prompt of just `window` tokens is run whole by the bounded replay. It is exact then.",
        counted(exact=lambda p, w, n: n == 1 or p < w),
    ),
    Misconception(
        "never_exact",
        "The bounded replay is called inexact always. A prompt no longer than the window is run "
        "whole.",
        counted(exact=lambda p, w, n: False),
    ),
    Misconception(
        "always_exact",
        "The bounded replay is called exact always. In a longer prompt its first tokens do not see "
        "what was before them.",
        counted(exact=lambda p, w, n: True),
    ),
    Misconception(
        "one_layer_forgotten",
        "A decoder of one layer looks back once: the last `window` tokens are all that its last "
        "token sees, so the replay is exact for any prompt.",
        counted(exact=lambda p, w, n: p <= w),
    ),
    Misconception(
        "reach_for_window",
        "Exact is compared with the reach of all layers. The bounded replay runs only one window.",
        counted(exact=lambda p, w, n: p <= n * (w - 1) + 1),
    ),
    Misconception(
        "all_layers_fade",
        "layers x (window - 1) written tokens are one layer too many: the first layer's rows come "
        "from the encoder's exact stream, so they are right from the start.",
        counted(words=lambda p, w, n: n * (w - 1)),
    ),
    Misconception(
        "one_window_fades",
        "After one window the wrong rows have left, but rows made while they were seen are wrong "
        "as well, in each layer above.",
        counted(words=lambda p, w, n: w),
    ),
    Misconception(
        "whole_windows_fade",
        "(layers - 1) x window is too many: the newest of a window is the token itself.",
        counted(words=lambda p, w, n: (n - 1) * w),
    ),
    Misconception(
        "one_word_more",
        "One token too many: the prompt's last token counts as 0 written ones.",
        counted(words=lambda p, w, n: (n - 1) * (w - 1) + 1),
    ),
    Misconception(
        "gone_at_once",
        "The first written token still sees, in its windows, rows that were made without what was "
        "before them.",
        counted(words=lambda p, w, n: 0),
    ),
    Misconception(
        "fades_from_nothing",
        "Where the replay is exact, nothing has to fade: 0 tokens.",
        counted(always=True),
    ),
)
