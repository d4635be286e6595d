"""Named mistakes in exercises 13.4 to 13.6: the window, the scale, the group."""

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


def groups(append: Callable) -> type:
    """13.6 with `append` open: (cache, waiting and new tokens [B, S, D])."""

    class Groups:
        def __init__(self, size):
            self.size, self.entries, self.waiting_BTD = size, [], None

        def append(self, x_BTD):
            old = x_BTD[:, :0] if self.waiting_BTD is None else self.waiting_BTD
            append(self, old, x_BTD)

        def read(self):
            return torch.stack(self.entries, dim=1)

    return Groups


def closing(
    full: Callable = lambda count, size: count >= size,
    pool: Callable = lambda group, size: group.mean(1),
    rest: Callable = lambda x, size: x[:, size:],
    end: Callable = lambda cache, x: setattr(cache, "waiting_BTD", x),
    start: Callable = lambda old, new: torch.cat([old, new], 1),
) -> type:
    """The right append with every choice open."""

    def append(cache, old, new):
        x = start(old, new)
        while x.shape[1] and full(x.shape[1], cache.size):
            cache.entries.append(pool(x[:, : cache.size], cache.size))
            x = rest(x, cache.size)
        end(cache, x)

    return groups(append)


def _nothing_waits(cache, x) -> None:
    cache.waiting_BTD = None


def _one_group(cache, old, new) -> None:
    x = torch.cat([old, new], 1)
    if x.shape[1] >= cache.size:
        cache.entries.append(x[:, : cache.size].mean(1))
        x = x[:, cache.size :]
    cache.waiting_BTD = x


def _never_emptied(cache, old, new) -> None:
    x = torch.cat([old, new], 1)
    while x.shape[1] >= cache.size:
        cache.entries.append(x[:, : cache.size].mean(1))
        x = x[:, cache.size :]
    cache.waiting_BTD = torch.cat([old, x], 1)[:, : cache.size - 1]


def _newest(cache, old, new) -> None:
    x = torch.cat([old, new], 1)
    count = x.shape[1] // cache.size
    begin = x.shape[1] - count * cache.size
    for g in range(count):
        cache.entries.append(x[:, begin + g * cache.size :][:, : cache.size].mean(1))
    cache.waiting_BTD = x[:, :begin]


GROUP = (
    Misconception(
        "as_it_was",
        "This is still the fault: whatever is left of a chunk closes as a group of its own. Its "
        "tokens have to wait for those that are missing.",
        closing(full=lambda count, size: True, end=_nothing_waits),
    ),
    Misconception(
        "closes_too_early_and_goes_on",
        "One token is missing when the group closes: it needs `size` tokens.",
        closing(
            full=lambda count, size: count >= size - 1,
            pool=lambda group, size: group[:, : size - 1].mean(1),
            rest=lambda x, size: x[:, size - 1 :],
        ),
    ),
    Misconception(
        "closes_too_late",
        "A group closes when the next one begins. It is complete with its last token.",
        closing(full=lambda count, size: count > size),
    ),
    Misconception(
        "rest_is_lost",
        "Tokens that do not fill a group are thrown away at the end of a chunk.",
        closing(end=_nothing_waits),
    ),
    Misconception(
        "waits_for_ever",
        "Tokens that waited are used, and go on waiting: the next chunk begins with them again.",
        groups(_never_emptied),
    ),
    Misconception(
        "waiting_behind",
        "Tokens that waited are put behind the new ones. They are older: they come first.",
        closing(start=lambda old, new: torch.cat([new, old], 1)),
    ),
    Misconception(
        "sum",
        "An entry is the sum of its tokens, not their mean.",
        closing(pool=lambda group, size: group.sum(1)),
    ),
    Misconception(
        "last_token",
        "An entry is the last token of its group, not the mean of all.",
        closing(pool=lambda group, size: group[:, -1]),
    ),
    Misconception(
        "first_token",
        "An entry is the first token of its group, not the mean of all.",
        closing(pool=lambda group, size: group[:, 0]),
    ),
    Misconception(
        "one_group_an_append",
        "At most one group closes in an append. A chunk may hold several.",
        groups(_one_group),
    ),
    Misconception(
        "groups_from_the_end",
        "Groups are counted back from the newest token. They begin with the oldest that waits.",
        groups(_newest),
    ),
    Misconception(
        "sliding",
        "Groups overlap: after one closes, all but its first token stay. Each token belongs to one "
        "group.",
        closing(rest=lambda x, size: x[:, 1:]),
    ),
)
