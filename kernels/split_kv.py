"""Split-KV: the entries of a cache cut into splits that are worked on at the same time.

A sequence has one new token and few kv heads, so there are fewer programs than a GPU has
processors. Each split of its entries gets a program with a maximum and a sum of its own,
and a second kernel merges them ("Flash-Decoding"; Dao et al., 2023). Two splits with
outputs o_1, o_2 and log-sum-exps e_1, e_2 merge exactly:

    e = log(exp(e_1) + exp(e_2)),    o = exp(e_1 - e) * o_1 + exp(e_2 - e) * o_2
"""

from __future__ import annotations

from kernels import backend
from kernels.backend import tl, triton

LARGEST_MERGE = 16_384  # splits times value head dim: fp32 numbers of one merging program


def default_splits(batch, entries, kv_heads, blocks, device) -> int:
    """Enough splits that every processor of the GPU has two programs, at most one a block
    of entries, and no more than the merge can hold in registers."""
    wanted = -(-2 * backend.processors(device) // (batch * kv_heads))
    return max(1, min(wanted, -(-entries // blocks["BLOCK_S"]), LARGEST_MERGE // blocks["BLOCK_V"]))


@triton.jit
def _merge_splits(
    partial, partial_lse, output, splits,
    GROUP: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """One program: the splits of one query head, weighed by their log-sum-exps."""
    program = tl.program_id(0).to(tl.int64)  # (b * K + k) * G + g, that is b * H + h
    row = program // GROUP
    member = program % GROUP
    split = tl.arange(0, BLOCK_N)
    value_dim = tl.arange(0, BLOCK_V)
    at = (row * splits + split) * GROUP + member
    lse_N = tl.load(partial_lse + at, mask=split < splits, other=-float("inf"))
    highest = tl.max(lse_N, 0)
    # All splits may be empty: -inf minus -inf is NaN, so the maximum is replaced by 0.
    highest = tl.where(highest == -float("inf"), 0.0, highest)
    weight_N = tl.exp(lse_N - highest)
    total = tl.sum(weight_N, 0)
    partial_NV = tl.load(partial + at[:, None] * VALUE_DIM + value_dim[None, :],
                         mask=(split[:, None] < splits) & (value_dim[None, :] < VALUE_DIM),
                         other=0.0)
    output_V = tl.sum(partial_NV * weight_N[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(output + program * VALUE_DIM + value_dim, output_V.to(output.dtype.element_ty),
             mask=value_dim < VALUE_DIM)
