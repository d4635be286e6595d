"""A small engine: requests to one model, each read from where the stored prefix ends.

    1. name the prompt's pieces, find how many are stored (`chain.py`, `store.py`)
    2. lay their far rows into an empty cache (`rows.py`)
    3. windows: still in memory (`windows.py`), or rebuilt from the last W tokens (`ced.resume`)
    4. run the rest of the prompt, write the answer, store the pieces that are new

Conversations need no bookkeeping: a text that begins like another finds its pieces.
"""

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
from .chain import names, step_of, usable
from .store import Refused, RowStore


@dataclass(frozen=True)
class Served:
    """One answered request. hit + miss = tokens of the prompt.

    replayed: tokens of the prefix that were run again for their windows alone. logits_V: for the
    first token of the answer. refused: files that were not what they should be, with the reason.
    """

    tokens: tuple[int, ...]
    hit: int
    miss: int
    replayed: int
    logits_V: torch.Tensor
    refused: tuple[str, ...] = ()

    def bill(self, *, hit_price: float, miss_price: float, output_price: float) -> Bill:
        """In US dollars, prices per million tokens. All are required: where one is not published,
        the caller assumes it and says so. A replay is not charged."""
        return bill(
            self.hit, self.miss, len(self.tokens),
            hit_price=hit_price, miss_price=miss_price, output_price=output_price,
        )  # fmt: skip


class Engine:
    """Serves one model, one request at a time.

    folder, budget: where far rows are kept, and how many bytes of files. window_budget, ttl: bytes
    and seconds of window rows in memory. block: tokens; a piece is the least common multiple of it
    and the model's ratios. Errors: ValueError for a model with windows that no replay brings back.
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
        self.root = rows.fingerprint(model, storage)
        self.store = RowStore(folder, self.root, budget)
        self.windows = windows.Windows(window_budget, ttl, clock)

    @torch.no_grad()
    def serve(self, prompt: Sequence[int], new: int) -> Served:
        """Answer with the `new` likeliest tokens, one after another.

        Errors: ValueError for an empty prompt, tokens outside the vocabulary, or new < 1.
        """
        if isinstance(new, bool) or not isinstance(new, int) or new < 1:
            raise ValueError(f"new is {new!r}; it must be an integer >= 1")
        text = list(prompt)
        self.model.check_tokens(torch.tensor([text], dtype=torch.long))
        chain = names(text, self.step, self.root)
        whole = usable(len(text), len(text), self.step)
        pieces, refused = self._stored(chain[: whole // self.step])
        cache = self.model.new_cache(1, len(text) + new - 1, self.storage)
        hit, replayed = self._begin(cache, text, chain, pieces)
        if hit < whole:
            self.model.prefill(self._tokens(text[hit:whole]), cache, last=False)
            self._keep_windows(cache, text)
        first_V = self.model.prefill(self._tokens(text[whole:]), cache)[0]
        answer = self._write(cache, text, first_V, new)
        self._keep_rows(cache, text, len(pieces))
        return Served(answer, hit, len(prompt) - hit, replayed, first_V, tuple(refused))

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

    def _begin(self, cache: ModelCache, text, chain, pieces) -> tuple[int, int]:
        """Bring the cache to where the prompt is gone on with: tokens that need not be read, and
        tokens that were replayed.

        Windows that are there after fewer pieces are worth going back to, where that runs no more
        tokens than a replay: they are exact, a replay is not. Windows that a replay made are kept
        like all others, and stay what they are.
        """
        count = len(pieces)
        if not self.has_windows:
            rows.lay(cache, pieces, self.step)
            return self.step * count, 0
        alive = count
        while alive and chain[alive - 1] not in self.windows:
            alive -= 1
        replay = min(self.width, self.step * count)
        if self.step * (count - alive) <= replay:
            rows.lay(cache, pieces[:alive], self.step)
            if alive:
                windows.give(cache, self.windows.get(chain[alive - 1]))
            return self.step * alive, 0
        rows.lay(cache, pieces, self.step)
        ced.resume(self.model, self._tokens(text[: cache.length]), cache)
        self._keep_windows(cache, text)
        return self.step * count, replay

    # ------------------------------------------------------------ after

    def _write(self, cache: ModelCache, text: list[int], logits_V, new: int) -> tuple[int, ...]:
        """The answer, likeliest token by token; `text` grows by what the cache has read of it."""
        self._keep_windows(cache, text)
        answer = [int(logits_V.argmax())]
        last = (len(text) + new - 1) // self.step * self.step
        while len(answer) < new:
            text.append(answer[-1])
            logits_V = self.model(self._tokens(answer[-1:]), cache)[0, -1]
            answer.append(int(logits_V.argmax()))
            if cache.length == last:
                self._keep_windows(cache, text)
        return tuple(answer)

    def _keep_windows(self, cache: ModelCache, text: list[int]) -> None:
        if self.has_windows and cache.length and cache.length % self.step == 0:
            name = names(text[: cache.length], self.step, self.root)[-1]
            self.windows.put(name, windows.take(cache))

    def _keep_rows(self, cache: ModelCache, text: list[int], have: int) -> None:
        """Store what is new, and let the whole chain count as used."""
        chain = names(text[: cache.length], self.step, self.root)
        for i, name in enumerate(chain):
            if i >= have:
                piece = rows.piece(cache, i * self.step, (i + 1) * self.step)
                if not self.store.put(name, piece, after=tuple(chain[:i])):
                    break
        self.store.touch(chain[: self.store.lru.held(chain)])

    def _tokens(self, tokens: Sequence[int]) -> torch.Tensor:
        return torch.tensor([list(tokens)], dtype=torch.long, device=self.model.device)

    def close(self) -> None:
        self.store.close()
