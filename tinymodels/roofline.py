"""What writing a token is bound by: reading weights, reading caches, or computing.

A card moves so many bytes a second and does so many operations a second. A step that writes one
token for each of B requests

    reads the weights once               for all B together
    reads every request's cache          B times
    multiplies with the active weights   B times, 2 operations a parameter
    looks over the cached entries        B times

and each of the two halves (weights, caches) takes as long as the slower of its reading and its
computing. This is the roofline of Williams et al., 2009. It is a floor: launches, networks
between cards and everything else come on top.

Speeds are the vendors' data sheets, dense, for 16-bit products with fp32 sums; weights in fewer
bits are taken to be widened on the card. No torch.
"""

from dataclasses import dataclass
from typing import Any

from .config import ModelConfig, MoE, NoAttention, Recurrent
from .ledger import active, parameters
from .ledger.flops import attended, core, scored
from .ledger.memory import STATE_BYTES
from .plan import plan
from .published import config_of


@dataclass(frozen=True)
class Speed:
    """bandwidth: bytes a second from the card's memory. flops: 16-bit operations a second."""

    bandwidth: float
    flops: float

    @property
    def ridge(self) -> float:
        """Operations for each byte read at which computing takes as long as reading."""
        return self.flops / self.bandwidth


SPEEDS: dict[str, Speed] = {
    "RTX 4090": Speed(1.008e12, 165e12),
    "L4": Speed(0.300e12, 121e12),
    "A100": Speed(2.039e12, 312e12),
    "H100": Speed(3.35e12, 989e12),
    "H200": Speed(4.8e12, 989e12),
    "B200": Speed(8.0e12, 2250e12),
    "MI300X": Speed(5.3e12, 1307e12),
}


@dataclass(frozen=True)
class Weights:
    """Parameters: all there are, and those that one token meets.

    experts, top_k: routed experts of a layer and how many of them a token is sent to.
    """

    total: int
    active: int
    experts: int = 1
    top_k: int = 1

    def met(self, batch: int) -> float:
        """Parameters that `batch` tokens together meet, if experts are chosen evenly by chance.

        A share k / E of the routed ones is met by one token, 1 - (1 - k / E)^B by B of them.
        """
        if batch < 1:
            raise ValueError(f"batch is {batch}; at least one request is written")
        missed = 1 - self.top_k / self.experts
        return self.total - (self.total - self.active) * missed ** (batch - 1)


def weights_of(model: str | ModelConfig) -> Weights:
    """Counted by the ledger. Raises ValueError where it cannot count."""
    config = config_of(model)
    experts = [layer.ffn for layer in config.layers if isinstance(layer.ffn, MoE)]
    if not experts:
        return Weights(parameters(config), parameters(config))
    return Weights(parameters(config), active(config), experts[-1].experts, experts[-1].top_k)


def cache_read(model: str | ModelConfig, context: int, kv_bits: int | None = None) -> int:
    """Bytes of one request's cache that writing its next token reads, at `context` cached tokens.

    Every layer reads for itself, whoever keeps what it reads. Where a model chooses its entries,
    the chosen ones are read, and the index keys that it scores. A state is read whole.
    """
    config = config_of(model)
    plans = plan(config, kv_bits=kv_bits)
    total = 0
    for i, (kept, layer) in enumerate(zip(plans, config.layers)):
        a: Any = layer.attention
        total += STATE_BYTES * kept.constant_values
        if isinstance(a, Recurrent | NoAttention):
            continue
        owner = plans[kept.owner] if kept.owner is not None else kept
        near = kept.window or (owner.window if owner.main is None else None)
        rows = attended(config, i, context)
        if near is not None:
            close = min(rows, near.rows(context))
            total, rows = total + close * near.layout.nbytes, rows - close
        if owner.main is not None:
            total += rows * owner.main.layout.nbytes
        if getattr(a, "indexer", None) and owner.index is not None:
            total += scored(a, context) * owner.index.layout.nbytes
    return total


def look_flops(model: str | ModelConfig, context: int) -> int:
    """Operations of one token looking over its cached entries (projections are weights)."""
    config = config_of(model)
    total = 0
    for i, layer in enumerate(config.layers):
        if not isinstance(layer.attention, Recurrent | NoAttention):
            total += core(layer.attention) * attended(config, i, context)
    return total


@dataclass(frozen=True)
class Decode:
    """Seconds that one step takes at least, by what takes them; a step writes one token for each
    of `batch` requests. Each half is bound by its larger number."""

    batch: int
    weight_reading: float
    weight_computing: float
    cache_reading: float
    cache_computing: float

    @property
    def seconds(self) -> float:
        halves = (
            (self.weight_reading, self.weight_computing),
            (self.cache_reading, self.cache_computing),
        )
        return sum(max(half) for half in halves)

    @property
    def tokens_a_second(self) -> float:
        """Of all requests together."""
        return self.batch / self.seconds

    @property
    def bound_by(self) -> str:
        """What takes most of the time."""
        found = {
            "reading the weights": self.weight_reading,
            "multiplying with the weights": self.weight_computing,
            "reading the caches": self.cache_reading,
            "looking over the caches": self.cache_computing,
        }
        return max(found, key=found.get)


def decode(
    model: str | ModelConfig,
    context: int,
    batch: int,
    card: str,
    cards: int = 1,
    weights: Weights | None = None,
    weight_bits: int = 16,
    kv_bits: int | None = None,
) -> Decode:
    """The floor of one step on `cards` cards that share the work evenly.

    Raises ValueError for a card without a speed here.
    """
    if card not in SPEEDS:
        raise ValueError(f"no speed is known for {card!r}; there are {', '.join(SPEEDS)}")
    weights = weights_of(model) if weights is None else weights
    bandwidth, flops = cards * SPEEDS[card].bandwidth, cards * SPEEDS[card].flops
    return Decode(
        batch,
        weights.met(batch) * weight_bits / 8 / bandwidth,
        2 * weights.active * batch / flops,
        cache_read(model, context, kv_bits) * batch / bandwidth,
        look_flops(model, context) * batch / flops,
    )
