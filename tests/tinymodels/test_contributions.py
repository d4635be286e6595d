"""The stream as a sum: contributions, votes, ablation, patching; and what the shipped models do."""

import pytest
import torch

from tinymodels import checkpoints, swaps, tokenizer
from tinymodels.contributions import ablated, changed, contributions, patched, sublayers, votes
from tinymodels.presets import tiny_v1, tiny_v3, tiny_v4
from tinymodels.step import Step
from tinymodels.transformer import Transformer

TRAINED = [name for name in checkpoints.available() if name.startswith("tiny_v1-text")]
COUNT = 60


def random_model(config, seed=1):
    """In fp64, with outputs as large as the stream, so that every piece counts."""
    model = Transformer(config, seed=seed).double().requires_grad_(False)
    for i, p in enumerate(model.parameters()):
        if p.dim() > 1:
            p.mul_(30)
        else:
            draw = torch.Generator().manual_seed(seed + i)
            p.add_(torch.rand(p.shape, generator=draw, dtype=p.dtype))
    return model


def random_tokens(seed=0, batch=2, length=11):
    return torch.randint(0, 200, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("config", [tiny_v1(layers=3), tiny_v3()], ids=lambda c: c.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_stream_is_the_sum_of_its_pieces(config, seed):
    model, tokens_BT = random_model(config, seed), random_tokens(seed)
    pieces = contributions(model, tokens_BT)
    assert list(pieces) == ["embedding", *sublayers(model)]
    assert len(pieces) == 1 + 2 * len(config)
    stream = model.open(Step(tokens_BT))
    assert torch.equal(pieces["embedding"], stream)
    whole, _ = model.run(range(len(config)), stream, Step(tokens_BT))
    torch.testing.assert_close(sum(pieces.values()), whole, rtol=0, atol=1e-11)


@pytest.mark.parametrize("seed", [0, 1])
def test_votes_add_up_to_the_difference_of_logits(seed):
    model, tokens_BT = random_model(tiny_v1(layers=3), seed), random_tokens(seed)
    word_B, against_B = torch.tensor([3, 70]), torch.tensor([9, 5])
    cast = votes(model, contributions(model, tokens_BT), word_B, against_B)
    logits_BV = model(tokens_BT)[:, -1]
    wanted_B = logits_BV[range(2), word_B] - logits_BV[range(2), against_B]
    torch.testing.assert_close(sum(cast.values()), wanted_B, rtol=0, atol=1e-10)
    assert all(vote_B.abs().min() > 1e-3 for vote_B in cast.values())


def test_an_ablated_sublayer_adds_nothing_and_the_later_ones_run_on_what_is_left():
    model, tokens_BT = random_model(tiny_v1(layers=3)), random_tokens()
    before = contributions(model, tokens_BT)
    with changed(model, {"ffn 1": ablated}):
        logits = model(tokens_BT)
        after = contributions(model, tokens_BT)
    assert not torch.equal(logits, model(tokens_BT))
    same = [name for name in before if torch.equal(before[name], after[name])]
    assert same == ["embedding", "attention 0", "ffn 0", "attention 1"]
    model.layers[1].ffn.down.weight.zero_()
    assert torch.equal(logits, model(tokens_BT))


def test_a_patch_touches_one_position():
    model = random_model(tiny_v1(layers=3))
    one, two = random_tokens(0), random_tokens(5)
    other = contributions(model, two)["attention 1"]
    seen = {}

    def look(name):
        return lambda found: seen.setdefault(name, found)

    with (
        changed(model, {"attention 1": patched(other, 4)}),
        changed(model, {"attention 1": look(0)}),
    ):
        model(one)
    own = contributions(model, one)["attention 1"]
    differs_T = (seen[0] != own).any(-1).any(0)
    assert differs_T.nonzero().flatten().tolist() == [4]
    assert torch.equal(seen[0][:, 4], other[:, 4])


def test_the_model_is_left_as_it_was():
    model, tokens_BT = random_model(tiny_v1(layers=3)), random_tokens()
    before = model(tokens_BT)
    with pytest.raises(RuntimeError, match="stop"), changed(model, {"ffn 0": ablated}):
        raise RuntimeError("stop")
    contributions(model, tokens_BT)
    assert torch.equal(before, model(tokens_BT))
    assert all(not part._forward_hooks for part in sublayers(model).values())


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="tiny_v4 keeps 4 copies of the stream"):
        sublayers(Transformer(tiny_v4()))
    model = random_model(tiny_v1(layers=3))
    with pytest.raises(ValueError, match="no sublayer is named 'ffn 3'; there are attention 0"):
        with changed(model, {"ffn 3": ablated}):
            pass


# ---------------------------------------------------------------- pairs of texts


def test_pairs_differ_in_who_has_what():
    pairs = swaps.swaps(COUNT)
    assert len(set(pairs)) == COUNT and pairs == swaps.swaps(COUNT)
    assert pairs != swaps.swaps(COUNT, seed=1)
    made = swaps.tokens(pairs)
    for i, pair in enumerate(pairs):
        differs = (made.text_BT[i] != made.swapped_BT[i]).nonzero().flatten().tolist()
        words = [
            tokenizer.pieces(
                [
                    made.text_BT[i][t],
                ]
            )[0]
            for t in differs
        ]
        assert words == [pair.answer, pair.other]
        assert tokenizer.decode(made.text_BT[i].tolist()) == pair.text
    with pytest.raises(ValueError, match="count is 0"):
        swaps.swaps(0)


# ---------------------------------------------------------------- the shipped models


@pytest.fixture(scope="module", params=TRAINED)
def trained(request):
    """(model, pairs as tokens, pieces of both texts) of every shipped V1 model."""
    model = checkpoints.load(request.param).requires_grad_(False)
    made = swaps.tokens(swaps.swaps(COUNT))
    return model, made, contributions(model, made.text_BT), contributions(model, made.swapped_BT)


def answers(model, tokens_BT, changes):
    with changed(model, changes):
        return model(tokens_BT)[:, -1].argmax(-1)


def test_in_the_trained_model_the_sum_holds_to_six_digits(trained):
    model, made, pieces, _ = trained
    stream, _ = model.run(
        range(len(model.layers)), model.open(Step(made.text_BT)), Step(made.text_BT)
    )
    gap = (sum(pieces.values()) - stream).abs().max() / stream.abs().max()
    assert gap < 1e-6


def test_the_trained_model_answers_both_texts(trained):
    model, made, *_ = trained
    assert (answers(model, made.text_BT, {}) == made.answer_B).float().mean() >= 0.95
    assert (answers(model, made.swapped_BT, {}) == made.other_B).float().mean() >= 0.95


def test_one_attention_casts_most_votes(trained):
    model, made, pieces, _ = trained
    cast = {n: v.mean() for n, v in votes(model, pieces, made.answer_B, made.other_B).items()}
    first, second = sorted(cast, key=cast.get, reverse=True)[:2]
    # The lead differs by seed: the next piece has 0.74 of its votes in the closest case.
    assert first.startswith("attention") and cast[first] > 1.2 * cast[second]


def test_patching_one_attention_at_one_token_turns_the_answer(trained):
    model, made, _, other = trained
    turned = {}
    for name in sublayers(model):
        said_B = answers(model, made.text_BT, {name: patched(other[name])})
        turned[name] = (said_B == made.other_B).float().mean().item()
    first, second = sorted(turned.values(), reverse=True)[:2]
    assert first >= 0.9 and second <= 0.3, turned


def test_a_sublayer_without_votes_can_be_needed(trained):
    """Ablation and votes disagree: some piece casts few votes, and without it answers go wrong."""
    model, made, pieces, _ = trained
    cast = {n: v.mean() for n, v in votes(model, pieces, made.answer_B, made.other_B).items()}
    most = max(cast.values())
    right = {
        n: (answers(model, made.text_BT, {n: ablated}) == made.answer_B).float().mean().item()
        for n in sublayers(model)
    }
    assert any(right[n] < 0.5 and abs(cast[n]) < most / 4 for n in right), (right, cast)


def test_pieces_say_something_new_and_the_stream_grows(trained):
    _, _, pieces, _ = trained
    so_far, cosines, first = 0, [], None
    for piece in pieces.values():
        here_BX = piece[:, -1]
        if first is None:
            first = here_BX.norm(dim=-1).mean()
        else:
            cosines.append(torch.cosine_similarity(here_BX, so_far, dim=-1).mean().abs().item())
        so_far = so_far + here_BX
    assert sum(cosines) / len(cosines) < 0.35 and max(cosines) < 0.7
    assert so_far.norm(dim=-1).mean() > 3 * first


def test_what_the_lesson_says_of_its_model():
    """Seed 0: attention 2 carries the answer; two others have hardly a vote and are needed."""
    model = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)
    made = swaps.tokens(swaps.swaps(COUNT))
    pieces, other = (contributions(model, x) for x in (made.text_BT, made.swapped_BT))
    cast = {n: v.mean() for n, v in votes(model, pieces, made.answer_B, made.other_B).items()}
    assert max(cast, key=cast.get) == "attention 2"
    for name in ("attention 1", "ffn 0"):
        right_B = answers(model, made.text_BT, {name: ablated}) == made.answer_B
        assert abs(cast[name]) < 0.6 and right_B.float().mean() < 0.5
    said_B = answers(model, made.text_BT, {"attention 2": patched(other["attention 2"])})
    assert (said_B == made.other_B).float().mean() > 0.95
