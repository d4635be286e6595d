"""Where the trained models keep their facts: a double dissociation, on every shipped text seed."""

import pytest
import torch

from tinymodels import ablate, checkpoints
from tinymodels.ablate import KINDS, Questions, mean_ablated, without_looking_back
from tinymodels.presets import tiny_v1
from tinymodels.transformer import Transformer

SEEDS = [name for name in checkpoints.available() if name.startswith("tiny_v1-text-")]
UPPER = (2, 3)  # the upper half of four layers: chosen once, for all seeds

each_seed = pytest.mark.parametrize("name", SEEDS)


@pytest.fixture(scope="module")
def asked() -> Questions:
    return ablate.questions()


@pytest.fixture(scope="module")
def mean():
    """{checkpoint: its means, over stories that are not asked}"""
    others = ablate.questions(seed=1)
    return {name: ablate.means(checkpoints.load(name), others) for name in SEEDS}


@pytest.fixture(scope="module")
def whole(asked):
    """{checkpoint: its right answers with nothing taken away}"""
    return {name: ablate.right(checkpoints.load(name), asked) for name in SEEDS}


def lost_of(whole, found):
    """By how much fewer answers are right; below 0 where more are."""
    return {kind: whole[kind] - found[kind] for kind in KINDS}


@pytest.fixture(scope="module")
def small() -> Transformer:
    """Untrained, and its weights large enough to make every change felt."""
    model = Transformer(tiny_v1(layers=3), seed=3)
    for p in model.parameters():
        p.requires_grad_(False).mul_(1 if p.dim() == 1 else 5)
    return model


def test_there_are_seeds():
    assert SEEDS


# ---------------------------------------------------------------- the claim


@each_seed
def test_whole_the_model_knows_both_kinds(name, whole, asked):
    chance = asked.by_kind(asked.chance_B)
    assert all(whole[name][kind] > chance[kind] + 0.3 for kind in KINDS)
    assert whole[name]["fixed"] > 0.95


@each_seed
def test_without_its_upper_ffns_it_forgets_the_fixed_facts_only(name, whole, asked, mean):
    model = checkpoints.load(name)
    with mean_ablated(model, [("ffn", i) for i in UPPER], mean[name], asked):
        lost = lost_of(whole[name], ablate.right(model, asked))
    assert lost["fixed"] > 0.35
    assert lost["given"] < 0.1
    assert lost["fixed"] - max(lost["given"], lost["given, who"]) > 0.2


@each_seed
def test_without_looking_back_it_forgets_the_given_facts_only(name, whole, asked):
    model = checkpoints.load(name)
    with without_looking_back(model, UPPER, asked):
        found = ablate.right(model, asked)
    chance, lost = asked.by_kind(asked.chance_B), lost_of(whole[name], found)
    assert lost["fixed"] < 0.05
    for kind in ("given", "given, who"):
        assert lost[kind] > 0.35 and found[kind] < chance[kind]


@each_seed
def test_whole_attention_is_needed_for_both_kinds(name, whole, asked, mean):
    """The blunt cut does not tell them apart: attention also brings the name that a fixed fact is
    about."""
    model = checkpoints.load(name)
    with mean_ablated(model, [("attention", i) for i in UPPER], mean[name], asked):
        lost = lost_of(whole[name], ablate.right(model, asked))
    assert min(lost.values()) > 0.25


# ---------------------------------------------------------------- the instrument


def test_questions_are_what_they_say(asked):
    assert {kind: asked.kinds.count(kind) >= 25 for kind in KINDS} == dict.fromkeys(KINDS, True)
    again, other = ablate.questions(), ablate.questions(seed=1)
    assert torch.equal(again.tokens_BT, asked.tokens_BT)
    assert {tuple(row) for row in asked.tokens_BT.tolist()}.isdisjoint(
        tuple(row) for row in other.tokens_BT.tolist()
    )
    chance = asked.by_kind(asked.chance_B)
    assert chance["fixed"] < 0.2 and chance["given"] < 0.5 and chance["given, who"] < 0.5
    # A given answer stands in the story; a fixed one only if it is somebody else's too.
    place_T = torch.arange(asked.tokens_BT.shape[1])
    told_BT = place_T < asked.story_B[:, None]
    named_B = ((asked.tokens_BT == asked.answer_B[:, None]) & told_BT).any(-1)
    assert all(named_B[i] for i, kind in enumerate(asked.kinds) if kind != "fixed")
    assert asked.by_kind(named_B)["fixed"] < 0.1


