"""Groups of tokens on their way to becoming rows.

A group of m tokens becomes one row when its last token is there. Until then its tokens wait
here, as the value and the gate that each will be pooled with. Token p lies in slot p mod slots:
m slots hold the open group, 2m slots the open one and the one before it, which a CSA group pools
too. Nothing here is visible to attention.

The numbers are floats even where rows are packed. Every token's are rounded to the state's own
dtype first, whether they wait here or complete a group at once: so it makes no difference where
a text is cut into chunks.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .rows import Rows


def held_before(start: int, ratio: int, overlap: bool) -> int:
    """How many tokens before position `start` take part in groups that end after it."""
    complete = start // ratio - (1 if overlap and start >= ratio else 0)
    return start - complete * ratio


def state_values(ratio: int, dim: int, overlap: bool) -> int:
    """Numbers that wait, per sequence: value and gate of every slot, twice as wide to overlap."""
    return 2 * ratio * dim * (4 if overlap else 1)


def wait(
    state_Bn: Float[Tensor, "B n"] | None,
    value_BTD: Float[Tensor, "B T D"],
    gate_BTD: Float[Tensor, "B T D"],
    start: int,
    held: int,
) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B S D"]]:
    """Values and gates of the `held` tokens before position `start` and the T new ones; the
    newest are kept. Without a state nothing is kept, and there must be nothing to hold."""
    if state_Bn is None:
        return value_BTD, gate_BTD
    B, T, D = value_BTD.shape
    slots_B2PD = state_Bn.view(B, 2, -1, D)
    slots = slots_B2PD.shape[2]
    new_B2TD = torch.stack([value_BTD, gate_BTD], dim=1).to(state_Bn.dtype)
    old_B2SD = slots_B2PD[:, :, _slots(start - held, start, slots, state_Bn.device)]
    both_B2SD = torch.cat([old_B2SD, new_B2TD], dim=2)
    kept = min(T, slots)
    places = _slots(start + T - kept, start + T, slots, state_Bn.device)
    slots_B2PD[:, :, places] = new_B2TD[:, :, T - kept :]
    value_BSD, gate_BSD = both_B2SD.to(value_BTD.dtype).unbind(1)
    return value_BSD, gate_BSD


def _slots(first: int, end: int, slots: int, device) -> Int[Tensor, "S"]:
    return torch.arange(first, end, device=device) % slots


def extend(store: Rows, entry_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B S D"]:
    """Store whole entries, each cut into the fields of its row; return all of them, whole."""
    if not entry_BTD.shape[1]:
        return read(store)  # most tokens complete no group
    return whole(store.extend(fields(store, entry_BTD)))


def read(store: Rows) -> Float[Tensor, "B S D"]:
    """All stored entries, whole."""
    return whole(store.read())


def as_stored(store: Rows, entry: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """The same numbers rounded as rows are, kept nowhere."""
    return whole(store.as_stored(fields(store, entry)))


def fields(store: Rows, entry: Float[Tensor, "*B D"]) -> dict[str, Tensor]:
    parts = entry.split(list(store.fields.values()), dim=-1)
    return dict(zip(store.fields, parts, strict=True))


def whole(rows: dict[str, Tensor]) -> Tensor:
    parts = list(rows.values())
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
