"""Named mistakes in exercise 03.5: what the copies cost in traffic."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def _streams(separate: Callable, fused: Callable, single: Callable) -> Callable:
    """streams moved by n copies, for each schedule -> an answer."""
    ways = {"separate": separate, "fused": fused, "single": single}

    def stream_traffic(layers, copies, width, bits, schedule):
        return 2 * layers * ways[schedule](copies) * width * bits // 8

    return stream_traffic


RIGHT = (lambda n: 4 * n + 4, lambda n: 3 * n + 2, lambda n: 2 * n + 2)


def _changed(change: Callable) -> Callable:
    """The right count, changed: change(bytes, layers, copies, width, bits)."""
    right = _streams(*RIGHT)

    def stream_traffic(layers, copies, width, bits, schedule):
        return change(right(layers, copies, width, bits, schedule), layers, copies, width, bits)

    return stream_traffic


TRAFFIC = (
    Misconception(
        "layers_for_sublayers",
        "This is half of it: a layer has two sublayers, attention and FFN.",
        _changed(lambda right, *_: right // 2),
    ),
    Misconception(
        "one_sublayer",
        "This is the traffic of one sublayer; count all layers, with two in each.",
        _changed(lambda right, layers, *_: right // (2 * layers)),
    ),
    Misconception(
        "bits",
        "These are bits; eight of them are one byte.",
        _changed(lambda right, *_: right * 8),
    ),
    Misconception(
        "numbers",
        "This is how many numbers move; each of them takes bits / 8 bytes.",
        _changed(lambda right, layers, copies, width, bits: right * 8 // bits),
    ),
    Misconception(
        "rounds_bits_first",
        "bits // 8 rounds down before anything is multiplied: 4-bit numbers come out as 0 "
        "bytes, 12-bit ones as 1. Multiply first, divide by 8 at the end.",
        lambda layers, copies, width, bits, schedule: (
            _streams(*RIGHT)(layers, copies, width, 8, schedule) * (bits // 8)
        ),
    ),
    Misconception(
        "reads_only",
        "This counts what is read. What is written moves, too.",
        _streams(lambda n: 3 * n + 2, lambda n: 2 * n + 1, lambda n: n + 1),
    ),
    Misconception(
        "writes_only",
        "This counts what is written. What is read moves, too.",
        _streams(lambda n: n + 2, lambda n: n + 1, lambda n: n + 1),
    ),
    Misconception(
        "no_norm_pass",
        "This leaves out the norm where it is a pass of its own: it reads the input and writes "
        "it again.",
        _streams(lambda n: 4 * n + 2, *RIGHT[1:]),
    ),
    Misconception(
        "answer_not_read",
        "This leaves out F: the sublayer's answer lies in memory and has to be read.",
        _streams(lambda n: 4 * n + 3, lambda n: 3 * n + 1, lambda n: 2 * n + 1),
    ),
    Misconception(
        "copies_only",
        "This counts the copies alone. F is read and the next input is written: streams, too.",
        _streams(lambda n: 4 * n, lambda n: 3 * n, lambda n: 2 * n),
    ),
    Misconception(
        "fused_as_single",
        "This gives the fused schedule one pass. Its second pass reads all copies once more, "
        "because the weights of the next read are known only then.",
        _streams(RIGHT[0], RIGHT[2], RIGHT[2]),
    ),
    Misconception(
        "schedules_reversed",
        "The schedules have changed places: separate passes move most, the single pass least.",
        _streams(*RIGHT[::-1]),
    ),
    Misconception(
        "one_copy",
        "This is a model with a single stream; there are `copies` of them.",
        _streams(lambda n: 8, lambda n: 5, lambda n: 4),
    ),
    Misconception(
        "copies_everywhere",
        "This counts F and the input as if there were one for each copy. They are one stream each.",
        _streams(lambda n: 8 * n, lambda n: 5 * n, lambda n: 4 * n),
    ),
)
