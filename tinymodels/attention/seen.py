"""Which rows a query looks at, and the softmax over them (V4, V4.1).

    e_s = exp(q . c_s / sqrt D)        out = (sum of e_s c_s) / (exp(sink) + sum of e_s)

A layer looks at several kinds of rows in one softmax: a window, and far entries, all of them or
a choice. They differ only in which queries look at the same rows. So queries come in runs:

    all rows      one run: every query looks at all of them, and a mask hides some
    a window      runs of W queries, each of which looks at its own W rows and the W before them
    a choice      every query is a run of its own, with its own rows

Then nothing is computed that a mask would throw away: a window costs T x 2W scores, not T x T.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..step import Step
from . import by_kernel

FEW_TIMES = 8  # up to so many times the chosen rows, all rows under a mask are faster


class Seen(NamedTuple):
    """Rows for G runs of c queries. visible: which of its run's rows each query may see, for
    G c >= T queries, of which those after T are padding; None: all of them."""

    rows_BGRD: Float[Tensor, "B G R D"]
    visible: Bool[Tensor, "*B M R"] | None

    def scores(self, query_BTHD: Float[Tensor, "B T H D"]) -> Float[Tensor, "B T H R"]:
        """Dot products, -inf where a row is hidden."""
        score_BTHR = self._times(query_BTHD, self.rows_BGRD.mT)
        if self.visible is None:
            return score_BTHR
        hidden = ~self.visible[..., : query_BTHD.shape[1], :]
        return score_BTHR.masked_fill_(hidden.unsqueeze(-2), -torch.inf)

    def mix(self, weight_BTHR: Float[Tensor, "B T H R"]) -> Float[Tensor, "B T H D"]:
        """The sum of all rows, each times its weight."""
        return self._times(weight_BTHR, self.rows_BGRD)

    def _times(self, x_BTHi: Tensor, matrix_BGij: Tensor) -> Float[Tensor, "B T H j"]:
        """Every query times the matrix of its run."""
        B, T, H, _ = x_BTHi.shape
        runs = matrix_BGij.shape[1]
        padded = T if self.visible is None else self.visible.shape[-2]
        if padded > T:
            x_BTHi = F.pad(x_BTHi, (0, 0, 0, 0, 0, padded - T))
        product = x_BTHi.reshape(B * runs, padded // runs * H, -1) @ matrix_BGij.flatten(0, 1)
        return product.view(B, padded, H, -1)[:, :T]


# ---------------------------------------------------------------- the three kinds of rows


def all_rows(entry_BSD: Float[Tensor, "B S D"], visible: Bool[Tensor, "*B T S"] | None) -> Seen:
    return Seen(entry_BSD.unsqueeze(1), visible)


def window_rows(
    entry_BSD: Float[Tensor, "B S D"], step: Step, window: int
) -> Seen | by_kernel.Listed:
    """The rows of the T new tokens and of those before them that a window still reaches."""
    if step.impl(entry_BSD) == "triton":
        return by_kernel.Listed(entry_BSD, reach=window)
    T = step.tokens_BT.shape[1]
    entry_BSD = entry_BSD[:, -(T + window - 1) :]
    S = entry_BSD.shape[1]
    if T == 1:  # every row left is inside the window of the newest token
        return all_rows(entry_BSD, None)
    if T <= 2 * window:
        return all_rows(entry_BSD, step.once(in_window, S, window))
    runs = -(-T // window)
    padded_BSD = F.pad(entry_BSD, (0, 0, window - (S - T), runs * window - T))
    block_BGWD = padded_BSD.unflatten(1, (runs + 1, window))
    rows_BGRD = torch.cat([block_BGWD[:, :-1], block_BGWD[:, 1:]], dim=2)
    return Seen(rows_BGRD, step.once(in_window_by_runs, S, window))


def all_groups(
    entry_BSD: Float[Tensor, "B S D"], step: Step, ratio: int
) -> Seen | by_kernel.Listed:
    """Every complete group."""
    if step.impl(entry_BSD) == "triton":
        index_BTS = step.once(by_kernel.every_group, entry_BSD.shape[1], ratio)
        return by_kernel.Listed(entry_BSD, index_BTS)
    if step.tokens_BT.shape[1] == 1:  # what is stored is complete, and older than one new token
        return all_rows(entry_BSD, None)
    return all_rows(entry_BSD, step.once(complete_groups, entry_BSD.shape[1], ratio))


def choice_rows(
    entry_BSD: Float[Tensor, "B S D"],
    choice_BTk: Int[Tensor, "B T k"],
    step: Step | None = None,
    every: bool = False,
) -> Seen | by_kernel.Listed:
    """Each query's own choice; -1 chooses nothing. every: there is no -1."""
    if step is not None and step.impl(entry_BSD) == "triton":
        return by_kernel.Listed(entry_BSD, choice_BTk)
    (B, S, _), (_, T, k) = entry_BSD.shape, choice_BTk.shape
    if T > 1 and S <= FEW_TIMES * k:  # then a mask costs less than rows for each query
        return all_rows(entry_BSD, chosen(choice_BTk, S))
    visible_BTk = None if every else choice_BTk >= 0
    if not every:
        choice_BTk = choice_BTk.clamp(min=0)
    if B > 1:
        choice_BTk = choice_BTk + S * torch.arange(B, device=choice_BTk.device).view(B, 1, 1)
    # A look-up in a table: the same as indexing, with a far faster gradient.
    return Seen(F.embedding(choice_BTk, entry_BSD.flatten(0, 1)), visible_BTk)


