"""Named mistakes in exercise 12.2: rebuild the window."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def causal(count: int, window: int) -> torch.Tensor:
    return torch.ones(count, count, dtype=torch.bool).tril()


def banded(count: int, window: int) -> torch.Tensor:
    return causal(count, window) & ~torch.ones(count, count, dtype=torch.bool).tril(-window)


def answer(
    start: Callable = lambda length, window: max(0, length - window),
    mask: Callable = causal,
    collect: Callable = lambda rows, left, entered: rows,
    go_on: bool = True,
    order: int = 1,
    newest: bool = False,
) -> Callable:
    """Every choice open; the defaults make it right."""

    def rebuild_windows(x_PX, layers, window):
        x = x_PX[start(len(x_PX), window) :]
        visible, found = mask(len(x), window), []
        for layer in layers[::order]:
            rows, left = layer(x, visible)
            kept = collect(rows, left, x)
            found.append(kept[-window:] if newest else kept)
            x = left if go_on else x
        return found[::order]

    return rebuild_windows


def first_tokens(x_PX, layers, window):
    return answer()(x_PX[:window], layers, window)


def strictly_before(count: int, window: int) -> torch.Tensor:
    return torch.ones(count, count, dtype=torch.bool).tril(-1)


WINDOW = (
    Misconception(
        "all_tokens",
        "This runs the whole prefix. That is exact, and it is what the stored rows should save: "
        "only the last W tokens are run.",
        answer(start=lambda length, window: 0, mask=banded, newest=True),
    ),
    Misconception(
        "all_tokens_no_window",
        "This runs the whole prefix, and lets a token see farther back than its window.",
        answer(start=lambda length, window: 0, newest=True),
    ),
    Misconception(
        "everything_is_kept",
        "This keeps rows of the whole prefix. A window has the last W.",
        answer(start=lambda length, window: 0, mask=banded),
    ),
    Misconception(
        "first_tokens",
        "This runs the first W tokens. The window holds the newest ones.",
        first_tokens,
    ),
    Misconception(
        "one_too_few",
        "This runs W - 1 tokens. A window of W has W rows, the newest token's among them.",
        answer(start=lambda length, window: max(0, length - window + 1)),
    ),
    Misconception(
        "one_too_many",
        "This runs W + 1 tokens and gives W + 1 rows.",
        answer(start=lambda length, window: max(0, length - window - 1)),
    ),
    Misconception(
        "sees_the_future",
        "Every token sees all rows of the replay, later ones too.",
        answer(mask=lambda count, window: torch.ones(count, count, dtype=torch.bool)),
    ),
    Misconception(
        "not_itself",
        "A token does not see its own row here. It sees itself and those before it.",
        answer(mask=strictly_before),
    ),
    Misconception(
        "only_itself",
        "A token sees nothing but its own row here. Those before it in the replay are there too.",
        answer(mask=lambda count, window: torch.eye(count, dtype=torch.bool)),
    ),
    Misconception(
        "mask_transposed",
        "The mask is turned around: [t, s] says whether token t sees token s.",
        answer(mask=lambda count, window: causal(count, window).T),
    ),
    Misconception(
        "same_stream_everywhere",
        "Every layer gets what enters the first one. A layer reads what leaves the one before it.",
        answer(go_on=False),
    ),
    Misconception(
        "streams_kept",
        "This keeps the streams that leave the layers. The window holds the rows, the first of "
        "the pair.",
        answer(collect=lambda rows, left, entered: left),
    ),
    Misconception(
        "inputs_kept",
        "This keeps the streams that enter the layers. The window holds the rows that each layer "
        "makes of them.",
        answer(collect=lambda rows, left, entered: entered),
    ),
    Misconception(
        "newest_first",
        "The rows stand newest first. They should stand oldest first.",
        answer(collect=lambda rows, left, entered: rows.flip(0)),
    ),
    Misconception(
        "layers_backwards",
        "The layers are run from the last to the first.",
        answer(order=-1),
    ),
)
