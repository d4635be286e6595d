"""Reading few entries: what the rules choose, and what the shipped models make of it."""

import pytest
import torch

from tinymodels import checkpoints, data, few_entries, low_rank
from tinymodels.attention.weights import attention_weights
from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform
from tinymodels.parts import Parts
from tinymodels.presets import tiny_v1, tiny_v3_2
from tinymodels.transformer import Transformer

TEXT = [name for name in checkpoints.available() if name.startswith("tiny_v1-text-")]
SPARSE = [name for name in checkpoints.available() if name.startswith("tiny_v3_2-recall-")]


def small(seed, parts=None):
    attention = GQA(heads=6, kv_heads=3, head_dim=6, rope=Rope(6))
    config = ModelConfig("small", 37, 21, uniform(2, attention, Dense(33)), 99)
    return Transformer(config, parts, seed=seed).double().requires_grad_(False)


def tokens(seed, T=23):
    return torch.randint(37, (3, T), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("rule", few_entries.RULES)
def test_all_entries_are_the_model_itself_and_fewer_are_not(rule, seed):
    whole = small(seed)(tokens(seed))
    every = small(seed, Parts(attention=few_entries.only(23, rule)))(tokens(seed))
    torch.testing.assert_close(every, whole, rtol=0, atol=1e-10)
    few = small(seed, Parts(attention=few_entries.only(5, rule)))(tokens(seed))
    torch.testing.assert_close(few[:, :5], whole[:, :5], rtol=0, atol=1e-10)  # 5 or fewer to see
    assert (few[:, 7:] - whole[:, 7:]).abs().amax(-1).min() > 1e-4


def test_the_newest_are_a_window():
    draw = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(2, 19, n, 10, generator=draw).double() for n in (6, 3, 3))
    ours = few_entries.only(7, "newest")(query, key, value)
    window = Parts().attention(query, key, value, window=7)
    torch.testing.assert_close(ours, window, rtol=0, atol=1e-10)


def test_the_best_are_those_with_most_attention_of_all_heads():
    """A value of one entry alone: who does not read it gets zeros."""
    draw = torch.Generator().manual_seed(5)
    query, key = (torch.randn(1, 11, 2, 6, generator=draw).double() for _ in range(2))
    weight = (query.transpose(1, 2) @ key.transpose(1, 2).mT * 6**-0.5)[0, :, -1].softmax(-1)
    wanted = set(weight.mean(0).topk(3).indices.tolist())
    for s in range(11):
        value = torch.zeros(1, 11, 2, 6).double()
        value[:, s] = 1
        out = few_entries.only(3, "best")(query, key, value)[0, -1]
        assert bool(out.any()) == (s in wanted)


@pytest.mark.parametrize("seed", [0, 1])
def test_concentration_is_the_share_of_the_largest(seed):
    model, text = small(seed), tokens(seed)
    found = few_entries.concentration(model, text, (1, 5, 23), last=3)
    for layer, weight_BHTS in zip(found, attention_weights(model, text)):
        rows = weight_BHTS[:, :, -3:].mean(1).flatten(0, 1)
        by_hand = [sum(sorted(row.tolist())[-5:]) for row in rows]
        assert layer[1] == pytest.approx(sum(by_hand) / len(by_hand))
        assert layer[0] < layer[1] < layer[2] == pytest.approx(1)


def test_wrong_calls_are_named():
    with pytest.raises(ValueError, match="rules are"):
        few_entries.only(3, "oldest")
    with pytest.raises(ValueError, match="k is 0"):
        few_entries.only(0, "best")
    for call in (few_entries.with_top_k, few_entries.with_indexer):
        with pytest.raises(ValueError, match="tiny_v1 has layers without an indexer"):
            call(Transformer(tiny_v1()), 3 if call is few_entries.with_top_k else "newest")
    with pytest.raises(ValueError, match="k is 0; a query reads"):
        few_entries.with_top_k(Transformer(tiny_v3_2()), 0)
    with pytest.raises(ValueError, match="'best' is no blind rule"):
        few_entries.with_indexer(Transformer(tiny_v3_2()), "best")


