"""Single-pass mHC: the N copies of the residual stream are read once and written once.

Between a sublayer's answer F and the next sublayer's input, V4.1 does this, per token:

    X'_j = post_j F + sum_i comb[i, j] X_i         the new copies
    in = sum_j pre_j X'_j                          what the next sublayer reads
    flat = fn' vec(X') / RMS(vec(X'))              what the next mixes will be made from

and `pre`, `post`, `comb` come from the flat numbers that the call before left behind:

    pre = sigmoid(.) + eps      post = 2 sigmoid(.)      comb = Sinkhorn(.)

`pre` was made from X, before F was known, so `in` can be formed while X' is still in
registers. With a `pre` made from X' (mHC as V4 has it) that is impossible: all of X' must
be known first, and so it is read again. Here N + 1 streams come in (X, F) and N + 1 go
out (X', in): (2 N + 2) X numbers a token, and no way is shorter (arXiv 2609.19969).

Sinkhorn makes rows and columns of comb add up to 1. That is N x N numbers a token, done by
a small kernel before (`kernels.sinkhorn`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.sinkhorn import _mixes

if TYPE_CHECKING:
    from jaxtyping import Float

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST_COPIES = 4


def hyper_connection(
    copies_BTNX: Float[Tensor, "B T N X"],
    found_BTX: Float[Tensor, "B T X"],
    flat_BTM: Float[Tensor, "B T M"],
    base_M: Float[Tensor, " M"],
    scale_3: Float[Tensor, " P"],
    next_fn_MF: Float[Tensor, "M NX"],
    *,
    iterations: int = 20,
    eps: float = 1e-6,
    norm_eps: float = 1e-20,
    impl: str | None = None,
) -> tuple[Float[Tensor, "B T N X"], Float[Tensor, "B T X"], Float[Tensor, "B T M"]]:
    """From one sublayer's answer to the next one's input.

    Args:
        copies_BTNX, found_BTX: the stream before the sublayer, and what it answered.
        flat_BTM: the sublayer's fn on these copies, in fp32, as the call before returned
            it (`project` makes the first one). M = N (N + 2): pre, post, comb.
        base_M, scale_3: of this sublayer, fp32: mixes come from flat * scale + base.
        next_fn_MF: fn of the next sublayer, fp32.
        iterations, eps: of Sinkhorn; eps is also added to pre.
        norm_eps: of the RMS.

    Returns the new copies, the next input (both in the stream's dtype) and the next flat
    numbers in fp32, made from the copies as stored. Sums are in fp32. Raises ValueError
    naming the argument, its shape and what was expected.
    """
    sizes = arguments.match(copies=("B T N X", copies_BTNX), found=("B T X", found_BTX))
    arguments.match(flat=("B T M", flat_BTM), base=("M", base_M), next_fn=("M F", next_fn_MF),
                    scale=("P", scale_3))
    _check(sizes, flat_BTM, scale_3, next_fn_MF, iterations)
    small = {"flat": flat_BTM, "base": base_M, "scale": scale_3, "next_fn": next_fn_MF}
    call = (copies_BTNX, found_BTX, *small.values(), iterations, eps, norm_eps)
    if not (backend.use_triton(impl, DTYPES, copies=copies_BTNX, found=found_BTX)
            and backend.use_triton(impl, (torch.float32,), **small)):
        return twin(*call)
    arguments.in_32_bits(2, copies=copies_BTNX, next_fn=next_fn_MF)
    arguments.in_32_bits(1, found=found_BTX)
    return _launch(*call)


def _check(sizes, flat_BTM, scale_3, next_fn_MF, iterations) -> None:
    B, T, N, X = (sizes[letter] for letter in "BTNX")
    if N > LARGEST_COPIES:
        raise ValueError(f"copies holds {N} copies of the stream; expected at most "
                         f"{LARGEST_COPIES}")
    wanted = {"flat": (flat_BTM, (B, T, N * (N + 2))), "scale": (scale_3, (3,)),
              "next_fn": (next_fn_MF, (N * (N + 2), N * X))}
    for name, (tensor, shape) in wanted.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {shape} for {N} "
                             f"copies of width {X}")
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations is {iterations!r}; expected a whole number of at least 1")


def project(copies_BTNX, fn_MF, norm_eps=1e-20):
    """fn on all copies laid end to end, divided by their RMS; in fp32 or wider, plain torch."""
    wide = torch.promote_types(copies_BTNX.dtype, torch.float32)
    all_BTF = copies_BTNX.flatten(2).to(wide)
    rms_BT1 = torch.sqrt((all_BTF * all_BTF).mean(2, keepdim=True) + norm_eps)
    return torch.einsum("btf,mf->btm", all_BTF, fn_MF.to(wide)) / rms_BT1


def twin(copies_BTNX, found_BTX, flat_BTM, base_M, scale_3, next_fn_MF,
         iterations=20, eps=1e-6, norm_eps=1e-20):
    """The same in plain torch, one line an equation, in fp32 or wider."""
    N, dtype = copies_BTNX.shape[2], copies_BTNX.dtype
    wide = torch.promote_types(dtype, torch.float32)
    scale_M = scale_3.repeat_interleave(torch.tensor([N, N, N * N], device=scale_3.device))
    logit_BTM = (flat_BTM * scale_M + base_M).to(wide)
    pre_BTN = torch.sigmoid(logit_BTM[..., :N]) + eps
    post_BTN = 2 * torch.sigmoid(logit_BTM[..., N:2 * N])
    comb_BTNN = torch.softmax(logit_BTM[..., 2 * N:].unflatten(2, (N, N)), 3) + eps
    for step in range(2 * iterations - 1):
        comb_BTNN = comb_BTNN / (comb_BTNN.sum(2 + step % 2, keepdim=True) + eps)
    spread_BTNX = post_BTN[..., None] * found_BTX[:, :, None].to(wide)
    mixed_BTNX = torch.einsum("btij,btix->btjx", comb_BTNN, copies_BTNX.to(wide))
    new_BTNX = (spread_BTNX + mixed_BTNX).to(dtype)
    input_BTX = torch.einsum("btj,btjx->btx", pre_BTN, new_BTNX.to(wide)).to(dtype)
    return new_BTNX, input_BTX, project(new_BTNX, next_fn_MF, norm_eps)


@triton.jit
def _mix(
    copies, found, mixes, next_fn, new, following, next_flat, batch_tokens, tokens, norm_eps,
    copies_b, copies_t, copies_n, copies_x, found_b, found_t, found_x, fn_m, fn_f,
    COPIES: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_X: tl.constexpr, BLOCK_M: tl.constexpr,
):
    """One program: BLOCK_T tokens of any sequence, channel block after channel block."""
    MIXES: tl.constexpr = COPIES * (COPIES + 2)
    token_T = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    real_T = token_T < batch_tokens
    copy_N = tl.arange(0, BLOCK_N)
    mix_M = tl.arange(0, BLOCK_M)
    there_TN = real_T[:, None] & (copy_N < COPIES)[None, :]
    row_TN = token_T[:, None] * MIXES + copy_N[None, :]
    pre_TN = tl.load(mixes + row_TN, mask=there_TN, other=0.0)
    post_TN = tl.load(mixes + row_TN + COPIES, mask=there_TN, other=0.0)
    comb_at = token_T[:, None, None] * MIXES + 2 * COPIES + (copy_N[:, None] * COPIES
                                                             + copy_N[None, :])[None, :, :]
    comb_TNN = tl.load(mixes + comb_at, other=0.0,
                       mask=there_TN[:, :, None] & (copy_N < COPIES)[None, None, :])
    copies_T = copies + token_T // tokens * copies_b + token_T % tokens * copies_t
    found_T = found + token_T // tokens * found_b + token_T % tokens * found_t

    flat_TM = tl.zeros([BLOCK_T, BLOCK_M], tl.float32)
    square_T = tl.zeros([BLOCK_T], tl.float32)
    for start in range(0, WIDTH, BLOCK_X):
        channel_X = start + tl.arange(0, BLOCK_X)
        real_X = channel_X < WIDTH
        there_TX = real_T[:, None] & real_X[None, :]
        there_TNX = there_TN[:, :, None] & real_X[None, None, :]
        at_NX = copy_N[:, None] * copies_n + channel_X[None, :] * copies_x
        old_TNX = tl.load(copies_T[:, None, None] + at_NX[None, :, :], mask=there_TNX,
                          other=0.0).to(tl.float32)
        found_TX = tl.load(found_T[:, None] + channel_X[None, :] * found_x, mask=there_TX,
                           other=0.0).to(tl.float32)
        new_TNX = (post_TN[:, :, None] * found_TX[:, None, :]
                   + tl.sum(comb_TNN[:, :, :, None] * old_TNX[:, :, None, :], 1))
        stored_TNX = new_TNX.to(new.dtype.element_ty)
        flat_NX = copy_N[:, None] * WIDTH + channel_X[None, :]
        tl.store(new + token_T[:, None, None] * (COPIES * WIDTH) + flat_NX[None, :, :],
                 stored_TNX, mask=there_TNX)
        # What follows is made from the copies as stored, so that a later reader agrees.
        new_TNX = stored_TNX.to(tl.float32)
        input_TX = tl.sum(pre_TN[:, :, None] * new_TNX, 1)
        tl.store(following + token_T[:, None] * WIDTH + channel_X[None, :],
                 input_TX.to(following.dtype.element_ty), mask=there_TX)
        square_T += tl.sum(tl.sum(new_TNX * new_TNX, 2), 1)
        fn_there = (mix_M < MIXES)[:, None, None] & ((copy_N < COPIES)[:, None]
                                                     & real_X[None, :])[None, :, :]
        fn_MNX = tl.load(next_fn + mix_M[:, None, None] * fn_m + flat_NX[None, :, :] * fn_f,
                         mask=fn_there, other=0.0)
        flat_TM += tl.dot(tl.reshape(new_TNX, [BLOCK_T, BLOCK_N * BLOCK_X]),
                          tl.trans(tl.reshape(fn_MNX, [BLOCK_M, BLOCK_N * BLOCK_X])),
                          input_precision="ieee")
    rms_T = tl.sqrt(square_T / (COPIES * WIDTH) + norm_eps)
    # A token beyond the last one is all 0; without eps that would be 0 / 0.
    flat_TM = flat_TM / tl.where(real_T, rms_T, 1.0)[:, None]
    tl.store(next_flat + token_T[:, None] * MIXES + mix_M[None, :], flat_TM,
             mask=real_T[:, None] & (mix_M < MIXES)[None, :])


def _launch(copies_BTNX, found_BTX, flat_BTM, base_M, scale_3, next_fn_MF, iterations, eps,
            norm_eps):
    B, T, N, X = copies_BTNX.shape
    blocks = _blocks(B * T, N, X)
    mixes = torch.empty_like(flat_BTM, memory_format=torch.contiguous_format)
    per_program = 64 if backend.current().name != "interpret" else 4_096
    _mixes[(-(-B * T // per_program),)](
        flat_BTM.contiguous(), base_M.contiguous(), scale_3.contiguous(), mixes, B * T, eps,
        COPIES=N, ITERATIONS=iterations, BLOCK_T=per_program, BLOCK_N=blocks["BLOCK_N"])
    new_BTNX = copies_BTNX.new_empty(B, T, N, X)
    input_BTX = copies_BTNX.new_empty(B, T, X)
    next_flat_BTM = torch.empty_like(mixes)
    _mix[(-(-B * T // blocks["BLOCK_T"]),)](
        copies_BTNX, found_BTX, mixes, next_fn_MF, new_BTNX, input_BTX, next_flat_BTM, B * T, T,
        norm_eps, *copies_BTNX.stride(), *found_BTX.stride(), *next_fn_MF.stride(), COPIES=N,
        WIDTH=X, **blocks)
    return new_BTNX, input_BTX, next_flat_BTM


def _blocks(tokens, copies, width):
    """Block sizes: few large ones in the interpreter, where each operation costs alike."""
    block_n = arguments.power_of_two(copies)
    block_m = arguments.power_of_two(copies * (copies + 2), 16)
    if backend.current().name == "interpret":
        block_t = min(arguments.power_of_two(tokens, 16), 64)
        block_x = min(arguments.power_of_two(width), max(16 // block_n, 1_024 // block_t))
        return dict(BLOCK_T=block_t, BLOCK_N=block_n, BLOCK_X=block_x, BLOCK_M=block_m)
    return dict(BLOCK_T=16, BLOCK_N=block_n, BLOCK_X=16, BLOCK_M=block_m, num_warps=8,
                num_stages=1)


def traffic(*, batch=1, tokens, copies, width, block=16, itemsize=2) -> dict[str, int]:
    """Bytes loaded and stored. The streams are `(2 copies + 2) width` numbers a token; what
    comes on top is small: the mixes, in fp32, and `next_fn`, read once by each program of
    `block` tokens. `itemsize` is bytes per number of the streams."""
    count, mixes = batch * tokens, copies * (copies + 2)
    stream = count * (copies + 1) * width * itemsize
    programs = -(-count // block)
    weights = 4 * programs * mixes * copies * width
    per_program = 64 if backend.current().name != "interpret" else 4_096
    fixed = 4 * -(-count // per_program) * (mixes + 3)  # base and scale
    return {"bytes_read": stream + 8 * count * mixes + weights + fixed,
            "bytes_written": stream + 8 * count * mixes,
            "flops": 2 * count * copies * width * (copies + 2 + mixes)}


hyper_connection.traffic = traffic  # type: ignore[attr-defined]


def outputs(*inputs, **named) -> Tensor:
    """What `hyper_connection` returns, as one row of numbers: for the gates."""
    return torch.cat([output.flatten().to(torch.float64)
                      for output in hyper_connection(*inputs, **named)])


@dataclass(frozen=True)
class Shape:
    """The sizes of one call."""

    label: str
    batch: int
    tokens: int
    copies: int
    width: int
    dtype: torch.dtype = torch.float32
    function = staticmethod(outputs)

    def arguments(self, device="cpu", seed=0) -> dict:
        draw, small = drawing(self.dtype, device, seed), drawing(torch.float32, device, seed + 1)
        mixes = self.copies * (self.copies + 2)
        # Small streams: 16 bits round by parts of a number, and `check` allows a fixed error.
        return dict(copies_BTNX=draw(self.batch, self.tokens, self.copies, self.width) / 4,
                    found_BTX=draw(self.batch, self.tokens, self.width) / 4,
                    flat_BTM=small(self.batch, self.tokens, mixes), base_M=small(mixes),
                    scale_3=small(3),
                    next_fn_MF=small(mixes, self.copies * self.width) / self.width)


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the blocks that would be chosen here."""
    blocks = _blocks(shape.batch * shape.tokens, shape.copies, shape.width)
    return traffic(batch=shape.batch, tokens=shape.tokens, copies=shape.copies,
                   width=shape.width, block=blocks["BLOCK_T"], itemsize=shape.dtype.itemsize)


SMALL = (
    Shape("4 copies", 2, 19, 4, 40),
    Shape("3 copies", 3, 7, 3, 24),
    Shape("one token", 1, 1, 4, 72),
    Shape("bf16", 2, 9, 4, 40, dtype=torch.bfloat16),
)

REAL = (
    Shape("v4.1-flash", 1, 4_096, 4, 5_120, dtype=torch.bfloat16),
    Shape("v4.1-flash decode", 16, 1, 4, 5_120, dtype=torch.bfloat16),
    Shape("fp32", 2, 1_000, 3, 1_000),
)
