"""The near memory of V4 and V4.1: a window of the newest W tokens, one latent each.

    c = RoPE(RMSNorm(W_KV x))      one latent, key and value of every head      kept, W of them
    q_h = RoPE(W_B RMSNorm(W_A x))
    out_h = unturn( (sum of e_s c_s) / (exp(sink_h) + sum of e_s) )   e_s = exp(q_h . c_s / sqrt D)

Layers of ratio 0 have nothing else; all others read far entries in the same softmax. K = V, so a
value carries its key's rotation. The output's last dims are turned back by the query's angle, and
depend on distances alone. A sink is a logit of every head that no value belongs to: a head that
finds nothing to read can give its weight to it, and read less.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..cache import groups
from ..config import CSA2, Grouped
from ..norm import RMSNorm
from ..step import Step
from .output import GroupedOutput
from .rope import Turn, rotate_by, turn_of_step


class Sliding(nn.Module):
    """What every V4 and V4.1 layer has. Subclasses add far entries.

    V4 brings each head's query to length sqrt(D) once more after W_B; V4.1 does not.
    """

    def __init__(self, width: int, config: Grouped | CSA2, eps: float):
        super().__init__()
        c = self.config = config
        self.eps, self.query_heads_normed = eps, isinstance(config, Grouped)
        self.query_down = nn.Linear(width, c.q_rank, bias=False)
        self.query_norm = RMSNorm(c.q_rank, eps)
        self.query = nn.Linear(c.q_rank, c.heads * c.head_dim, bias=False)
        self.kv = nn.Linear(width, c.head_dim, bias=False)
        self.kv_norm = RMSNorm(c.head_dim, eps)
        self.sink = nn.Parameter(torch.zeros(c.heads))
        self.output = GroupedOutput(c.heads, c.head_dim, c.out_groups, c.out_rank, width)

    def query_latent(self, x_BTX: Float[Tensor, "B T X"]) -> Float[Tensor, "B T C"]:
        """What queries are made from; the indexer's too."""
        return self.query_norm(self.query_down(x_BTX))

    def project(
        self, x_BTX: Float[Tensor, "B T X"], latent_BTC: Float[Tensor, "B T C"], step: Step
    ) -> tuple[Float[Tensor, "B T H D"], Float[Tensor, "B T D"]]:
        """Queries, and the window's entries, both at their positions."""
        c = self.config
        query_BTHD = self.query(latent_BTC).unflatten(-1, (c.heads, c.head_dim))
        if self.query_heads_normed:
            query_BTHD = F.rms_norm(query_BTHD, query_BTHD.shape[-1:], eps=self.eps)
        entry_BTD = self.kv_norm(self.kv(x_BTX))
        turn = step.once(turn_of_step, c.rope, x_BTX.dtype)
        return rotate_tail(query_BTHD, turn), rotate_tail(entry_BTD, turn)

    def near(
        self, entry_BTD: Float[Tensor, "B T D"], step: Step, cache=None
    ) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "T S"]]:
        """The window's entries after storing the new ones, and which of them each query sees."""
        if cache is not None:
            entry_BTD = groups.extend(cache.window, entry_BTD)
        return entry_BTD, step.once(in_window, entry_BTD.shape[1], self.config.window)

    def attend(
        self,
        query_BTHD: Float[Tensor, "B T H D"],
        entry_BSD: Float[Tensor, "B S D"],
        visible_BTS: Bool[Tensor, "*B T S"],
        step: Step,
    ) -> Float[Tensor, "B T X"]:
        """One softmax over everything that is visible, near and far."""
        weight_BTHS = self.weights(query_BTHD, entry_BSD, visible_BTS)
        out_BTHD = (weight_BTHS.flatten(1, 2) @ entry_BSD).view_as(query_BTHD)
        turn = step.once(turn_of_step, self.config.rope, out_BTHD.dtype)
        return self.output(rotate_tail(out_BTHD, turn, back=True))

    def weights(self, query_BTHD, entry_BSD, visible_BTS) -> Float[Tensor, "B T H S"]:
        """How much each head takes from every entry."""
        T, S = visible_BTS.shape[-2:]
        score_BMS = query_BTHD.flatten(1, 2) @ entry_BSD.transpose(-1, -2)
        score_BTHS = score_BMS.view(-1, T, self.config.heads, S) * self.config.head_dim**-0.5
        return softmax_with_sink(score_BTHS, visible_BTS.unsqueeze(-2), self.sink)

    @torch.no_grad()
    def far_share(self, query_BTHD, near, far) -> Float[Tensor, "B T S"]:
        """How much all heads together take from each far entry: what an indexer should find."""
        weight_BTHS = self.weights(query_BTHD, *near_and_far(near, far))
        return weight_BTHS[..., near[0].shape[1] :].mean(-2)

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        query_BTHD, entry_BTD = self.project(x_BTX, self.query_latent(x_BTX), step)
        entry_BSD, visible_TS = self.near(entry_BTD, step, cache)
        return self.attend(query_BTHD, entry_BSD, visible_TS, step), step


def near_and_far(near, far) -> tuple[Float[Tensor, "B S D"], Bool[Tensor, "*B T S"]]:
    """(entries, visible) of a window and of a far memory, as one."""
    (near_BSD, near_TS), (far_BSD, far_BTS) = near, far
    near_TS = near_TS.expand(*far_BTS.shape[:-2], *near_TS.shape[-2:])
    return torch.cat([near_BSD, far_BSD], dim=1), torch.cat([near_TS, far_BTS], dim=-1)


def in_window(step: Step, entries: int, window: int) -> Bool[Tensor, "T S"]:
    """Which of `entries` consecutive rows, the last of which is the newest token's, each query
    may see: its own and the window - 1 before it."""
    end = step.start + step.tokens_BT.shape[1]
    rows_S = torch.arange(end - entries, end, device=step.tokens_BT.device)
    behind_TS = step.positions_T[:, None] - rows_S
    return (behind_TS >= 0) & (behind_TS < window)


def complete_groups(step: Step, entries: int, ratio: int) -> Bool[Tensor, "T S"]:
    """Which of the first `entries` groups each query may see: those whose last token is there.

    Group j is visible at position t if j < floor((t + 1) / ratio).
    """
    groups_S = torch.arange(entries, device=step.tokens_BT.device)
    return groups_S < ((step.positions_T + 1) // ratio)[:, None]


def softmax_with_sink(
    score_BTHS: Float[Tensor, "B T H S"],
    visible: Bool[Tensor, "*B T 1 S"],
    sink_H: Float[Tensor, "H"],
) -> Float[Tensor, "B T H S"]:
    """Softmax over what is visible and one more logit a head, whose weight goes nowhere."""
    score_BTHS = score_BTHS.masked_fill(~visible, -torch.inf)
    sink_BTH1 = sink_H.to(score_BTHS.dtype)[:, None].expand(*score_BTHS.shape[:-1], 1)
    return torch.cat([score_BTHS, sink_BTH1], dim=-1).softmax(-1)[..., :-1]


def rotate_tail(
    x: Float[Tensor, "B T *heads D"], turn: Turn, back: bool = False
) -> Float[Tensor, "B T *heads D"]:
    """Turn the last numbers, as many as `turn` has angles for, and leave the others."""
    dim = 2 * turn.cos_TR.shape[-1]
    rest, turned = x.split([x.shape[-1] - dim, dim], dim=-1)
    if back:
        turn = turn._replace(sin_TR=-turn.sin_TR)
    return torch.cat([rest, rotate_by(turned, turn)], dim=-1)
