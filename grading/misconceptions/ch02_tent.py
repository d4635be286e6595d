"""Named mistakes in exercise 02.4: the folded line in one layer."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def units(
    pieces: Callable = lambda folds: 2**folds,
    slope: Callable = lambda folds: 2**folds,
    later: float = 2.0,
    first: float = 1.0,
    sign: float = -1.0,
    start: Callable = lambda m, pieces: m / pieces,
    keep: Callable = lambda start, turn: (start, turn),
) -> Callable:
    """The units of one layer with every choice open; the defaults make them right."""

    def one_layer(folds):
        m, steep = torch.arange(pieces(folds)), slope(folds)
        turn = later * steep * sign**m
        turn[0] = first * steep
        return keep(start(m, pieces(folds)), turn)

    return one_layer


def _upside_down(start, turn):
    return start, -turn


def _at_the_end(start, turn):
    """A further bend at x = 1, as if the curve went on."""
    end = -turn[-1:] if len(turn) > 1 else -2 * turn
    return torch.cat([start, torch.ones(1)]), torch.cat([turn, end])


def _unit_a_half_piece(start, turn):
    half = 0.5 / len(start)
    return torch.cat([start, start + half]), torch.cat([turn, 0 * turn])


ONE_LAYER = (
    Misconception(
        "only_bends",
        "A unit stands at every bend, and none at 0: there has to be one that starts the first "
        "piece, or the curve begins with slope 0. So there are as many units as pieces.",
        units(keep=lambda start, turn: (start[1:], turn[1:])),
    ),
    Misconception(
        "single_turns",
        "Each bend turns the slope by 2**folds, back to 0: the curve climbs, then runs flat. "
        "From up to down it has to turn twice as far.",
        units(later=1.0),
    ),
    Misconception(
        "first_turn_doubled",
        "The first unit turns as far as the others. It starts from slope 0, so it turns half as "
        "far.",
        units(first=2.0),
    ),
    Misconception(
        "all_down",
        "All bends turn down, so the curve falls steeper and steeper. They turn down and up in "
        "turns.",
        units(keep=lambda start, turn: (start, torch.cat([turn[:1], -turn[1:].abs()]))),
    ),
    Misconception(
        "all_up",
        "All bends turn up, so the curve rises steeper and steeper. They turn down and up in "
        "turns.",
        units(sign=1.0),
    ),
    Misconception(
        "upside_down",
        "The curve is upside down: it begins with a piece that rises from 0 to 1.",
        units(keep=_upside_down),
    ),
    Misconception(
        "slope_two",
        "The pieces are in the right places but too flat: a piece is 1 / 2**folds wide and "
        "rises from 0 to 1, so its slope is 2**folds.",
        units(slope=lambda folds: 2),
    ),
    Misconception(
        "one_fold_less",
        "This is the curve with one fold less: it has 2**(folds - 1) pieces.",
        units(pieces=lambda folds: 2 ** (folds - 1), slope=lambda folds: 2 ** (folds - 1)),
    ),
    Misconception(
        "one_fold_more",
        "This is the curve with one fold more: it has 2**(folds + 1) pieces.",
        units(pieces=lambda folds: 2 ** (folds + 1), slope=lambda folds: 2 ** (folds + 1)),
    ),
    Misconception(
        "two_a_fold",
        "This has two units for each fold. That is what a stack of layers needs; in one layer "
        "a unit adds only one bend, and 2**folds pieces need as many units.",
        units(pieces=lambda folds: 2 * folds, slope=lambda folds: 2 * folds),
    ),
    Misconception(
        "starts_at_ends",
        "Each unit starts where its piece ends, one piece too late. The first starts at 0.",
        units(start=lambda m, pieces: (m + 1) / pieces),
    ),
    Misconception(
        "starts_in_the_middle",
        "The units start in the middle of the pieces. The slope changes where a piece begins.",
        units(start=lambda m, pieces: (m + 0.5) / pieces),
    ),
    Misconception(
        "spread_to_the_end",
        "The starts are spread so that the last one lies at 1, as linspace(0, 1, pieces) does. "
        "Pieces are 1 / 2**folds wide, and the last one begins at 1 - 1 / 2**folds.",
        units(start=lambda m, pieces: m / (pieces - 1)),
    ),
    Misconception(
        "unit_at_the_end",
        "The curve is right, but the unit that starts at 1 does nothing up to 1. Leave it out.",
        units(keep=_at_the_end),
    ),
    Misconception(
        "unit_a_half_piece",
        "The curve is right, but half of the units turn nothing: there is no bend in the middle "
        "of a piece.",
        units(keep=_unit_a_half_piece),
    ),
)
