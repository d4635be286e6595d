"""Quality against bytes: the record is of the weights that are there, and who stands where."""

import json

import pytest

from tinymodels import checkpoints, frontier, measure, quality
from tinymodels.quality import MEASURES, Standing, standings

BYTES = {"a": 10.0, "b": 20.0, "c": 30.0, "d": 40.0}


def test_the_record_is_of_the_weights_that_are_there():
    assert quality.stale() == [], f"after new checkpoints: {quality.COMMAND}"


def test_a_record_of_other_weights_is_stale(tmp_path):
    kept = json.loads(quality.FILE.read_text())
    gone, changed = "tiny_v1-recall-seed0", "tiny_v4_1-recall-seed0"
    del kept["models"][gone]
    kept["models"][changed]["sha256"] = "0"
    kept["models"]["tiny_v1-recall-seed9"] = {"sha256": "0"}
    path = tmp_path / "quality.json"
    path.write_text(json.dumps(kept))
    assert quality.stale(path) == sorted([gone, changed, "tiny_v1-recall-seed9"])


def test_the_command_measures_what_is_new_and_forgets_what_is_gone(tmp_path, monkeypatch):
    asked = []

    def now(name, model, seed):
        asked.append(name)
        return {"longer": {"384": 0.25}}

    monkeypatch.setattr(quality, "measured", now)
    kept = json.loads(quality.FILE.read_text())
    kept["models"].pop("tiny_v1-recall-seed0", None)
    kept["models"]["gone"] = {"sha256": "0"}
    path = tmp_path / "quality.json"
    path.write_text(json.dumps(kept))
    before = quality.stale()
    assert quality.main(["--out", str(path)]) == 0
    assert asked == sorted({"tiny_v1-recall-seed0", *before} & set(quality.trained()))
    assert quality.stale(path) == [] and "gone" not in quality.record(path)


def test_a_record_that_cannot_be_read_is_named(tmp_path, capsys):
    path = tmp_path / "quality.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"cannot be read.*python -m tinymodels.quality"):
        quality.record(path)
    assert quality.main(["--out", str(path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_figure_of_the_record_is_measured_again():
    """Eight of its 32 texts, which are the first eight; their share is near the whole one."""
    found = quality.longer(checkpoints.load("tiny_v1-recall-seed0"), 384, 8)
    kept = quality.record()["tiny_v1-recall-seed0"]["longer"]["384"]
    assert 0.7 < kept < 0.99 and found == pytest.approx(kept, abs=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(quality.trained()))
def test_every_figure_of_the_record_is_measured_again(name):
    model, seed, _ = quality.trained()[name]
    kept = quality.record()[name]
    found = quality.measured(name, model, seed)
    for length, share in kept["longer"].items():
        assert found["longer"][length] == pytest.approx(share, abs=0.01)
    assert set(found) == set(kept) - {"sha256"}


def test_figures_are_those_beside_the_checkpoints():
    described = checkpoints.describe("tiny_v4-recall-seed1")["measured"]
    assert quality.seeds("tiny_v4", "recall")[1].items() >= described.items()
    assert described["recall"]["pairs"]["48"] in quality.values(
        "tiny_v4", MEASURES["games: 48 pairs"]
    )
    stories = quality.values("tiny_v1", MEASURES["stories: loss"])
    assert checkpoints.describe("tiny_v1-text-seed1")["measured"]["loss"] in stories
    assert quality.values(quality.OWN, MEASURES["stories: loss"]) == []
    assert len(quality.values(quality.OWN, MEASURES["games: 4 pairs"])) == len(frontier.SEEDS)


def test_every_measure_finds_what_it_names():
    for asked in MEASURES.values():
        assert quality.values("tiny_v1", asked), asked.name
    assert {"games: 4 pairs", "games: 256 tokens back"} < set(MEASURES)
    kinds = (measure.PAIRS, measure.DISTANCES, measure.STORY_LENGTHS, quality.LONGER)
    assert len(MEASURES) == 2 + sum(map(len, kinds))  # and two losses


# ---------------------------------------------------------------- who stands where


def stands(**found) -> dict[str, Standing]:
    return standings(BYTES, {name: found.get(name, []) for name in BYTES})


def test_who_does_better_than_all_that_cost_less_is_on_the_frontier():
    found = stands(a=[0.5, 0.6], b=[0.7, 0.8], c=[0.6, 0.65], d=[0.9])
    assert found["c"] == Standing("beaten", "b")
    assert [found[n].how for n in "abd"] == ["on", "on", "on"]


def test_as_good_for_less_is_enough():
    assert stands(b=[1.0, 1.0], d=[1.0])["d"] == Standing("beaten", "b")


def test_seeds_that_overlap_and_a_single_seed_leave_it_open():
    assert stands(a=[0.7, 0.9], c=[0.75, 0.8])["c"] == Standing("open", "a")
    assert stands(a=[0.9], c=[0.1, 0.2])["c"] == Standing("open", "a")
    assert stands(a=[0.7, 0.8], c=[0.75, 0.8])["c"] == Standing("on")


def test_what_is_not_trained_beats_nobody():
    found = stands(c=[0.2])
    assert found["c"] == Standing("on") and found["a"] == Standing("missing")


def test_of_losses_the_small_one_is_good_and_equals_do_not_beat_each_other():
    found = {"a": [0.5, 0.5], "b": [0.5, 0.5], "c": [0.9, 0.9]}
    made = standings({"a": 7, "b": 7, "c": 7}, found, more_is_better=False)
    assert [made[n].how for n in "abc"] == ["on", "on", "beaten"]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: quality.config("tiny_v9"), "'tiny_v9' is none of the models compared"),
        (lambda: quality.seeds("tiny_v1", "songs"), "unknown task 'songs'"),
        (lambda: quality.costs("weight"), "'weight' cannot be weighed"),
    ],
)
def test_what_is_not_known_is_named(ask, says):
    with pytest.raises(ValueError, match=says):
        ask()
