"""Mutants that pass because nothing is wrong with them, each with the reason.

Keyed by exercise and by the change as `python -m grading audit --full` prints it. They are
left out of the kill rate; every other survivor counts against the check. A chapter may keep
its own in its module of checks (see grading/checks/__init__.py); they are added here.
"""

from grading.checks import CHAPTERS

_TWO_AXES = "on a tensor of two axes, axis 1 is axis -1"
_TRANSPOSE = "transpose(a, b) is transpose(b, a)"
_FIRST_FACTOR = "the first block multiplies it by exp(-inf) = 0"
_LIKE = "only the shape is taken from it"
_ROOMY = "a cache larger than needed is no mistake"
_ALL_MASKED = "every weight there is exp(-inf) = 0, whatever is subtracted"

EQUIVALENT: dict[str, dict[str, str]] = {
    "00.1": {"-1  ->  +1": _TWO_AXES},
    "01.1": {
        "(weight_BHTS @ value_BHSD).transpose(1, 2)  ->  "
        "(weight_BHTS @ value_BHSD).transpose(2, 1)": _TRANSPOSE,
        "x.transpose(1, 2)  ->  x.transpose(2, 1)": _TRANSPOSE,
        "key_BHSD.transpose(-2, -1)  ->  key_BHSD.transpose(-1, -2)": _TRANSPOSE,
        "-2  ->  +2": "of four axes, axis 2 is axis -2",
    },
    "01.3": {
        "length + count - 1  ->  length + count + 1": _ROOMY,
        "1  ->  0": _ROOMY + "; and of one position, the first is the last",
        "-1  ->  +1": _TWO_AXES,
    },
    "01.5": {
        "torch.maximum(maximum_N, score_NM.amax(-1))  ->  "
        "torch.maximum(score_NM.amax(-1), maximum_N)": "the larger of two, in either order",
        "0.0  ->  1.0": _ALL_MASKED,
        "0.0  ->  -1.0": _ALL_MASKED,
        "torch.zeros_like  ->  torch.ones_like": _FIRST_FACTOR,
        "-1  ->  +1": _TWO_AXES,
        "1.0  ->  2.0": "0 divided by 2 is 0 as well",
        "0  ->  -1": _LIKE,
    },
    "01.6": {
        "0.0  ->  1.0": "what is loaded outside the mask gets the weight 0, or is not stored",
        "0.0  ->  -1.0": "what is loaded outside the mask gets the weight 0, or is not stored",
    },
}

for _chapter in CHAPTERS:
    for _id, _changes in getattr(_chapter, "EQUIVALENT", {}).items():
        EQUIVALENT.setdefault(_id, {}).update(_changes)
