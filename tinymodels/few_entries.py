"""Models that read only some of their entries, chosen well or blindly: what a choice is worth.

    Parts(attention=only(k, "best"))    a V1 model that reads k entries a query, by any rule
    with_top_k(model, k)                a V3.2 model that reads k in place of its own number
    with_indexer(model, "newest")       the same with a rule in place of its indexer

`concentration` measures how much of all attention the best k entries have.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .attention.dsa import DSA
from .attention.indexer import top_k
from .attention.mla import in_order
from .attention.seen import chosen
from .attention.weights import attention_weights
from .step import Step

RULES = ("best", "newest", "random")


@torch.no_grad()
def concentration(
    model: nn.Module, tokens_BT: Int[Tensor, "B T"], sizes: Sequence[int], last: int = 16
) -> list[list[float]]:
    """Per layer: the share of all heads' attention that lies on the best k entries, k in `sizes`.

    The mean over the `last` queries of each text, which have about T entries to look at. All
    heads share one choice, so it is their attention together that is cut.
    """
    looks = attention_weights(model, tokens_BT)
    shares_of = []
    for weight_BHTS in looks:
        share_BTS = weight_BHTS[:, :, -last:].mean(1).sort(dim=-1, descending=True).values
        shares_of.append([share_BTS[..., :k].sum(-1).mean().item() for k in sizes])
    return shares_of


def only(k: int, rule: str, seed: int = 0) -> Callable:
    """An attention for `Parts` that reads k entries a query, the same for all heads.

    rule: "best" takes those with most attention (it must read all keys to know them: no saving,
    a measure of what could be had); "newest" and "random" do not look. Errors: ValueError for
    another rule, or k below 1.
    """
    if rule not in RULES or k < 1:
        raise ValueError(f"k is {k} and the rule {rule!r}; k is at least 1, rules are {RULES}")

    def attention(query_BTHD, key_BSKD, value_BSKD, *, window=None, impl="torch"):
        (T, H, D), (S, K) = query_BTHD.shape[1:], key_BSKD.shape[1:3]
        key_BHSD, value_BHSD = (
            x.repeat_interleave(H // K, dim=2).transpose(1, 2) for x in (key_BSKD, value_BSKD)
        )
        visible_TS = in_order(T, S, query_BTHD.device)
        score_BHTS = query_BTHD.transpose(1, 2) @ key_BHSD.mT * D**-0.5
        score_BHTS = score_BHTS.masked_fill(~visible_TS, -torch.inf)
        mark_BTS = _marks(rule, score_BHTS, seed)
        read_BTS = chosen(top_k(mark_BTS, visible_TS, k), S)
        weight_BHTS = score_BHTS.masked_fill(~read_BTS[:, None], -torch.inf).softmax(-1)
        return (weight_BHTS @ value_BHSD).transpose(1, 2)

    return attention


def _marks(rule: str, score_BHTS: Tensor, seed: int) -> Float[Tensor, "B T S"]:
    """What the entries are ordered by."""
    if rule == "best":
        return score_BHTS.softmax(-1).mean(1)
    B, _, T, S = score_BHTS.shape
    if rule == "newest":
        return torch.arange(S, dtype=torch.float32, device=score_BHTS.device).expand(B, T, S)
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(B, T, S, generator=draw).to(score_BHTS.device)


# ---------------------------------------------------------------- V3.2


def with_top_k(model: nn.Module, k: int, layers: Sequence[int] | None = None) -> nn.Module:
    """A copy of a V3.2 model that reads k entries a query, in all layers or in some.

    Errors: ValueError for a model without indexers, or k below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}; a query reads at least 1 entry")
    other = copy.deepcopy(_searching(model))
    for i in range(len(other.layers)) if layers is None else layers:
        attention = other.layers[i].attention
        index = replace(attention.config.indexer, top_k=k)
        attention.config = replace(attention.config, indexer=index)
        attention.indexer.config = index
    return other


def with_indexer(model: nn.Module, rule: str, seed: int = 0) -> nn.Module:
    """A copy of a V3.2 model in which a blind rule stands in place of every indexer.

    Errors: ValueError for a model without indexers, or a rule that is no blind one.
    """
    if rule not in RULES[1:]:
        raise ValueError(f"{rule!r} is no blind rule; they are {', '.join(RULES[1:])}")
    other = copy.deepcopy(_searching(model))
    for layer in other.layers:
        layer.attention.indexer = Blind(layer.attention.config.indexer, rule, seed)
    return other


class Blind(nn.Module):
    """An indexer that looks at no token. "newest": the score is the position. "random": queries
    and keys are drawn, so that every query has an order of its own."""

    def __init__(self, config, rule: str, seed: int):
        super().__init__()
        self.config, self.rule, self.seed = config, rule, seed

    def project(self, x_BTX: Tensor, latent_BTC: Tensor, step: Step):
        (B, T, _), (heads, dim) = x_BTX.shape, (self.config.heads, self.config.dim)
        query_BTID, key_BTD = x_BTX.new_zeros(B, T, heads, dim), x_BTX.new_zeros(B, T, dim)
        weight_BTI = x_BTX.new_ones(B, T, heads)
        if self.rule == "newest":
            query_BTID[..., 0], key_BTD[..., 0] = 1, (step.positions_T + 1).to(x_BTX.dtype)
        else:
            draw = torch.Generator().manual_seed(self.seed)
            query_BTID += torch.randn(query_BTID.shape, generator=draw).to(x_BTX)
            key_BTD += torch.randn(key_BTD.shape, generator=draw).to(x_BTX)
        return query_BTID, weight_BTI, {"index": key_BTD}


def _searching(model: nn.Module) -> nn.Module:
    if not all(isinstance(layer.attention, DSA) for layer in model.layers):
        raise ValueError(f"{model.config.name} has layers without an indexer of V3.2's kind")
    return model
