"""A sparse model made from a dense one: what is kept, who learns, first steps again, the claims."""

import json

import pytest
import torch

from tinymodels import checkpoints, few_entries, from_dense
from tinymodels.measure import given_fact_accuracy

MADE = from_dense.results()
(RUN,) = (run for run in MADE["runs"] if run["seed"] == 0)


def test_a_model_with_indexers_that_reads_all_is_the_dense_one():
    """No weight of the old model is lost or moved: the same logits, at k = all."""
    old = from_dense.dense(0)
    new = few_entries.with_top_k(from_dense.with_indexers(old, 3), 1024)
    tokens_BT = from_dense.next_stories(from_dense.GO_ON, 5).tokens[:2, :77]
    with torch.no_grad():
        assert torch.allclose(new(tokens_BT), old(tokens_BT), atol=1e-4)
        few = few_entries.with_top_k(new, 5)(tokens_BT)
        assert not torch.allclose(few, old(tokens_BT), atol=1e-1)
    with pytest.raises(ValueError, match="weights of tiny_v1 are not those of a tiny_v3"):
        from_dense.with_indexers(checkpoints.load("tiny_v1-text-seed0"), 0)


def test_the_warm_up_teaches_indexers_alone():
    model = few_entries.with_top_k(from_dense.with_indexers(from_dense.dense(0), 0), 1024)
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    lessons = from_dense.warm_up(model, from_dense.WARM_UP, 3)
    assert lessons == pytest.approx(RUN["first_lessons"][:3], rel=1e-3)
    for name, w in model.named_parameters():
        assert torch.equal(w, before[name]) != (".indexer." in name), name
        assert w.requires_grad


def test_the_dense_model_goes_on_as_shipped():
    losses = from_dense.go_on(from_dense.dense(0), from_dense.GO_ON, 3)
    assert losses == pytest.approx(RUN["dense"]["first_losses"][:3], abs=2e-3)


def test_stories_go_on_where_training_stopped():
    """None of them was read before, and both continuations read the same."""
    first = from_dense.next_stories(from_dense.GO_ON, 0).tokens
    read = checkpoints.describe("tiny_v3-text-seed0")
    assert (read["steps"], tuple(first.shape)) == (9000, (4, 512))
    assert not torch.equal(first, from_dense.next_stories(from_dense.GO_ON, 1).tokens)


def test_wrong_calls_are_refused_and_the_command_writes_what_it_has(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="make it: python -m tinymodels.from_dense"):
        from_dense.results(tmp_path / "no.json")
    monkeypatch.setattr(from_dense, "SEEDS", (4, 7))
    monkeypatch.setattr(from_dense, "study_of", lambda seed: {"seed": seed})
    out = tmp_path / "made.json"
    assert from_dense.main(["--out", str(out)]) == 0
    made = json.loads(out.read_text())
    assert made["runs"] == [{"seed": 4}, {"seed": 7}] and list(tmp_path.iterdir()) == [out]
    assert MADE["command"] == made["command"] == from_dense.COMMAND


# ---------------------------------------------------------------- what chapter 07 says of it


def test_indexers_taught_alone_find_every_fact():
    found = {key: _share(RUN[key]["given"]) for key in ("untaught", "after the warm-up")}
    assert found["untaught"] < 0.2 and found["after the warm-up"] == 1
    assert RUN["lesson"] == sorted(RUN["lesson"], reverse=True)


def test_trained_on_it_cannot_be_told_from_the_dense_one():
    sparse, still_dense = (RUN[key]["measured"] for key in ("sparse", "dense"))
    assert abs(sparse["loss"] - still_dense["loss"]) < 1e-3
    assert min(_share(model["given"]) for model in (sparse, still_dense)) > 0.99


def test_from_nothing_it_does_not_learn_to_look():
    """Half of the facts are found, and no more where all rows are read."""
    scratch = checkpoints.load("tiny_v3_2-text-seed0")
    few, every = (
        given_fact_accuracy(few_entries.with_top_k(scratch, k), 25, count=30)["all"]
        for k in (24, 512)
    )
    assert few < 0.6 and every < few + 0.03


def _share(given: dict) -> float:
    return given["25"]["all"]
