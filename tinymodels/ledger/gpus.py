"""What fits on a card: weights, and what is left for the memory of how many sequences.

Card sizes are the vendors' data sheets, in decimal bytes (80 GB = 80 * 10**9). Nothing is set
aside for activations, workspace or fragmentation, so a real engine holds somewhat less.
"""

from dataclasses import dataclass
from typing import Literal

from ..config import ModelConfig, RowFormat
from ..published import config_of, nearest
from .memory import exact
from .parameters import parameters

GB = 10**9
WEIGHT_BYTES = {"bf16": 2, "fp8": 1}


@dataclass(frozen=True)
class Gpu:
    """A card and its memory in bytes."""

    name: str
    memory: int


GPUS: dict[str, Gpu] = {
    name: Gpu(name, gigabytes * GB)
    for name, gigabytes in {
        "T4": 16,
        "L4": 24,
        "RTX 4090": 24,
        "RTX 5090": 32,
        "L40S": 48,
        "A100": 80,
        "H100": 80,
        "H800": 80,
        "H20": 96,
        "H200": 141,
        "B200": 192,
        "MI300X": 192,
        "B300": 288,
        "MI355X": 288,
    }.items()
}


def gpu(name: str) -> Gpu:
    """The card of that name; capitals, blanks and hyphens do not matter, nor does "RTX"."""

    def plain(text: str) -> str:
        return "".join(c for c in text.upper() if c.isalnum()).removeprefix("RTX")

    known = {plain(key): card for key, card in GPUS.items()}
    if plain(name) in known:
        return known[plain(name)]
    near = nearest(plain(name), known)
    hint = f"did you mean {known[near].name}? " if near else ""
    raise ValueError(f"no card is named {name!r}; {hint}The names are {', '.join(GPUS)}")


@dataclass(frozen=True)
class Room:
    """`sequences` of `sequence_bytes` each beside `weight_bytes`, on `cards` cards."""

    cards: int
    weight_bytes: int
    sequence_bytes: int
    sequences: int


def weight_bytes(model: str | ModelConfig, fmt: Literal["bf16", "fp8"] = "bf16") -> int:
    """Bytes of all weights in one format. Scales of FP8 blocks (under 0.03 %) are not counted."""
    if fmt not in WEIGHT_BYTES:
        raise ValueError(f"fmt is {fmt!r}; weights are counted in 'bf16' or 'fp8'")
    return parameters(model) * WEIGHT_BYTES[fmt]


def room(
    model: str | ModelConfig,
    card: Gpu | str,
    context: int,
    weights: int,
    cards: int | None = None,
    row: RowFormat | None = None,
    kv_bits: int | None = None,
) -> Room:
    """How many sequences of `context` tokens fit beside `weights` bytes.

    cards=None takes the fewest that hold the weights and one sequence. Weights and memory are
    taken to spread evenly. A model that holds nothing per sequence is refused.
    """
    card = gpu(card) if isinstance(card, str) else card
    held = exact(config_of(model), context, row=row, kv_bits=kv_bits)["total"]
    if held == 0:
        raise ValueError(f"context is {context}: a sequence holds no bytes, so any number fits")
    fewest = -(-(weights + held) // card.memory)
    cards = fewest if cards is None else cards
    free = cards * card.memory - weights
    return Room(cards, weights, held, max(0, free // held))