@pytest.mark.parametrize("rule", ["newest", "random"])
def test_a_blind_indexer_needs_no_look_at_the_text_and_all_entries_are_all(rule):
    model = Transformer(tiny_v3_2(), seed=3).requires_grad_(False)
    text = torch.randint(256, (2, 61), generator=torch.Generator().manual_seed(1))
    blind = few_entries.with_indexer(model, rule)
    everything = few_entries.with_top_k(blind, 61)(text)
    torch.testing.assert_close(everything, few_entries.with_top_k(model, 61)(text))
    assert (blind(text) - everything)[:, 30:].abs().max() > 1e-3
    assert model.layers[0].attention.indexer is not blind.layers[0].attention.indexer
    some = few_entries.with_top_k(model, 5, layers=[1, 3])
    widths = [layer.attention.config.indexer.top_k for layer in some.layers]
    assert widths == [24, 5, 24, 5, 24]
    assert [layer.attention.config.indexer.top_k for layer in model.layers] == [24] * 5


def test_newest_takes_the_newest():
    from tinymodels.choices import wishes

    blind = few_entries.with_indexer(
        Transformer(tiny_v3_2(), seed=3).requires_grad_(False), "newest"
    )
    text = torch.randint(256, (2, 61), generator=torch.Generator().manual_seed(1))
    for wish in wishes(blind, text):
        assert wish.taken_BTS[:, -1, -24:].all() and wish.taken_BTS[:, -1].sum() == 48


# ---------------------------------------------------------------- what the lesson says of them


@pytest.mark.parametrize("name", TEXT)
def test_one_layer_looks_at_few_entries_and_the_first_at_nearly_all(name):
    model = checkpoints.load(name).requires_grad_(False)
    held = data.batch("text", 0, 0, data.Stage(4, 512), held_out=True)
    first, second, *_ = few_entries.concentration(model, held.tokens, (16,))
    assert first[0] < 0.35 and second[0] > 0.9


@pytest.mark.parametrize("name", TEXT)
def test_the_best_few_are_nearly_as_good_as_all_and_others_are_not(name):
    held = data.batch("text", 0, 0, data.Stage(4, 256), held_out=True)

    def loss(k, rule):
        model = checkpoints.load(name, Parts(attention=few_entries.only(k, rule)))
        return low_rank.quality(model.requires_grad_(False), held).loss

    whole = loss(256, "best")
    best, newest, random = (loss(32, rule) - whole for rule in few_entries.RULES)
    assert best < 0.1 and newest > 3 * best and random > 3 * best


@pytest.mark.parametrize("name", SPARSE)
def test_needles_are_found_with_a_trained_choice_and_not_without(name):
    model = checkpoints.load(name).requires_grad_(False)
    held = data.batch("recall", 0, 0, data.Stage(12, 256), held_out=True)

    def right(changed):
        return low_rank.quality(changed, held).right

    assert right(few_entries.with_top_k(model, 4)) > 0.97
    for rule in ("newest", "random"):
        assert right(few_entries.with_indexer(model, rule)) < 0.3


@pytest.mark.parametrize("name", SPARSE)
def test_two_layers_read_every_needle_even_alone(name):
    """What the lesson says below its widget, of the text that the widget shows."""
    from tinymodels.dice import Dice
    from tinymodels.widgets.which_entries import record

    model = checkpoints.load(name).requires_grad_(False)
    looks = record(model, data.recall(Dice("widget", 0), 256, 40), (1, 24))
    for of_k in looks.looks.values():
        for one, needle in zip(of_k, looks.needles, strict=True):
            assert one.right and all(needle in one.layers[i][0] for i in (2, 3))
    assert max(one.layers[0][1] for one in looks.looks[24]) < 0.5


@pytest.mark.parametrize("name", SPARSE)
def test_longer_texts_than_in_training_fail_with_every_entry_as_well(name):
    from tinymodels.dice import Dice

    model = checkpoints.load(name).requires_grad_(False)
    made = [data.recall(Dice("long", i), 512, 48) for i in range(4)]
    tokens = torch.tensor([text.tokens for text in made])
    found = []
    for k in (24, 512):
        said = few_entries.with_top_k(model, k)(tokens).argmax(-1)
        right = [said[b, at - 1] == tokens[b, at] for b, t in enumerate(made) for at in t.answers]
        found.append(torch.stack(right).float().mean().item())
    assert found[1] < 0.8 and abs(found[0] - found[1]) < 0.1
