"""Groups as entries (V4 report): CSA, which pools 4 tokens and chooses, and HCA, which pools 128.

    value = W_KV x     gate = W_G x + bias[position in the group]
    entry_j = RoPE at j m ( RMSNorm( sum over the group of softmax(gate) value ) )

The softmax runs over the tokens of a group, for each channel by itself. A CSA group overlaps the
one before it: tokens have two values and two gates, one for the group they end in and one for the
next, so entry j pools 2m tokens and still there is one entry for every m. An entry is at home at
its group's first position, and visible once its last token is there.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..cache import groups
from ..config import Grouped, Rope
from ..norm import RMSNorm
from ..parts import Parts
from ..step import Step
from .indexer import Asked, hadamard, search
from .rope import Turn, rotate_tail, turn_of, turn_of_step
from .seen import all_groups, choice_rows
from .sliding import Sliding


class Compressor(nn.Module):
    """Every `ratio` tokens to one latent of `dim` numbers, before RoPE.

    With ratio 1 there is nothing to weigh, so no gate. position_bias: a learned bias for each
    place in the group (V4), or none (V4.1). parts: its `pool` or `pool_overlapping`, where it is
    somebody's own, pools.
    """

    def __init__(
        self, width, dim, ratio, eps, overlap=False, position_bias=False, parts: Parts | None = None
    ):
        super().__init__()
        part = "pool_overlapping" if overlap else "pool"
        self.own_pool = getattr(parts, part) if parts is not None and part in parts.own() else None
        self.ratio, self.overlap, self.dim = ratio, overlap, dim
        wide = 2 * dim if overlap else dim
        self.value = nn.Linear(width, wide, bias=False)
        self.gate = nn.Linear(width, wide, bias=False) if ratio > 1 else None
        self.norm = RMSNorm(dim, eps)
        self.position_bias = nn.Parameter(torch.zeros(ratio, wide)) if position_bias else None

    def forward(
        self, x_BTX: Float[Tensor, "B T X"], step: Step, state_Bn: Float[Tensor, "B n"] | None
    ) -> tuple[Float[Tensor, "B G D"], Int[Tensor, "G"]]:
        """Latents of the groups that these tokens complete, and the position of each.

        state_Bn: where the tokens of half-built groups wait (see cache/groups.py).
        """
        if self.gate is None:
            return self.norm(self.value(x_BTX)), step.positions_T
        m, start = self.ratio, step.start
        wide = torch.promote_types(x_BTX.dtype, torch.float32)  # pooled in float32 at least
        value_BTD, gate_BTD = self.value(x_BTX).to(wide), self.gate(x_BTX).to(wide)
        if self.position_bias is not None:
            gate_BTD = gate_BTD + self.position_bias[step.positions_T % m]
        held = groups.held_before(start, m, self.overlap)
        value_BSD, gate_BSD = groups.wait(state_Bn, value_BTD, gate_BTD, start, held)
        first, end = start // m, (start + x_BTX.shape[1]) // m
        if first == end:
            none = x_BTX.new_empty(x_BTX.shape[0], 0, self.dim)
            return none, step.positions_T[:0]
        pooled_BGD = self._pool(value_BSD, gate_BSD, first, end, step.impl(value_BSD, gate_BSD))
        positions_G = torch.arange(first, end, device=x_BTX.device) * m
        return self.norm(pooled_BGD).to(x_BTX.dtype), positions_G

    def _pool(self, value_BSD: Tensor, gate_BSD: Tensor, first: int, end: int, impl: str):
        """Groups first to end of these rows: by a learner's part, the kernel, or in torch."""
        if self.own_pool is not None:
            unbiased_MD = gate_BSD.new_zeros(self.ratio, gate_BSD.shape[-1])  # gates have theirs
            before = 1 if self.overlap and first > 0 else 0
            return self.own_pool(value_BSD, gate_BSD, unbiased_MD)[:, before:]
        if impl == "triton":
            from kernels import group_pool

            after = self.overlap and first > 0
            options = dict(overlap=self.overlap, after_another=after, impl=impl)
            return group_pool(value_BSD, gate_BSD, self.ratio, **options)
        value_BGMD = self._in_groups(value_BSD, first, end, missing=0.0)
        gate_BGMD = self._in_groups(gate_BSD, first, end, missing=-torch.inf)
        return (gate_BGMD.softmax(dim=2) * value_BGMD).sum(dim=2)

    def _in_groups(self, x_BSD: Tensor, first: int, end: int, missing: float):
        if self.overlap:
            return overlapping(x_BSD, end - first, self.ratio, first > 0, missing)
        return x_BSD[:, : (end - first) * self.ratio].unflatten(1, (end - first, self.ratio))


def overlapping(
    x_BSD: Float[Tensor, "B S 2D"], count: int, ratio: int, after_another: bool, missing: float
) -> Float[Tensor, "B G 2M D"]:
    """The 2m rows that each of `count` groups pools: of the m tokens before it the first half of
    their numbers, of its own m the second half.

    after_another: the rows start with the group before the first one. The very first group has
    none before it: `missing` stands there.
    """
    whole = count + after_another
    early, own = x_BSD[:, : whole * ratio].unflatten(1, (whole, ratio)).chunk(2, dim=-1)
    if after_another:
        early, own = early[:, :count], own[:, 1:]
    else:
        none = early.new_full((early.shape[0], 1, *early.shape[2:]), missing)
        early = torch.cat([none, early], dim=1)[:, :count]
    return torch.cat([early, own], dim=2)


