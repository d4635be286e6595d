"""DeepSeek sparse attention (V3.2): MLA that reads only the entries its indexer picks.

Every token keeps a latent row and a small index key. A query scores all keys, picks the best k,
and attends to those rows alone. It reads less; it keeps *more*: the index keys come on top.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..config import MLA as Config
from ..config import Rope
from ..parts import Parts
from ..step import Step
from .indexer import chosen, hadamard, index_scores, top_k
from .mla import MLA, causal
from .rope import rotate_by, turn_of_step


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
    """MLA with an indexer in front."""

    def __init__(self, width: int, config: Config, parts: Parts, eps: float = 1e-6):
        super().__init__(width, config, parts, eps)
        self.indexer = Indexer(width, config)

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        query, rows = self.project(x_BTX, step)
        # The indexer learns from its own loss alone, so nothing flows back through its inputs.
        seen = x_BTX.detach(), self.query_latent(x_BTX).detach()
        query_BTID, weight_BTI, keys = self.indexer.project(*seen, step)
        if cache is not None:
            rows, keys = cache.main.extend(rows), cache.index.extend(keys)
            query_BTID = cache.index.as_stored({"index": query_BTID})["index"]
        visible_TS = step.once(causal, rows["latent"].shape[1])
        score_BTS = index_scores(query_BTID, weight_BTI, keys["index"])
        index_BTk = top_k(score_BTS, visible_TS, self.config.indexer.top_k)
        visible_BTS = chosen(index_BTk, visible_TS.shape[-1])
        if step.losses is not None:
            loss = self.follow(score_BTS, query, rows, visible_TS)
            step = replace(step, losses=(*step.losses, loss))
        return self.attend(query, rows, visible_BTS), step

    def follow(self, score_BTS, query, rows, visible_TS) -> Float[Tensor, ""]:
        """How far the indexer's softmax is from the attention of all heads together (KL).

        The sum of the heads' weights, made to add up to 1, is the target; V3.2 report, section
        2.1, dense warm-up. Only the indexer gets a gradient from it.
        """
        with torch.no_grad():
            target_BTS = self.look(query, rows, visible_TS).mean(dim=1)
        log_BTS = score_BTS.masked_fill(~visible_TS, -torch.inf).log_softmax(-1)
        log_BTS = log_BTS.masked_fill(~visible_TS, 0.0)
        entropy_BT = torch.special.entr(target_BTS).sum(-1)
        return (-(target_BTS * log_BTS).sum(-1) - entropy_BT).mean()
