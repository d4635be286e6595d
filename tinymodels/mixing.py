"""The arithmetic of mHC's mixing: from copies of the stream to a doubly stochastic matrix.

`sinkhorn` and `project_flat` have gradients written by hand: torch's own would keep and pass
over every small step of them, and those are most of what training with mHC costs.
"""

from operator import mul, sub

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

FEW = 64  # up to so many tokens Sinkhorn works on one small matrix product a turn


def wide(x: Tensor) -> torch.dtype:
    """At least float32."""
    return torch.promote_types(x.dtype, torch.float32)


def project_flat(
    copies_BTNX: Float[Tensor, "B T N X"], fn_MF: Float[Tensor, "M NX"], eps: float
) -> Float[Tensor, "B T M"]:
    """fn times all copies laid end to end, divided by their RMS."""
    flat = copies_BTNX.flatten(-2).to(wide(copies_BTNX))
    return _Project.apply(flat, fn_MF.to(flat.dtype), eps)


class _Project(torch.autograd.Function):
    """x fn^T / RMS(x), with a gradient that passes over the copies twice instead of six times."""

    @staticmethod
    def forward(ctx, flat_F, fn_MF, eps):
        length_1 = torch.linalg.vector_norm(flat_F, dim=-1, keepdim=True)
        scale_1 = torch.rsqrt(length_1.square() / flat_F.shape[-1] + eps)
        out_M = F.linear(flat_F, fn_MF) * scale_1
        ctx.save_for_backward(flat_F, fn_MF, scale_1, out_M)
        return out_M

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_M):
        flat_F, fn_MF, scale_1, out_M = ctx.saved_tensors
        straight_M = grad_M * scale_1
        through_rms_1 = (grad_M * out_M).sum(-1, keepdim=True) * scale_1.square()
        to_flat = straight_M @ fn_MF
        to_flat.addcmul_(flat_F, through_rms_1, value=-1 / flat_F.shape[-1])
        return to_flat, straight_M.flatten(0, -2).T @ flat_F.flatten(0, -2), None


def sinkhorn(
    logits_BTNN: Float[Tensor, "B T N N"], iterations: int, eps: float
) -> Float[Tensor, "B T N N"]:
    """A matrix whose rows and columns add up to 1, nearly: softmax the rows, then normalise
    columns and rows in turns, columns last (Sinkhorn and Knopp, 1967).

    Each turn divides by a sum plus eps. All turns together only scale rows and columns, so just
    these factors are kept: comb = diag(1 / row) start diag(1 / column). With them a turn is two
    small operations: a new sum is start times the other side's factors, and eps a share of the
    old one.
    """
    logits_nNN = logits_BTNN.flatten(0, -3)
    alone = len(logits_nNN) == 1 and not (logits_nNN.requires_grad or logits_nNN.is_cuda)
    if alone and eps > 0:  # without eps a sum can be 0
        start_NN = (logits_nNN[0].softmax(-1) + eps).tolist()
        least = torch.finfo(logits_nNN.dtype).eps / 16
        comb_NN = _balance_one(start_NN, iterations, eps, least)
        return logits_BTNN.new_tensor(comb_NN).view_as(logits_BTNN)
    if len(logits_nNN) > FEW:
        start_NNn = logits_nNN.permute(1, 2, 0).contiguous().softmax(1) + eps
        comb_NNn = _BalanceMany.apply(start_NNn, iterations, eps)
        return comb_NNn.permute(2, 0, 1).contiguous().view_as(logits_BTNN)
    start_nNN = logits_nNN.softmax(-1) + eps
    turned_nNN = start_nNN.transpose(-1, -2)
    row = column = scale_row = scale_column = start_nNN.new_ones(*start_nNN.shape[:2], 1)
    for i in range(iterations):
        if i > 0:
            row = torch.baddbmm(row, start_nNN, scale_column, beta=eps)
            scale_row = row.reciprocal()
        column = torch.baddbmm(column, turned_nNN, scale_row, beta=eps)
        scale_column = column.reciprocal()
    return (scale_row * start_nNN * scale_column.transpose(-1, -2)).view_as(logits_BTNN)