class GroupIndexer(nn.Module):
    """V4's indexer: keys from a compressor of its own, queries from the query latent.

    RoPE turns the last numbers of both; the Hadamard turn before FP4 changes no score (sizes
    that are no power of two skip it).
    """

    def __init__(self, width: int, config: Grouped, eps: float, parts: Parts | None = None):
        super().__init__()
        c = self.config = config.indexer
        self.rope = Rope(c.rope_dim, config.rope.theta, "adjacent", config.rope.yarn)
        self.query = nn.Linear(config.q_rank, c.heads * c.dim, bias=False)
        self.head_weight = nn.Linear(width, c.heads, bias=False)
        self.compressor = Compressor(width, c.dim, config.ratio, eps, True, True, parts)

    def keys(self, x_BTX: Float[Tensor, "B T X"], step: Step, state_Bn) -> Float[Tensor, "B G D"]:
        """Keys of the groups that these tokens complete."""
        key_BGD, positions_G = self.compressor(x_BTX, step, state_Bn)
        if not len(positions_G):
            return key_BGD
        return self._turn(key_BGD, turn_of(self.rope, positions_G, key_BGD.dtype))

    def queries(self, latent_BTC: Float[Tensor, "B T C"], step: Step) -> Float[Tensor, "B T I D"]:
        query_BTID = self.query(latent_BTC).unflatten(-1, (self.config.heads, self.config.dim))
        return self._turn(query_BTID, step.once(turn_of_step, self.rope, query_BTID.dtype))

    def weights(self, x_BTX: Float[Tensor, "B T X"]) -> Float[Tensor, "B T I"]:
        return self.head_weight(x_BTX) * (self.config.heads * self.config.dim) ** -0.5

    def _turn(self, x: Tensor, turn: Turn) -> Tensor:
        x = rotate_tail(x, turn)
        return x if x.shape[-1] & (x.shape[-1] - 1) else hadamard(x)


class CSA(Sliding):
    """A window and groups: chosen by an indexer (CSA), or all of them (HCA)."""

    def __init__(self, width: int, config: Grouped, eps: float, parts: Parts | None = None):
        super().__init__(width, config, eps, parts)
        c, self.ratio = config, config.ratio
        self.compressor = Compressor(width, c.head_dim, c.ratio, eps, c.overlap, True, parts)
        self.indexer = GroupIndexer(width, c, eps, parts) if c.indexer else None

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        latent_BTC = self.query_latent(x_BTX)
        query_BTHD, entry_BTD = self.project(x_BTX, latent_BTC, step)
        near = self.near(entry_BTD, step, cache)
        far_BSD = self.far(x_BTX, step, cache)
        if self.indexer is None:
            return self.attend(query_BTHD, step, near, all_groups(far_BSD, step, self.ratio)), step
        # The indexer learns from its own loss alone: nothing flows back through its inputs.
        asked = self.ask(x_BTX.detach(), latent_BTC.detach(), step, cache)
        share = (
            None if step.losses is None else self.share(query_BTHD, near, far_BSD, step, self.ratio)
        )
        found = search(asked, step, self.ratio, self.config.indexer.top_k, share)
        if share is not None:
            step = replace(step, losses=(*step.losses, found.loss))
        far = choice_rows(far_BSD, found.choice_BTk, step, every=step.tokens_BT.shape[1] == 1)
        return self.attend(query_BTHD, step, near, far), step

    def far(self, x_BTX, step: Step, cache=None) -> Float[Tensor, "B S D"]:
        """All complete groups, those that these tokens complete included."""
        entry_BGD, positions_G = self.compressor(x_BTX, step, self._state(cache)[0])
        if len(positions_G):
            turn = turn_of(self.config.rope, positions_G, entry_BGD.dtype)
            entry_BGD = rotate_tail(entry_BGD, turn)
        return entry_BGD if cache is None else self._kept(cache.main, entry_BGD, step)

    def ask(self, x_BTX, latent_BTC, step: Step, cache=None) -> Asked:
        """What the indexer's scores of all complete groups are made of."""
        key_BSD = self.indexer.keys(x_BTX, step, self._state(cache)[1])
        query_BTID = self.indexer.queries(latent_BTC, step)
        if cache is not None:
            key_BSD = self._kept(cache.index, key_BSD, step)
            query_BTID = groups.as_stored(cache.index, query_BTID)
        return Asked(query_BTID, self.indexer.weights(x_BTX), key_BSD)

    def _kept(self, store, new_BGD, step: Step) -> Float[Tensor, "B S D"]:
        """All rows, the new ones stored. A replay's were stored before: it only brings back the
        tokens that the next group overlaps."""
        return groups.read(store) if step.windows_only else groups.extend(store, new_BGD)

    def _state(self, cache) -> tuple[Tensor | None, Tensor | None]:
        """Where half-built entries wait, and half-built keys."""
        if cache is None:
            return None, None
        c = self.config
        entries = groups.state_values(c.ratio, c.head_dim, c.overlap)
        return cache.open[:, :entries], cache.open[:, entries:]
