"""How much rank a trained model's keys and values have, and what it costs to keep less.

A token's keys and values of one layer, side by side, are a row of 2 x K x D numbers. The rows of
a text form a table. If all rows lie near a space of r directions, r numbers a token say nearly
all there is (Eckart and Young, 1936): the projections on the r strongest directions.

    latent_r = row @ directions[:, :r]        row is about latent_r @ directions[:, :r].T

Here the directions are found after training. A model that is *trained* with a latent
(`attention/mla.py`) may arrange itself so that nothing is lost.
"""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from . import data
from .step import Step

BYTES = 2  # of one number, bf16


@dataclass(frozen=True)
class Space:
    """The directions of one layer's rows, strongest first. strength: how much each of them
    carries, the squared singular values as shares of their sum."""

    directions_DD: Float[Tensor, "D D"]
    strength_D: Float[Tensor, "D"]

    def rank(self, share: float) -> int:
        """How many directions carry at least `share` of all. Errors: ValueError for a share that
        is not between 0 and 1."""
        if not 0 < share < 1:
            raise ValueError(f"share is {share}; it must lie between 0 and 1")
        return int((self.strength_D.cumsum(0) < share).sum()) + 1


@torch.no_grad()
def rows(model: nn.Module, tokens_BT: Int[Tensor, "B T"], turned: bool) -> list[Tensor]:
    """Keys and values side by side of each layer of plain attention: [B x T, 2 x K x D] each.

    turned: keys as they are kept, after RoPE; False: as they were before. Errors: ValueError for
    a model with other attention.
    """
    _plain(model)
    entered: list[Tensor] = []
    hooks = [
        layer.attention.register_forward_pre_hook(lambda _, given: entered.append(given[0]))
        for layer in model.layers
    ]
    try:
        model(tokens_BT)
    finally:
        for hook in hooks:
            hook.remove()
    found = []
    for layer, x_BTX in zip(model.layers, entered, strict=True):
        attention = layer.attention
        if turned:
            kept = attention.project(x_BTX, Step(tokens_BT))[1]
            both = kept["key"], kept["value"]
        else:
            both = attention.key(x_BTX), attention.value(x_BTX)
        found.append(torch.cat(both, dim=-1).flatten(0, 1))
    return found


def spaces(rows_of_layers: list[Float[Tensor, "N D"]]) -> list[Space]:
    """The directions of each layer's rows, in float64."""
    found = []
    for row_ND in rows_of_layers:
        value_D, direction_DD = torch.linalg.eigh(row_ND.double().T @ row_ND.double())
        strength_D = value_D.flip(0).clamp(min=0)
        found.append(Space(direction_DD.flip(1), strength_D / strength_D.sum()))
    return found


def error(row_ND: Float[Tensor, "N D"], space: Space, rank: int) -> float:
    """What `rank` numbers a row leave out: the missing length over the whole length (0 to 1)."""
    direction_DC = space.directions_DD[:, :rank].to(row_ND.dtype)
    missing_ND = row_ND - row_ND @ direction_DC @ direction_DC.T
    return (missing_ND.norm() / row_ND.norm()).item()


@torch.no_grad()
def narrowed(model: nn.Module, found: list[Space], rank: int, turned: bool) -> nn.Module:
    """A copy of `model` that keeps `rank` numbers a token and layer in place of 2 x K x D.

    turned: False cuts before RoPE. There it is nothing but other weights: the two matrices of
    keys and values become a product of a down- and an up-projection. True cuts what is kept,
    after RoPE. Errors: ValueError for a rank that is not there.
    """
    width = len(found[0].strength_D)
    if not 1 <= rank <= width:
        raise ValueError(f"rank is {rank}; a row has {width} numbers, so it is 1 to {width}")
    _plain(model)
    narrow = copy.deepcopy(model)
    for layer, space in zip(narrow.layers, found, strict=True):
        attention = layer.attention
        direction_DC = space.directions_DD[:, :rank].to(attention.key.weight.dtype)
        if turned:
            attention.project = _cut_when_kept(attention.project, direction_DC)
            continue
        both_DX = torch.cat([attention.key.weight, attention.value.weight])
        down_CX = direction_DC.T @ both_DX  # what would be kept of a token: down_CX @ x
        up_DX = direction_DC @ down_CX
        key_DX, value_DX = up_DX.split([len(attention.key.weight), len(attention.value.weight)])
        attention.key.weight.copy_(key_DX)
        attention.value.weight.copy_(value_DX)
    return narrow


def _cut_when_kept(project, direction_DC):
    def narrow(x_BTX, step):
        query_BTHD, kept = project(x_BTX, step)
        both = torch.cat([kept["key"], kept["value"]], dim=-1)
        both = both @ direction_DC @ direction_DC.T
        key, value = both.split([kept["key"].shape[-1], kept["value"].shape[-1]], dim=-1)
        return query_BTHD, {"key": key, "value": value}

    return narrow


@dataclass(frozen=True)
class Quality:
    """How well a model does on held-out text: nats a token, and the share of right words among
    those that can be known."""

    loss: float
    right: float


@torch.no_grad()
def quality(model: nn.Module, batch: data.Batch) -> Quality:
    logits_NV = model(batch.tokens).flatten(0, 1)
    loss = cross_entropy(logits_NV, batch.targets.flatten(), ignore_index=data.IGNORED)
    known_N = batch.known.flatten()
    asked_N = known_N != data.IGNORED
    right = (logits_NV.argmax(-1) == known_N)[asked_N].float().mean()
    return Quality(loss.item(), right.item())


def _plain(model: nn.Module) -> None:
    for i, layer in enumerate(model.layers):
        if not hasattr(layer.attention, "key") or layer.attention.key.bias is not None:
            raise ValueError(
                f"layer {i} has {type(layer.attention).__name__}: keys and values of plain "
                "attention, without biases, are what can be cut here"
            )
