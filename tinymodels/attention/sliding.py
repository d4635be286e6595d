"""The near memory of V4 and V4.1: a window of the newest W tokens, one latent each.

    c = RoPE(RMSNorm(W_KV x))      one latent, key and value of every head      kept, W of them
    q_h = RoPE(W_B RMSNorm(W_A x))
    out_h = unturn( (sum of e_s c_s) / (exp(sink_h) + sum of e_s) )   e_s = exp(q_h . c_s / sqrt D)

Layers of ratio 0 have nothing else; all others read far entries in the same softmax. K = V, so a
value carries its key's rotation. The output's last dims are turned back by the query's angle, and
depend on distances alone. A sink is a logit of every head that no value belongs to: a head that
finds nothing to read can give its weight to it, and read less.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..cache import groups
from ..config import CSA2, Grouped
from ..norm import RMSNorm
from ..parts import Parts
from ..step import Step
from .by_kernel import Listed
from .output import GroupedOutput
from .rope import rotate_tail, turn_of_step
from .seen import (
    Seen,
    all_rows,
    complete_groups,
    far_share,
    in_one_run,
    look,
    weight_near,
    window_rows,
)


class Sliding(nn.Module):
    """What every V4 and V4.1 layer has. Subclasses add far entries.

    V4 brings each head's query to length sqrt(D) once more after W_B; V4.1 does not. parts: its
    `attend_with_sink`, where it is somebody's own, is asked where all queries have the same rows.
    """

    def __init__(self, width: int, config: Grouped | CSA2, eps: float, parts: Parts | None = None):
        super().__init__()
        own = parts is not None and "attend_with_sink" in parts.own()
        self.own_look = parts.attend_with_sink if own else None
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
            mean_square = torch.linalg.vecdot(query_BTHD, query_BTHD).unsqueeze(-1) / c.head_dim
            query_BTHD = query_BTHD * torch.rsqrt(mean_square + self.eps)
        entry_BTD = self.kv_norm(self.kv(x_BTX))
        turn = step.once(turn_of_step, c.rope, x_BTX.dtype)
        return rotate_tail(query_BTHD, turn), rotate_tail(entry_BTD, turn)

    def near(self, entry_BTD: Float[Tensor, "B T D"], step: Step, cache=None) -> Seen | Listed:
        """The window, after storing the new entries."""
        if cache is not None:
            entry_BTD = groups.extend(cache.window, entry_BTD)
        return window_rows(entry_BTD, step, self.config.window)

    def attend(
        self, query_BTHD: Float[Tensor, "B T H D"], step: Step, *seen: Seen | Listed
    ) -> Float[Tensor, "B T X"]:
        """One softmax over everything that is seen, near and far."""
        alike = in_one_run(query_BTHD.shape[1], *seen) if self.own_look is not None else None
        if alike is not None:
            out_BTHD = self.own_look(query_BTHD, *alike, self.sink)
        else:
            out_BTHD = look(query_BTHD, self.sink, *seen)
        turn = step.once(turn_of_step, self.config.rope, out_BTHD.dtype)
        return self.output(rotate_tail(out_BTHD, turn, back=True))

    def share(
        self, query_BTHD, near: Any, far_BSD, step: Step, ratio: int
    ) -> Callable[[slice, int], Tensor]:
        """For the lesson of an indexer: how much this layer's attention takes from the first so
        many far entries, for a slice of queries. near: Seen, for the kernels do not learn."""
        query_BTHD, far_BSD = query_BTHD.detach(), far_BSD.detach()
        near_BTH = weight_near(query_BTHD, self.sink, near)
        visible_TS = step.once(complete_groups, far_BSD.shape[1], ratio)

        def share_of(block: slice, entries: int) -> Float[Tensor, "B T S"]:
            far = all_rows(far_BSD[:, :entries], visible_TS[block, :entries])
            return far_share(query_BTHD[:, block], near_BTH[:, block], far)

        return share_of

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        query_BTHD, entry_BTD = self.project(x_BTX, self.query_latent(x_BTX), step)
        return self.attend(query_BTHD, step, self.near(entry_BTD, step, cache)), step
