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
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..config import MLA as Config
from ..norm import RMSNorm
from ..parts import Parts
from ..step import Step
from .rope import rotate_by, turn_of_step

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
        self.own_absorb = parts.absorb if "absorb" in parts.own() else None
        self.scale = softmax_scale(config)
        yarn = config.rope.yarn
        self.rope_factor = 1.0 if yarn is None else yarn.attention_factor
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
        # The shared rope key is turned as if it were one head more.
        both_BTHR = torch.cat([rope_BTHR, key_BTR.unsqueeze(2)], dim=2)
        both_BTHR = rotate_by(both_BTHR, step.once(turn_of_step, c.rope, x_BTX.dtype))
        if self.rope_factor != 1:
            both_BTHR = both_BTHR * self.rope_factor
        rows = {"latent": self.kv_norm(latent_BTC), "rope": both_BTHR[:, :, -1]}
        return (nope_BTHD, both_BTHR[:, :, :-1]), rows

    def attend(
        self, query: Query, rows: Rows, visible_BTS: Bool[Tensor, "*B T S"] | None = None
    ) -> Float[Tensor, "B T X"]:
        """Each query over the rows it may see; a query that sees none gets zeros.

        visible_BTS: None is causal order, the queries being the newest tokens of all.
        """
        new, entries = query[0].shape[1], rows["latent"].shape[1]
        absorb = absorbing_is_cheaper(self.config, new, entries)
        if self.form is not None:
            absorb = self.form == "absorbed"
        if absorb and visible_BTS is None and self.own_absorb is not None:
            seen_TS = in_order(new, entries, query[0].device)
            of_rows = rows["latent"], rows["rope"], *self.up_projections()
            return self.output(self.own_absorb(*query, *of_rows, self.scale, seen_TS).flatten(-2))
        # One token sees all, and torch's fused kernel knows the order of a whole text.
        if visible_BTS is None and new > 1 and (absorb or new < entries):
            visible_BTS = in_order(new, entries, query[0].device)
        out_BHTD = (self._absorbed if absorb else self._expanded)(query, rows, visible_BTS)
        return self.output(out_BHTD.transpose(1, 2).flatten(-2))

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        query, rows = self.project(x_BTX, step)
        if cache is not None:
            rows = cache.main.extend(rows)
        by_kernel = self.form != "expanded" and self.own_absorb is None
        if x_BTX.shape[1] == 1 and by_kernel and step.impl(x_BTX) == "triton":
            return self._decode(query, rows), step
        return self.attend(query, rows), step

    def _decode(self, query: Query, rows: Rows) -> Float[Tensor, "B 1 X"]:
        """One new token over all rows, absorbed, by the course's kernel."""
        from kernels import mla_decode

        (nope_B1HD, rope_B1HR), (up_k_HDC, up_v_HDC) = query, self.up_projections()
        absorbed_B1HC = torch.einsum("bthd,hdc->bthc", nope_B1HD, up_k_HDC)
        latent_B1HC = mla_decode(
            absorbed_B1HC, rope_B1HR, rows["latent"], rows["rope"], scale=self.scale, impl="triton"
        )
        return self.output(torch.einsum("bthc,hdc->bthd", latent_B1HC, up_v_HDC).flatten(-2))

    def up_projections(self) -> tuple[Float[Tensor, "H D C"], Float[Tensor, "H D C"]]:
        """W_UK and W_UV by head."""
        c = self.config
        both_HDC = self.kv_up.weight.unflatten(0, (c.heads, c.nope_dim + c.v_dim))
        return both_HDC.split([c.nope_dim, c.v_dim], dim=1)

    def look(self, query: Query, rows: Rows, visible_BTS) -> Float[Tensor, "B H T S"]:
        """How much each head takes from every row."""
        query_BHTD, key_BHSD, _ = self._as_heads(query, rows)
        return masked_softmax(query_BHTD @ key_BHSD.mT * self.scale, visible_BTS.unsqueeze(-3))

    def _as_heads(self, query: Query, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of H ordinary heads: [B, H, T or S, D]."""
        c, latent_BSC = self.config, rows["latent"]
        kv_BSHD = self.kv_up(latent_BSC).unflatten(-1, (c.heads, -1))
        key_BSHD, value_BSHD = kv_BSHD.split([c.nope_dim, c.v_dim], dim=-1)
        rope_BSHR = rows["rope"].unsqueeze(2).expand(*key_BSHD.shape[:3], -1)
        key_BSHD = torch.cat([key_BSHD, rope_BSHR], dim=-1)
        return tuple(x.transpose(1, 2) for x in (torch.cat(query, dim=-1), key_BSHD, value_BSHD))

    def _expanded(self, query: Query, rows: Rows, visible_BTS) -> Float[Tensor, "B H T D"]:
        query_BHTD, key_BHSD, value_BHSD = self._as_heads(query, rows)
        # torch's fused kernel wants values as wide as keys; what is added is cut off again.
        missing = max(0, key_BHSD.shape[-1] - self.config.v_dim)
        mask_BHTS = visible_BTS
        if visible_BTS is not None:
            mask_BHTS = visible_BTS.reshape(-1, 1, *visible_BTS.shape[-2:])
        out_BHTD = F.scaled_dot_product_attention(
            query_BHTD,
            key_BHSD,
            F.pad(value_BHSD, (0, missing)),
            attn_mask=mask_BHTS,
            is_causal=visible_BTS is None and query_BHTD.shape[2] > 1,
            scale=self.scale,
        )
        return out_BHTD[..., : self.config.v_dim]

    def _absorbed(self, query: Query, rows: Rows, visible_BTS) -> Float[Tensor, "B H T D"]:
        nope_BHTD, rope_BHTR = (x.transpose(1, 2) for x in query)
        latent_BSC, (up_k_HDC, up_v_HDC) = rows["latent"], self.up_projections()
        # Rows are the same for all heads, so heads and tokens (h) are the rows of one product.
        query_BhC, rope_BhR = (nope_BHTD @ up_k_HDC).flatten(1, 2), rope_BHTR.flatten(1, 2)
        score_BhS = torch.baddbmm(
            rope_BhR @ rows["rope"].mT, query_BhC, latent_BSC.mT, beta=self.scale, alpha=self.scale
        )
        if visible_BTS is None:
            weight_BhS = score_BhS.softmax(-1)
        else:
            score_BHTS = score_BhS.unflatten(1, nope_BHTD.shape[1:3])
            weight_BhS = masked_softmax(score_BHTS, visible_BTS.unsqueeze(-3)).flatten(1, 2)
        return (weight_BhS @ latent_BSC).unflatten(1, nope_BHTD.shape[1:3]) @ up_v_HDC.mT


def in_order(new: int, entries: int, device=None) -> Bool[Tensor, "T S"]:
    """What each of the `new` newest of `entries` tokens may see: itself and all before it."""
    return torch.ones(new, entries, dtype=torch.bool, device=device).tril(entries - new)


def causal(step: Step, entries: int) -> Bool[Tensor, "T S"]:
    """That of a pass's own tokens. Layers share it: `step.once(causal, entries)`."""
    return in_order(step.tokens_BT.shape[1], entries, step.tokens_BT.device)


def masked_softmax(
    score: Float[Tensor, "*B S"], visible: Bool[Tensor, "*B S"]
) -> Float[Tensor, "*B S"]:
    """Softmax over what is visible; a row that sees nothing is all zeros, never NaN."""
    # The least number instead of -inf: where nothing is visible the softmax stays defined.
    score = score.masked_fill(~visible, torch.finfo(score.dtype).min)
    return score.softmax(-1) * visible.any(-1, keepdim=True)
