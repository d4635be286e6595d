"""Experts: each token's rows go to the few networks that were chosen for it.

    y_n = sum over j of  weight_n,j * expert_e(x_n)        e the j-th expert chosen for token n
    expert_e(x) = W_down,e (silu(W_gate,e x) * W_up,e x)

With a limit (V4) the gate is cut from above and the other factor on both sides, before the
silu. A token alone would read an expert's weights for itself; so tokens are sorted by
expert, and a block of them shares each weight that is read (a grouped product).

- Each expert's rows are cut into blocks (`kernels.expert_blocks`). The last one is seldom
  full: its missing rows are computed for nothing, and `moe_experts.padding` counts them.
  An expert without a token has no block, and its weights are not read.
- Three launches: gate and up with the activation; down, times the routing weight; and the
  sum over a token's k answers, always in the same order. (Adding to memory from many
  programs at once would need no third launch and give other roundings on every run.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import arguments, backend
from kernels.attention_shape import drawing
from kernels.backend import tl, triton
from kernels.expert_blocks import (
    block_sizes,
    check_routing,
    most_blocks,
    padding,
    rows_of_block,
    schedule,
)

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PRODUCTS = ("_up", "_down")


def moe_experts(
    x_NX: Float[Tensor, "N X"],
    experts_Nk: Int[Tensor, "N k"],
    weights_Nk: Float[Tensor, "N k"],
    gate_EFX: Float[Tensor, "E F X"],
    up_EFX: Float[Tensor, "E F X"],
    down_EXF: Float[Tensor, "E X F"],
    *,
    limit: float | None = None,
    impl: str | None = None,
) -> Float[Tensor, "N X"]:
    """What the chosen experts say about each token, weighed and added up.

    Args:
        x_NX: tokens.
        experts_Nk, weights_Nk: each token's experts (int32 or int64) and their weights (any
            floating-point dtype).
        gate_EFX, up_EFX, down_EXF: weights of all experts, any strides: two halves of one
            tensor [E, 2F, X] will do.
        limit: gate <= limit and -limit <= up <= limit before the activation; None: no limit.
        impl: "triton", "torch" or None (see `kernels.backend`).

    Returns x's dtype; sums are in fp32, and what lies between the products in x's dtype.
    Raises ValueError naming the argument, its shape and what was expected.
    """
    matrices = {"gate": gate_EFX, "up": up_EFX, "down": down_EXF}
    sizes = arguments.match(x=("N X", x_NX), gate=("E F X", gate_EFX), up=("E F X", up_EFX),
                            down=("E X F", down_EXF))
    sizes |= arguments.match(weights=("N k", weights_Nk))
    check_routing(experts_Nk, weights_Nk, x_NX, sizes["E"])
    if limit is not None and not (isinstance(limit, (int, float)) and limit is not True
                                  and limit > 0):
        raise ValueError(f"limit is {limit!r}; expected None or a number above 0")
    if not (backend.use_triton(impl, DTYPES, x=x_NX, **matrices)
            and backend.use_triton(impl, (*DTYPES, torch.float64), weights=weights_Nk)):
        return twin(x_NX, experts_Nk, weights_Nk, gate_EFX, up_EFX, down_EXF, limit)
    arguments.in_32_bits(1, x=x_NX)
    arguments.in_32_bits(2, **matrices)
    return _launch(x_NX, experts_Nk, weights_Nk, gate_EFX, up_EFX, down_EXF, limit, sizes)


def twin(x_NX, experts_Nk, weights_Nk, gate_EFX, up_EFX, down_EXF, limit=None):
    """The same in plain torch, one expert after another, in fp32 or wider."""
    wide = torch.promote_types(x_NX.dtype, torch.float32)
    said_NkX = x_NX.new_zeros(*experts_Nk.shape, x_NX.shape[1], dtype=wide)
    for e in experts_Nk.unique().tolist():
        token_n, choice_n = (experts_Nk == e).nonzero(as_tuple=True)
        x_nX = x_NX[token_n].to(wide)
        gate_nF, up_nF = x_nX @ gate_EFX[e].to(wide).T, x_nX @ up_EFX[e].to(wide).T
        if limit is not None:
            gate_nF, up_nF = gate_nF.clamp(max=limit), up_nF.clamp(-limit, limit)
        said_nX = (F.silu(gate_nF) * up_nF) @ down_EXF[e].to(wide).T
        said_NkX = said_NkX.index_put((token_n, choice_n), said_nX)
    return torch.einsum("nkx,nk->nx", said_NkX, weights_Nk.to(wide)).to(x_NX.dtype)


@triton.jit
def _up(
    x, gate, up, blocks, order, hidden, number, limit,
    x_n, x_x, gate_e, gate_f, gate_x, up_e, up_f, up_x,
    TOP_K: tl.constexpr, WIDTH: tl.constexpr, FFN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_X: tl.constexpr,
):
    """One program: BLOCK_F hidden channels of one block of rows."""
    parts: tl.constexpr = (FFN + BLOCK_F - 1) // BLOCK_F
    program = tl.program_id(0)  # block * parts + part: neighbours share rows and expert
    expert, any_row, row_M, choice_M, there_M = rows_of_block(
        blocks, order, program // parts, number, BLOCK_M)
    channel_F = program % parts * BLOCK_F + tl.arange(0, BLOCK_F)
    x_M = x + choice_M // TOP_K * x_n
    gate_F = gate + expert * gate_e + channel_F * gate_f
    up_F = up + expert * up_e + channel_F * up_f
    gate_MF = tl.zeros([BLOCK_M, BLOCK_F], tl.float32)
    up_MF = tl.zeros([BLOCK_M, BLOCK_F], tl.float32)
    for begin in range(0, tl.where(any_row, WIDTH, 0), BLOCK_X):
        at_X = begin + tl.arange(0, BLOCK_X)
        x_MX = tl.load(x_M[:, None] + at_X[None, :] * x_x,
                       mask=there_M[:, None] & (at_X < WIDTH)[None, :], other=0.0)
        there_XF = (at_X < WIDTH)[:, None] & (channel_F < FFN)[None, :]
        gate_XF = tl.load(gate_F[None, :] + at_X[:, None] * gate_x, mask=there_XF, other=0.0)
        gate_MF = tl.dot(x_MX, gate_XF, gate_MF, input_precision="ieee")
        up_XF = tl.load(up_F[None, :] + at_X[:, None] * up_x, mask=there_XF, other=0.0)
        up_MF = tl.dot(x_MX, up_XF, up_MF, input_precision="ieee")
    if limit is not None:  # NaN stays NaN, as it does in torch
        gate_MF = tl.minimum(gate_MF, limit, propagate_nan=tl.PropagateNan.ALL)
        up_MF = tl.minimum(up_MF, limit, propagate_nan=tl.PropagateNan.ALL)
        up_MF = tl.maximum(up_MF, -limit, propagate_nan=tl.PropagateNan.ALL)
    hidden_MF = gate_MF / (1.0 + tl.exp(-gate_MF)) * up_MF
    tl.store(hidden + row_M[:, None] * FFN + channel_F[None, :],
             hidden_MF.to(hidden.dtype.element_ty),
             mask=there_M[:, None] & (channel_F < FFN)[None, :])


@triton.jit
def _down(
    hidden, down, weights, blocks, order, said, number, down_e, down_x, down_f,
    WIDTH: tl.constexpr, FFN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_X: tl.constexpr, BLOCK_F: tl.constexpr,
):
    """One program: BLOCK_X channels of the answers to one block of rows, weighed."""
    parts: tl.constexpr = (WIDTH + BLOCK_X - 1) // BLOCK_X
    program = tl.program_id(0)  # block * parts + part
    expert, any_row, row_M, choice_M, there_M = rows_of_block(
        blocks, order, program // parts, number, BLOCK_M)
    channel_X = program % parts * BLOCK_X + tl.arange(0, BLOCK_X)
    down_X = down + expert * down_e + channel_X * down_x
    said_MX = tl.zeros([BLOCK_M, BLOCK_X], tl.float32)
    for begin in range(0, tl.where(any_row, FFN, 0), BLOCK_F):
        at_F = begin + tl.arange(0, BLOCK_F)
        hidden_MF = tl.load(hidden + row_M[:, None] * FFN + at_F[None, :],
                            mask=there_M[:, None] & (at_F < FFN)[None, :], other=0.0)
        down_FX = tl.load(down_X[None, :] + at_F[:, None] * down_f,
                          mask=(at_F < FFN)[:, None] & (channel_X < WIDTH)[None, :], other=0.0)
        said_MX = tl.dot(hidden_MF, down_FX, said_MX, input_precision="ieee")
    weight_M = tl.load(weights + choice_M, mask=there_M, other=0.0)
    # Each answer has a place of its own, in the order of the tokens.
    tl.store(said + choice_M[:, None] * WIDTH + channel_X[None, :], said_MX * weight_M[:, None],
             mask=there_M[:, None] & (channel_X < WIDTH)[None, :])


@triton.jit
def _add_up(
    said, y, tokens, TOP_K: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_X: tl.constexpr,
):
    """One program: the sum of the k weighed answers to BLOCK_T tokens, in BLOCK_X channels."""
    parts: tl.constexpr = (WIDTH + BLOCK_X - 1) // BLOCK_X
    program = tl.program_id(0)
    token_T = (program // parts).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    channel_X = program % parts * BLOCK_X + tl.arange(0, BLOCK_X)
    there_TX = (token_T < tokens)[:, None] & (channel_X < WIDTH)[None, :]
    said_T = said + token_T * (TOP_K * WIDTH)
    sum_TX = tl.zeros([BLOCK_T, BLOCK_X], tl.float32)
    for choice in tl.static_range(TOP_K):
        sum_TX += tl.load(said_T[:, None] + (choice * WIDTH + channel_X)[None, :], mask=there_TX,
                          other=0.0)
    tl.store(y + token_T[:, None] * WIDTH + channel_X[None, :], sum_TX.to(y.dtype.element_ty),
             mask=there_TX)


def _launch(x_NX, experts_Nk, weights_Nk, gate_EFX, up_EFX, down_EXF, limit, sizes):
    N, X, E, ffn, k = (sizes[letter] for letter in ("N", "X", "E", "F", "k"))
    blocks = block_sizes(N * k, E, X, ffn, x_NX.dtype)
    order_R, block_3b = schedule(experts_Nk, E, blocks["BLOCK_M"])
    number = block_3b.shape[1]
    hidden_RF = x_NX.new_empty(N * k, ffn)
    said_RX = x_NX.new_empty(N * k, X, dtype=torch.float32)
    y_NX = x_NX.new_empty(N, X)
    _up[(number * -(-ffn // blocks["BLOCK_F"]),)](
        x_NX, gate_EFX, up_EFX, block_3b, order_R, hidden_RF, number,
        None if limit is None else float(limit),
        *x_NX.stride(), *gate_EFX.stride(), *up_EFX.stride(),
        TOP_K=k, WIDTH=X, FFN=ffn, **blocks)
    # The same sizes with the roles of the axes exchanged; one product needs fewer warps than two.
    turned = {**blocks, "BLOCK_X": blocks["BLOCK_F"], "BLOCK_F": blocks["BLOCK_X"]}
    if "num_warps" in turned:
        turned["num_warps"] = 4
    _down[(number * -(-X // turned["BLOCK_X"]),)](
        hidden_RF, down_EXF, weights_Nk.float().contiguous(), block_3b, order_R, said_RX, number,
        *down_EXF.stride(), WIDTH=X, FFN=ffn, **turned)
    block_x = min(arguments.power_of_two(X), 1_024)
    block_t = min(arguments.power_of_two(N), 64) if backend.current().name == "interpret" else 1
    _add_up[(-(-N // block_t) * -(-X // block_x),)](said_RX, y_NX, N, TOP_K=k, WIDTH=X,
                                                    BLOCK_T=block_t, BLOCK_X=block_x)
    return y_NX


def traffic(*, tokens, top_k, width, ffn, loads, block=16, parts=(1, 1),
            itemsize=2) -> dict[str, int]:
    """Bytes that the three kernels load and store, and the FLOPs of the chosen experts.

    `loads` is how many rows each expert has. An expert's weights are read once by each of its
    blocks of `block` rows; a row is read once by each of the `parts` of the hidden channels
    and of the width. `itemsize` is bytes per number of x and the weights. What lies between
    the kernels is counted both ways: hidden rows like x, the k answers in fp32.
    """
    rows, experts = tokens * top_k, sum(-(-load // block) for load in loads)
    up_parts, down_parts = parts
    entry = 12 * most_blocks(rows, len(loads), block) + 4 * rows  # of the schedule, a part
    read = {
        "weights": 3 * experts * width * ffn * itemsize,
        "x": up_parts * (rows * width * itemsize + entry),
        "hidden": down_parts * (rows * ffn * itemsize + 4 * rows + entry),
        "answers": 4 * rows * width,
    }
    written = rows * ffn * itemsize + 4 * rows * width + tokens * width * itemsize
    return {"bytes_read": sum(read.values()), "bytes_written": written,
            "flops": 6 * rows * width * ffn}


moe_experts.traffic = traffic  # type: ignore[attr-defined]
moe_experts.padding = padding  # type: ignore[attr-defined]
moe_experts.launches = 3  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape:
    """N tokens of width X, k of E experts of F hidden channels each.

    The routing is the same for every seed, uneven like a router's before it is balanced.
    """

    label: str
    tokens: int
    width: int
    ffn: int
    experts: int
    top_k: int
    limit: float | None = None
    dtype: torch.dtype = torch.float32

    def routing(self) -> Tensor:
        """The experts of each token: int64 [N, k], no expert twice."""
        generator = torch.Generator().manual_seed(7)
        chance_NE = torch.rand(self.tokens, self.experts, generator=generator)
        favour_E = torch.linspace(0, 0.5, self.experts)
        return (chance_NE + favour_E).argsort(1, descending=True)[:, :self.top_k].contiguous()

    def loads(self) -> list[int]:
        return torch.bincount(self.routing().flatten(), minlength=self.experts).tolist()

    def arguments(self, device="cpu", seed=0) -> dict:
        draw = drawing(self.dtype, device, seed)
        E, width, ffn = self.experts, self.width, self.ffn
        gate_EFX, up_EFX, down_EXF = draw(E, ffn, width), draw(E, ffn, width), draw(E, width, ffn)
        if backend.current().name != "offline":
            for matrix, fan in ((gate_EFX, width), (up_EFX, width), (down_EXF, ffn)):
                matrix *= fan ** -0.5
        return dict(x_NX=draw(self.tokens, width), experts_Nk=self.routing().to(device),
                    weights_Nk=draw(self.tokens, self.top_k), gate_EFX=gate_EFX, up_EFX=up_EFX,
                    down_EXF=down_EXF, limit=self.limit)


def expected(shape: Shape) -> dict[str, int]:
    """The traffic of a shape with the blocks that would be chosen here."""
    blocks = block_sizes(shape.tokens * shape.top_k, shape.experts, shape.width, shape.ffn,
                         shape.dtype)
    parts = (-(-shape.ffn // blocks["BLOCK_F"]), -(-shape.width // blocks["BLOCK_F"]))
    return traffic(tokens=shape.tokens, top_k=shape.top_k, width=shape.width, ffn=shape.ffn,
                   loads=shape.loads(), block=blocks["BLOCK_M"], parts=parts,
                   itemsize=shape.dtype.itemsize)


SMALL = (
    Shape("uneven loads", 19, 40, 24, 5, 3),
    Shape("a limit", 38, 24, 40, 7, 2, limit=0.5),
    Shape("one token", 1, 72, 24, 6, 3),
    Shape("more experts than choices", 2, 24, 12, 11, 3),
    Shape("bf16", 9, 40, 24, 5, 3, dtype=torch.bfloat16),
)

REAL = (
    Shape("v3 decode, 32 of 256 experts", 1, 7_168, 2_048, 32, 8, dtype=torch.bfloat16),
    Shape("v3 decode x 64, 32 of 256", 64, 7_168, 2_048, 32, 8, dtype=torch.bfloat16),
    Shape("v3 chunk, 32 of 256", 1_024, 7_168, 2_048, 32, 8, dtype=torch.bfloat16),
    Shape("v2-lite chunk", 1_024, 2_048, 1_408, 64, 6, dtype=torch.bfloat16),
    Shape("v4-flash decode, 64 of 256", 1, 4_096, 2_048, 64, 6, limit=10.0, dtype=torch.bfloat16),
    Shape("v4-flash chunk, 64 of 256", 1_024, 4_096, 2_048, 64, 6, limit=10.0,
          dtype=torch.bfloat16),
    Shape("odd sizes fp16", 37, 1_000, 300, 5, 3, limit=7.0, dtype=torch.float16),
    Shape("fp32", 37, 1_024, 512, 8, 2),
)
