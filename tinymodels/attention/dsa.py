"""DeepSeek sparse attention (V3.2): MLA that reads only the entries its indexer picks.

Every token keeps a latent row and a small index key. A query scores all keys, picks the best k,
and attends to those rows alone. It reads less; it keeps *more*: the index keys come on top.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..config import MLA as Config
from ..config import Rope
from ..parts import Parts
from ..step import Step
from . import by_kernel
from .indexer import Asked, hadamard, search
from .mla import MLA, Query, Rows, causal
from .rope import rotate_by, turn_of_step
from .seen import FEW_TIMES, choice_rows, chosen


class Indexer(nn.Module):
    """Queries from MLA's query latent, one key a token from x, a weight for each head.

    Keys pass a LayerNorm with bias; RoPE turns the first dims of both, in halves (as released
    after November 2025, unlike MLA's adjacent pairs); the Hadamard turn spreads outliers before
    FP8. Sizes that are no power of two skip that turn: it changes no score.
    """

    def __init__(self, width: int, config: Config):
        super().__init__()
        index, source = config.indexer, config.q_rank or width
        self.config = index
        self.rope = Rope(index.rope_dim, config.rope.theta, "half", config.rope.yarn)
        self.query = nn.Linear(source, index.heads * index.dim, bias=False)
        self.key = nn.Linear(width, index.dim, bias=False)
        self.key_norm = nn.LayerNorm(index.dim, eps=1e-6)
        self.head_weight = nn.Linear(width, index.heads, bias=False)

    def project(
        self, x_BTX: Float[Tensor, "B T X"], latent_BTC: Float[Tensor, "B T C"], step: Step
    ) -> tuple[Float[Tensor, "B T I D"], Float[Tensor, "B T I"], dict[str, Tensor]]:
        """Index queries, the weights of their heads, and the index rows to keep."""
        c = self.config
        query_BTID = self._turn(self.query(latent_BTC).unflatten(-1, (c.heads, c.dim)), step)
        key_BTD = self._turn(self.key_norm(self.key(x_BTX)), step)
        weight_BTI = self.head_weight(x_BTX) * (c.heads * c.dim) ** -0.5
        return query_BTID, weight_BTI, {"index": key_BTD}

    def _turn(self, x: Tensor, step: Step) -> Tensor:
        turned, rest = x.split([self.rope.dim, x.shape[-1] - self.rope.dim], dim=-1)
        turn = step.once(turn_of_step, self.rope, x.dtype)
        x = torch.cat([rotate_by(turned, turn), rest], dim=-1)
        return x if x.shape[-1] & (x.shape[-1] - 1) else hadamard(x)


class DSA(MLA):
    """MLA with an indexer in front. `parts.select`, where it is somebody's own, chooses."""

    def __init__(self, width: int, config: Config, parts: Parts, eps: float = 1e-6):
        super().__init__(width, config, parts, eps)
        self.indexer = Indexer(width, config)
        self.select = parts.select if "select" in parts.own() else None

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        query, rows = self.project(x_BTX, step)
        # The indexer learns from its own loss alone, so nothing flows back through its inputs.
        seen = x_BTX.detach(), self.query_latent(x_BTX).detach()
        query_BTID, weight_BTI, keys = self.indexer.project(*seen, step)
        if cache is not None:
            rows, keys = cache.main.extend(rows), cache.index.extend(keys)
            query_BTID = cache.index.as_stored({"index": query_BTID})["index"]
        share = None if step.losses is None else self.share(query, rows, step)
        asked = Asked(query_BTID, weight_BTI, keys["index"])
        found = search(asked, step, 1, self.config.indexer.top_k, share, select=self.select)
        if share is not None:
            step = replace(step, losses=(*step.losses, found.loss))
        return self.read(query, rows, found.choice_BTk, step), step

    def read(self, query: Query, rows: Rows, choice_BTk: Int[Tensor, "B T k"], step: Step):
        """Attention to the chosen rows: all of them under a mask where they are few, otherwise
        each query's own, absorbed; by the kernel always so."""
        S, by_kernels = rows["latent"].shape[1], step.impl(rows["latent"]) == "triton"
        if not by_kernels and S <= FEW_TIMES * choice_BTk.shape[-1]:
            return self.attend(query, rows, chosen(choice_BTk, S))
        (nope_BTHD, rope_BTHR), (up_k_HDC, up_v_HDC) = query, self.up_projections()
        absorbed_BTHC = torch.einsum("bthd,hdc->bthc", nope_BTHD, up_k_HDC)
        both_BTHD = torch.cat([absorbed_BTHC, rope_BTHR], dim=-1) * self.scale
        rank = self.config.kv_rank
        own: Any = choice_rows(torch.cat([rows["latent"], rows["rope"]], dim=-1), choice_BTk, step)
        if by_kernels:
            latent_BTHC = by_kernel.look(both_BTHD, own, scale=1.0, value_dim=rank)
        else:
            latent_BTHC = own.mix(own.scores(both_BTHD).softmax(-1))[..., :rank]
        return self.output(torch.einsum("bthc,hdc->bthd", latent_BTHC, up_v_HDC).flatten(-2))

    @torch.no_grad()
    def share(self, query: Query, rows: Rows, step: Step) -> Callable[[slice, int], Tensor]:
        """The lesson: scores whose softmax is the attention of all heads together.

        The target is the sum of the heads' weights, made to add up to 1, and the loss how far
        the scores are from it (KL); V3.2 report, section 2.1, dense warm-up. Only the indexer
        gets a gradient from it.
        """
        query_BHTD, key_BHSD, _ = self._as_heads(query, rows)
        visible_TS = step.once(causal, key_BHSD.shape[2])

        @torch.no_grad()
        def share_of(block: slice, entries: int) -> Float[Tensor, "B T S"]:
            score_BHTS = query_BHTD[:, :, block] @ key_BHSD[:, :, :entries].mT * self.scale
            score_BHTS.masked_fill_(~visible_TS[block, :entries], -torch.inf)
            return score_BHTS.softmax(-1).mean(dim=1)

        return share_of
