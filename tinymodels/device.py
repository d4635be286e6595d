"""Where to compute: the one place that decides it."""

import torch


def pick() -> torch.device:
    """The GPU if CUDA sees one, else the CPU. Outputs that are compared agree on both, rounded."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
