"""The weights of one hyper-connection: what a sublayer reads, what it adds, what is exchanged.

    pre = sigmoid(.) + eps      post = 2 sigmoid(.)      comb = Sinkhorn(.)

Sinkhorn makes rows and columns of comb, N x N numbers a token, add up to 1: softmax of the
rows, then columns and rows in turns, columns last (V4 report).
"""

from __future__ import annotations

from kernels.backend import tl, triton


@triton.jit
def _mixes(
    flat, base, scale, mixes, tokens, eps,
    COPIES: tl.constexpr, ITERATIONS: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """One program: pre, post and comb of BLOCK_T tokens, each number in its place in flat."""
    token_T = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    copy_N = tl.arange(0, BLOCK_N)
    row_T = token_T * (COPIES * (COPIES + 2))
    there_TN = (token_T < tokens)[:, None] & (copy_N < COPIES)[None, :]
    for part in tl.static_range(2):
        at_N = part * COPIES + copy_N
        flat_TN = tl.load(flat + row_T[:, None] + at_N[None, :], mask=there_TN, other=0.0)
        base_N = tl.load(base + at_N, mask=copy_N < COPIES, other=0.0)
        logit_TN = flat_TN * tl.load(scale + part) + base_N[None, :]
        sigmoid_TN = 1.0 / (1.0 + tl.exp(-logit_TN))
        if part == 0:
            sigmoid_TN += eps
        else:
            sigmoid_TN *= 2.0
        tl.store(mixes + row_T[:, None] + at_N[None, :], sigmoid_TN, mask=there_TN)

    at_NN = 2 * COPIES + copy_N[:, None] * COPIES + copy_N[None, :]
    real_NN = (copy_N < COPIES)[:, None] & (copy_N < COPIES)[None, :]
    there_TNN = (token_T < tokens)[:, None, None] & real_NN[None, :, :]
    flat_TNN = tl.load(flat + row_T[:, None, None] + at_NN[None, :, :], mask=there_TNN, other=0.0)
    base_NN = tl.load(base + at_NN, mask=real_NN, other=0.0)
    logit_TNN = flat_TNN * tl.load(scale + 2) + base_NN[None, :, :]
    # Rows and columns beyond the last copy weigh nothing; their maximum counts as 0.
    logit_TNN = tl.where(real_NN[None, :, :], logit_TNN, -float("inf"))
    highest_TN = tl.max(logit_TNN, 2)
    highest_TN = tl.where(highest_TN == -float("inf"), 0.0, highest_TN)
    comb_TNN = tl.exp(logit_TNN - highest_TN[:, :, None])
    total_TN = tl.sum(comb_TNN, 2)
    comb_TNN = comb_TNN / tl.where(total_TN > 0, total_TN, 1.0)[:, :, None]
    comb_TNN = tl.where(real_NN[None, :, :], comb_TNN + eps, 0.0)
    comb_TNN = comb_TNN / (tl.sum(comb_TNN, 1) + eps)[:, None, :]
    for _ in range(ITERATIONS - 1):
        comb_TNN = comb_TNN / (tl.sum(comb_TNN, 2) + eps)[:, :, None]
        comb_TNN = comb_TNN / (tl.sum(comb_TNN, 1) + eps)[:, None, :]
    tl.store(mixes + row_T[:, None, None] + at_NN[None, :, :], comb_TNN, mask=there_TNN)
