"""What layers take and would take: by hand on small layers, and what the chapter says of the
trained models."""

from dataclasses import replace

import pytest
import torch

from tinymodels import checkpoints, choices, data
from tinymodels.attention.indexer import index_scores, top_k
from tinymodels.attention.seen import chosen
from tinymodels.presets import tiny_v1, tiny_v3_2, tiny_v4_1
from tinymodels.transformer import Transformer

V4_1 = [name for name in checkpoints.available() if name.startswith("tiny_v4_1-recall")]
V3_2 = [name for name in checkpoints.available() if name.startswith("tiny_v3_2-recall")]


def small(preset, seed):
    model = Transformer(preset(), seed=seed).double().requires_grad_(False)
    for p in model.parameters():
        if p.dim() > 1:
            p.mul_(6)
    draw = torch.Generator().manual_seed(seed)
    return model, torch.randint(256, (2, 61), generator=draw)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_v4_1_takes_is_what_it_publishes(seed):
    model, tokens = small(tiny_v4_1, seed)
    far = {}
    for i, block in enumerate(model.layers):
        block.attention.register_forward_hook(
            lambda module, args, out, i=i: far.update({i: out[1].far})
        )
    found = choices.wishes(model, tokens)
    assert [w.layer for w in found] == [1, 2, 3, 4, 5, 6, 7]
    modes = ["full", "reuse", "reuse", "full", "reuse", "reindex", "reuse"]
    assert [w.mode for w in found] == modes
    for wish in found:
        S = far[wish.layer].entry_BSD.shape[1]
        assert torch.equal(wish.taken_BTS, chosen(far[wish.layer].choice_BTk, S))
        assert wish.share_BTS.shape == (2, 61, S) and wish.k == 8
        assert not (wish.share_BTS * ~wish.visible_TS).any()
        assert (wish.share_BTS.sum(-1) < 1).all()  # the window and the sink take some
        assert (wish.wanted_BTS.sum(-1) <= 8).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_what_v3_2_takes_is_the_best_by_its_scores_and_shares_add_up(seed):
    model, tokens = small(tiny_v3_2, seed)
    seen = {}
    for i, block in enumerate(model.layers):
        block.attention.register_forward_pre_hook(
            lambda module, args, i=i: seen.update({i: (args[0], args[1])})
        )
    for wish in choices.wishes(model, tokens):
        attention, (x, step) = model.layers[wish.layer].attention, seen[wish.layer]
        query, weight, keys = attention.indexer.project(x, attention.query_latent(x), step)
        score = index_scores(query, weight, keys["index"])
        assert torch.equal(wish.taken_BTS, chosen(top_k(score, wish.visible_TS, 24), 61))
        ones = torch.ones(2, 61, dtype=torch.float64)
        torch.testing.assert_close(wish.share_BTS.sum(-1), ones)
        assert (wish.served_BT <= 1 + 1e-12).all() and (wish.served_BT[:, :24] > 1 - 1e-9).all()


