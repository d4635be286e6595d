# %% [markdown]
# # Exercises 11: FP4
#
# Four bits a number. You round to them, put two in a byte, choose the scale that a
# block shares, in two ways, let a gradient through, and add up the 890.
#
# Replace each `...` with your code and run the cell, then run the check below it.
# `hint("11.1")` gives a hint, and again the next one.
#
# Letters of the axes: N blocks (or rows), G the numbers of a block.

# %%
import torch
from jaxtyping import Float, UInt8
from tinymodels.formats import E4M3, round_to
from torch import Tensor

from grading import check, hint

# %% [markdown]
# ## 11.1 Round to E2M1
#
# difficulty 3/5, importance 5/5, about 20 minutes
#
# The codes 0 to 7 stand for 0, 0.5, 1, 1.5, 2, 3, 4, 6; codes 8 to 15 for the same with
# a minus (bit 3 is the sign). Every number gets the code of the nearest one. In the
# middle of two the even code wins. What is larger than 6 becomes 6. The sign is always
# kept: -0.1 is code 8, minus zero, and so is -0.0.


# %% exercise_id="11.1" points=3 tags=["exercise"]
def e2m1_codes(values_NG: Float[Tensor, "N G"]) -> UInt8[Tensor, "N G"]:
    """The E2M1 code, 0 to 15, of every number, as torch.uint8."""
    ### BEGIN SOLUTION
    middle = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    even_below = torch.tensor([True, False, True, False, True, False, True])
    magnitude_NG1 = values_NG.abs().unsqueeze(-1)
    above = (magnitude_NG1 > middle) | ((magnitude_NG1 == middle) & ~even_below)
    return (above.sum(-1) + 8 * values_NG.signbit()).to(torch.uint8)
    ### END SOLUTION


# %% exercise_id="11.1" tags=["check"]
check("11.1", e2m1_codes)

# %% [markdown]
# ## 11.2 Pack nibbles
#
# difficulty 1/5, importance 3/5, about 10 minutes
#
# Two codes in a byte: the one with the even place in the low four bits, the odd one in
# the high four. And back.


# %% exercise_id="11.2" points=2 tags=["exercise"]
def nibbles(codes_NG: UInt8[Tensor, "N G"]) -> tuple[Tensor, Tensor]:
    """Two tensors of uint8: the bytes [N, G/2], and the codes [N, G] taken out again.

    G is even. The second must be computed from the first.
    """
    ### BEGIN SOLUTION
    packed = codes_NG[:, 0::2] | (codes_NG[:, 1::2] << 4)
    codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1)
    return packed, codes
    ### END SOLUTION


# %% exercise_id="11.2" tags=["check"]
check("11.2", nibbles)

# %% [markdown]
# ## 11.3 A scale in E4M3
#
# difficulty 3/5, importance 5/5, about 15 minutes
#
# Each block of 16 shares one scale. It is the block's largest magnitude over 6, but
# that magnitude is taken as 6 × 2⁻⁹ at least, so that no scale is 0. The scale is
# stored in E4M3: `round_to(scale, E4M3)`. Return the stored scale, and each number
# divided by what will be *read*, not more than 6 and not less than -6. (Its rounding to
# E2M1 you have done already.)


# %% exercise_id="11.3" points=3 tags=["exercise"]
def fp4_blocks(
    values_NG: Float[Tensor, "N G"],
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N G"]]:
    """Two tensors: the stored scale of each block, and its numbers ready for E2M1."""
    ### BEGIN SOLUTION
    largest_N = values_NG.abs().amax(1).clamp(min=6 * 2.0**-9)
    scale_N = round_to(largest_N / 6, E4M3)
    return scale_N, (values_NG / scale_N[:, None]).clamp(-6, 6)
    ### END SOLUTION


# %% exercise_id="11.3" tags=["check"]
check("11.3", fp4_blocks)

# %% [markdown]
# ## 11.4 A power of two against it
#
# difficulty 2/5, importance 3/5, about 15 minutes
#
# MXFP4, as index keys have it: the scale is a power of two, the *smallest* one for
# which the block's largest magnitude, divided by it, is at most 6. Nothing is cut off.
# Here no block is all zeros.
#
# How much of the 6 is used says what it costs: return that too, largest / (6 × scale).


# %% exercise_id="11.4" points=2 tags=["exercise"]
def power_of_two_scale(
    values_NG: Float[Tensor, "N G"],
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    """Two tensors: the scale of each block, and the share of the range that is used."""
    ### BEGIN SOLUTION
    largest_N = values_NG.abs().amax(1)
    scale_N = 2.0 ** (largest_N / 6).log2().ceil()
    return scale_N, largest_N / (6 * scale_N)
    ### END SOLUTION


# %% exercise_id="11.4" tags=["check"]
check("11.4", power_of_two_scale)

# %% [markdown]
# ## 11.5 Straight through
#
# difficulty 3/5, importance 4/5, about 15 minutes
#
# Forward: the rounded numbers. Backward: the gradient as it came for every number with
# a magnitude up to `limit_N1`, and 0 for those beyond, which were cut off. `rounded_NG`
# has no gradient of its own. `x.detach()` is x without its past.


# %% exercise_id="11.5" points=3 tags=["exercise"]
def straight_through(
    values_NG: Float[Tensor, "N G"],
    rounded_NG: Float[Tensor, "N G"],
    limit_N1: Float[Tensor, "N 1"],
) -> Float[Tensor, "N G"]:
    """`rounded_NG`, with the gradient of `values_NG` inside the limit."""
    ### BEGIN SOLUTION
    inside_NG = values_NG.abs() <= limit_N1
    passes_NG = torch.where(inside_NG, values_NG, values_NG.detach())
    return rounded_NG + (passes_NG - passes_NG.detach())
    ### END SOLUTION


# %% exercise_id="11.5" tags=["check"]
check("11.5", straight_through)

# %% [markdown]
# ## 11.6 890 from the layout
#
# difficulty 2/5, importance 5/5, about 15 minutes
#
# `ratios` has one number for each layer that owns rows: of how many tokens it makes one
# row. With each row it keeps an index key.
#
# - A row: `dim` numbers of 4 bits, and a scale of one byte for every 16.
# - A key: `index_dim` numbers of 4 bits, and a scale of one byte for every 32.
#
# A short last block has a scale too.


# %% exercise_id="11.6" points=2 tags=["exercise"]
def bytes_per_token(
    ratios: tuple[int, ...], dim: int, index_dim: int
) -> tuple[float, float]:
    """A pair: bytes a token of rows, and of index keys. Both dims are even."""
    ### BEGIN SOLUTION
    row = dim / 2 + -(-dim // 16)
    key = index_dim / 2 + -(-index_dim // 32)
    rows_a_token = sum(1 / ratio for ratio in ratios)
    return rows_a_token * row, rows_a_token * key
    ### END SOLUTION


# %% exercise_id="11.6" tags=["check"]
check("11.6", bytes_per_token)

# %% [markdown]
# Try it with V4.1's owners: `bytes_per_token((2, 2, 2, 1), 512, 128)`.
