"""How many entries of a cache a new token may see, where an entry is a group of tokens.

An entry that stands for m tokens exists once all m are written, so the token at position p
sees the first floor((p + 1) / m) entries: with m = 4, the tokens 2, 3, 4, 7 see 0, 1, 1, 2.
With m = 1 each token is an entry of its own, and this is the usual causal mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels.backend import tl, triton


def check_ratio(ratio) -> None:
    if not isinstance(ratio, int) or isinstance(ratio, bool) or ratio < 1:
        raise ValueError(f"ratio is {ratio!r}; expected the tokens of an entry, a whole number "
                         "of at least 1")


def check_start(start, batch: int, tokens: int, entries: int, ratio: int, device):
    """The first new token's position as (number, None), or (0, int32 tensor [B]).

    None means that the last new token completes the last entry. Raises ValueError naming
    what is wrong.
    """
    check_ratio(ratio)
    if start is None:
        return entries * ratio - tokens, None
    # Before the first of these positions nothing is seen, and from the last on everything.
    lowest, highest = -tokens, entries * ratio
    if isinstance(start, int) and not isinstance(start, bool):
        return min(max(start, lowest), highest), None
    if not isinstance(start, Tensor) or start.dtype not in (torch.int32, torch.int64):
        kind = start.dtype if isinstance(start, Tensor) else type(start).__name__
        raise ValueError(f"start is {kind}; expected None, a whole number, or a tensor of int32 "
                         f"or int64 and of shape ({batch},)")
    if tuple(start.shape) != (batch,):
        raise ValueError(f"start has shape {tuple(start.shape)}; expected ({batch},)")
    if start.device != device:
        raise ValueError(f"start is on {start.device}; expected {device}")
    start = start.clamp(lowest, min(highest, 2**31 - 1 - tokens))  # positions have 32 bits
    return 0, start.to(torch.int32).contiguous()


def visible_counts(start, starts_B, batch: int, tokens: int, entries: int, ratio: int, device):
    """Entries that each query may see, always the first ones: int64 [B, T]."""
    first_B1 = (torch.full((batch, 1), start, device=device) if starts_B is None
                else starts_B.long()[:, None])
    position_BT = first_B1 + torch.arange(tokens, device=device)
    return ((position_BT + 1).clamp(min=0) // ratio).clamp(max=entries)


def counts_of(*, batch=1, tokens, entries, ratio=1, start=None) -> list[list[int]]:
    """The same as lists of ints, for traffic; `start` is None, an int, or one a row."""
    if start is None:
        start = entries * ratio - tokens
    starts = [start] * batch if isinstance(start, int) else start
    return [[min(entries, max(0, first + t + 1) // ratio) for t in range(tokens)]
            for first in starts]


@triton.jit
def seen_by(starts, start, batch, token_T, tokens, entries, RATIO: tl.constexpr):
    """How many entries each token of a block may see; 0 for tokens that do not exist."""
    first = start
    if starts is not None:
        first = tl.load(starts + batch)
    seen_T = tl.minimum(tl.maximum(first + token_T + 1, 0) // RATIO, entries)
    return tl.where(token_T < tokens, seen_T, 0)


@dataclass(frozen=True)
class VisibleShape:
    """A call of a kernel for which T new tokens see the first of S entries."""

    label: str
    batch: int
    tokens: int
    entries: int
    ratio: int = field(default=1, kw_only=True)
    start: tuple[int, ...] | None = field(default=None, kw_only=True)
    dtype: torch.dtype = field(default=torch.float32, kw_only=True)

    def seeing(self, device) -> dict:
        """Keyword arguments of the public function."""
        start = self.start and torch.tensor(self.start, dtype=torch.int32, device=device)
        return dict(ratio=self.ratio, start=start)

    def sizes(self) -> dict:
        """Keyword arguments of its traffic."""
        return dict(batch=self.batch, tokens=self.tokens, entries=self.entries, ratio=self.ratio,
                    start=self.start)
