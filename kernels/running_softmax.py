"""The softmax over a list of rows, a block at a time, as both kernels of sparse attention take it.

A program never sees all scores of its list. It keeps for each head the highest score so far
and the sum of exp(score - highest); when a block brings a higher one, what was summed before
shrinks by exp(old highest - new highest) (Milakov and Gimelshein, arXiv 1805.02867). Before
the first block there is the sink, after the last one the sums are divided by the total.
"""

from __future__ import annotations

from kernels.backend import tl, triton


@triton.jit
def sink_or_nothing(sink, head, split, HEADS: tl.constexpr, BLOCK_H: tl.constexpr):
    """Maximum and sum before any entry: the sink in the first split, else of nothing."""
    highest_H = tl.full([BLOCK_H], -float("inf"), tl.float32)
    if sink is not None:
        head_H = head + tl.arange(0, BLOCK_H)
        highest_H = tl.load(sink + head_H, mask=head_H < tl.where(split == 0, HEADS, 0),
                            other=-float("inf")).to(tl.float32)
    return highest_H, tl.where(highest_H == -float("inf"), 0.0, 1.0)


@triton.jit
def window_range(lengths, batch, token, tokens, rows, reach):
    """The first row that a token sees, and one past the last; empty if first >= last."""
    length = rows
    if lengths is not None:
        length = tl.minimum(tl.load(lengths + batch), rows)
    own = length - tokens + token
    return tl.maximum(own - reach + 1, 0), tl.maximum(own + 1, 0)


@triton.jit
def own_part(window, lengths, tokens, chosen, rows, reach, splits,
             HEADS: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_S: tl.constexpr):
    """What a program works on: its heads' first, its split, the token among all of the batch, the
    row of the batch; the rows its token sees (first, last), the blocks of them (near), and the
    blocks of the list that are its own (begin, end).

    Programs count ((b * T + t) * splits + split) * parts + part, a part being BLOCK_H heads. The
    list is the window's blocks and then the chosen ones; a split is some of them.
    """
    program = tl.program_id(0)
    PARTS: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    head = (program % PARTS) * BLOCK_H
    split = program // PARTS % splits
    token = program // PARTS // splits % tokens
    batch = (program // PARTS // splits // tokens).to(tl.int64)
    first, last, near = 0, 0, 0
    if window is not None:
        first, last = window_range(lengths, batch, token, tokens, rows, reach)
        near = tl.cdiv(last - first, BLOCK_S)
    blocks = near + tl.cdiv(chosen, BLOCK_S)
    share = tl.cdiv(blocks, splits)
    begin = split * share
    end = tl.minimum(begin + share, blocks)
    return head, split, batch * tokens + token, batch, first, last, near, begin, end


@triton.jit
def weigh_block(score_HS, there_S, highest_H, total_H):
    """The weights of a block of the list, and what the running maximum and sum become; sums
    before it shrink by the last of the four."""
    score_HS = tl.where(there_S[None, :], score_HS, -float("inf"))
    higher_H = tl.maximum(highest_H, tl.max(score_HS, 1))
    # Nothing may be there yet: -inf minus -inf is NaN, so such a maximum counts as 0.
    base_H = tl.where(higher_H == -float("inf"), 0.0, higher_H)
    shrink_H = tl.exp(highest_H - base_H)
    weight_HS = tl.exp(score_HS - base_H[:, None])
    return weight_HS, higher_H, total_H * shrink_H + tl.sum(weight_HS, 1), shrink_H


@triton.jit
def share_and_lse(highest_H, total_H):
    """What sums are multiplied by at the end, and the log-sum-exp. Nothing there: a total of
    0, an output of 0 and a log-sum-exp of -inf."""
    some_H = total_H > 0
    total_H = tl.where(some_H, total_H, 1.0)
    return 1 / total_H, tl.where(some_H, highest_H + tl.log(total_H), -float("inf"))


@triton.jit
def store_split(partial, partial_lse, at, head, lse_H, output_HV,
                 HEADS: tl.constexpr, VALUE: tl.constexpr,
                 BLOCK_H: tl.constexpr, BLOCK_V: tl.constexpr):
    """What a program found: the output, and its log-sum-exp if splits are to be merged."""
    member_H, number_V = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_V)
    at = at * HEADS + head
    tl.store(partial + at * VALUE + member_H[:, None] * VALUE + number_V[None, :], output_HV,
             mask=(member_H[:, None] < HEADS - head) & (number_V[None, :] < VALUE))
    if partial_lse is not None:
        tl.store(partial_lse + at + member_H, lse_H, mask=member_H < HEADS - head)
