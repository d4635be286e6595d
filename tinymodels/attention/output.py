"""Attention's way back into the stream in two steps (V4 report): a group of heads at a time to a
few numbers, then all groups together to the stream.

H x D = 32,768 numbers to 4,096 would be the largest matrix of a V4-Flash layer. In 8 groups of 8
heads, each to 1,024 numbers, and from there to the stream, it takes half as many weights.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class GroupedOutput(nn.Module):
    """reduce: one matrix a group, below each other. expand: from all groups to the stream.

    Errors: ValueError if the groups do not divide the heads.
    """

    def __init__(self, heads: int, head_dim: int, groups: int, rank: int, width: int):
        super().__init__()
        if heads % groups:
            raise ValueError(f"out_groups is {groups}; it must divide the {heads} heads")
        self.groups = groups
        self.reduce = nn.Parameter(torch.zeros(groups * rank, heads * head_dim // groups))
        self.expand = nn.Linear(groups * rank, width, bias=False)

    def forward(self, out_BTHD: Float[Tensor, "B T H D"]) -> Float[Tensor, "B T X"]:
        group_BTGI = out_BTHD.flatten(-2).unflatten(-1, (self.groups, -1))
        reduce_GRI = self.reduce.unflatten(0, (self.groups, -1))
        return self.expand(torch.einsum("btgi,gri->btgr", group_BTGI, reduce_GRI).flatten(-2))