def chosen(index_BTk: Int[Tensor, "*B T k"], entries: int) -> Bool[Tensor, "*B T S"]:
    """The same choice as a mask over `entries` rows; -1 chooses nothing."""
    shape = (*index_BTk.shape[:-1], entries + 1)
    mask = torch.zeros(shape, dtype=torch.bool, device=index_BTk.device)
    place = index_BTk.masked_fill(index_BTk < 0, entries)
    return mask.scatter(-1, place, True)[..., :entries]


def in_window(step: Step, entries: int, window: int) -> Bool[Tensor, "T S"]:
    """Which of `entries` consecutive rows, the last of which is the newest token's, each query
    may see: its own and the window - 1 before it."""
    end = step.start + step.tokens_BT.shape[1]
    rows_S = torch.arange(end - entries, end, device=step.tokens_BT.device)
    behind_TS = step.positions_T[:, None] - rows_S
    return (behind_TS >= 0) & (behind_TS < window)


def in_window_by_runs(step: Step, entries: int, window: int) -> Bool[Tensor, "M 2W"]:
    """The same, of each query's run of rows (see `window_rows`)."""
    T = step.tokens_BT.shape[1]
    runs, before = -(-T // window), window - (entries - T)
    padding = (before, runs * window - T, 0, runs * window - T)
    padded_MS = F.pad(in_window(step, entries, window), padding)
    of_run = padded_MS.unflatten(0, (runs, window)).unfold(2, 2 * window, window)
    each = torch.arange(runs, device=of_run.device)
    return of_run[each, :, each].flatten(0, 1)


def in_one_run(
    queries: int, *seen: Seen | by_kernel.Listed
) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "T S"]] | None:
    """All rows side by side and which of them each query sees; None where queries look at other
    rows, or the texts of a batch at other places."""
    for kind in seen:
        if isinstance(kind, by_kernel.Listed) or kind.rows_BGRD.shape[1] > 1:
            return None
        if kind.visible is not None and kind.visible.dim() > 2:
            return None
    rows_BSD = torch.cat([kind.rows_BGRD[:, 0] for kind in seen], dim=1)
    every = torch.ones(queries, rows_BSD.shape[1], dtype=torch.bool, device=rows_BSD.device)
    masks = [every[:, : k.rows_BGRD.shape[2]] if k.visible is None else k.visible for k in seen]
    return rows_BSD, torch.cat(masks, dim=1)


def complete_groups(step: Step, entries: int, ratio: int) -> Bool[Tensor, "T S"]:
    """Which of the first `entries` groups each query may see: those whose last token is there.

    Group j is visible at position t if j < floor((t + 1) / ratio).
    """
    groups_S = torch.arange(entries, device=step.tokens_BT.device)
    return groups_S < ((step.positions_T + 1) // ratio)[:, None]


# ---------------------------------------------------------------- one softmax


def look(
    query_BTHD: Float[Tensor, "B T H D"],
    sink_H: Float[Tensor, "H"],
    *seen: Any,  # all of them Seen, or all of them by_kernel.Listed
) -> Float[Tensor, "B T H D"]:
    """One softmax over everything that is seen, and what each query takes from it."""
    if isinstance(seen[0], by_kernel.Listed):
        return by_kernel.look(query_BTHD, *seen, sink_H=sink_H)
    query_BTHD = query_BTHD * query_BTHD.shape[-1] ** -0.5
    weights = softmax_with_sink([kind.scores(query_BTHD) for kind in seen], sink_H)
    return sum(kind.mix(weight) for kind, weight in zip(seen, weights, strict=True))


def softmax_with_sink(
    scores: list[Float[Tensor, "B T H _"]], sink: Float[Tensor, "*BT H"]
) -> tuple[Float[Tensor, "B T H _"], ...]:
    """Softmax over all scores and one more logit a head, whose weight goes nowhere."""
    score = scores[0]
    sink_BTH1 = sink.to(score.dtype).unsqueeze(-1).expand(*score.shape[:-1], 1)
    weight = torch.cat([*scores, sink_BTH1], dim=-1).softmax(-1)
    return weight.split([s.shape[-1] for s in scores] + [1], dim=-1)[:-1]


@torch.no_grad()
def weight_near(query_BTHD, sink_H, near: Seen) -> Float[Tensor, "B T H"]:
    """The logarithm of all that the window and the sink weigh in the softmax, before it is
    made to add up to 1. To far entries they are one large sink."""
    score_BTHR = near.scores(query_BTHD * query_BTHD.shape[-1] ** -0.5)
    sink_BTH = sink_H.to(score_BTHR.dtype).expand(score_BTHR.shape[:-1])
    return torch.logaddexp(score_BTHR.logsumexp(-1), sink_BTH)


@torch.no_grad()
def far_share(query_BTHD, near_BTH, far: Seen) -> Float[Tensor, "B T R"]:
    """How much all heads together take from each far entry: what an indexer should find.

    near_BTH: from `weight_near`.
    """
    scores = far.scores(query_BTHD * query_BTHD.shape[-1] ** -0.5)
    return softmax_with_sink([scores], near_BTH)[0].mean(-2)
