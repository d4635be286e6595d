"""A feed-forward network of many experts, of which each token uses a few.

    y = shared(x) + sum over chosen e of weight_e expert_e(x)

A router scores the experts, chooses `top_k` of them and weighs what they say. Like every
feed-forward network it remembers nothing: experts cost parameters, never a byte of cache.

    V2    (arXiv 2405.04434)  softmax; groups chosen by their best expert; a loss evens them out
    V3    (arXiv 2412.19437)  sigmoid; groups by the sum of their two best; a bias that takes part
                              in choosing, not in weighing
    V4, V4.1                  sqrt(softplus); that bias, no groups; V4's first layers choose by a
                              table of token ids
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .config import Dense, MoE
from .experts import Experts
from .ffn import FeedForward
from .parts import Parts


@dataclass(frozen=True)
class Routing:
    """The experts of each token, best first, and the weights of what they say."""

    experts_BTk: Int[Tensor, "*B k"]
    weights_BTk: Float[Tensor, "*B k"]
    scores_BTE: Float[Tensor, "*B E"] | None = None  # of all experts, as they were weighed

    def load(self, experts: int) -> Int[Tensor, "E"]:
        """How many (token, expert) choices fell on each of `experts` experts."""
        return torch.bincount(self.experts_BTk.flatten(), minlength=experts)


# ---------------------------------------------------------------- choosing


def scores(logits_BTE: Float[Tensor, "*B E"], scoring: str) -> Float[Tensor, "*B E"]:
    """How well each expert suits each token, > 0.

    Errors: ValueError for a scoring that is not softmax, sigmoid or sqrtsoftplus.
    """
    match scoring:
        case "softmax":
            return logits_BTE.softmax(-1)
        case "sigmoid":
            return logits_BTE.sigmoid()
        case "sqrtsoftplus":
            # log(1 + e^x) as max(x, 0) + log1p(e^-|x|): 1 + e^-17 is 1 in float32.
            return torch.logaddexp(logits_BTE, torch.zeros_like(logits_BTE)).sqrt()
    raise ValueError(f"scoring is {scoring!r}; it is 'softmax', 'sigmoid' or 'sqrtsoftplus'")


def best(scores_BTE: Float[Tensor, "*B E"], k: int) -> Int[Tensor, "*B k"]:
    """Indices of the k largest, best first; of equal ones the lowest index wins.

    (torch.topk leaves the order of equal scores open, and it differs between devices.)
    """
    return scores_BTE.sort(dim=-1, descending=True, stable=True).indices[..., :k]


def choose(
    scores_BTE: Float[Tensor, "*B E"], config: MoE, bias_E: Float[Tensor, "E"] | None = None
) -> Int[Tensor, "*B k"]:
    """The experts of each token by score plus bias, inside the best groups if there are groups.

    With a bias a group counts as much as its two best experts together (V3), without one as
    much as its best (V2).
    """
    if bias_E is not None:
        scores_BTE = scores_BTE + bias_E
    if config.groups > 1:
        scores_BTgM = scores_BTE.unflatten(-1, (config.groups, -1))
        top = min(1 if bias_E is None else 2, scores_BTgM.shape[-1])
        strength_BTg = scores_BTgM.topk(top, dim=-1).values.sum(-1)
        chosen = best(strength_BTg, config.top_groups)
        closed_BTg = torch.full_like(strength_BTg, -torch.inf).scatter_(-1, chosen, 0.0)
        scores_BTE = (scores_BTgM + closed_BTg.unsqueeze(-1)).flatten(-2)
    return best(scores_BTE, config.top_k)


def weigh(
    scores_BTE: Float[Tensor, "*B E"], experts_BTk: Int[Tensor, "*B k"], config: MoE
) -> Float[Tensor, "*B k"]:
    """Weights of the chosen experts: their scores without the bias, scaled to a sum of `scale`
    if `normalise` is set, times `scale` as they are if not."""
    weights_BTk = scores_BTE.gather(-1, experts_BTk)
    if config.normalise:
        weights_BTk = weights_BTk / (weights_BTk.sum(-1, keepdim=True) + 1e-20)
    return weights_BTk * config.scale


def balanced(
    bias_E: Float[Tensor, "E"], load_E: Int[Tensor, "E"], gamma: float
) -> Float[Tensor, "E"]:
    """The bias after a step: up by gamma for experts with less than the mean load, down for
    those with more. It evens the load out without a loss term (arXiv 2408.15664)."""
    load_E = load_E.to(bias_E.dtype)
    return bias_E + gamma * (load_E.mean() - load_E).sign()


def balance_loss(routing: Routing) -> Float[Tensor, ""]:
    """V2's loss for routers without a bias: the sum over experts of f_e P_e, the mean of all texts.

    f_e: the share of a text's choices that fell on expert e, 1 if all get equally many; P_e: its
    mean score, through which the gradient flows (arXiv 2405.04434, section 2.2.3, expert level;
    its two other levels even out devices, of which there is one here). 1 if softmax scores and
    choices are even.
    """
    (_, T, k), scores_BTE = routing.experts_BTk.shape, routing.scores_BTE
    E = scores_BTE.shape[-1]
    count_BE = F.one_hot(routing.experts_BTk.flatten(1), E).sum(1).to(scores_BTE.dtype)
    return (count_BE * (E / (k * T)) * scores_BTE.mean(1)).sum(-1).mean()


class Router(nn.Module):
    """Scores every expert for every token and chooses.

    Scores are computed in float32 at least. `bias` and `table` are buffers: no gradient moves
    them. vocab: the number of token ids, needed where a table chooses.
    """

    def __init__(self, width: int, config: MoE, vocab: int | None = None):
        super().__init__()
        check(config)
        self.config = config
        self.gate = nn.Linear(width, config.experts, bias=False)
        self.bias: Tensor | None
        self.table: Tensor | None
        self.register_buffer("bias", torch.zeros(config.experts) if config.selection_bias else None)
        self.register_buffer("table", first_table(config, vocab) if config.hash_routed else None)

    def forward(
        self, x_BTX: Float[Tensor, "*B X"], token_ids_BT: Int[Tensor, "*B"] | None = None
    ) -> Routing:
        """Errors: ValueError where a table chooses and the token ids are missing, misshapen or
        outside the vocabulary."""
        logits_BTE = F.linear(_wide(x_BTX), _wide(self.gate.weight))
        scores_BTE = scores(logits_BTE, self.config.scoring)
        if self.table is None:
            experts_BTk = choose(scores_BTE.detach(), self.config, self.bias)
        else:
            experts_BTk = self._look_up(x_BTX, token_ids_BT)
        return Routing(experts_BTk, weigh(scores_BTE, experts_BTk, self.config), scores_BTE)

    @property
    def needs_loss(self) -> bool:
        """Whether only a loss can spread the load: it is learned, and there is no bias."""
        return self.bias is None and self.table is None

    @torch.no_grad()
    def balance(self, load_E: Int[Tensor, "E"], gamma: float = 1e-3) -> None:
        """Move the bias one step (`balanced`). load_E: the choices of a whole batch."""
        if self.bias is None:
            raise ValueError("this router has no bias to balance with; set MoE.selection_bias")
        self.bias.copy_(balanced(self.bias, load_E, gamma))

    def _look_up(self, x_BTX: Tensor, token_ids_BT: Tensor | None) -> Tensor:
        if token_ids_BT is None:
            raise ValueError("token ids are missing; a table chooses the experts of this layer")
        if token_ids_BT.shape != x_BTX.shape[:-1]:
            raise ValueError(
                f"token ids have shape {tuple(token_ids_BT.shape)}; "
                f"the states have {tuple(x_BTX.shape[:-1])} before their last axis"
            )
        vocab = len(self.table)
        if token_ids_BT.numel():
            low, high = (int(t) for t in token_ids_BT.aminmax())
            if low < 0 or high >= vocab:
                raise ValueError(f"token ids run from {low} to {high}; the table has {vocab} rows")
        return self.table[token_ids_BT]


def _wide(x: Tensor) -> Tensor:
    """x in float32 at least."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def first_table(config: MoE, vocab: int | None) -> Int[Tensor, "V k"]:
    """A table to start from: token t takes experts k t, k t + 1, ... modulo their number. Released
    checkpoints bring their own."""
    if vocab is None:
        raise ValueError("MoE.hash_routed is set: give `vocab`, the number of token ids")
    slots = torch.arange(vocab * config.top_k).view(vocab, config.top_k)
    return slots % config.experts