def test_the_answering_token_is_the_prompts_last():
    asked = ablate.questions(count=5)
    for row, last, story_length in zip(asked.tokens_BT, asked.last_B, asked.story_B):
        assert row[last] != 0 and not row[last + 1 :].any()
        assert 0 < story_length < last
    spread = asked.asked_BT().sum(-1)
    assert torch.equal(spread, asked.last_B - asked.story_B + 1)


def test_nothing_taken_changes_nothing(small):
    asked = ablate.questions(count=4, sentences=5)
    mean = ablate.means(small, asked)
    whole = small(asked.tokens_BT)
    with mean_ablated(small, [], mean, asked):
        assert torch.equal(small(asked.tokens_BT), whole)
    with without_looking_back(small, (), asked):
        assert torch.equal(small(asked.tokens_BT), whole)


@pytest.mark.parametrize("part", [("ffn", 1), ("attention", 1)])
def test_a_mean_is_said_at_the_answering_token_alone(small, part):
    asked = ablate.questions(count=4, sentences=5)
    mean = ablate.means(small, asked)
    kind, layer = part
    said = {}

    def note(_module, _given, out):
        said["is"] = out[0] if isinstance(out, tuple) else out

    def run():
        handle = getattr(small.layers[layer], kind).register_forward_hook(note)
        logits = small(asked.tokens_BT)
        handle.remove()
        return said["is"], logits

    before, whole = run()
    with mean_ablated(small, [part], mean, asked):
        after, changed = run()
    rows = torch.arange(len(asked))
    assert torch.allclose(before[rows, asked.last_B].mean(0), mean[part], atol=1e-6)
    assert torch.equal(after[rows, asked.last_B], mean[part].expand(len(asked), -1))
    after[rows, asked.last_B] = before[rows, asked.last_B]
    assert torch.equal(after, before)
    earlier = torch.arange(whole.shape[1]) < asked.last_B[:, None]
    assert torch.equal(changed[earlier], whole[earlier])
    assert not torch.allclose(changed[rows, asked.last_B], whole[rows, asked.last_B], atol=1e-3)
    assert torch.equal(run()[1], whole)  # closed again, the model is whole


def test_without_looking_back_no_word_of_the_story_reaches_the_answer(small):
    """Cut in all layers, another story of the same length gives the same answer; cut in none, or
    in all but one, it does not."""
    asked = ablate.questions(count=4, sentences=5)
    told_BT = torch.arange(asked.tokens_BT.shape[1]) < asked.story_B[:, None]
    told_BT = told_BT & (torch.arange(asked.tokens_BT.shape[1]) > 0)
    draw = torch.Generator().manual_seed(7)
    noise_BT = torch.randint(1, 200, asked.tokens_BT.shape, generator=draw)
    other_BT = torch.where(told_BT, noise_BT, asked.tokens_BT)
    rows = torch.arange(len(asked))
    for layers, alike in ((range(3), True), ((), False), ((0, 1), False), ((1, 2), False)):
        with without_looking_back(small, layers, asked):
            one, two = (small(x)[rows, asked.last_B] for x in (asked.tokens_BT, other_BT))
        assert torch.allclose(one, two, atol=1e-5) == alike, layers


def test_a_part_that_is_not_there_is_named(small):
    asked = ablate.questions(count=3, sentences=5)
    with pytest.raises(ValueError, match=r"no part \('ffn', 9\)"):
        with mean_ablated(small, [("ffn", 9)], {}, asked):
            pass
