"""Entries of one's own against borrowed ones in training: sizes, first steps, what was found."""

import pytest

from tinymodels import ledger, shared_entries

MADE = shared_entries.results()
RUNS = {(run["model"], run["seed"]): run for run in MADE["runs"]}


def test_the_models_are_equally_large_and_borrowers_keep_half():
    configs = {name: shared_entries.config(name) for name in shared_entries.MODELS}
    sizes = [ledger.parameters(config) for config in configs.values()]
    assert max(sizes) - min(sizes) < 0.003 * max(sizes)
    assert [ledger.rate(config) for config in configs.values()] == [54, 27, 27]
    modes = {name: [x.attention.mode for x in config.layers] for name, config in configs.items()}
    assert modes == {
        "own": ["window", "full", "full"],
        "reindex": ["window", "full", "reindex"],
        "reuse": ["window", "full", "reuse"],
    }
    with pytest.raises(ValueError, match="'all' is none of the models compared"):
        shared_entries.config("all")


@pytest.mark.parametrize("name", shared_entries.MODELS)
def test_the_first_steps_are_the_shipped_ones(name):
    again, shipped = shared_entries.learn(name, 1, steps=6, measure=False), RUNS[name, 1]
    assert again["first_losses"] == pytest.approx(shipped["first_losses"][:6], abs=2e-3)
    for what in ("parameters", "bytes_per_token"):
        assert again[what] == shipped[what]


def test_what_the_chapter_says_of_them():
    """No model is better than another by more than seeds differ."""
    assert set(RUNS) == {(m, s) for m in shared_entries.MODELS for s in shared_entries.SEEDS}
    assert MADE["command"] == shared_entries.COMMAND and MADE["steps"] == shared_entries.STEPS
    for what in (lambda run: run["right"][-1], lambda run: run["loss"][-1]):
        ranges = {
            name: sorted(what(RUNS[name, seed]) for seed in shared_entries.SEEDS)
            for name in shared_entries.MODELS
        }
        for one in ranges.values():
            assert all(one[0] <= other[-1] for other in ranges.values())
    assert all(0.8 < run["right"][-1] < 0.9 for run in RUNS.values())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="make it: python -m tinymodels.shared_entries"):
        shared_entries.results(tmp_path / "no.json")


def test_the_command_writes_what_it_has(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shared_entries, "SEEDS", (5,))
    monkeypatch.setattr(shared_entries, "MODELS", {"reuse": shared_entries.MODELS["reuse"]})
    short = {"steps": 50, "measure": True}
    learn = shared_entries.learn
    monkeypatch.setattr(shared_entries, "learn", lambda name, seed: learn(name, seed, **short))
    assert shared_entries.main(["--out", str(tmp_path / "made.json")]) == 0
    (run,) = shared_entries.results(tmp_path / "made.json")["runs"]
    assert len(run["right"]) == 1 and len(run["loss"]) == 1
    assert "reuse, seed 5" in capsys.readouterr().out
