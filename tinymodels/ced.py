"""CED (V4.1, arXiv 2609.19969): the lower half of the layers reads a prompt, the upper half writes.

The far entries of every decoder layer are made by its first layer, from what leaves the encoder.
So a prompt of N tokens runs through the encoder, gives its entries in one more projection, and
is known to all layers. Only the decoder's windows are then missing: the last W tokens run through
the decoder once, after the prompt's last chunk ("bounded replay").

    layer-tokens of a prompt:   encoder layers x N + decoder layers x min(N, W)

The replay is exact where the decoder begins with the text. In a longer prompt its first tokens
see no window before them: an approximation, which `prefill(..., exact=True)` goes without.

A cache that was filled from a stored prefix has far entries but no windows. `resume` runs the
prefix's last W tokens through the encoder again (V4, which has no halves: through all layers) to
rebuild them, and what V4's next groups overlap. It reads the far entries and never writes one.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .cache import ModelCache
from .config import ModelConfig
from .residual import Stream, join, newest
from .step import Step


def window(config: ModelConfig) -> int:
    """The widest window of any layer: how many tokens a replay runs."""
    return max(layer.attention.window for layer in config.layers)


@torch.no_grad()
def prefill(
    model, tokens_BT: Int[Tensor, "B T"], cache: ModelCache, last: bool
) -> Float[Tensor, "B V"] | None:
    """Read a chunk of a prompt: the encoder now, the decoder after the last chunk.

    Errors: as those of `Transformer.forward`; the cache is unchanged then.
    """
    model.check_tokens(tokens_BT)
    model.check_cache(cache)
    cache.check_room(*tokens_BT.shape)
    step = Step(tokens_BT, cache.length)
    with cache.writing(tokens_BT.shape[1]):
        step = _encode(model, step, cache)
        return _replay_decoder(model, step, cache) if last else None


@torch.no_grad()
def resume(model, prefix_BT: Int[Tensor, "B T"], cache: ModelCache) -> None:
    """Rebuild the windows over a cache that holds the far entries of `prefix_BT`: V4.1's in the
    encoder, V4's in all layers.

    The prompt is then continued with `prefill`. Exact for a prefix of at most W tokens, like the
    replay of a decoder; beyond, the first tokens that are run again see no window before them.
    Errors: ValueError if a layer has no window, or if the prefix is not as long as what is
    cached; the cache is unchanged then.
    """
    for layer in cache.layers:
        if layer.window is None:
            raise ValueError(
                f"layer {layer.plan.layer} of {model.config.name} has no window to rebuild; "
                "resume is for V4 and V4.1"
            )
    model.check_tokens(prefix_BT)
    model.check_cache(cache)
    cache.check_room(prefix_BT.shape[0], 0)
    if prefix_BT.shape[1] != cache.length:
        raise ValueError(
            f"the prefix has {prefix_BT.shape[1]} tokens; {cache.length} are in the cache"
        )
    start = max(0, cache.length - window(model.config))
    step = Step(prefix_BT[:, start:], start, windows_only=True)
    for layer in cache.layers:
        layer.window.restart(start)
    cache.pending = None
    with cache.writing(0):
        if model.config.decoder_start is None:
            model.run(range(len(model.layers)), model.open(step), step, cache)
        else:
            _encode(model, step, cache)
    cache.without_windows = False


class Pending(NamedTuple):
    """The newest tokens that the decoder has not run, and their stream after the encoder."""

    tokens_BT: Tensor
    stream: Stream


def _encode(model, step: Step, cache: ModelCache) -> Step:
    """Run the encoder, publish the decoder's far entries, and put the newest W tokens aside."""
    first = model.config.decoder_start
    stream, step = model.run(range(first), model.open(step), step, cache)
    step = model.layers[first].publish(stream, step, cache.layers[first])
    tokens_BT = step.tokens_BT
    if cache.pending is not None:
        tokens_BT = torch.cat([cache.pending.tokens_BT, tokens_BT], dim=1)
        stream = join([cache.pending.stream, stream])
    kept = min(_replayed(model, step.start + step.tokens_BT.shape[1]), tokens_BT.shape[1])
    cache.pending = Pending(tokens_BT[:, -kept:], newest(stream, kept))
    return step


def _replayed(model, prompt: int) -> int:
    """How many of the last tokens of a prompt the decoder runs: W, or what somebody's own
    `who_runs` says of the decoder's first layer."""
    config = model.config
    if "who_runs" not in model.parts.own():
        return window(config)
    shape = len(config.layers), config.decoder_start, window(config)
    runs_LT = model.parts.who_runs(prompt, 0, *shape)
    return int(runs_LT[config.decoder_start].sum())


def _replay_decoder(model, step: Step, cache: ModelCache) -> Float[Tensor, "B V"]:
    """Run the decoder over the pending tokens; logits of the last one."""
    tokens_BT, stream = cache.pending
    start = step.start + step.tokens_BT.shape[1] - tokens_BT.shape[1]
    decoder = range(model.config.decoder_start, len(model.layers))
    for i in decoder:
        ring = cache.layers[i].window
        if ring.seen != start:  # tokens between were never run: no window reaches across
            ring.restart(start)
    step = replace(step, tokens_BT=tokens_BT, start=start)
    stream, _ = model.run(decoder, stream, step, cache)
    cache.pending = None
    return model.close(newest(stream, 1))[:, -1]
