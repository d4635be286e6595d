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
        mean_square = torch.linalg.vecdot(x, x).unsqueeze(-1) / x.shape[-1]
        return x * torch.rsqrt(mean_square + self.eps) * self.weight