def test_overlap_counts_what_both_have():
    one = torch.tensor([[[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]], dtype=torch.bool)
    other = torch.tensor([[[1, 0, 1, 0], [1, 0, 1, 1], [1, 0, 0, 0]]], dtype=torch.bool)
    asked = torch.tensor([[True, True, False]])
    assert choices.overlap(one, other, asked) == pytest.approx((1 / 2 + 1) / 2)
    assert choices.overlap(other, one, asked) == pytest.approx((1 / 2 + 2 / 3) / 2)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_borrower_reads_what_the_owner_chose_and_only_meanwhile(seed):
    model, tokens = small(tiny_v3_2, seed)
    tokens = tokens.repeat(1, 2)  # more rows than are chosen, and than a mask is made for
    was, read = model(tokens), {}
    for i in (1, 3):
        attention = model.layers[i].attention
        attention.attend = lambda query, rows, visible, i=i, a=attention: (
            read.update({i: visible}),
            type(a).attend(a, query, rows, visible),
        )[1]
    with choices.borrowed(model, 1, 3):
        lent = model(tokens)
    assert torch.equal(read[1], read[3]) and (lent - was).abs().max() > 1e-6
    with choices.newest(model, 3):
        near = model(tokens)
    place = torch.arange(122)
    behind = place[:, None] - place
    assert torch.equal(read[3][0], (behind >= 0) & (behind < 24))
    assert (near - was).abs().max() > 1e-6 and not torch.equal(read[1], read[3])
    assert torch.equal(model(tokens), was)


def test_borrowing_that_cannot_be_is_refused():
    model = Transformer(tiny_v3_2())
    with pytest.raises(ValueError, match="layer 2 runs before layer 2 has chosen"):
        with choices.borrowed(model, 2, 2):
            pass
    with pytest.raises(ValueError, match="layer 1 of tiny_v4_1 has no choice"):
        with choices.newest(Transformer(tiny_v4_1()), 1):
            pass


@pytest.mark.parametrize("name", V3_2)
def test_what_borrowing_costs_a_trained_v3_2(name):
    model, (batch, asked) = checkpoints.load(name).requires_grad_(False), held()

    def right():
        return (model(batch.tokens).argmax(-1) == batch.targets)[asked].float().mean().item()

    assert right() > 0.98
    shares = []
    for owner in range(4):
        with choices.borrowed(model, owner, owner + 1):
            shares.append(right())
    assert min(shares) < 0.5 and max(shares) > 0.95, shares


def test_a_model_that_chooses_nothing_is_named():
    with pytest.raises(ValueError, match="tiny_v1 chooses no entries"):
        choices.wishes(Transformer(tiny_v1()), torch.zeros(1, 5, dtype=torch.long))


# ---------------------------------------------------------------- what the chapter says


def held(rows=4):
    batch = data.batch("recall", 0, 0, data.Stage(rows, 256), held_out=True)
    return batch, batch.targets != data.IGNORED


@pytest.mark.parametrize("name", V3_2)
def test_some_neighbours_of_v3_2_agree_far_beyond_chance(name):
    model, (batch, asked) = checkpoints.load(name).requires_grad_(False), held()
    picks = [wish.taken_BTS for wish in choices.wishes(model, batch.tokens)]
    pairs = [choices.overlap(a, b, asked) for a, b in zip(picks, picks[1:])]
    assert max(pairs) > 0.3 and min(pairs) < 0.2  # by chance 0.10


@pytest.mark.parametrize("name", V4_1)
def test_owners_of_v4_1_get_most_of_their_favourites_and_borrowers_less(name):
    """One by one a borrower can do better than an owner (seed 1); together they do not."""
    model, (batch, asked) = checkpoints.load(name).requires_grad_(False), held()
    found = {"full": [], "reindex": [], "reuse": []}
    for wish in choices.wishes(model, batch.tokens):
        got = choices.overlap(wish.wanted_BTS, wish.taken_BTS, asked)
        found[wish.mode].append(got)
    assert min(found["full"]) > 0.5  # by chance 0.07 and 0.03
    mean = {mode: sum(shares) / len(shares) for mode, shares in found.items()}
    assert mean["full"] > mean["reindex"] > mean["reuse"] > 0.2


@pytest.mark.parametrize("name", V4_1)
def test_the_pool_is_constant_after_the_first_look(name):
    model, (batch, _) = checkpoints.load(name).requires_grad_(False), held(2)
    pools = []
    model.layers[6].attention.register_forward_hook(
        lambda module, args, out: pools.append(out[1].far.pool_BTS.sum(-1))
    )
    model(batch.tokens)
    (pool_BT,) = pools
    places = torch.arange(1, 257)
    assert (pool_BT <= 24).all()
    assert (pool_BT[:, 23:] >= 21).all()  # five whole blocks and at least one of the newest
    assert torch.equal(pool_BT[0, :24], places[:24])


def test_the_story_of_chapter_10_on_the_named_model():
    """tiny_v4_1-recall-seed0: one layer does the work, layer 6 need not choose anew, and the
    sieve binds only below two blocks."""
    model = checkpoints.load("tiny_v4_1-recall-seed0").requires_grad_(False)
    batch, asked = held()

    def right():
        return (model(batch.tokens).argmax(-1) == batch.targets)[asked].float().mean().item()

    assert right() > 0.99
    for i in range(1, 8):
        attention = model.layers[i].attention
        attend = attention.attend
        attention.attend = lambda query, step, near, far, attend=attend: attend(query, step, near)
        assert right() < 0.4 if i == 7 else right() > 0.95
        del attention.attend
    six = model.layers[6].attention
    as_trained = six.config
    six.config = replace(as_trained, mode="reuse", index_source=4)
    assert right() > 0.95
    six.config = as_trained
    for keep, low, high in ((1, 0, 0.1), (2, 0.9, 1)):
        for i in (4, 6):
            a = model.layers[i].attention
            a.config = replace(a.config, candidates=replace(a.config.candidates, keep=keep))
        assert low <= right() <= high
