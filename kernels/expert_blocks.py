"""Which rows of which expert a program of `moe_experts` takes: tokens sorted by expert, in blocks.

Sorting gives every expert a run of rows, and every run is cut into blocks of BLOCK_M rows.
The last block of a run is seldom full: its missing rows are computed for nothing, and
`padding` counts them. An expert without a token has no block, and its weights are not read.

How many blocks there are depends on the routing, which a GPU knows and Python does not.
Asking would mean waiting, so as many programs start as any routing could need; those
without a block stop.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.backend import tl, triton


def check_routing(experts_Nk, weights_Nk, x_NX, experts: int) -> None:
    """Each token's experts and their weights. Raises ValueError naming what is wrong."""
    shape = tuple(weights_Nk.shape)
    if shape[0] != x_NX.shape[0]:
        raise ValueError(f"weights has shape {shape} and x {tuple(x_NX.shape)}; expected a row of "
                         "weights for each token")
    if not isinstance(experts_Nk, Tensor) or experts_Nk.dtype not in (torch.int32, torch.int64):
        kind = experts_Nk.dtype if isinstance(experts_Nk, Tensor) else type(experts_Nk).__name__
        raise ValueError(f"experts is {kind}; expected a tensor of int32 or int64 of shape {shape}")
    if tuple(experts_Nk.shape) != shape:
        raise ValueError(f"experts has shape {tuple(experts_Nk.shape)}; expected {shape}, one "
                         "expert for each weight")
    for name, tensor in (("experts", experts_Nk), ("weights", weights_Nk)):
        if tensor.device != x_NX.device:
            raise ValueError(f"{name} is on {tensor.device}; expected {x_NX.device}")
    if experts_Nk.device.type == "cpu":  # elsewhere the answer would have to be waited for
        low, high = int(experts_Nk.min()), int(experts_Nk.max())
        if low < 0 or high >= experts:
            raise ValueError(f"experts goes from {low} to {high}; expected 0 to {experts - 1}, "
                             "the experts there are")


def schedule(experts_Nk, experts: int, block: int):
    """(order, blocks): the choices n k + j sorted by expert, and for each block of rows its
    expert, first row and end, int32 [3, number]. Nothing waits for the GPU."""
    choice_R = experts_Nk.flatten()
    order_R = choice_R.argsort(stable=True)
    number_E = torch.arange(experts, device=choice_R.device, dtype=choice_R.dtype)
    sorted_R = choice_R[order_R]
    begin_E = torch.searchsorted(sorted_R, number_E)
    end_E = torch.searchsorted(sorted_R, number_E, right=True)
    blocks_E = (end_E - begin_E + block - 1) // block
    until_E = blocks_E.cumsum(0)
    block_b = torch.arange(most_blocks(len(choice_R), experts, block), device=choice_R.device)
    expert_b = torch.searchsorted(until_E, block_b, right=True).clamp(max=experts - 1)
    first_b = begin_E[expert_b] + (block_b - until_E[expert_b] + blocks_E[expert_b]) * block
    # Beyond the last block the end lies before the first row: no rows.
    end_b = torch.minimum(first_b + block, end_E[expert_b])
    return order_R.int(), torch.stack([expert_b, first_b, end_b]).int()


def block_sizes(rows, experts, width, ffn, dtype):
    """Block sizes: few large ones in the interpreter, where each operation costs alike.
    BLOCK_M follows the mean load, so that a lone token does not drag 63 empty rows along."""
    load = arguments.power_of_two(-(-rows // experts))
    if backend.current().name == "interpret":
        block_x = min(arguments.power_of_two(width, 16), 512)
        return dict(BLOCK_M=min(load, 64), BLOCK_X=block_x,
                    BLOCK_F=min(arguments.power_of_two(ffn, 16), 65_536 // block_x))
    # Sizes that `python -m kernels compile` shows to fit all targets without a spill. fp32
    # has no matrix instruction of full precision, so its products need many registers.
    if dtype == torch.float32:
        return dict(BLOCK_M=16, BLOCK_F=32, BLOCK_X=32, num_warps=4, num_stages=2)
    if width % 16 or ffn % 16:  # rows that start anywhere are loaded a number at a time
        return dict(BLOCK_M=min(max(load, 16), 32), BLOCK_F=32, BLOCK_X=32, num_warps=4,
                    num_stages=2)
    if load <= 16:  # the weights decide: wide rows of them, and many programs
        return dict(BLOCK_M=16, BLOCK_F=32, BLOCK_X=128, num_warps=4, num_stages=3)
    block_m = min(load, 128)
    return dict(BLOCK_M=block_m, BLOCK_F=64, BLOCK_X=64, num_warps=8 if block_m > 64 else 4,
                num_stages=3)


def most_blocks(rows: int, experts: int, block: int) -> int:
    """The most blocks that any routing of so many rows has: one row an expert, then full ones."""
    return rows if rows <= experts else experts + (rows - experts) // block


def padding(loads, block: int) -> int:
    """Rows computed for nothing: what the experts' last blocks of `block` rows lack."""
    return sum(-load % block for load in loads)


@triton.jit
def rows_of_block(blocks, order, block, number, BLOCK_M: tl.constexpr):
    """The expert of a block, and where its rows lie: sorted, and as choices n k + j."""
    expert = tl.load(blocks + block).to(tl.int64)  # 64 bits: stacked weights pass 2**31
    first = tl.load(blocks + number + block)
    end = tl.load(blocks + 2 * number + block)
    row_M = first + tl.arange(0, BLOCK_M)
    there_M = row_M < end
    choice_M = tl.load(order + row_M, mask=there_M, other=0)
    return expert, first < end, row_M.to(tl.int64), choice_M.to(tl.int64), there_M
