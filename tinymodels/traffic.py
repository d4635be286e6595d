"""What the copies of the stream cost in memory traffic: three schedules of mHC, counted.

Between two sublayers an mHC model has the N copies X and the last sublayer's answer F in memory,
and wants the new copies X' and the next sublayer's input there. A pass reads what it needs,
computes in registers, and writes what later passes need. `Memory` counts the numbers that go
either way; what stays in registers within a pass is free. Mixes are N (N + 2) numbers a token,
next to the streams nothing, and are not counted.

    separate   V4, step by step                 (4 N + 4) d numbers a token and sublayer
    fused      V4, passes joined                (3 N + 2) d
    single     V4.1, input mixed one later      (2 N + 2) d, and no way is shorter

Figures: V4.1-Flash report, arXiv 2609.19969.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from .residual import Hyper, SinglePassHyper, spread_and_mix, weighted_sum

Norm = Callable[[Tensor], Tensor]


class Memory:
    """Counts the numbers that are read from memory and written to it."""

    def __init__(self):
        self.numbers_read = self.numbers_written = 0

    def read(self, x: Tensor) -> Tensor:
        self.numbers_read += x.numel()
        return x

    def write(self, x: Tensor) -> Tensor:
        self.numbers_written += x.numel()
        return x

    @property
    def moved(self) -> int:
        return self.numbers_read + self.numbers_written


def separate(
    memory: Memory, around: tuple[Hyper, Hyper], norm: Norm, mixes, copies_BTNX, found_BTX
) -> tuple[Float[Tensor, "B T N X"], Float[Tensor, "B T X"]]:
    """V4's mHC from one sublayer's answer to the next one's input, one step a pass.

    around: the residuals of the two sublayers. norm: the next sublayer's. mixes: of the first.
    """
    read, write = memory.read, memory.write
    before, after = around
    new_BTNX = write(before.write(read(copies_BTNX), mixes, read(found_BTX)))  # 2 N + 1
    pre_BTN = after.mixes(read(new_BTNX)).pre_BTN  # N
    input_BTX = write(weighted_sum(pre_BTN, read(new_BTNX)))  # N + 1
    return new_BTNX, write(norm(read(input_BTX)))  # 2


def fused(
    memory: Memory, around: tuple[Hyper, Hyper], norm: Norm, mixes, copies_BTNX, found_BTX
) -> tuple[Float[Tensor, "B T N X"], Float[Tensor, "B T X"]]:
    """The same in two passes. `pre` needs all of X', so X' has left the registers by then."""
    read, write = memory.read, memory.write
    before, after = around
    new_BTNX = write(before.write(read(copies_BTNX), mixes, read(found_BTX)))  # 2 N + 1
    pre_BTN = after.mixes(new_BTNX).pre_BTN  # while X' goes by
    return new_BTNX, write(norm(weighted_sum(pre_BTN, read(new_BTNX))))  # N + 1


def single(
    memory: Memory, before: SinglePassHyper, norm: Norm, copies_BTNX, found_BTX
) -> tuple[Float[Tensor, "B T N X"], Float[Tensor, "B T X"]]:
    """V4.1's single pass. `pre` was made from X, so the input is formed while X' goes by.

    That X is known before F: its mixes were projected when X itself went by.
    """
    mixes = before.mixes(copies_BTNX)
    read, write = memory.read, memory.write
    new_BTNX = write(spread_and_mix(read(copies_BTNX), mixes, read(found_BTX)))  # 2 N + 1
    return new_BTNX, write(norm(weighted_sum(mixes.pre_BTN, new_BTNX)))  # 1
