"""Multi-head latent attention (V2, arXiv 2405.04434, section 2.1): one small latent for all heads.

    c = RMSNorm(W_DKV x)        the latent, C numbers           kept
    k_R = RoPE(W_KR x)          one rope key for all heads      kept
    k_h = [W_UK,h c ; k_R]      v_h = W_UV,h c                  made when needed

Keys and values of H heads are never kept: the latent is, and they can be made from it. They need
not even be made. For a score,

    q . (W_UK c) = (W_UK^T q) . c

so the up-projection can be *absorbed* into the query, and W_UV into the output. Both forms are
here, and give the same numbers. A rotation between W_UQ and W_UK would stand in the way: it differs
with every pair of positions. So position travels apart, in k_R ("decoupled RoPE").
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..config import MLA as Config
from ..norm import RMSNorm
from ..parts import Parts
from ..step import Step
from .rope import rotate

Query = tuple[Tensor, Tensor]  # nope_BTHD and rope_BTHR
Rows = dict[str, Tensor]  # latent_BSC and rope_BSR


def softmax_scale(config: Config) -> float:
    """1 / sqrt(nope + rope); with YaRN times mscale^2 (V2, appendix B; arXiv 2309.00071)."""
    scale, yarn = (config.nope_dim + config.rope_dim) ** -0.5, config.rope.yarn
    if yarn is not None and yarn.mscale_all_dim and yarn.factor > 1:
        scale *= (0.1 * yarn.mscale_all_dim * math.log(yarn.factor) + 1) ** 2
    return scale


def absorbing_is_cheaper(config: Config, new: int, entries: int) -> bool:
    """Whether T = `new` queries against S = `entries` rows take fewer FLOPs absorbed.

    Expanding costs every row an up-projection, once for all queries; absorbing costs every
    query one, and makes each score C + R numbers long. Decode absorbs, a long prompt expands.
    """
    C, R, nope, v = config.kv_rank, config.rope_dim, config.nope_dim, config.v_dim
    expanded = entries * C * (nope + v) + new * entries * (nope + R + v)
    absorbed = new * C * (nope + v) + new * entries * (C + R + C)
    return absorbed < expanded


class MLA(nn.Module):
    """`project` makes queries and latent rows; `attend` reads them, expanded or absorbed.

    form: "expanded" or "absorbed" fixes it; None takes the cheaper one for each chunk.
    """

    def __init__(self, width: int, config: Config, parts: Parts, eps: float = 1e-6):
        super().__init__()
        self.config, self.parts, self.form = config, parts, None
        self.scale = softmax_scale(config)
        queries = config.heads * (config.nope_dim + config.rope_dim)
        if config.q_rank is None:
            self.query_down = self.query_norm = None
        else:
            self.query_down = nn.Linear(width, config.q_rank, bias=False)
            self.query_norm = RMSNorm(config.q_rank, eps)
        self.query = nn.Linear(config.q_rank or width, queries, bias=False)
        self.kv_down = nn.Linear(width, config.kv_rank + config.rope_dim, bias=False)
        self.kv_norm = RMSNorm(config.kv_rank, eps)
        self.kv_up = nn.Linear(
            config.kv_rank, config.heads * (config.nope_dim + config.v_dim), bias=False
        )
        self.output = nn.Linear(config.heads * config.v_dim, width, bias=False)

    def query_latent(self, x_BTX: Float[Tensor, "B T X"]) -> Float[Tensor, "B T C"]:
        """What queries are made from: a latent of their own, or x where q_rank is None."""
        return x_BTX if self.query_down is None else self.query_norm(self.query_down(x_BTX))

    def project(self, x_BTX: Float[Tensor, "B T X"], step: Step) -> tuple[Query, Rows]:
        """Queries, and the rows to keep: the latent after its norm, the rope key after RoPE."""
        c = self.config
        query_BTHD = self.query(self.query_latent(x_BTX)).unflatten(-1, (c.heads, -1))
        nope_BTHD, rope_BTHR = query_BTHD.split([c.nope_dim, c.rope_dim], dim=-1)
        latent_BTC, key_BTR = self.kv_down(x_BTX).split([c.kv_rank, c.rope_dim], dim=-1)
        rows = {
            "latent": self.kv_norm(latent_BTC),
            "rope": rotate(key_BTR, c.rope, step.positions_T),
        }
        return (nope_BTHD, rotate(rope_BTHR, c.rope, step.positions_T)), rows

    def attend(
        self, query: Query, rows: Rows, visible_BTS: Bool[Tensor, "*B T S"]
    ) -> Float[Tensor, "B T X"]:
        """Each query over the rows it may see. A query that sees none gets zeros."""
        new, entries = query[0].shape[1], rows["latent"].shape[1]
        absorb = absorbing_is_cheaper(self.config, new, entries)
        if self.form is not None:
            absorb = self.form == "absorbed"
        out_BTHD = (self._absorbed if absorb else self._expanded)(query, rows, visible_BTS)
        return self.output(out_BTHD.flatten(-2))

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        query, rows = self.project(x_BTX, step)
        if cache is not None:
            rows = cache.main.extend(rows)
        return self.attend(query, rows, causal(step, rows["latent"].shape[1])), step

    def up_projections(self) -> tuple[Float[Tensor, "H D C"], Float[Tensor, "H D C"]]:
        """W_UK and W_UV by head."""
        c = self.config
        both_HDC = self.kv_up.weight.unflatten(0, (c.heads, c.nope_dim + c.v_dim))
        return both_HDC.split([c.nope_dim, c.v_dim], dim=1)

    def look(self, query: Query, rows: Rows, visible_BTS) -> Float[Tensor, "B H T S"]:
        """How much each head takes from every row, expanded."""
        return self._scores_expanded(query, rows, visible_BTS)[0]

    def _scores_expanded(self, query: Query, rows: Rows, visible_BTS):
        c, (nope_BTHD, rope_BTHR) = self.config, query
        kv_BSHD = self.kv_up(rows["latent"]).unflatten(-1, (c.heads, -1))
        key_BSHD, value_BSHD = kv_BSHD.split([c.nope_dim, c.v_dim], dim=-1)
        score_BHTS = torch.einsum("bthd,bshd->bhts", nope_BTHD, key_BSHD)
        return self._weights(score_BHTS, rope_BTHR, rows, visible_BTS), value_BSHD

    def _expanded(self, query: Query, rows: Rows, visible_BTS) -> Float[Tensor, "B T H D"]:
        weight_BHTS, value_BSHD = self._scores_expanded(query, rows, visible_BTS)
        return torch.einsum("bhts,bshd->bthd", weight_BHTS, value_BSHD)

    def _absorbed(self, query: Query, rows: Rows, visible_BTS) -> Float[Tensor, "B T H D"]:
        (nope_BTHD, rope_BTHR), (up_k_HDC, up_v_HDC) = query, self.up_projections()
        query_BTHC = torch.einsum("bthd,hdc->bthc", nope_BTHD, up_k_HDC)
        score_BHTS = torch.einsum("bthc,bsc->bhts", query_BTHC, rows["latent"])
        weight_BHTS = self._weights(score_BHTS, rope_BTHR, rows, visible_BTS)
        out_BTHC = torch.einsum("bhts,bsc->bthc", weight_BHTS, rows["latent"])
        return torch.einsum("bthc,hdc->bthd", out_BTHC, up_v_HDC)

    def _weights(self, score_BHTS, rope_BTHR, rows: Rows, visible_BTS):
        """Add the part of the score that knows positions, scale, mask, softmax."""
        score_BHTS = score_BHTS + torch.einsum("bthr,bsr->bhts", rope_BTHR, rows["rope"])
        return masked_softmax(score_BHTS * self.scale, visible_BTS.unsqueeze(-3))


def causal(step: Step, entries: int) -> Bool[Tensor, "T S"]:
    """Which of `entries` rows each token may see: its own and all before it."""
    positions_S = torch.arange(entries, device=step.tokens_BT.device)
    return positions_S <= step.positions_T[:, None]


def masked_softmax(
    score: Float[Tensor, "*B S"], visible: Bool[Tensor, "*B S"]
) -> Float[Tensor, "*B S"]:
    """Softmax over what is visible; a row that sees nothing is all zeros, never NaN."""
    score = score.masked_fill(~visible, -torch.inf)
    most = score.amax(-1, keepdim=True).clamp(min=torch.finfo(score.dtype).min)
    power = torch.exp(score - most)
    return power / power.sum(-1, keepdim=True).clamp(min=torch.finfo(score.dtype).tiny)
