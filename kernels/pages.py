"""Pages: a cache that lies in pieces of P rows anywhere in a pool, and a table that finds them.

Row b of the table lists the pages of text b in order: its entry s is row s % P of page
table[b, s // P]. A text that grows takes one page more, so at most P - 1 rows lie idle; two
texts with the same beginning may share pages (PagedAttention, arXiv 2309.06180).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.attention_shape import AttentionShape


def check_table(table_BJ, sizes: dict[str, int], lengths, window: int | None, device) -> None:
    """Raises ValueError naming what is wrong. Values are checked where that costs nothing, on a
    CPU, and only where a visible entry needs them; elsewhere they may be anything."""
    if not isinstance(table_BJ, Tensor) or table_BJ.dtype not in (torch.int32, torch.int64):
        kind = table_BJ.dtype if isinstance(table_BJ, Tensor) else type(table_BJ).__name__
        raise ValueError(f"block_table is {kind}; expected a tensor of int32 or int64 [B, J]")
    B, pages, page = (sizes[letter] for letter in "BNP")
    if table_BJ.ndim != 2 or table_BJ.shape[0] != B or table_BJ.shape[1] == 0:
        raise ValueError(f"block_table has shape {tuple(table_BJ.shape)}; expected ({B}, J), the "
                         "pages of each row of the batch")
    if table_BJ.device != device:
        raise ValueError(f"block_table is on {table_BJ.device}; expected {device}")
    if table_BJ.device.type != "cpu":
        return
    J = table_BJ.shape[1]
    length_B = torch.full((B,), J * page) if lengths is None else lengths
    first_B = (length_B - (J * page if window is None else window)).clamp(min=0)
    number_J = torch.arange(J)
    needed_BJ = ((number_J * page < length_B[:, None])
                 & ((number_J + 1) * page > first_B[:, None]))
    wrong_BJ = needed_BJ & ((table_BJ < 0) | (table_BJ >= pages))
    if wrong_BJ.any():
        b, j = wrong_BJ.nonzero()[0].tolist()
        raise ValueError(f"block_table[{b}, {j}] is {int(table_BJ[b, j])}; expected 0 to "
                         f"{pages - 1}, the pages that key has")


def laid_out(pool_NPKD: Tensor, table_BJ: Tensor) -> Tensor:
    """The entries of each text side by side, [B, J * P, K, D]; where the table names no page,
    some page's."""
    page_BJ = table_BJ.long().clamp(0, len(pool_NPKD) - 1)
    return pool_NPKD[page_BJ].flatten(1, 2)


def in_pages(entry_BSKD: Tensor, page: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(pool, table): the same entries in pages of `page` rows, scattered. S is a multiple of it."""
    page_nPKD = entry_BSKD.unflatten(1, (-1, page)).flatten(0, 1)
    generator = torch.Generator().manual_seed(seed)
    place_n = torch.randperm(len(page_nPKD), generator=generator).to(entry_BSKD.device)
    pool_nPKD = torch.empty_like(page_nPKD)
    pool_nPKD[place_n] = page_nPKD
    return pool_nPKD, place_n.int().view(len(entry_BSKD), -1)


@dataclass(frozen=True)
class PagedShape(AttentionShape):
    """A call of `decode_attention` whose cache lies in pages. S is a multiple of `page`."""

    page: int = 16

    def arguments(self, device="cpu", seed=0) -> dict:
        inputs = super().arguments(device, seed)
        for name in ("key_BSKD", "value_BSKD"):
            inputs[name], inputs["block_table"] = in_pages(inputs[name], self.page)
        return inputs

    def sizes(self) -> dict:
        return {**super().sizes(), "table_itemsize": 4}
