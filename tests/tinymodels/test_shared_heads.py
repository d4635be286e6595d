"""MHA, GQA and MQA as trained: equal sizes, other bytes, runs that can be made again."""

import pytest

from tinymodels import ledger, shared_heads, study
from tinymodels.shared_heads import SEEDS, STEPS, WIDTHS
from tinymodels.transformer import Transformer

RESULTS = shared_heads.results()
RUNS = RESULTS["runs"]


def of(kv_heads, field):
    return [run[field] for run in RUNS if run["kv_heads"] == kv_heads]


def test_every_run_is_there_once():
    wanted = [(seed, kv_heads) for seed in SEEDS for kv_heads in WIDTHS]
    assert [(run["seed"], run["kv_heads"]) for run in RUNS] == wanted
    for run in RUNS:
        assert len(run["curve"]) == STEPS // RESULTS["every"] == STEPS // shared_heads.EVERY


def test_sizes_are_equal_and_bytes_are_not():
    for kv_heads in WIDTHS:
        config = shared_heads.config(kv_heads)
        assert {ledger.parameters(config)} == set(of(kv_heads, "parameters"))
        assert sum(p.numel() for p in Transformer(config).parameters()) == ledger.parameters(config)
        assert set(of(kv_heads, "bytes_per_token")) == {4 * 2 * kv_heads * 16 * 2}
    sizes = {run["parameters"] for run in RUNS}
    assert max(sizes) - min(sizes) <= 0.002 * max(sizes)


@pytest.mark.parametrize("kv_heads", WIDTHS)
def test_a_run_begins_as_it_was_written_down(kv_heads):
    """Twenty steps made again. Processors differ in the last digits, hence the small slack."""
    again = shared_heads.learn(kv_heads, 1, steps=study.FIRST)
    first = {run["seed"]: run["first_losses"] for run in RUNS if run["kv_heads"] == kv_heads}
    assert again["first_losses"] == pytest.approx(first[1], abs=2e-3)
    assert again["first_losses"] != pytest.approx(first[2], abs=2e-3)


def test_unknown_heads_and_broken_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="kv_heads is 3"):
        shared_heads.config(3)
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="python -m tinymodels.shared_heads"):
        shared_heads.results(path)


def test_all_learn_and_no_price_shows():
    """What the lesson says: every model remembers, and the forms' losses overlap over the seeds."""
    assert min(run["right"]["8"] for run in RUNS) > 0.95
    losses = {kv_heads: of(kv_heads, "loss") for kv_heads in WIDTHS}
    assert max(max(found) for found in losses.values()) < 0.1
    for some in losses.values():
        for others in losses.values():
            assert min(some) <= max(others)


def test_one_kv_head_finds_the_lookup_later():
    """In every seed its loss is above both others' in the 50 steps where they find it."""
    at = 300 // shared_heads.EVERY
    for seed in SEEDS:
        loss = {run["kv_heads"]: run["curve"][at] for run in RUNS if run["seed"] == seed}
        assert loss[1] > 1.2 * max(loss[2], loss[4])
