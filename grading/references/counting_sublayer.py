"""A stand-in for a sublayer: the same function in torch and in numpy, and it counts its calls.

It looks back (every token reads the mean of all tokens up to itself) and is not linear, so what
an earlier sublayer added, where and how much of it, shows in what this one adds.
"""

from __future__ import annotations

import numpy as np
import torch


class CountingSublayer:
    """stream [B, T, X] -> what it adds, [B, T, X]; `calls` says how often it ran."""

    def __init__(self, matrix_XX: torch.Tensor, looks_back: bool = True) -> None:
        self.matrix_XX, self.looks_back = matrix_XX, looks_back
        self.calls = 0

    def __call__(self, x_BTX: torch.Tensor) -> torch.Tensor:
        width = len(self.matrix_XX)
        if not isinstance(x_BTX, torch.Tensor) or x_BTX.ndim != 3 or x_BTX.shape[-1] != width:
            shape = list(getattr(x_BTX, "shape", [])) or type(x_BTX).__name__
            raise ValueError(f"a sublayer takes the whole stream [B, T, {width}]; got {shape}")
        self.calls += 1
        if self.looks_back:
            seen_T = torch.arange(1, x_BTX.shape[1] + 1, dtype=x_BTX.dtype)
            x_BTX = x_BTX + x_BTX.cumsum(1) / seen_T[:, None]
        return torch.tanh(x_BTX @ self.matrix_XX.to(x_BTX.dtype))

    def on_one_text(self, x_TX: np.ndarray) -> np.ndarray:
        """The same for one text in float64, token by token."""
        matrix_XX = self.matrix_XX.numpy().astype(np.float64)
        rows = []
        for t, x_X in enumerate(x_TX):
            if self.looks_back:
                x_X = x_X + x_TX[: t + 1].mean(0)
            rows.append(np.tanh(x_X @ matrix_XX))
        return np.stack(rows)
