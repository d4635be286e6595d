"""Runs of queries and rows of their own: the same numbers as all rows under a mask."""

import pytest
import torch

from tinymodels.attention import indexer, seen
from tinymodels.attention.indexer import Asked, best, search
from tinymodels.attention.seen import (
    all_rows,
    choice_rows,
    chosen,
    complete_groups,
    in_window,
    look,
    window_rows,
)
from tinymodels.config import Candidates
from tinymodels.step import Step


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def step_of(length, start=0):
    return Step(torch.zeros(2, length, dtype=torch.int64), start)


@pytest.mark.parametrize("window", [1, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 5, 7, 11, 12, 29])
@pytest.mark.parametrize("before", [0, 1, 4, 5])
def test_a_window_in_runs_is_a_window_under_a_mask(window, length, before):
    before = min(before, window)  # a ring keeps no more
    query, row, sink = draw(2, length, 3, 7), draw(2, before + length, 7, seed=1), draw(3, seed=2)
    step = step_of(length, start=9)
    masked = all_rows(row, in_window(step, before + length, window))
    got = look(query, sink, window_rows(row, step, window))
    torch.testing.assert_close(got, look(query, sink, masked), rtol=0, atol=1e-13)


def test_long_texts_have_runs():
    assert window_rows(draw(2, 29, 7), step_of(29), 5).rows_BGRD.shape == (2, 6, 10, 7)


@pytest.mark.parametrize("length", [1, 6])
def test_rows_of_ones_own_are_all_rows_under_a_mask(length, monkeypatch):
    query, row, sink = draw(2, length, 3, 7), draw(2, 13, 7, seed=1), draw(3, seed=2)
    choice = torch.stack([torch.randperm(13)[:5].sort().values for _ in range(2 * length)])
    choice = choice.view(2, length, 5)
    choice[0, 0, 3:] = -1
    choice[1, -1] = -1  # nothing at all: exact zeros
    monkeypatch.setattr(seen, "FEW_TIMES", 0)
    own = choice_rows(row, choice)
    assert own.rows_BGRD.shape == (2, length, 5, 7)
    got = look(query, sink, own)
    want = look(query, sink, all_rows(row, chosen(choice, 13)))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-13)
    assert not got[1, -1].any()


@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_best_are_those_of_a_stable_sort(k):
    """With few different values, ties are everywhere; -inf stands for what cannot be chosen."""
    score = draw(4, 9, 31).round()
    score[:, :5, 3:] = -torch.inf
    want = score.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    finite = score.gather(-1, want) > -torch.inf
    got = best(score, k).sort().values
    reachable = score.gather(-1, got) > -torch.inf
    for row in range(4):
        for t in range(9):
            expected = sorted(want[row, t][finite[row, t]].tolist())
            assert got[row, t][reachable[row, t]].tolist() == expected


@pytest.mark.parametrize(("ratio", "start"), [(1, 0), (3, 0), (3, 7)])
def test_searching_in_blocks_changes_nothing(ratio, start, monkeypatch):
    length = 23
    entries = (start + length) // ratio
    asked = Asked(draw(2, length, 5, 6), draw(2, length, 5, seed=1), draw(2, entries, 6, seed=2))
    weight = draw(2, length, entries, seed=3).exp()
    weight = weight * complete_groups(step_of(length, start), entries, ratio)
    shown = []

    def share(block, count):
        shown.append((block, count))
        return weight[:, block, :count]

    found = []
    for size in (1, 999, 10**9):
        monkeypatch.setattr(indexer, "BLOCK", size)
        step = step_of(length, start)
        sieve = Candidates(source=0, block=2, keep=2)
        first = search(asked, step, ratio, 4, share, sieve=sieve)
        found.append((first, search(asked, step, ratio, 3, pool_BTS=first.pool_BTS)))
    assert {len(range(*block.indices(length))) for block, _ in shown} > {1, length}
    (whole, inside), *others = reversed(found)
    for first, second in others:
        assert torch.equal(first.choice_BTk, whole.choice_BTk)
        assert torch.equal(first.pool_BTS, whole.pool_BTS)
        assert torch.equal(second.choice_BTk, inside.choice_BTk) and second.loss is None
        torch.testing.assert_close(first.loss, whole.loss, rtol=0, atol=1e-13)
