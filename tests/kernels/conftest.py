"""Where the kernels run in these tests, and an attention written without them."""

import math

import numpy as np
import pytest
import torch

import kernels  # noqa: F401  before anything that may import triton
from kernels import backend


def pytest_collection_modifyitems(items):
    name = backend.current().name
    for item in items:
        if item.get_closest_marker("interpreter") and name != "interpret":
            item.add_marker(pytest.mark.skip(reason=f"looks into the interpreter; backend {name}"))
        if item.get_closest_marker("triton_runs") and name == "torch":
            item.add_marker(pytest.mark.skip(reason=backend.current().reason))


def pytest_configure(config):
    config.addinivalue_line("markers", "interpreter: needs kernels in triton's interpreter")
    config.addinivalue_line("markers", "triton_runs: needs kernels to run at all")


@pytest.fixture
def device():
    return "cuda" if backend.current().name == "cuda" else "cpu"


@pytest.fixture
def draw(device):
    """draw(seed, *shape, dtype=...) -> a tensor of normal numbers."""
    def normal(seed, *shape, dtype=torch.float32):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=generator).to(device, dtype)

    return normal


@pytest.fixture
def reference():
    """Causal attention one query at a time, in numpy and fp64."""
    def attend(query, key, value, scale=None, window=None, lengths=None):
        query, key, value = (x.detach().double().cpu().numpy() for x in (query, key, value))
        batch, tokens, heads, dim = query.shape
        entries, kv_heads = key.shape[1:3]
        scale = 1 / math.sqrt(dim) if scale is None else scale
        output = np.zeros((batch, tokens, heads, value.shape[3]))
        for b in range(batch):
            length = entries if lengths is None else int(lengths[b])
            for t in range(tokens):
                last = length - tokens + t
                first = 0 if window is None else max(0, last - window + 1)
                if last < 0:
                    continue
                for h in range(heads):
                    k = h * kv_heads // heads
                    score = key[b, first:last + 1, k] @ query[b, t, h] * scale
                    weight = np.exp(score - score.max())
                    output[b, t, h] = weight / weight.sum() @ value[b, first:last + 1, k]
        return torch.from_numpy(output)

    return attend
