"""A text in pieces of equal length, each named by a hash of itself and of all that came before.

A row depends on every token before it. So a piece may be used again only where the whole text up
to its end is the same, and its name says just that: name = hash(name before, tokens).

A prefix that is used again ends on a multiple of `step`: no group is half-built there (the ratios
of all layers), and no piece is cut (the block).
"""

import hashlib
import math
import operator
from collections.abc import Iterable, Sequence

from ..config import ModelConfig


def step_of(config: ModelConfig, block: int) -> int:
    """Tokens of a piece: the least common multiple of the layers' ratios and the block.

    Errors: ValueError for a block below 1.
    """
    from ..cache.model import prefix_multiple

    if isinstance(block, bool) or not isinstance(block, int) or block < 1:
        raise ValueError(f"block is {block!r}; it must be an integer >= 1")
    return math.lcm(prefix_multiple(config), block)


def tokens_of(prompt: Iterable) -> list[int]:
    """A prompt as plain integers: 5 has to be 5 in every name, whatever brought it here.

    Errors: ValueError for what is no row of integers of a machine's size.
    """
    try:
        text = [operator.index(token) for token in prompt]
    except TypeError:
        raise ValueError(f"prompt is {prompt!r}; it must be a row of tokens, integers") from None
    if any(abs(token) >= 2**63 for token in text):
        raise ValueError("a token is too large for any vocabulary")
    return text


def names(tokens: Sequence[int], step: int, root: str) -> list[str]:
    """A name for each whole piece of a text. root: what makes rows differ beside the text (the
    model, its weights, the format of its rows)."""
    found, name = [], root
    for end in range(step, len(tokens) + 1, step):
        piece = ",".join(map(str, tokens[end - step : end]))
        name = hashlib.sha256(f"{name}:{piece}".encode()).hexdigest()
        found.append(name)
    return found


def usable(prompt: int, same: int, step: int) -> int:
    """How many tokens of a prompt need not be read again, if its first `same` are stored.

    Whole pieces; and one token at least is left to run, as somebody must say what comes next.
    """
    return min(same, max(prompt - 1, 0)) // step * step
