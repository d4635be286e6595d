"""CSA2 (V4.1, arXiv 2609.19969): far entries that few layers own and the others borrow.

    full     owns entries and index keys, and chooses among them
    reindex  chooses anew, with queries of its own, among the owner's keys
    reuse    takes the owner's entries and the nearest choice as they are

The owner's latents are pooled without overlap and without a position bias; with ratio 1 each
token is its own group. From one latent come the entry, RoPE(c) at the group's first position, and
the index key, RoPE(RMSNorm(W_K c)). Every layer has its own queries and its own window.

What is shared travels in the step (`Far`): a later layer can only read what an earlier layer of
the same pass has published, so its keys are always the owner's and complete, in prefill as in
decode.
"""

from dataclasses import replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from ..cache import groups
from ..config import CSA2 as Config
from ..config import Rope
from ..norm import RMSNorm
from ..parts import Parts
from ..step import Far, Step
from .by_kernel import Listed
from .csa import Compressor
from .indexer import Asked, search
from .rope import rotate_tail, turn_of, turn_of_step
from .seen import Seen, choice_rows
from .sliding import Sliding


class SharedIndexer(nn.Module):
    """Index queries and the weights of their heads; the owner makes the keys, too."""

    def __init__(self, width: int, config: Config, eps: float):
        super().__init__()
        c = self.config = config.indexer
        self.rope = Rope(c.rope_dim, config.rope.theta, "adjacent", config.rope.yarn)
        self.query = nn.Linear(config.q_rank, c.heads * c.dim, bias=False)
        self.head_weight = nn.Linear(width, c.heads, bias=False)
        if config.mode == "full":
            self.key = nn.Linear(config.head_dim, c.dim, bias=False)
            self.key_norm = RMSNorm(c.dim, eps)

    def keys(self, latent_BGD: Float[Tensor, "B G D"], positions_G) -> Float[Tensor, "B G D"]:
        """From latents before RoPE."""
        turn = turn_of(self.rope, positions_G, latent_BGD.dtype)
        return rotate_tail(self.key_norm(self.key(latent_BGD)), turn)

    def ask(self, x_BTX, latent_BTC, step: Step) -> Asked:
        """What scores of every published key are made of; queries are rounded as the owner's
        keys are."""
        c, far = self.config, step.far
        query_BTID = self.query(latent_BTC).unflatten(-1, (c.heads, c.dim))
        query_BTID = rotate_tail(query_BTID, step.once(turn_of_step, self.rope, x_BTX.dtype))
        if far.index is not None:
            query_BTID = groups.as_stored(far.index, query_BTID)
        weight_BTI = self.head_weight(x_BTX) * (c.heads * c.dim) ** -0.5
        return Asked(query_BTID, weight_BTI, far.key_BSD)


class CSA2(Sliding):
    """One V4.1 layer of mode full, reindex or reuse. layer: its number in the model. parts: its
    `candidates`, where it is somebody's own, sifts for later layers."""

    def __init__(
        self, width: int, config: Config, eps: float, layer: int, parts: Parts | None = None
    ):
        super().__init__(width, config, eps, parts)
        self.layer = layer
        own = parts is not None and "candidates" in parts.own()
        self.sift = parts.candidates if own else None
        if config.mode == "full":
            self.compressor = Compressor(width, config.head_dim, config.ratio, eps, parts=parts)
        if config.mode in ("full", "reindex"):
            self.indexer = SharedIndexer(width, config, eps)

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        if self.config.mode == "full":
            step = self.publish(x_BTX, step, cache)
        self._check_owner(step)
        latent_BTC = self.query_latent(x_BTX)
        query_BTHD, entry_BTD = self.project(x_BTX, latent_BTC, step)
        near = self.near(entry_BTD, step, cache)
        if self.config.mode in ("full", "reindex"):
            # The indexer learns from its own loss alone: nothing flows back through its inputs.
            asked = self.indexer.ask(x_BTX.detach(), latent_BTC.detach(), step)
            step = self.choose(asked, query_BTHD, near, step)
        far = step.once(published_rows, step.far.choice_BTk)
        return self.attend(query_BTHD, step, near, far), step

    def publish(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None) -> Step:
        """Make, keep and publish the entries and keys of the groups that these tokens complete.

        Nothing happens if they are published already: CED's decoder may follow later, and for
        fewer tokens. A step that rebuilds windows publishes what is stored.
        """
        if step.far is not None and step.far.owner == self.layer:
            return step
        if step.windows_only:
            entry_BSD, key_BSD = groups.read(cache.main), groups.read(cache.index)
        else:
            state = None if cache is None else cache.open
            latent_BGD, positions_G = self.compressor(x_BTX, step, state)
            turn = turn_of(self.config.rope, positions_G, latent_BGD.dtype)
            entry_BSD = rotate_tail(latent_BGD, turn)
            key_BSD = self.indexer.keys(latent_BGD.detach(), positions_G)
            if cache is not None:
                entry_BSD = groups.extend(cache.main, entry_BSD)
                key_BSD = groups.extend(cache.index, key_BSD)
        index = None if cache is None else cache.index
        far = Far(self.layer, self.config.ratio, entry_BSD, key_BSD, index)
        return replace(step, far=far)

    def choose(self, asked: Asked, query_BTHD, near: Any, step: Step) -> Step:
        """Publish the best entries of each query; the candidate source publishes its blocks too.

        The source chooses among all visible entries, later layers only inside its blocks. While
        training, scores are to follow this layer's own attention to all that it might choose.
        """
        far, c = step.far, self.config
        source = c.candidates is not None and c.candidates.source == self.layer
        found = search(
            asked,
            step,
            far.ratio,
            c.indexer.top_k,
            None
            if step.losses is None
            else self.share(query_BTHD, near, far.entry_BSD, step, far.ratio),
            pool_BTS=far.pool_BTS if c.candidates is not None and not source else None,
            sieve=c.candidates if source else None,
            sift=self.sift,
        )
        far = replace(far, choice_BTk=found.choice_BTk)
        if source:
            far = replace(far, pool_BTS=found.pool_BTS)
        if step.losses is not None:
            step = replace(step, losses=(*step.losses, found.loss))
        return replace(step, far=far)

    def _check_owner(self, step: Step) -> None:
        wanted = self.layer if self.config.mode == "full" else self.config.kv_source
        if step.far is None or step.far.owner != wanted:
            raise ValueError(
                f"layer {self.layer} reads the entries of layer {wanted}, which has not run in "
                "this pass"
            )


def published_rows(step: Step, choice_BTk: Int[Tensor, "B T k"]) -> Seen | Listed:
    """The chosen ones of the published entries: once for all layers that take the same choice."""
    return choice_rows(step.far.entry_BSD, choice_BTk, step)
