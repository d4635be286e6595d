"""Training with a leak: the mask, the floor, first steps again, and what the chapter says."""

import json
import math

import pytest
import torch

from tinymodels import group_sizes, leak, leak_in_training, study
from tinymodels.attention import seen
from tinymodels.step import Step

MADE = leak_in_training.results()
RUNS = {(run["rule"], run["seed"]): run for run in MADE["runs"]}


def test_the_masks_are_the_chapters_rules():
    step = Step(torch.zeros(2, 9, dtype=torch.long), start=5)
    for name, mask in leak_in_training.MASKS.items():
        told = [leak.RULES[name](t, 3) for t in range(5, 14)]
        assert mask(step, 20, 3).sum(-1).tolist() == told


def test_the_floor_is_what_dice_leave():
    """By hand: two pairs are named, then one of them again, and again."""
    row = torch.tensor([[0, 70, 80, 71, 81, 70, 80, 71, 81]])
    batch = group_sizes.data.Batch(row[:, :-1], row[:, 1:], row[:, 1:])
    drawn = sum(map(math.log, (32, 31, 30, 29))) + 2 * math.log(2)
    assert leak_in_training.least(batch) == pytest.approx(drawn / 8)
    texts = group_sizes.texts(leak_in_training.TEXTS, 0, 0, held_out=True)
    floor = leak_in_training.least(leak_in_training.with_every_word(texts))
    assert floor == pytest.approx(MADE["least"], abs=1e-4)


def test_every_word_is_asked_that_the_text_holds():
    batch = group_sizes.texts(5, 1, 2)
    asked = leak_in_training.with_every_word(batch)
    assert torch.equal(asked.targets[:, :-1], asked.tokens[:, 1:])
    told = asked.known != group_sizes.data.IGNORED
    assert told.any() and torch.equal(asked.known[told], asked.targets[told])


def test_a_model_writes_as_it_reads_under_the_right_mask_alone():
    """Token by token no group is there before it is whole, whatever the mask of a whole text."""
    batch = leak_in_training.with_every_word(group_sizes.texts(6, 0, 0, held_out=True))
    model = study.untrained(group_sizes.config(4), 1)
    honest = [leak_in_training.measured(model, batch, way)["loss"] for way in (True, False)]
    assert honest[0] == pytest.approx(honest[1], abs=2e-4)
    right = seen.complete_groups
    try:
        seen.complete_groups = leak_in_training.started_groups
        leaked = [leak_in_training.measured(model, batch, way)["loss"] for way in (True, False)]
    finally:
        seen.complete_groups = right
    assert leaked[1] == pytest.approx(honest[1], abs=2e-4)
    assert abs(leaked[0] - honest[0]) > 1e-3


@pytest.mark.parametrize("rule", leak_in_training.MASKS)
def test_the_first_steps_are_the_shipped_ones(rule):
    again, shipped = leak_in_training.learn(rule, 1, steps=5, measure=False), RUNS[rule, 1]
    assert again["first_losses"] == pytest.approx(shipped["first_losses"][:5], abs=2e-3)
    assert seen.complete_groups is leak_in_training.MASKS["complete"]  # the patch is gone


def test_what_the_chapter_says_of_them():
    assert set(RUNS) == {(m, s) for m in leak_in_training.MASKS for s in leak_in_training.SEEDS}
    assert MADE["command"] == leak_in_training.COMMAND
    for seed in leak_in_training.SEEDS:
        (whole, written), (leaky, honest) = (
            [RUNS[rule, seed]["measured"][way][-1] for way in ("at once", "one by one")]
            for rule in leak_in_training.MASKS
        )
        assert whole["loss"] == pytest.approx(written["loss"], abs=1e-3) and whole["loss"] > 1.5
        assert leaky["loss"] < MADE["least"] / 2
        assert honest["loss"] > written["loss"] + 0.3
        assert honest["right"] < written["right"] - 0.04


def test_wrong_calls_are_refused_and_the_command_writes_what_it_has(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="'before' is none of the masks compared"):
        leak_in_training.learn("before", 0)
    with pytest.raises(ValueError, match="make it: python -m tinymodels.leak_in_training"):
        leak_in_training.results(tmp_path / "no.json")
    monkeypatch.setattr(leak_in_training, "SEEDS", (5,))
    monkeypatch.setattr(
        leak_in_training, "learn", lambda rule, seed: {"rule": rule, "measured": {"at once": [1]}}
    )
    out = tmp_path / "made.json"
    assert leak_in_training.main(["--out", str(out)]) == 0
    made = json.loads(out.read_text())
    assert [run["rule"] for run in made["runs"]] == ["complete", "started"]
    assert made["least"] == MADE["least"] and list(tmp_path.iterdir()) == [out]
