"""Exercise 13.8: bytes and recall are measured, and the lesson's own weights earn nothing."""

from dataclasses import replace

import pytest
import torch

from grading import check
from grading.checks import ch13_frontier
from grading.checks.ch13_frontier import FRONTIER
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS
from grading.verdict import assess
from tinymodels import checkpoints, frontier

COURSE = Course()
STEM = "13__capstone"
NEAR, FAR = frontier.EXAMPLE.layers
OTHER = frontier.EXAMPLE.with_(
    layers=(replace(NEAR, attention=replace(NEAR.attention, window=5)), FAR)
)
"""Another configuration, into which the lesson's weights fit."""


@pytest.fixture
def nobody_errs(monkeypatch):
    """tiny_v1's weakest seed misses none: three seeds together may miss three."""
    monkeypatch.setattr(ch13_frontier, "weakest", lambda texts: 0)


def test_weights_are_measured_and_not_believed(tmp_path, monkeypatch, nobody_errs):
    """Files of an untrained model, under the right names, earn the point for the bytes alone."""
    for seed in frontier.SEEDS:
        model = frontier.Transformer(OTHER, seed=seed)
        frontier._save(model, [5.5] * 20, seed, frontier.path(OTHER, seed, tmp_path))
    monkeypatch.chdir(tmp_path)
    wrong = frontier.wrong
    monkeypatch.setattr(frontier, "wrong", lambda model, texts: wrong(model, texts, count=1))
    result = assess(FRONTIER, lambda: OTHER, CHECK_SEEDS[:1])
    assert (result.status, result.earned) == ("partly", 1)
    assert "forgets more" in result.message


@pytest.mark.parametrize(("weakest", "wrong", "right"), [
    (0, (1, 1, 1), True), (0, (2, 1, 1), False), (2, (9, 0, 0), True), (2, (10, 0, 0), False),
])  # fmt: skip
def test_one_answer_too_many_fails_and_the_message_counts(monkeypatch, weakest, wrong, right):
    monkeypatch.setattr(ch13_frontier, "weakest", lambda texts: weakest)
    monkeypatch.setattr(ch13_frontier, "_is_there", lambda config, seed: True)
    monkeypatch.setattr(ch13_frontier, "_is_copied", lambda model: False)
    monkeypatch.setattr(frontier, "load", lambda config, seed: seed)
    monkeypatch.setattr(frontier, "wrong", lambda seed, texts: wrong[seed])
    result = check("13.8", lambda: OTHER)
    assert result.status == ("passed" if right else "partly")
    assert right or (result.earned == 1 and "4 counted, 3 would do" in result.message)


def test_a_configuration_that_is_not_trained_is_told_how(tmp_path, monkeypatch, nobody_errs):
    monkeypatch.chdir(tmp_path)
    result = check("13.8", lambda: OTHER.with_(context=998))
    assert (result.status, result.earned) == ("partly", 1)
    assert "frontier.train" in result.message and "stopped" not in result.message


def copy_the_lessons_weights(config, folder):
    """As if they had been trained for `config`."""
    for seed in frontier.SEEDS:
        weights = frontier.path(frontier.EXAMPLE, seed, frontier.FOLDER).read_bytes()
        frontier.path(config, seed, folder).write_bytes(weights)


@pytest.mark.parametrize("change", [
    {"name": "mine"}, {"context": 2048}, {"row": "fp8"}, {"norm_eps": 3e-6},
])  # fmt: skip
def test_the_model_of_the_lesson_earns_nothing(change, tmp_path, monkeypatch, nobody_errs):
    """Nor do its weights under another name, for a longer text, in other rows, with another eps."""
    config = frontier.EXAMPLE.with_(**change)
    copy_the_lessons_weights(config, tmp_path)
    monkeypatch.chdir(tmp_path)
    result = check("13.8", lambda: config)
    assert (result.status, result.earned) == ("wrong", 0)
    assert "model of the lesson" in result.message


def _as_they_are(weights, draw):
    pass


def _one_row_changed(weights, draw):
    weights["embed.weight"][255] += 1000


def _scaled(weights, draw):
    weights["norm.weight"] *= 2.5


def _other_order(weights, draw):
    """The stream's numbers change places: the same model, and no tensor of it the same."""
    order = torch.randperm(64, generator=draw)
    for name, tensor in weights.items():
        writes = name.endswith(("output.weight", "down.weight"))
        tensor.copy_(tensor[order] if writes else tensor[..., order])


def _noisy(weights, draw):
    for tensor in weights.values():
        noise = torch.randn(tensor.shape, generator=draw)
        tensor += 0.1 * tensor.square().mean().sqrt() * noise


@pytest.mark.parametrize("disguise", [
    _as_they_are, _one_row_changed, _scaled, _other_order, _noisy,
])  # fmt: skip
def test_copied_weights_earn_nothing_for_what_they_know(
    disguise, tmp_path, monkeypatch, nobody_errs
):
    """The lesson's weights in a configuration that differs in a number without weights."""
    for seed in frontier.SEEDS:
        model = frontier.load(frontier.EXAMPLE, seed, frontier.FOLDER)
        disguise(model.state_dict(), torch.Generator().manual_seed(seed))
        frontier._save(model, [5.5] * 20, seed, frontier.path(OTHER, seed, tmp_path))
    monkeypatch.chdir(tmp_path)
    result = check("13.8", lambda: OTHER)
    assert (result.status, result.earned) == ("partly", 1)
    assert "model of the lesson" in result.message


def test_models_trained_by_themselves_are_not_taken_for_copies():
    """Though one seed gives them nearly the same embeddings."""
    theirs = [frontier.load(answers(COURSE, STEM)["13.8"](), s) for s in frontier.SEEDS]
    theirs += [checkpoints.load(f"tiny_v1-recall-seed{s}") for s in frontier.SEEDS]
    lessons = [frontier.load(frontier.EXAMPLE, s, frontier.FOLDER) for s in frontier.SEEDS]
    for model, lesson in zip(theirs, lessons * 2):
        ours, same_seed = model.embed.weight.flatten(), lesson.embed.weight.flatten()
        assert torch.cosine_similarity(ours, same_seed, dim=0) > 0.95
        assert not ch13_frontier._is_copied(model)
    assert all(map(ch13_frontier._is_copied, lessons))


def test_the_solution_is_another_and_its_weights_are_shipped():
    config = answers(COURSE, STEM)["13.8"]()
    assert frontier.fingerprint(config) != frontier.fingerprint(frontier.EXAMPLE)
    assert all(frontier.path(config, s, frontier.FOLDER).is_file() for s in frontier.SEEDS)


@pytest.mark.parametrize(("seed", "steps"), [(1, 2)] + [
    pytest.param(seed, 20, marks=pytest.mark.slow) for seed in frontier.SEEDS
])  # fmt: skip
def test_the_solution_is_trained_as_all_others(seed, steps):
    """Its first steps are made again."""
    config = answers(COURSE, STEM)["13.8"]()
    stored = frontier.about(config, seed)["first_losses"].split()
    _, losses = frontier.learn(config, seed, steps)
    assert losses == pytest.approx([float(x) for x in stored[:steps]], abs=2e-3)
