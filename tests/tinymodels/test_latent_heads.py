"""A latent against heads in training: equal sizes, the first steps again, and what was found."""

import json

import pytest

from tinymodels import latent_heads, ledger

MADE = latent_heads.results()
RUNS = {(run["model"], run["seed"]): run for run in MADE["runs"]}


def test_the_models_are_equally_large_and_two_keep_equally_much():
    sizes = [ledger.parameters(latent_heads.config(name)) for name in latent_heads.MODELS]
    assert max(sizes) - min(sizes) < 0.001 * max(sizes)
    rates = [ledger.rate(latent_heads.config(name)) for name in ("MHA", "MQA", "latent")]
    assert rates == [768, 192, 192]
    with pytest.raises(ValueError, match="'GQA' is none of the models compared"):
        latent_heads.config("GQA")


@pytest.mark.parametrize("name", latent_heads.MODELS)
def test_the_first_steps_are_the_shipped_ones(name):
    again, shipped = latent_heads.learn(name, 1, steps=6, measure=False), RUNS[name, 1]
    assert again["first_losses"] == pytest.approx(shipped["first_losses"][:6], abs=2e-3)
    assert again["parameters"] == shipped["parameters"]
    assert again["bytes_per_token"] == shipped["bytes_per_token"]


def test_what_the_chapter_says_of_them():
    """All find the word in the end; at 400 steps the latent is behind MQA, for each seed."""
    assert set(RUNS) == {(m, s) for m in latent_heads.MODELS for s in latent_heads.SEEDS}
    assert MADE["command"] == latent_heads.COMMAND and MADE["steps"] == latent_heads.STEPS
    assert all(run["right"][-1] > 0.99 for run in RUNS.values())
    at = 400 // latent_heads.EVERY - 1
    for seed in latent_heads.SEEDS:
        mha, mqa, latent = (RUNS[name, seed]["right"][at] for name in latent_heads.MODELS)
        assert mha > 0.95 and mqa > latent + 0.05


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="make it: python -m tinymodels.latent_heads"):
        latent_heads.results(tmp_path / "no.json")


def test_the_command_writes_what_it_has(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(latent_heads, "SEEDS", (5,))
    monkeypatch.setattr(latent_heads, "MODELS", {"MQA": latent_heads.MODELS["MQA"]})
    monkeypatch.setattr(latent_heads, "STEPS", 2)
    monkeypatch.setattr(latent_heads, "EVERY", 1)
    monkeypatch.setattr(latent_heads, "learn", lambda name, seed: {"right": [0.5], "seed": seed})
    out = tmp_path / "made.json"
    assert latent_heads.main(["--out", str(out)]) == 0
    assert json.loads(out.read_text())["runs"] == [{"right": [0.5], "seed": 5}]
    assert list(tmp_path.iterdir()) == [out]
    assert latent_heads.main(["--out", str(tmp_path / "no" / "made.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err
