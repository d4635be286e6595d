"""Groups of 1 to 8 tokens in training: alike but for that; first steps again, what was found."""

import json
from itertools import product

import pytest
import torch

from tinymodels import data, group_sizes, ledger

MADE = group_sizes.results()
RUNS = {(run["game"], run["size"], run["seed"]): run for run in MADE["runs"]}


def test_bytes_are_those_of_the_groups():
    rates = [ledger.rate(group_sizes.config(size)) for size in group_sizes.SIZES]
    assert rates == [0, 128, 64, 32, 16]  # two layers of 32 numbers in bf16, over m
    with pytest.raises(ValueError, match="groups of 3 are not compared"):
        group_sizes.config(3)


@pytest.mark.parametrize("size", group_sizes.SIZES)
def test_the_first_steps_are_the_shipped_ones(size):
    game = "with gaps" if size % 4 else "in a row"
    again = group_sizes.learn(size, 1, game, steps=4, measure=False)
    shipped = RUNS[game, size, 1]
    assert again["first_losses"] == pytest.approx(shipped["first_losses"][:4], abs=2e-3)
    assert again["parameters"] == shipped["parameters"]
    assert again["bytes_per_token"] == shipped["bytes_per_token"]


@pytest.mark.parametrize("game", group_sizes.GAMES)
def test_a_game_names_pairs_and_asks_for_them_again(game):
    """Rows of LENGTH; gaps of none to two letters; what is asked can be known, and all of it is."""
    batch = group_sizes.texts(60, 3, 1, game=game)
    assert batch.tokens.shape == batch.known.shape == (60, group_sizes.LENGTH)
    gaps = set()
    for row, asked in zip(batch.tokens.tolist(), batch.known.tolist()):
        second, first, gap = {}, None, 0
        for word, answer in zip(row[1:], asked[1:]):
            if word in data.NOISE:
                assert first is None and answer == data.IGNORED
                gap += 1
            elif first is None:
                gaps.add(gap)
                assert answer == second.get(word, data.IGNORED)
                first, gap = word, 0
            else:
                assert answer == data.IGNORED and second.setdefault(first, word) == word
                first = None
        words = [*second, *second.values()]
        assert 2 <= len(second) <= 4 and len(set(words)) == len(words)
        assert set(words) <= set(group_sizes.WORDS)
    assert gaps == ({0, 1, 2} if game == "with gaps" else {0})
    other = group_sizes.texts(60, 3, 1, held_out=True, game=game)
    assert (other.tokens != batch.tokens).any()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_far_words_are_those_whose_pair_left_the_window(seed):
    batch = group_sizes.texts(9, seed, 0, game="with gaps")
    far = group_sizes.far(batch)
    assert 0 < far.sum() < (batch.known != data.IGNORED).sum()
    for b, t in far.nonzero().tolist():
        row, word = batch.tokens[b].tolist(), batch.known[b, t].item()
        seen = row[t - group_sizes.WINDOW + 1 : t]  # the window, without the token itself
        assert word not in seen and row[t] not in seen[:-1]
        assert any(row[s] == row[t] and row[s + 1] == word for s in range(t))


def test_what_the_chapter_says_of_them():
    """Nothing without groups; in a row 1 and 2 find all, 4 over four fifths, 8 about half; with
    gaps 2 lead, then 4, then 8: from both seeds."""
    assert set(RUNS) == set(product(group_sizes.GAMES, group_sizes.SIZES, group_sizes.SEEDS))
    assert MADE["command"] == group_sizes.COMMAND and MADE["steps"] == group_sizes.STEPS
    for seed in group_sizes.SEEDS:
        row, gaps = (
            {size: RUNS[game, size, seed]["right"] for size in group_sizes.SIZES}
            for game in group_sizes.GAMES
        )
        assert max(row[0][-1], gaps[0][-1]) < 0.1
        assert min(row[1][-1], row[2][-1]) > 0.99
        assert 0.82 < row[4][-1] < 0.88 and 0.5 < row[8][-1] < 0.58
        assert all(row[size][-1] - row[size][-3] < 0.05 for size in (1, 2, 4, 8))  # the end
        assert gaps[2][-1] > max(gaps[1][-1], gaps[4][-1]) + 0.05
        assert gaps[4][-1] > gaps[8][-1] + 0.05
        assert all(gaps[size][-1] > gaps[size][-3] for size in (1, 2, 4, 8))  # not yet


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="make it: python -m tinymodels.group_sizes"):
        group_sizes.results(tmp_path / "no.json")


def test_the_command_writes_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(group_sizes, "SEEDS", (5,))
    monkeypatch.setattr(group_sizes, "SIZES", (2,))
    monkeypatch.setattr(group_sizes, "GAMES", {"in a row": 0})
    monkeypatch.setattr(
        group_sizes, "learn", lambda size, seed, game: {"right": [0.5], "seed": seed}
    )
    out = tmp_path / "made.json"
    assert group_sizes.main(["--out", str(out)]) == 0
    assert json.loads(out.read_text())["runs"] == [{"right": [0.5], "seed": 5}]
    assert list(tmp_path.iterdir()) == [out]


def test_found_counts_far_words_alone():
    class Copies(torch.nn.Module):
        """Says the word after the last time this one was read."""

        def forward(self, tokens):
            said = torch.zeros(*tokens.shape, 256)
            for b, row in enumerate(tokens.tolist()):
                for t, token in enumerate(row):
                    for s in range(t):
                        if row[s] == token:
                            said[b, t] = torch.nn.functional.one_hot(torch.tensor(row[s + 1]), 256)
            return said

    assert group_sizes.found(Copies()) == 1.0
