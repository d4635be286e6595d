"""Groups of 1 to 8 tokens in training: alike but for that; first steps again, what was found."""

import json

import pytest
import torch

from tinymodels import data, group_sizes, ledger

MADE = group_sizes.results()
RUNS = {(run["size"], run["seed"]): run for run in MADE["runs"]}


def test_bytes_are_those_of_the_groups():
    rates = [ledger.rate(group_sizes.config(size)) for size in group_sizes.SIZES]
    assert rates == [0, 128, 64, 32, 16]  # two layers of 32 numbers in bf16, over m
    with pytest.raises(ValueError, match="groups of 3 are not compared"):
        group_sizes.config(3)


@pytest.mark.parametrize("size", group_sizes.SIZES)
def test_the_first_steps_are_the_shipped_ones(size):
    again, shipped = group_sizes.learn(size, 1, steps=5, measure=False), RUNS[size, 1]
    assert again["first_losses"] == pytest.approx(shipped["first_losses"][:5], abs=2e-3)
    assert again["parameters"] == shipped["parameters"]
    assert again["bytes_per_token"] == shipped["bytes_per_token"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_far_words_are_those_whose_pair_left_the_window(seed):
    batch = group_sizes.texts(9, seed, 0)
    far = group_sizes.far(batch)
    assert 0 < far.sum() < (batch.known != data.IGNORED).sum()
    for b, t in far.nonzero().tolist():
        row, word = batch.tokens[b].tolist(), batch.known[b, t].item()
        seen = row[t - group_sizes.WINDOW + 1 : t]
        assert word not in seen and row[t] not in seen[:-1]
        assert any(row[s] == row[t] and row[s + 1] == word for s in range(t))


def test_what_the_chapter_says_of_them():
    """Nothing without groups; 2 before 1 and 4, 8 last of those that have any: for each seed."""
    assert set(RUNS) == {(m, s) for m in group_sizes.SIZES for s in group_sizes.SEEDS}
    assert MADE["command"] == group_sizes.COMMAND and MADE["steps"] == group_sizes.STEPS
    for seed in group_sizes.SEEDS:
        none, one, two, four, eight = (RUNS[m, seed]["right"][-1] for m in group_sizes.SIZES)
        assert none < 0.01
        assert two > max(one, four) + 0.15
        assert abs(one - four) < 0.025
        assert none + 0.08 < eight < min(one, four) - 0.25


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="make it: python -m tinymodels.group_sizes"):
        group_sizes.results(tmp_path / "no.json")


def test_the_command_writes_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(group_sizes, "SEEDS", (5,))
    monkeypatch.setattr(group_sizes, "SIZES", (2,))
    monkeypatch.setattr(group_sizes, "learn", lambda size, seed: {"right": [0.5], "seed": seed})
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
