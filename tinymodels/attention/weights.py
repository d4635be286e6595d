"""What each head looks at: the weights behind attention's mixture, for pictures and probes."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..step import Step
from .mha import MHA


@torch.no_grad()
def attention_weights(model, tokens_BT: Int[Tensor, "B T"]) -> list[Float[Tensor, "B H T T"]]:
    """Per layer, how much of each earlier token every head takes; each row adds up to 1.

    Only for models whose layers are `MHA` without a window. Errors: ValueError otherwise.
    """
    step, x_BTX, looks = Step(tokens_BT), model.embed(tokens_BT), []
    for i, layer in enumerate(model.layers):
        attention = layer.attention
        if not isinstance(attention, MHA) or attention.config.window is not None:
            raise ValueError(f"layer {i} is no plain multi-head attention; its weights differ")
        query_BTHD, rows = attention.project(layer.attention_norm(x_BTX), step)
        looks.append(_weights(query_BTHD, rows["key"], attention.config))
        x_BTX, step = layer(x_BTX, step)
    return looks


def _weights(query_BTHD: Tensor, key_BSX: Tensor, config) -> Float[Tensor, "B H T S"]:
    key_BSKD = key_BSX.unflatten(-1, (config.kv_heads, config.head_dim))
    key_BSHD = key_BSKD.repeat_interleave(config.heads // config.kv_heads, dim=2)
    score_BHTS = torch.einsum("bthd,bshd->bhts", query_BTHD, key_BSHD)
    T = score_BHTS.shape[-1]
    later_TS = torch.ones(T, T, dtype=torch.bool, device=score_BHTS.device).triu(1)
    score_BHTS = (score_BHTS / math.sqrt(config.head_dim)).masked_fill(later_TS, -torch.inf)
    return score_BHTS.softmax(dim=-1)