def _balance_one(
    start: list[list[float]], iterations: int, eps: float, least: float
) -> list[list[float]]:
    """The same turns for a single token, in Python's own numbers (float64): for so few, starting
    an operation costs more than the arithmetic. It ends early where a turn changes no sum (which
    are near 1) by more than `least`: rounding would hide all further ones."""
    turned = list(zip(*start, strict=True))
    row = column = by_row = by_column = [1.0] * len(start)
    for i in range(iterations):
        before = column
        if i > 0:
            row = [eps * r + sum(map(mul, line, by_column)) for r, line in zip(row, start)]
            by_row = [1 / r for r in row]
        column = [eps * c + sum(map(mul, line, by_row)) for c, line in zip(column, turned)]
        by_column = [1 / c for c in column]
        if i > 0 and max(map(abs, map(sub, column, before))) <= least * max(column):
            break
    return [[r * x * c for x, c in zip(line, by_column)] for r, line in zip(by_row, start)]


class _BalanceMany(torch.autograd.Function):
    """The same turns for many tokens at once, tokens last: sums run over the small axes, and all
    tokens side by side. Only the factors of each turn are kept for the gradient."""

    @staticmethod
    def forward(ctx, start_NNn, iterations, eps):
        row_Nn = torch.ones_like(start_NNn[0])
        column_Nn = start_NNn.sum(0) + eps
        rows, columns = [row_Nn], [column_Nn.reciprocal()]  # as factors: one over the sums
        for _ in range(iterations - 1):
            row_Nn = _times(start_NNn, columns[-1]).add_(row_Nn, alpha=eps)
            rows.append(row_Nn.reciprocal())
            column_Nn = _times(start_NNn.transpose(0, 1), rows[-1]).add_(column_Nn, alpha=eps)
            columns.append(column_Nn.reciprocal())
        ctx.save_for_backward(start_NNn, *rows, *columns)
        ctx.eps = eps
        return start_NNn * rows[-1].unsqueeze(1) * columns[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_NNn):
        """The turns in reverse: to_x is the gradient of x. A turn that took a sum of `start` times
        factors gives `start` their outer product with the gradient of the sum."""
        start_NNn, *factors = ctx.saved_tensors
        grad_NNn = grad_NNn.contiguous()
        turned_NNn, eps = start_NNn.transpose(0, 1), ctx.eps
        rows, columns = factors[: len(factors) // 2], factors[len(factors) // 2 :]
        row, column = rows.pop(), columns.pop()
        weighed_NNn = grad_NNn * start_NNn  # by the factor of a row, and by that of a column
        to_row = _times(weighed_NNn, column).mul_(row.square()).neg_()
        to_column = _times(weighed_NNn.transpose(0, 1), row).mul_(column.square()).neg_()
        to_start_NNn = grad_NNn * row.unsqueeze(1) * column
        numbers = torch.finfo(grad_NNn.dtype)
        least, none = 16 * numbers.eps * to_column.abs().max(), 1e8 * numbers.tiny
        while columns and to_column.abs().max() > least:
            to_column = F.hardshrink(to_column, none)
            to_start_NNn.addcmul_(row.unsqueeze(1), to_column)
            to_row = to_row.addcmul_(_times(start_NNn, to_column), row.square(), value=-1)
            to_column = to_column * eps
            row, column = rows.pop(), columns.pop()
            to_start_NNn.addcmul_(to_row.unsqueeze(1), column)
            to_column.addcmul_(_times(turned_NNn, to_row), column.square(), value=-1)
            to_row = to_row * eps
        to_start_NNn.addcmul_(row.unsqueeze(1), to_column)
        return to_start_NNn, None, None


def _times(matrix_NNn: Tensor, vector_Nn: Tensor) -> Tensor:
    """Matrix times vector, for every token."""
    return (matrix_NNn * vector_Nn).sum(1)