def check(config: MoE) -> None:
    """Errors: ValueError for a combination that no token could be routed by."""
    size, rest = divmod(config.experts, config.groups)
    if rest:
        raise ValueError(f"MoE.groups is {config.groups}; it must divide {config.experts} experts")
    if not 1 <= config.top_groups <= config.groups:
        raise ValueError(f"MoE.top_groups is {config.top_groups}; it must be 1 to {config.groups}")
    reach = config.experts if config.groups == 1 else config.top_groups * size
    if not 1 <= config.top_k <= reach:
        raise ValueError(f"MoE.top_k is {config.top_k}; it must be 1 to {reach}, those in reach")


# ---------------------------------------------------------------- the layer


class MoEFeedForward(nn.Module):
    """Routed experts and `shared` ones that always run, as one network of their joint width."""

    def __init__(
        self, width: int, config: MoE, parts: Parts | None = None, vocab: int | None = None
    ):
        super().__init__()
        parts = parts or Parts()
        self.config = config
        self.router = Router(width, config, vocab)
        self.experts = Experts(width, config, parts)
        self.shared = None
        if config.shared:
            joint = Dense(config.shared * config.width, limit=config.limit)
            self.shared = FeedForward(width, joint, parts)

    def forward(
        self,
        x_BTX: Float[Tensor, "*B X"],
        token_ids_BT: Int[Tensor, "*B"] | None = None,
        impl: str = "torch",
    ) -> Float[Tensor, "*B X"]:
        """token_ids_BT is read only where a table chooses (`MoE.hash_routed`). impl: see
        `Experts.forward`."""
        routing = self.router(x_BTX, token_ids_BT)
        y_nX = self.experts(
            x_BTX.flatten(0, -2),
            routing.experts_BTk.flatten(0, -2),
            routing.weights_BTk.flatten(0, -2).to(x_BTX.dtype),
            impl,
        )
        y_BTX = y_nX.view_as(x_BTX)
        return y_BTX if self.shared is None else y_BTX + self.shared(x_BTX)


@contextmanager
def watch_routing(model: nn.Module) -> Iterator[dict[str, list[Routing]]]:
    """While open, collect what each router in `model` chose: {its name: one Routing a pass}.

    with watch_routing(model) as seen:
        model(tokens)
    load = seen["layers.1.ffn.router"][0].load(experts)
    """
    seen: dict[str, list[Routing]] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, Router):
            passes = seen.setdefault(name, [])
            hooks.append(
                module.register_forward_hook(lambda _m, _x, out, passes=passes: passes.append(out))
            )
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
