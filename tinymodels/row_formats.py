"""The same rows in other formats: what each costs in bytes, and what it does to a model.

    bf16     16 bits a number                                    1,024 bytes for 512 numbers
    FP8      8 bits, a power of two for each 32                    528
    MXFP4    4 bits, a power of two for each 32                    272
    FP4      4 bits, an E4M3 scale for each 16                     288

A trained V4.1 is asked twice, with all rows in bf16 and with one kind of rows in another format:
its windows, or the far rows. How far its next words move is the price of the format there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import kl_div, nll_loss

from . import data
from .attention.csa import Compressor
from .attention.rope import rotate_tail, turn_of
from .cache.model import ModelCache
from .cache.packing import pack, unpack
from .cache.ring import Ring
from .cache.rows import Rows, Storage
from .config import CSA2, ModelConfig
from .dice import Dice
from .layouts import BF16, E2M1, UE8M0, Layout, entry_fp4, entry_fp8, plain, scaled
from .step import Step
from .transformer import Transformer

FORMATS: dict[str, Callable[[int], Layout]] = {
    "bf16": lambda dim: plain("bf16 entry", BF16, latent=dim),
    "FP8": entry_fp8,
    "MXFP4": lambda dim: Layout("MXFP4 entry", scaled("latent", dim, E2M1, UE8M0, 32)),
    "FP4": entry_fp4,
}


def layout_of(name: str, dim: int) -> Layout:
    """A row of `dim` numbers in this format. Errors: ValueError for an unknown name."""
    if name not in FORMATS:
        raise ValueError(f"format is {name!r}; known are {', '.join(FORMATS)}")
    return FORMATS[name](dim)


def comes_back(latent: Float[Tensor, "*n D"], name: str) -> Float[Tensor, "*n D"]:
    """The numbers after they were a row of bytes."""
    layout = layout_of(name, latent.shape[-1])
    return unpack(layout, pack(layout, {"latent": latent}), latent.dtype)["latent"]


def error(latent: Float[Tensor, "*n D"], name: str) -> float:
    """How much of the rows is lost: length of the error over length of the rows."""
    return ((comes_back(latent, name) - latent).norm() / latent.norm()).item()


# ---------------------------------------------------------------- in a trained model


def cache_in(model: Transformer, batch: int, tokens: int, window="FP8", far="FP4") -> ModelCache:
    """A cache of a V4.1 model whose windows and far rows are in the formats named.

    Errors: ValueError for another kind of model or an unknown format.
    """
    cache = model.new_cache(batch, tokens)
    if not isinstance(model.config.layers[0].attention, CSA2):
        raise ValueError(f"{model.config.name} has no windows and shared far rows; give a V4.1")

    def renewed(layer):
        dim = model.config.layers[layer.plan.layer].attention.head_dim
        near, main = layer.window, layer.main
        ring = Ring(layout_of(window, dim), batch, near.capacity, dtype=near.dtype)
        if main is not None:
            main = Rows(layout_of(far, dim), batch, main.capacity, dtype=main.dtype)
        return replace(layer, window=ring, main=main)

    cache.layers = tuple(renewed(layer) for layer in cache.layers)
    return cache


@dataclass(frozen=True)
class Effect:
    """kl: how far the next words move, nats a word, over all words. right: the share of the
    words that can be known that is still found. more: loss on the targets, nats a word, above
    that of bf16."""

    kl: float
    right: float
    more: float


def hard_texts(count: int, length: int = 256, pairs: int = 48, seed: int = 0) -> data.Batch:
    """Texts of the recall task with as many pairs as there can be."""
    rows = [data.recall(Dice("row formats", seed, i), length, pairs) for i in range(count)]
    tokens = torch.tensor([row.tokens[:length] for row in rows])
    known = torch.full_like(tokens, data.IGNORED)
    for b, row in enumerate(rows):
        for at in row.answers:
            if at < length:
                known[b, at - 1] = row.tokens[at]
    return data.Batch(tokens, known, known)


@torch.no_grad()
def effects(
    model: Transformer, texts: data.Batch, choices: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], Effect]:
    """For each (format of the windows, format of the far rows): the model with such rows, against
    itself with all rows in bf16. The index keys stay in MXFP4 both times."""
    asked, found = texts.known != data.IGNORED, {}

    def words(window, far):
        cache = cache_in(model, *texts.tokens.shape, window=window, far=far)
        return model(texts.tokens, cache).log_softmax(-1)

    def loss(logits_BTV):
        targets = texts.targets.flatten()
        return nll_loss(logits_BTV.flatten(0, 1), targets, ignore_index=data.IGNORED).item()

    whole = words("bf16", "bf16")
    for window, far in choices:
        rounded = words(window, far)
        kl = kl_div(rounded, whole, log_target=True, reduction="none").sum(-1).mean().item()
        right = (rounded.argmax(-1) == texts.known)[asked].float().mean().item()
        found[window, far] = Effect(max(kl, 0.0), right, loss(rounded) - loss(whole))
    return found


@torch.no_grad()
def latents(model: Transformer, tokens_BT: Int[Tensor, "B T"]) -> dict[int, Tensor]:
    """The far rows that a V4.1 model makes of a text, unrounded: {owner layer: [B, S, D]}."""
    batch, capacity = tokens_BT.shape
    cache = model.new_cache(batch, capacity, "float32")
    model(tokens_BT, cache)
    stored = {c.plan.layer: c.main for c in cache.layers if c.main is not None}
    return {layer: store.read()["latent"] for layer, store in stored.items()}


# ---------------------------------------------------------------- at real size


@torch.no_grad()
def filled(
    config: ModelConfig, tokens: int, seed: int = 0, storage: Storage = "packed"
) -> ModelCache:
    """A cache of V4.1's size whose far rows went through the real compressor and quantiser.

    Weights and stream are random, so the numbers mean nothing; shapes, bytes and rounding are
    the real ones. The windows stay empty: they are in no rate.
    """
    draw = torch.Generator().manual_seed(seed)
    cache = ModelCache(config, 1, tokens, storage)
    step = Step(torch.zeros(1, tokens, dtype=torch.long))
    for layer, planned in zip(cache.layers, config.layers, strict=True):
        if layer.main is None:
            continue
        a = planned.attention
        stream_BTX = torch.randn(1, tokens, config.width, generator=draw)
        compressor = Compressor(config.width, a.head_dim, a.ratio, config.norm_eps)
        key = torch.nn.Linear(a.head_dim, a.indexer.dim, bias=False)
        for matrix in (compressor.value, compressor.gate, key):
            if matrix is not None:
                matrix.weight.normal_(0, matrix.in_features**-0.5, generator=draw)
        latent_BGD, at_G = compressor(stream_BTX, step, layer.open)
        entry_BGD = rotate_tail(latent_BGD, turn_of(a.rope, at_G, latent_BGD.dtype))
        layer.main.extend({"latent": entry_BGD})
        layer.index.extend({"index": key(latent_BGD)})
    cache.length = tokens
    return cache
