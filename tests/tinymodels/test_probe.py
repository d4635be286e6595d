"""Probes find what is there and nothing that is not."""

import numpy as np
import pytest
import torch

from tinymodels import checkpoints, probe, tokenizer
from tinymodels.world import MEN, PEOPLE, THINGS, WOMEN

NAME = next(n for n in checkpoints.available() if n.startswith("tiny_v1-text"))


@pytest.fixture(scope="module")
def model():
    return checkpoints.load(NAME).requires_grad_(False)


@pytest.mark.parametrize("seed", range(3))
def test_the_weights_are_the_least_squares_solution(seed):
    """By numpy's solver on the system with the ridge's rows appended."""
    random = np.random.default_rng(seed)
    x, label, ridge = random.normal(1, 1, (50, 7)), random.integers(0, 3, 50), 0.7
    found = probe.fit(torch.tensor(x), torch.tensor(label), 3, ridge)
    a = np.vstack([np.hstack([x, np.ones((50, 1))]), np.sqrt(ridge) * np.eye(8)])
    b = np.vstack([np.eye(3)[label], np.zeros((8, 3))])
    want = np.linalg.lstsq(a, b, rcond=None)[0]
    np.testing.assert_allclose(found.numpy(), want, atol=1e-10)


def test_what_is_there_is_found_and_noise_is_not():
    draw = torch.Generator().manual_seed(5)
    label = torch.randint(4, (900,), generator=draw)
    noise = torch.randn(2, 900, 20, generator=draw)
    noise[1, torch.arange(900), label] += 6  # only the second layer knows
    blind, seeing = probe.by_layer((noise, label), train=600)
    assert blind < 0.35 and seeing > 0.97


def test_only_new_examples_count():
    """With as many weights as examples a probe knows its own examples by heart."""
    draw = torch.Generator().manual_seed(6)
    label = torch.randint(2, (120,), generator=draw)
    x = torch.randn(1, 120, 90, generator=draw)
    weight = probe.fit(x[0, :60], label[:60], 2, ridge=1e-4)
    assert probe.accuracy(weight, x[0, :60], label[:60]) == 1
    assert probe.by_layer((x, label), train=60)[0] < 0.75


def test_labels_that_do_not_fit_are_refused():
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="labels run to 4; there are 4 classes"):
        probe.fit(x, torch.tensor([0, 1, 4]), 4)
    with pytest.raises(ValueError, match="3 vectors and 2 labels"):
        probe.fit(x, torch.tensor([0, 1]), 4)
    with pytest.raises(ValueError, match="train is 3"):
        probe.by_layer((x[None], torch.tensor([0, 1, 2])), train=3)


def _embedding_of(model, text):
    return model.embed.weight[tokenizer.encode(text)[-1]]


def test_pronouns_are_asked_where_only_looking_back_helps(model):
    x, label = probe.pronouns(model)
    assert x.shape == (5, 2 * 2 * len(WOMEN) * len(MEN), 64)
    names = [PEOPLE[i] for i in label.tolist()]
    she, he = (_embedding_of(model, f"Ada meets Ben. {word}") for word in ("She", "He"))
    for who, vector in zip(names, x[0]):
        assert torch.equal(vector, she if who in WOMEN else he)
    assert len(set(names)) == len(PEOPLE)


def test_answers_are_asked_at_a_word_that_does_not_tell(model):
    x, label = probe.answers(model, count=60)
    assert x.shape == (5, 60, 64) and label.max() < len(THINGS)
    the = _embedding_of(model, "has the")
    assert all(torch.equal(vector, the) for vector in x[0])
    best = (model.head(model.norm(x[-1]))).argmax(-1)
    said = [tokenizer.pieces([t])[0] for t in best.tolist()]
    assert sum(s == THINGS[i] for s, i in zip(said, label.tolist())) > 54


def test_every_class_of_character_has_its_share(model):
    x, label = probe.characters(model, each=6)
    assert label.bincount().tolist() == [6] * len(probe.CHARACTERS)
    for vector, kind in zip(x[0], label.tolist()):
        token = (model.embed.weight - vector).square().sum(-1).argmin().item()
        assert tokenizer.pieces([token])[0] in probe.CHARACTERS[kind]
