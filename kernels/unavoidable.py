"""What no kernel could do without: each distinct byte that counts, once, and the output.

A kernel may ask for the same row several times: 256 tokens of a prompt choose among the same
entries, two programs share the heads of one token, a threshold is found in 16 rounds. Only
the first of these reads must come from memory; the others may find the row in a cache of the
card. The same holds for what one launch writes and the next one reads. So a floor takes

- of keys, entries and window rows the distinct ones that some token sees;
- of the experts those that were chosen;
- of scores those among which there is a choice;
- of everything else all, and of what is written the output alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import gates
from kernels.visibility import check_start, visible_counts


def unavoidable(name: str, shape, inputs: dict, output) -> dict[str, int]:
    """The traffic of a kernel on these inputs with nothing read or written twice, in bytes and
    FLOPs; never more than the kernel's own."""
    traffic = dict(gates.module(name).expected(shape))
    traffic["bytes_read"] = min(traffic["bytes_read"], distinct_read(inputs))
    outputs = output if isinstance(output, (tuple, list)) else [output]
    traffic["bytes_written"] = min(traffic["bytes_written"], sum(map(_nbytes, outputs)))
    return traffic


def distinct_read(inputs: dict) -> int:
    """Bytes of the inputs that any kernel must read; an argument is known by its name."""
    needed = {name: _nbytes(value) for name, value in inputs.items() if isinstance(value, Tensor)}
    if "index_BTk" in inputs:
        needed |= _chosen(inputs)
    if "experts_Nk" in inputs:
        chosen = len(inputs["experts_Nk"].unique())
        needed |= {name: needed[name] // inputs[name].shape[0] * chosen
                   for name in ("gate_EFX", "up_EFX", "down_EXF")}
    if "score_BTS" in inputs and "k" in inputs:
        needed["score_BTS"] = _to_choose_from(inputs) * inputs["score_BTS"].element_size()
    if inputs.get("window") or inputs.get("lengths") is not None:
        needed |= _visible(inputs)
    return sum(needed.values())


def _chosen(inputs) -> dict[str, int]:
    """Sparse attention: entries chosen by any token of a row of the batch, and window rows."""
    needed, index_BTk = {}, inputs["index_BTk"]
    for name in ("entry_BSD", "entry_BSY"):
        if index_BTk is not None and inputs.get(name) is not None:
            distinct = sum(int((row.unique() >= 0).sum()) for row in index_BTk)
            needed[name] = distinct * _nbytes(inputs[name][0, 0])
    for name in ("window_BWD", "window_BWZ"):
        rows = inputs.get(name)
        if rows is not None:
            batch, count = rows.shape[:2]
            seen = _rows_seen(batch, count, inputs["query_BTHD"].shape[1],
                              inputs["window_lengths"], inputs["reach"])
            needed[name] = seen * _nbytes(rows[0, 0])
    return needed


def _visible(inputs) -> dict[str, int]:
    """Attention over a cache of which only a window, or the first entries, are visible."""
    tokens = next(value for name, value in inputs.items() if name.startswith("query")).shape[1]
    needed = {}
    for name in ("key_BSKD", "value_BSKD", "latent_BSC", "rope_BSR"):
        if name in inputs:
            rows, table_BJ = inputs[name], inputs.get("block_table")
            batch, entries = rows.shape[:2]
            if table_BJ is not None:  # then the rows lie in pages
                batch, entries = len(table_BJ), table_BJ.shape[1] * entries
            seen = _rows_seen(batch, entries, tokens, inputs["lengths"], inputs.get("window"))
            needed[name] = seen * _nbytes(rows[0, 0])
    return needed


def _rows_seen(batch: int, entries: int, tokens: int, lengths, reach) -> int:
    """Rows that one of the last `tokens` tokens sees, each `reach` of them, in all batches."""
    lengths = [entries] * batch if lengths is None else lengths.tolist()
    return sum(min(length, tokens + (reach or entries) - 1) for length in lengths)


def _to_choose_from(inputs) -> int:
    """Scores of the queries that see more than k; who sees fewer needs no score."""
    score_BTS, blocks_BTJ = inputs["score_BTS"], inputs.get("blocks_BTJ")
    sizes = (*score_BTS.shape, inputs["ratio"], score_BTS.device)
    reach_BT = seen_BT = visible_counts(*check_start(inputs["start"], *sizes), *sizes)
    if blocks_BTJ is not None:
        block = inputs["block"]
        inside_BTJ = (seen_BT[:, :, None] - blocks_BTJ.long() * block).clamp(0, block)
        reach_BT = torch.where(blocks_BTJ >= 0, inside_BTJ, 0).sum(2)
    return int(reach_BT[reach_BT > inputs["k"]].sum())


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
