"""The memory of a whole model: one `LayerCache` a layer, allocated from the plan.

It answers for its bytes, measured from the storage it really holds: by kind, by layer, per
token. `ledger.exact` predicts the same numbers from the config alone; the tests compare them.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..config import CSA2, ModelConfig, RowFormat
from ..plan import LayerPlan, plan
from . import kernel_rows
from .ring import Ring
from .rows import FLOATS, Rows, Storage


@dataclass(frozen=True)
class LayerCache:
    """What one layer holds. A layer that borrows has no `main` of its own."""

    plan: LayerPlan
    main: Rows | None
    index: Rows | None
    window: Ring | None
    open: Tensor | None  # half-built groups, fp32: [batch, values]
    constant: Tensor | None  # recurrent state, in 2-byte numbers

    def stores(self) -> tuple[Rows, ...]:
        return tuple(s for s in (self.main, self.index, self.window) if s is not None)


class ModelCache:
    """Memory of `batch` sequences of equal length, for up to `capacity` tokens each.

    row: the rows' format, the deployed one by default. Errors: ValueError for sizes below zero.

    work: tokens that each layer ran over this cache, so what a prefill saves can be counted.
    pending: in the middle of a CED prompt, the stream that waits for the decoder (see ced.py).
    without_windows: it adopted far rows, and its windows are still to be rebuilt.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        capacity: int,
        storage: Storage = "packed",
        row: RowFormat | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        for name, value, least in (("batch", batch, 1), ("capacity", capacity, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; it must be an integer >= {least}")
        self.config, self.batch, self.capacity, self.storage = config, batch, capacity, storage
        self.length = 0
        self.interrupted = False
        self.pending: Any = None
        self.without_windows = False
        self.work: Counter[int] = Counter()
        self.layers = tuple(
            _allocate_layer(p, batch, capacity, storage, dtype, device) for p in plan(config, row)
        )

    # ------------------------------------------------------------ what it holds

    @property
    def rows(self) -> str:
        """Every kind of row that is kept, and the bytes it is made of."""
        layouts = (store.layout for layer in self.layers for store in layer.stores())
        return ", ".join(dict.fromkeys(f"{row.name} ({row.terms()} bytes)" for row in layouts))

    def bytes(self) -> dict[str, int]:
        """Bytes in use: {global, window, open_state, total}, all sequences together.

        `total` includes recurrent state where a model has any.
        """
        per_layer = self.per_layer()
        held = {
            "global": sum(p["main"] + p["index"] for p in per_layer),
            "window": sum(p["window"] for p in per_layer),
            "open_state": sum(c.open.nbytes for c in self.layers if c.open is not None),
        }
        constant = sum(c.constant.nbytes for c in self.layers if c.constant is not None)
        return held | {"total": sum(held.values()) + constant}

    def rate(self) -> float:
        """Bytes per token and sequence of what grows, from the rows as stored."""
        grow = (
            (store.row_bytes, planned.ratio)
            for c in self.layers
            for store, planned in ((c.main, c.plan.main), (c.index, c.plan.index))
            if store is not None
        )
        return sum(row_bytes / ratio for row_bytes, ratio in grow)

    def per_layer(self) -> list[dict]:
        """Bytes in use by layer and kind, and who owns the far rows each layer reads."""
        return [
            {
                "layer": c.plan.layer,
                "attention": c.plan.attention,
                "owner": c.plan.owner,
                "main": c.main.nbytes if c.main else 0,
                "index": c.index.nbytes if c.index else 0,
                "window": c.window.nbytes if c.window else 0,
            }
            for c in self.layers
        ]

    def __repr__(self) -> str:
        held = self.bytes()
        return (
            f"ModelCache({self.config.name}, {self.batch} x {self.length} tokens, "
            f"{self.storage}: {held['total']:,} bytes)"
        )

    # ------------------------------------------------------------ what a forward pass does

    def check_room(self, batch: int, tokens: int) -> None:
        """Refuse a chunk that cannot be stored, before any layer has stored a part of it."""
        if self.interrupted:
            raise ValueError(
                "a forward pass over this cache was interrupted, so its layers differ in length; "
                "call reset() or make a new cache"
            )
        if self.without_windows and tokens:
            raise ValueError(
                "this cache took its far rows from another and has no windows yet; "
                "call ced.resume(model, prefix, cache) first"
            )
        if batch != self.batch:
            raise ValueError(f"tokens have a batch of {batch}; the cache was made for {self.batch}")
        if self.length + tokens > self.capacity:
            raise ValueError(
                f"{self.length} tokens are cached and {tokens} more do not fit in the capacity of "
                f"{self.capacity}; make the cache with a larger capacity"
            )

    def check_numbers(self, dtype: torch.dtype, device: torch.device) -> None:
        """Refuse a model whose numbers are not those that the rows give back."""
        store = next((store for layer in self.layers for store in layer.stores()), None)
        if store is None:
            return
        if store.dtype != dtype:
            raise ValueError(
                f"the {self.storage} rows of this cache come back as {store.dtype}, the model "
                f"computes in {dtype}; make one with model.new_cache(...), in which 'packed' rows "
                "come back as the model's numbers"
            )
        if store.device != device:
            raise ValueError(
                f"the cache lies on {store.device}, the model on {device}; make one with "
                "model.new_cache(...)"
            )

    def check_complete(self) -> None:
        """Refuse tokens while the decoder has still to read a prompt that came before them."""
        if self.pending is not None:
            raise ValueError(
                "the prompt in this cache has no end yet, so the decoder has not read it; "
                "pass its last chunk to prefill(..., last=True)"
            )

    @contextmanager
    def writing(self, tokens: int, kernels: str | None = None) -> Iterator[None]:
        """Around a pass that stores `tokens` tokens: counts them, or marks the cache as broken.

        kernels: how its rows are packed, see `packing.pack`, and whether V4.1's are handed out
        as bytes, for the attention that reads them so.
        """
        for store in (store for layer in self.layers for store in layer.stores()):
            store.kernels = kernels
        shared = isinstance(self.config.layers[0].attention, CSA2)
        near_and_far = [(c.window, c.main) for c in self.layers] if shared else []
        try:
            with kernel_rows.as_bytes(near_and_far, kernels):
                yield
        except BaseException:
            self.interrupted = True
            raise
        self.length += tokens

    def advance(self, tokens: int) -> None:
        """Count `tokens` tokens as cached, without content: their rows hold zeros."""
        self.check_room(self.batch, tokens)
        before, self.length = self.length, self.length + tokens
        for c in self.layers:
            for store, planned in ((c.main, c.plan.main), (c.index, c.plan.index)):
                if store is not None:
                    store.advance(planned.rows(self.length) - planned.rows(before))
            if c.window is not None:
                c.window.advance(tokens)

    def adopt(self, source: "ModelCache", tokens: int) -> None:
        """Start over with the far rows of the first `tokens` tokens of another cache.

        That is all a stored prefix holds: windows and half-built groups are empty afterwards.
        A model with windows is then made ready by `ced.resume`. Errors: ValueError, and nothing
        is changed, if the caches are one and the same, or differ in model, batch, storage or
        rows, if there are not that many tokens or no room for them, or if a group would be cut
        at its middle.
        """
        if source is self:
            raise ValueError("a cache cannot adopt from itself; adopt into a new one")
        for what in ("config", "batch", "storage", "rows"):
            ours, theirs = getattr(self, what), getattr(source, what)
            if ours != theirs:
                raise ValueError(f"the caches differ in {what}: {theirs} there, {ours} here")
        if not 0 <= tokens <= min(source.length, self.capacity):
            raise ValueError(
                f"tokens is {tokens}; {source.length} are cached there, "
                f"and {self.capacity} fit here"
            )
        multiple = prefix_multiple(self.config)
        if tokens % multiple:
            raise ValueError(f"tokens is {tokens}; a prefix ends on a multiple of {multiple}")
        self.reset()
        self.length = tokens
        self.without_windows = tokens > 0 and any(c.window is not None for c in self.layers)
        for mine, theirs in zip(self.layers, source.layers, strict=True):
            for kind in ("main", "index"):
                store, planned = getattr(mine, kind), getattr(mine.plan, kind)
                if store is not None:
                    store.adopt(getattr(theirs, kind), planned.rows(tokens))

    def reset(self) -> None:
        """Forget everything, ready for another text."""
        self.length, self.interrupted, self.pending = 0, False, None
        self.without_windows = False
        self.work.clear()
        for c in self.layers:
            for store in c.stores():
                store.reset()
            for state in (c.open, c.constant):
                if state is not None:
                    state.zero_()


def prefix_multiple(config: ModelConfig) -> int:
    """A reusable prefix has a multiple of this many tokens: then no group is half-built.

    A group that overlaps the one before it (V4's CSA) pools tokens of the prefix, too: replaying
    the window brings them back. Errors: ValueError if the window is too short for that.
    """
    for i, layer in enumerate(config.layers):
        a = layer.attention
        if getattr(a, "overlap", False) and a.window < a.ratio:
            raise ValueError(
                f"layer {i} of {config.name} pools groups of {a.ratio} that overlap, and its "
                f"window of {a.window} cannot bring them back"
            )
    ratios = (p.main.ratio for p in plan(config) if p.main is not None)
    return math.lcm(*ratios)


def _allocate_layer(p: LayerPlan, batch, capacity, storage, dtype, device) -> LayerCache:
    def rows(store):
        if store is None:
            return None
        return Rows(store.layout, batch, store.rows(capacity), storage, dtype, device)

    def state(values, kept):
        return torch.zeros(batch, values, dtype=kept, device=device) if values else None

    ring = None
    if p.window is not None:
        ring = Ring(p.window.layout, batch, p.window.window, storage, dtype, device)
    return LayerCache(
        plan=p,
        main=rows(p.main),
        index=rows(p.index),
        window=ring,
        open=state(p.open_values, FLOATS.get(storage, torch.float32)),
        constant=state(p.constant_values, torch.bfloat16),
    )


def allocate(
    name_or_config: str | ModelConfig,
    tokens: int,
    batch: int = 1,
    storage: Storage = "packed",
    row: RowFormat | None = None,
) -> ModelCache:
    """The memory a model holds after `tokens` tokens, at real size and without its weights.

    `allocate("deepseek-67b", 1000).bytes()["global"]` is measured from the storage made here.
    Errors: ValueError for an unknown name or sizes below zero.
    """
    config = name_or_config
    if isinstance(config, str):
        from ..published import get

        config = get(config).config
    if not isinstance(config, ModelConfig):
        raise ValueError(f"{config!r} is neither a published name nor a ModelConfig")
    cache = ModelCache(config, batch, tokens, storage, row)
    cache.advance(tokens)
    return cache
