"""The folded line: both networks are exact, and no smaller layer can do it."""

import itertools

import pytest
import torch

from tinymodels import tent


@pytest.mark.parametrize("folds", [1, 2, 3, 5, 9])
def test_both_networks_are_the_map_to_the_last_bit(folds):
    x = tent.grid(16 * 2**folds)
    want = tent.tent(x, folds)
    for network in (tent.deep(folds), tent.wide(folds)):
        assert torch.equal(tent.run(network, x), want)


@pytest.mark.parametrize("folds", [1, 2, 3, 5, 9])
def test_pieces_and_units(folds):
    x = tent.grid(8 * 2**folds)
    assert tent.pieces(tent.tent(x, folds)) == 2**folds
    assert tent.units(tent.deep(folds)) == 2 * folds
    assert tent.units(tent.wide(folds)) == 2**folds


def test_the_map_is_the_one_in_its_definition():
    x = torch.tensor([0.0, 0.2, 0.5, 0.75, 1.0], dtype=torch.float64)
    torch.testing.assert_close(tent.tent(x), torch.tensor([0, 0.4, 1, 0.5, 0]).double())
    torch.testing.assert_close(tent.tent(x, 2), torch.tensor([0, 0.8, 0, 1, 0]).double())


@pytest.mark.parametrize("folds", [1, 2, 3])
def test_one_unit_less_can_not_do_it(folds):
    """Every choice of direction for the units at the bends: the rest is a least-squares fit.

    A unit adds one bend. The map has 2^k - 1 of them inside, so as many units stand there, each
    facing left or right. Whatever they face, and whatever constant is added, an error remains.
    """
    pieces = 2**folds
    x = tent.grid(8 * pieces)
    want = tent.tent(x, folds)[:, None]
    bends = torch.arange(1, pieces).double() / pieces
    for facing in itertools.product((-1.0, 1.0), repeat=pieces - 1):
        unit_NM = ((x[:, None] - bends) * torch.tensor(facing).double()).relu()
        basis = torch.cat([unit_NM, torch.ones(len(x), 1).double()], dim=1)
        nearest = basis @ torch.linalg.lstsq(basis, want, driver="gelsd").solution
        assert (nearest - want).abs().max() > 0.05, facing


def test_pieces_of_curves_one_can_count_by_hand():
    x = tent.grid(16)
    assert tent.pieces(3 * x + 1) == 1
    assert tent.pieces((x - 0.25).relu()) == 2
    assert tent.pieces((x - 0.25).abs() + (x - 0.5).relu()) == 3


@pytest.mark.parametrize("folds", [0, 17, 2.0])
def test_folds_that_make_no_sense_are_refused(folds):
    for build in (tent.deep, tent.wide):
        with pytest.raises(ValueError, match="a whole number from 1 to 16"):
            build(folds)
