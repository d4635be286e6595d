"""What a replay of V4.1's decoder leaves out, measured without a cache (CED, arXiv 2609.19969).

`ced.py` runs the last W tokens of a prompt through the decoder. Here any number of them can be
run, so that the error can be seen as it falls, and where it ends:

    tokens to run until the last one is exact    L (W - 1) + 1
    written tokens until the error is gone       (L - 1) (W - 1)

L is the number of decoder layers, each of which looks back W - 1 tokens.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .config import Layer, ModelConfig
from .presets import tiny_v4_1
from .residual import newest
from .step import Step
from .transformer import Transformer


@torch.no_grad()
def last_logits(model, tokens_BT: Int[Tensor, "B T"], run: int) -> Float[Tensor, "B V"]:
    """Logits after the prompt, whose last `run` tokens alone went through the decoder.

    Errors: ValueError if the model has no decoder half, or for `run` outside 1 to T.
    """
    first, length = model.config.decoder_start, tokens_BT.shape[1]
    if first is None:
        raise ValueError(f"{model.config.name} has no decoder half; take a V4.1")
    if not 1 <= run <= length:
        raise ValueError(f"run is {run}; it must be from 1 to the prompt's {length} tokens")
    step = Step(tokens_BT)
    stream, step = model.run(range(first), model.open(step), step)
    step = model.layers[first].publish(stream, step)  # the decoder's far memory, whole
    step = replace(step, tokens_BT=tokens_BT[:, -run:], start=length - run)
    stream, _ = model.run(range(first, len(model.layers)), newest(stream, run), step)
    return model.close(newest(stream, 1))[:, -1]


def error(got_BV: Float[Tensor, "B V"], exact_BV: Float[Tensor, "B V"]) -> float:
    """How far off the logits are, as a share of what they are."""
    return float((got_BV - exact_BV).norm() / exact_BV.norm())


@torch.no_grad()
def fading(model, tokens_BT: Int[Tensor, "B T"], prompt: int) -> list[float]:
    """The error after a prompt of so many tokens, read with the replay that `prefill` has, and
    after each token that is written behind it."""
    exact_BTV = model(tokens_BT)
    memory = model.new_cache(len(tokens_BT), tokens_BT.shape[1], storage="float64")
    got = [model.prefill(tokens_BT[:, :prompt], memory)]
    for token_B1 in tokens_BT[:, prompt:].split(1, dim=1):
        got.append(model(token_B1, memory)[:, -1])
    return [error(got_BV, exact_BTV[:, prompt - 1 + i]) for i, got_BV in enumerate(got)]


def random_model(window: int = 16, seed: int = 0) -> Transformer:
    """A tiny V4.1 in float64 with loud random weights, so that layers say something."""
    model = Transformer(with_window(tiny_v4_1(), window), seed=seed).double()
    model.requires_grad_(False)
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.mul_(6)
    return model


def with_window(config: ModelConfig, window: int) -> ModelConfig:
    """The same model with another window in every layer."""
    def changed(layer: Layer) -> Layer:
        attention: Any = layer.attention
        return replace(layer, attention=replace(attention, window=window))

    return config.with_(layers=tuple(changed(layer) for layer in config.layers))


# ---------------------------------------------------------------- what a row needs


@torch.no_grad()
def needed(model, tokens_BT: Int[Tensor, "B T"], kind: str) -> Bool[Tensor, "L L"]:
    """[i, j]: whether the rows that layer i reads change when feed-forward j is changed.

    kind: "main" (the far rows; those of its owner, where it borrows) or "window".
    """
    before = _rows(model, tokens_BT, kind)
    table = torch.zeros(len(before), len(model.layers), dtype=torch.bool)
    for j, layer in enumerate(model.layers):
        weights = list(layer.ffn.parameters())
        kept = [weight.clone() for weight in weights]
        for weight in weights:
            weight.mul_(1.5)
        after = _rows(model, tokens_BT, kind)
        for weight, old in zip(weights, kept):
            weight.copy_(old)
        changed = [a is not None and not torch.equal(a, b) for a, b in zip(after, before)]
        table[:, j] = torch.tensor(changed)
    return table


def _rows(model, tokens_BT: Tensor, kind: str) -> list[Tensor | None]:
    memory = model.new_cache(*tokens_BT.shape, storage="float64")
    model.prefill(tokens_BT, memory, exact=True)

    def flat(layer) -> Tensor | None:
        if kind == "main" and layer.main is None and layer.plan.owner == layer.plan.layer:
            return None  # it has a window only
        store = getattr(memory.layers[layer.plan.owner] if kind == "main" else layer, kind)
        if store is None:
            return None
        return torch.cat([rows.flatten() for rows in store.read().values()])

    return [flat(layer) for layer in memory.layers]
