"""Which entries a layer takes, and which it would take if it were asked: by its own attention.

A layer that reuses another's choice has no indexer, but it has queries. `wishes` lets them look
at all that is visible, as if nothing had been chosen, and notes how much all heads together would
take from each entry. The best k of these are what the layer would have liked to read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .attention.csa2 import CSA2
from .attention.dsa import DSA
from .attention.indexer import index_scores, top_k
from .attention.seen import chosen, complete_groups
from .step import Step


class Wish(NamedTuple):
    """One layer over one text. mode: full, reindex or reuse in V4.1, dsa in V3.2.

    taken: the entries that its attention read. share: what its heads would take from each entry,
    together; shares of the far entries and of what is near add up to 1.
    """

    layer: int
    mode: str
    taken_BTS: Bool[Tensor, "B T S"]
    share_BTS: Float[Tensor, "B T S"]
    visible_TS: Bool[Tensor, "T S"]
    k: int

    @property
    def wanted_BTS(self) -> Bool[Tensor, "B T S"]:
        """The k entries with the largest shares."""
        best_BTk = top_k(self.share_BTS, self.visible_TS, self.k)
        return chosen(best_BTk, self.share_BTS.shape[-1])

    @property
    def served_BT(self) -> Float[Tensor, "B T"]:
        """Of the attention that goes to far entries, the part that goes to those taken."""
        taken_BT = (self.share_BTS * self.taken_BTS).sum(-1)
        return taken_BT / self.share_BTS.sum(-1).clamp(min=1e-12)


def overlap(
    one_BTS: Bool[Tensor, "B T S"], other_BTS: Bool[Tensor, "B T S"], asked_BT: Bool[Tensor, "B T"]
) -> float:
    """The share of one choice that the other has as well, over the queries asked about."""
    both = (one_BTS & other_BTS)[asked_BT].sum(-1)
    return (both / one_BTS[asked_BT].sum(-1).clamp(min=1)).mean().item()


@torch.no_grad()
def wishes(model, tokens_BT: Int[Tensor, "B T"]) -> list[Wish]:
    """A `Wish` of every layer that reads chosen entries (V3.2, V4.1), in order.

    Errors: ValueError for a model without such layers.
    """
    found: list[Wish] = []
    hooks = []
    for i, block in enumerate(model.layers):
        if isinstance(block.attention, CSA2 | DSA):
            note = _of_csa2 if isinstance(block.attention, CSA2) else _of_dsa
            hooks.append(
                block.attention.register_forward_hook(
                    lambda module, args, out, i=i, note=note: found.append(
                        note(i, module, args[0], out[1])
                    )
                )
            )
    if not hooks:
        raise ValueError(f"{model.config.name} chooses no entries; V3.2 and V4.1 do")
    try:
        model(tokens_BT)
    finally:
        for hook in hooks:
            hook.remove()
    return found


@contextmanager
def borrowed(model, owner: int, borrower: int) -> Iterator[None]:
    """Meanwhile one layer of a V3.2 model reads what an earlier one chose, as a Reuse layer does.

    Errors: ValueError where a layer has no choice of V3.2's kind, or the owner comes later.
    """
    if owner >= borrower:
        raise ValueError(f"layer {borrower} runs before layer {owner} has chosen")
    lends, takes = (_choosing(model, i) for i in (owner, borrower))
    made: list = []

    def lend(query, rows, choice_BTk, step):
        made.append(choice_BTk)
        return type(lends).read(lends, query, rows, choice_BTk, step)

    def take(query, rows, choice_BTk, step):
        return type(takes).read(takes, query, rows, made.pop(), step)

    lends.read, takes.read = lend, take  # type: ignore[method-assign]
    try:
        yield
    finally:
        del lends.read, takes.read


@contextmanager
def newest(model, layer: int) -> Iterator[None]:
    """Meanwhile one layer of a V3.2 model reads the newest rows in place of those it chose.

    Errors: ValueError where the layer has no choice of V3.2's kind.
    """
    attention = _choosing(model, layer)

    def read(query, rows, choice_BTk, step):
        newest_Tk = step.positions_T[:, None] - torch.arange(choice_BTk.shape[-1])
        newest_BTk = newest_Tk.clamp(min=-1).expand_as(choice_BTk)
        return type(attention).read(attention, query, rows, newest_BTk, step)

    attention.read = read  # type: ignore[method-assign]
    try:
        yield
    finally:
        del attention.read


def _choosing(model, layer: int) -> DSA:
    attention = model.layers[layer].attention
    if not isinstance(attention, DSA):
        raise ValueError(f"layer {layer} of {model.config.name} has no choice of V3.2's kind")
    return attention


def _of_csa2(layer: int, module: CSA2, x_BTX: Tensor, step: Step) -> Wish:
    far, c = step.far, module.config
    query_BTHD, entry_BTD = module.project(x_BTX, module.query_latent(x_BTX), step)
    near = module.near(entry_BTD, step)
    T, S = x_BTX.shape[1], far.entry_BSD.shape[1]
    share_BTS = module.share(query_BTHD, near, far.entry_BSD, step, far.ratio)(slice(0, T), S)
    visible_TS = complete_groups(step, S, far.ratio)
    taken_BTS = chosen(far.choice_BTk, S)
    return Wish(layer, c.mode, taken_BTS, share_BTS, visible_TS, far.choice_BTk.shape[-1])


def _of_dsa(layer: int, module: DSA, x_BTX: Tensor, step: Step) -> Wish:
    query, rows = module.project(x_BTX, step)
    asked = module.indexer.project(x_BTX, module.query_latent(x_BTX), step)
    score_BTS = index_scores(asked[0], asked[1], asked[2]["index"])
    T, k = x_BTX.shape[1], module.config.indexer.top_k
    share_BTS = module.share(query, rows, step)(slice(0, T), T)
    visible_TS = complete_groups(step, T, 1)
    taken_BTS = chosen(top_k(score_BTS, visible_TS, k), T)
    return Wish(layer, "dsa", taken_BTS, share_BTS, visible_TS, min(k, T))
