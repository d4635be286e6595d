"""RMSNorm (arXiv 1910.07467): bring each token's vector to length sqrt(X), then weigh it."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*B X"]) -> Float[Tensor, "*B X"]:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight
