"""Named mistakes in exercises 13.1 and 13.2: positions that are stale, and a reset that is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grading.exercise import Misconception
from tinymodels.attention.rope import rotate
from tinymodels.config import Rope


def keys(
    start: Callable = lambda kept, new: kept,
    position: Callable = lambda start, new: torch.arange(start, start + new),
    join: Callable = lambda old, new: torch.cat([old, new], 1),
    again: bool = False,
) -> type:
    """13.1 with every choice open; the defaults make it right."""

    class Keys:
        def __init__(self, dim):
            self.rope, self.kept = Rope(dim), None

        def append(self, key_BTD):
            old = key_BTD[:, :0] if self.kept is None else self.kept
            at = position(start(old.shape[1], key_BTD.shape[1]), key_BTD.shape[1])
            if again:
                every = torch.cat([old, key_BTD], 1)
                self.kept = rotate(every, self.rope, torch.arange(every.shape[1]))
            else:
                self.kept = join(old, rotate(key_BTD, self.rope, at))
            return self.kept

    return Keys


def _new_only() -> type:
    right: Any = keys()

    class Keys(right):
        def append(self, key_BTD):
            count = key_BTD.shape[1]
            return super().append(key_BTD)[:, -count:]

    return Keys


def _counts_texts() -> type:
    right: Any = keys()

    class Keys(right):
        def append(self, key_BTD):
            old = key_BTD[:, :0] if self.kept is None else self.kept
            start = 0 if self.kept is None else len(old)
            at = torch.arange(start, start + key_BTD.shape[1])
            self.kept = torch.cat([old, rotate(key_BTD, self.rope, at)], 1)
            return self.kept

    return Keys


POSITIONS = (
    Misconception(
        "as_it_was",
        "This is still the fault: each chunk is turned as if it began the text. A new key's "
        "position is the number of keys before it.",
        keys(start=lambda kept, new: 0),
    ),
    Misconception(
        "counts_too_late",
        "The number of kept keys is read after the new ones were added, so a chunk begins where it "
        "ends. Read it first.",
        keys(start=lambda kept, new: kept + new),
    ),
    Misconception(
        "from_one",
        "Positions are one too large: the first key of a text has position 0.",
        keys(start=lambda kept, new: kept + 1),
    ),
    Misconception(
        "one_before",
        "A chunk begins at the position of the last kept key. The new ones come after it.",
        keys(start=lambda kept, new: max(kept - 1, 0)),
    ),
    Misconception(
        "one_position",
        "All keys of a chunk are turned to one position. Each has its own.",
        keys(position=lambda start, new: torch.full((new,), start)),
    ),
    Misconception(
        "not_turned",
        "The keys are not turned at all (or all to position 0).",
        keys(position=lambda start, new: torch.zeros(new)),
    ),
    Misconception(
        "turned_again",
        "The kept keys are turned once more with every chunk. They were turned when they came.",
        keys(again=True),
    ),
    Misconception(
        "backwards",
        "Within a chunk, positions run backwards.",
        keys(position=lambda start, new: torch.arange(start, start + new).flip(0)),
    ),
    Misconception(
        "counts_chunks",
        "The position of a chunk is taken from its own length, as if all chunks were equally long.",
        keys(start=lambda kept, new: new if kept else 0),
    ),
    Misconception(
        "counts_texts",
        "len() of a tensor [B, S, D] counts texts. The number of kept keys is shape[1].",
        _counts_texts(),
    ),
    Misconception(
        "in_front",
        "The new keys are put in front of the old ones.",
        keys(join=lambda old, new: torch.cat([new, old], 1)),
    ),
    Misconception(
        "new_keys_only",
        "Only the new keys come back. A query reads all of them: return what is kept.",
        _new_only(),
    ),
    Misconception(
        "forgets",
        "The new keys replace the old ones. They go behind them.",
        keys(start=lambda kept, new: kept, join=lambda old, new: new),
    ),
)


def pooled(clear: Callable) -> type:
    """13.2 with the reset open."""

    class Pooled:
        def __init__(self, size, dim):
            self.size, self.rope = size, Rope(dim)
            self.entries, self.waiting, self.position = [], [], 0

        def reset(self):
            clear(self)

        def append(self, x_BTD):
            for x_BD in x_BTD.unbind(1):
                self.waiting.append(x_BD)
                self.position += 1
                if len(self.waiting) == self.size:
                    mean_B1D = torch.stack(self.waiting).mean(0)[:, None]
                    first = torch.tensor([self.position - self.size])
                    self.entries.append(rotate(mean_B1D, self.rope, first)[:, 0])
                    self.waiting = []
            return torch.stack(self.entries, 1) if self.entries else x_BTD[:, :0]

    return Pooled


def leaving(*left: str, position: int = 0) -> type:
    """A reset that forgets to clear what is `left`."""

    def clear(cache):
        fresh = {"entries": [], "waiting": [], "position": position}
        for name, value in fresh.items():
            if name not in left:
                setattr(cache, name, value)

    return pooled(clear)


def _last_one_kept(cache) -> None:
    cache.entries, cache.position, cache.waiting = [], 0, cache.waiting[-1:]


def _as_if_full(cache) -> None:
    cache.entries, cache.waiting = [], []
    cache.position -= cache.position % cache.size


RESET = (
    Misconception(
        "as_it_was",
        "This is still the fault: the entries are gone, but tokens that wait for their group stay, "
        "and so does the position.",
        leaving("waiting", "position"),
    ),
    Misconception(
        "waiting_stays",
        "Entries and position are cleared, but tokens of the old text still wait, and the new "
        "text's first group closes with them in it.",
        leaving("waiting"),
    ),
    Misconception(
        "position_stays",
        "The new text goes on counting where the old one ended. Its first token has position 0.",
        leaving("position"),
    ),
    Misconception(
        "entries_stay",
        "The entries of the old text are still there.",
        leaving("entries"),
    ),
    Misconception(
        "only_the_position",
        "The position is 0 again, but entries and waiting tokens of the old text stay.",
        leaving("entries", "waiting"),
    ),
    Misconception(
        "only_the_waiting",
        "No token waits any more, but entries and position are those of the old text.",
        leaving("entries", "position"),
    ),
    Misconception(
        "nothing",
        "Nothing is cleared: the second text is appended to the first.",
        leaving("entries", "waiting", "position"),
    ),
    Misconception(
        "from_one",
        "The new text starts at position 1. The first token has position 0.",
        leaving(position=1),
    ),
    Misconception(
        "from_minus_one",
        "The new text starts at position -1. The first token has position 0.",
        leaving(position=-1),
    ),
    Misconception(
        "last_one_waits",
        "One token of the old text still waits.",
        pooled(_last_one_kept),
    ),
    Misconception(
        "rounded_position",
        "The position is set back to where the old text's last group began, and not to 0.",
        pooled(_as_if_full),
    ),
)
