"""Sparse attention in plain torch: the twin of both kernels for it.

Each token's list of rows is laid out in full, and the softmax over it is taken at once. That
needs memory for T lists, which the kernels do without; it is short enough to be believed.
"""

from __future__ import annotations

import torch

from kernels.sparse_list import Call


def twin(query_BTHD, call: Call, scale, value_dim, numbers_of=(torch.Tensor.to,) * 2):
    """The same in plain torch: each token's list of rows, then softmax; in fp32 or wider.

    `numbers_of`: two functions (rows, dtype) that make numbers of entries and of the window.
    """
    wide = torch.promote_types(query_BTHD.dtype, torch.float32)
    rows, seen = [], []
    if call.index_BTk is not None:
        seen.append((call.index_BTk >= 0) & (call.index_BTk < call.sizes["S"]))
        batch_B11 = torch.arange(call.sizes["B"], device=query_BTHD.device)[:, None, None]
        chosen_BTkD = call.entry_BSD[batch_B11, call.index_BTk.long() * seen[-1]]
        rows.append(numbers_of[0](chosen_BTkD, wide))
    if call.window_BWD is not None:
        seen.append(window_visible(call, query_BTHD.device))
        window_BWD = numbers_of[1](call.window_BWD, wide)
        rows.append(window_BWD[:, None].expand(-1, call.sizes["T"], -1, -1))
    if not rows:
        return torch.zeros_like(query_BTHD[..., :value_dim])
    seen_BTS = torch.cat(seen, 2)
    # What is not visible may be anything, NaN included: 0 * NaN would be NaN.
    row_BTSD = torch.where(seen_BTS[..., None], torch.cat(rows, 2), 0)
    score_BTHS = torch.einsum("bthd,btsd->bths", query_BTHD.to(wide), row_BTSD) * scale
    score_BTHS = score_BTHS.masked_fill(~seen_BTS[:, :, None], -torch.inf)
    if call.sink_H is not None:
        sink_BTH1 = call.sink_H.to(wide)[:, None].expand(*score_BTHS.shape[:3], 1)
        weight_BTHS = torch.cat([score_BTHS, sink_BTH1], 3).softmax(3)[..., :-1]
    else:
        weight_BTHS = score_BTHS.softmax(3)
    weight_BTHS = torch.where(seen_BTS.any(2)[:, :, None, None], weight_BTHS, 0)
    output_BTHV = torch.einsum("bths,btsv->bthv", weight_BTHS, row_BTSD[..., :value_dim])
    return output_BTHV.to(query_BTHD.dtype)


def window_visible(call: Call, device):
    """Which rows of the window each query sees, [B, T, W]."""
    B, T, W = (call.sizes[letter] for letter in "BTW")
    row_W = torch.arange(W, device=device)
    length_B = row_W.new_full((B,), W) if call.lengths_B is None else call.lengths_B
    own_BT1 = (length_B[:, None] - T + torch.arange(T, device=device))[:, :, None]
    return (row_W <= own_BT1) & (row_W > own_BT1 - call.reach)
