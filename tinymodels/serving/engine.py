"""A small engine: requests to one model, each read from where the stored prefix ends.

    1. name the prompt's pieces, find how many are stored (`chain.py`, `store.py`)
    2. lay their far rows into an empty cache (`rows.py`)
    3. windows: still in memory (`windows.py`), or rebuilt from the last W tokens (`ced.resume`)
    4. run the rest of the prompt, write the answer, store the pieces that are new

Conversations need no bookkeeping: a text that begins like another finds its pieces.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .. import ced
from ..cache import ModelCache
from ..cache.rows import Storage
from ..ledger.price import Bill, bill
from . import rows, windows
from .chain import names, step_of, tokens_of, usable
from .store import NotStored, Refused, RowStore


@dataclass(frozen=True)
class Served:
    """One answered request. hit + miss = tokens of the prompt.

    replayed: tokens of the prefix that were run again for their windows alone. exact: the answer
    is the one without a prefix cache, up to the order in which numbers are added (in packed rows
    that may tip one to the next step of its format); not promised where a replay made windows or
    rows that were read, now or in an earlier request, or where V4.1's decoder goes on from an
    earlier answer (its far rows are exact; its windows are those of a conversation whose cache
    was never let go).
    logits_V: for the first token of the answer. refused: files that were not what they should be,
    or could not be written, with the reason.
    """

    tokens: tuple[int, ...]
    hit: int
    miss: int
    replayed: int
    exact: bool
    logits_V: torch.Tensor
    refused: tuple[str, ...] = ()

    def bill(self, *, hit_price: float, miss_price: float, output_price: float) -> Bill:
        """In US dollars, prices per million tokens. All are required: where one is not published,
        the caller assumes it and says so. A replay is not charged."""
        return bill(
            self.hit, self.miss, len(self.tokens),
            hit_price=hit_price, miss_price=miss_price, output_price=output_price,
        )  # fmt: skip


@dataclass(frozen=True)
class _Start:
    """Where a prompt is gone on with. hit: tokens that need not be read. replayed: tokens that
    were run again. after_replay, fresh: as in `windows.Near`, for all that this request makes."""

    hit: int
    replayed: int
    after_replay: bool
    fresh: bool


class Engine:
    """Serves one model, one request at a time: threads wait for each other. Its weights must not
    change meanwhile.

    folder, budget: where far rows are kept, and how many bytes of files. window_budget, ttl: bytes
    and seconds of window rows in memory. block: tokens; a piece is the least common multiple of it
    and the model's ratios. Errors: ValueError for a model with windows that no replay brings back,
    and for a folder that another engine uses or that cannot be written.
    """

    def __init__(
        self,
        model,
        folder: str | Path,
        budget: int,
        *,
        block: int = 16,
        window_budget: int = 10**8,
        ttl: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        storage: Storage = "packed",
    ):
        cache = model.new_cache(1, 0, storage)
        near = [c.window is not None for c in cache.layers]
        if any(c.constant is not None for c in cache.layers) or any(near) != all(near):
            raise ValueError(
                f"{model.config.name} keeps more than far rows in some layers, and nothing brings "
                "that back after a hit; serve a model whose layers all have a window, or none"
            )
        self.model, self.storage = model, storage
        self.step = step_of(model.config, block)
        self.has_windows = any(near)
        self.width = ced.window(model.config) if self.has_windows else 0
        self.root, self._versions = rows.fingerprint(model, storage), rows.versions(model)
        self._turn = threading.Lock()
        self.windows = windows.Windows(window_budget, ttl, clock)
        self.store = RowStore(folder, self.root, budget)

    @torch.no_grad()
    def serve(self, prompt: Sequence[int], new: int) -> Served:
        """Answer with the `new` likeliest tokens, one after another, in the model's own numbers:
        autocast is off meanwhile, as nothing would tell its rows from others.

        Errors: ValueError for an empty prompt, tokens outside the vocabulary, or new < 1; and for
        an engine that was closed, or whose model has other weights than at its start.
        """
        self.store.entries.check()
        if rows.versions(self.model) != self._versions:
            raise ValueError(
                f"the weights of {self.model.config.name} have changed since this engine was made; "
                "close it and make a new one"
            )
        if isinstance(new, bool) or not isinstance(new, int) or new < 1:
            raise ValueError(f"new is {new!r}; it must be an integer >= 1")
        text = tokens_of(prompt)
        self.model.check_tokens(torch.tensor([text], dtype=torch.long))
        with self._turn, torch.autocast(self.model.device.type, enabled=False):
            return self._serve(text, new)

    def _serve(self, text: list[int], new: int) -> Served:
        length, chain = len(text), self.names(text)
        whole = usable(length, length, self.step)
        pieces, refused = self._stored(chain[: whole // self.step])
        cache = self.model.new_cache(1, length + new - 1, self.storage)
        start = self._begin(cache, text, chain, pieces)
        if start.hit < whole:
            self.model.prefill(self._tokens(text[start.hit : whole]), cache, last=False)
            self._keep_windows(cache, text, start)
        first_V = self.model.prefill(self._tokens(text[whole:]), cache)[0]
        answer = self._write(cache, text, first_V, new, start)
        refused += self._keep_rows(cache, text, len(pieces), start)
        exact = start.fresh and not start.after_replay
        return Served(
            answer, start.hit, length - start.hit, start.replayed, exact, first_V, tuple(refused)
        )

    def names(self, text: Sequence[int]) -> list[str]:
        """Names of a text's whole pieces (see `chain.py`)."""
        return names(text, self.step, self.root)

    # ------------------------------------------------------------ before

    def _stored(self, chain: list[str]) -> tuple[list[dict], list[str]]:
        """The pieces that are stored without a gap, and why some are not read."""
        found, refused = [], []
        for name in chain:
            try:
                piece = self.store.get(name)
            except Refused as why:
                piece = None
                refused.append(str(why))
            if piece is None:
                break
            found.append(piece)
        return found, refused

    def _begin(self, cache: ModelCache, text, chain, pieces) -> _Start:
        """Bring the cache to where the prompt is gone on with.

        Windows that are there after fewer pieces are worth going back to, where that runs no more
        tokens than a replay: they are exact, a replay is not. No others are asked for, which would
        make them young again. Windows that a replay made are kept like all others, and stay what
        they are.
        """
        count, near = len(pieces), None
        alive, replay = count, min(self.width, self.step * count)
        while self.has_windows and alive and self.step * (count - alive) <= replay:
            near = self.windows.get(chain[alive - 1])
            if near is not None:
                break
            alive -= 1
        if self.step * (count - alive) <= replay:
            rows.lay(cache, pieces[:alive], self.step)
            if near is not None:
                windows.give(cache, near)
            after = any(map(rows.replayed, pieces[:alive])) or (near is not None and near.replayed)
            return _Start(self.step * alive, 0, after, near is None or near.fresh)
        rows.lay(cache, pieces, self.step)
        ced.resume(self.model, self._tokens(text[: cache.length]), cache)
        start = _Start(self.step * count, replay, True, True)
        self._keep_windows(cache, text, start)
        return start

    # ------------------------------------------------------------ after

    def _write(
        self, cache: ModelCache, text: list[int], logits_V, new: int, start: _Start
    ) -> tuple[int, ...]:
        """The answer, likeliest token by token; `text` grows by what the cache has read of it."""
        self._keep_windows(cache, text, start)
        answer = [int(logits_V.argmax())]
        last = (len(text) + new - 1) // self.step * self.step
        while len(answer) < new:
            text.append(answer[-1])
            logits_V = self.model(self._tokens(answer[-1:]), cache)[0, -1]
            answer.append(int(logits_V.argmax()))
            if cache.length == last:
                self._keep_windows(cache, text, start)
        return tuple(answer)

    def _keep_windows(self, cache: ModelCache, text: list[int], start: _Start) -> None:
        if self.has_windows and cache.length and cache.length % self.step == 0:
            halves = self.model.config.decoder_start is not None
            fresh = start.fresh and not (halves and cache.pending is None)
            near = windows.take(cache, start.after_replay, fresh)
            self.windows.put(self.names(text[: cache.length])[-1], near)

    def _keep_rows(self, cache: ModelCache, text: list[int], have: int, start: _Start) -> list[str]:
        """Store what is new, and let the whole chain count as used. What could not be written."""
        chain, failed = self.names(text[: cache.length]), []
        try:
            for i, name in enumerate(chain[have:], have):
                ends = i * self.step, (i + 1) * self.step
                piece = rows.piece(cache, *ends, start.after_replay)
                if not self.store.put(name, piece, after=tuple(chain[:i])):
                    break
        except NotStored as why:
            failed.append(str(why))
        try:
            self.store.touch(chain[: self.store.lru.held(chain)])
        except NotStored as why:
            failed.append(str(why))
        return failed

    def _tokens(self, tokens: Sequence[int]) -> torch.Tensor:
        return torch.tensor([list(tokens)], dtype=torch.long, device=self.model.device)

    def close(self) -> None:
        with self._turn:
            self.store.close()
