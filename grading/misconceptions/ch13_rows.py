"""Named mistakes in exercises 13.4 and 13.5: the window, the scale."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def window(
    sees: Callable = lambda distance, size: (distance >= 0) & (distance < size),
    kept: Callable = lambda rows, size: rows[:, -size:],
    read: Callable = lambda rows, size, new: rows,
    first: Callable = lambda S, T: S - T,
) -> type:
    """13.4 with every choice open; the defaults make it right."""

    class Window:
        def __init__(self, size):
            self.size, self.kept = size, None

        def append(self, row_BTD):
            old = row_BTD[:, :0] if self.kept is None else self.kept
            rows = torch.cat([old, row_BTD], 1)
            T = row_BTD.shape[1]
            self.kept = kept(rows, self.size)
            rows = read(rows, self.size, T)
            S = rows.shape[1]
            at = torch.arange(T) + first(S, T)
            return rows, sees(at[:, None] - torch.arange(S), self.size)

    return Window


WINDOW = (
    Misconception(
        "as_it_was",
        "This is still the fault: each token sees itself and `size` tokens before it, one too "
        "many. A distance of `size` is outside.",
        window(sees=lambda d, size: (d >= 0) & (d <= size)),
    ),
    Misconception(
        "one_too_few",
        "Each token sees one row too few: itself and `size - 1` tokens before it make `size`.",
        window(sees=lambda d, size: (d >= 0) & (d < size - 1)),
    ),
    Misconception(
        "not_itself",
        "A token does not see itself. The window ends with it.",
        window(sees=lambda d, size: (d > 0) & (d < size)),
    ),
    Misconception(
        "not_itself_but_one_more",
        "The window is as wide as it should be, but it ends before the token itself.",
        window(sees=lambda d, size: (d > 0) & (d <= size)),
    ),
    Misconception(
        "sees_the_future",
        "Within a chunk, tokens see those that come after them.",
        window(sees=lambda d, size: d < size),
    ),
    Misconception(
        "no_window",
        "Tokens see everything that came before, kept rows and chunk, however far back.",
        window(sees=lambda d, size: d >= 0),
    ),
    Misconception(
        "keeps_one_more",
        "One row more than `size` is kept. It costs memory, and nobody may read it.",
        window(kept=lambda rows, size: rows[:, -size - 1 :]),
    ),
    Misconception(
        "keeps_all",
        "All rows are kept, and the memory grows with the text. Keep the newest `size`.",
        window(kept=lambda rows, size: rows),
    ),
    Misconception(
        "keeps_one_less",
        "`size - 1` rows are kept. That is all the next token needs, but this cache is to keep "
        "`size`.",
        window(kept=lambda rows, size: rows[:, rows.shape[1] - min(size - 1, rows.shape[1]) :]),
    ),
    Misconception(
        "keeps_the_oldest",
        "The oldest `size` rows are kept instead of the newest.",
        window(kept=lambda rows, size: rows[:, :size]),
    ),
    Misconception(
        "cut_too_soon",
        "Rows are cut to `size` before the chunk has read them: its first tokens need rows that "
        "its last ones push out.",
        window(read=lambda rows, size, new: rows[:, -max(size, new) :]),
    ),
    Misconception(
        "counts_from_the_chunk",
        "The new tokens stand behind the kept rows: token t of the chunk is row S - T + t.",
        window(first=lambda S, T: 0),
    ),
)


def bits(
    largest: Callable = lambda block: block.abs().amax(-1),
    most: float = 127,
    cut: Callable = torch.round,
    blocks: Callable = lambda row, size: row.unflatten(-1, (-1, size)),
    join: Callable = lambda code: code.flatten(-2),
    inverse: bool = False,
) -> type:
    """13.5 with every choice open; the defaults make it right."""

    class Bits:
        def __init__(self, block):
            self.block = block

        def pack(self, row_BTD):
            block = blocks(row_BTD, self.block)
            scale = (largest(block) / most).expand(block.shape[:3])
            code = cut(block / scale[..., None]).clamp(-128, 127)
            return join(code.to(torch.int8)), 1 / scale if inverse else scale

    return Bits


SCALE = (
    Misconception(
        "as_it_was",
        "This is still the fault: one scale for all tokens of the chunk, so a large token takes "
        "the digits of the small ones beside it. The largest is taken over the numbers of one "
        "block alone, the last axis.",
        bits(lambda block: block.abs().amax((1, 3), keepdim=True)[..., 0]),
    ),
    Misconception(
        "over_the_batch",
        "A scale is shared by all texts of the batch. What a neighbour writes must not change a "
        "text's bytes.",
        bits(lambda block: block.abs().amax((0, 3), keepdim=True)[..., 0]),
    ),
    Misconception(
        "over_the_row",
        "A row has one scale for all of its blocks. Each block has its own.",
        bits(lambda block: block.abs().amax((2, 3), keepdim=True)[..., 0]),
    ),
    Misconception(
        "one_for_all",
        "There is one scale for everything.",
        bits(lambda block: block.abs().amax().reshape(1, 1, 1)),
    ),
    Misconception(
        "no_absolute_value",
        "The largest number decides, and not the one that is farthest from 0: large negative "
        "numbers do not fit.",
        bits(lambda block: block.amax(-1)),
    ),
    Misconception(
        "the_mean",
        "The scale comes from the mean of |x| over the block: what is larger than the mean does "
        "not fit.",
        bits(lambda block: block.abs().mean(-1)),
    ),
    Misconception(
        "by_128",
        "Divided by 128: whole numbers run from -127 to 127 here, so the largest becomes 127.",
        bits(most=128),
    ),
    Misconception(
        "by_255",
        "Divided by 255: that is the whole range of 8 bits, and half of it is below zero.",
        bits(most=255),
    ),
    Misconception(
        "cut_off",
        "The digits behind the point are cut off. Round to the nearest whole number.",
        bits(cut=torch.trunc),
    ),
    Misconception(
        "rounded_down",
        "Numbers are rounded down (floor). Round to the nearest whole number.",
        bits(cut=torch.floor),
    ),
    Misconception(
        "scale_inverted",
        "The codes are right, and what is kept beside them is 1 / scale. unpack multiplies.",
        bits(inverse=True),
    ),
    Misconception(
        "interleaved",
        "A block is made of numbers that lie apart in the row. Its numbers are neighbours.",
        bits(
            blocks=lambda row, size: row.unflatten(-1, (size, -1)).transpose(-1, -2),
            join=lambda code: code.transpose(-1, -2).flatten(-2),
        ),
    ),
)
