"""Scores as whole numbers in the same order, so that a threshold can be settled bit by bit.

The bits of a positive float, read as a whole number, grow with the float: the exponent
stands above the fraction. Negative floats have their sign in the highest bit and grow the
other way, so their lower 31 bits are turned around. -0 equals 0 and gets its key; NaN, of
either sign, gets the highest key there is; what a query may not see gets the lowest.
"""

from __future__ import annotations

from kernels.backend import tl, triton


@triton.jit
def keys_of(score, entry_TS, visible_TS, score_s):
    """Whole numbers in the order of the scores; the lowest for what is not visible."""
    score_TS = tl.load(score + entry_TS.to(tl.int64) * score_s, mask=visible_TS, other=0.0)
    score_TS = score_TS.to(tl.float32)
    score_TS = tl.where(score_TS == 0, 0.0, score_TS)  # -0 equals 0, its bits do not
    bits_TS = score_TS.to(tl.int32, bitcast=True)
    key_TS = tl.where(bits_TS < 0, bits_TS ^ 0x7FFFFFFF, bits_TS)
    key_TS = tl.where(score_TS != score_TS, 0x7FFFFFFF, key_TS)
    return tl.where(visible_TS, key_TS, -0x80000000)
