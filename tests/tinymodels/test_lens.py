"""The logit lens reads the real stream, and its rank and entropy are what they are said to be."""

import math

import numpy as np
import pytest
import torch

from tinymodels import lens, tokenizer
from tinymodels.config import GQA, Dense, HyperConnections, ModelConfig, Rope, uniform
from tinymodels.transformer import Transformer


def small(residual=None, seed=3):
    layers = uniform(3, GQA(6, 3, 10, rope=Rope(10)), Dense(17))
    config = ModelConfig("small", 256, 30, layers, context=60, residual=residual)
    model = Transformer(config, seed=seed).requires_grad_(False)
    for p in model.parameters():
        p.mul_(3)
    return model.eval()


def some_tokens(seed=1):
    return torch.randint(256, (2, 11), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("residual", [None, HyperConnections(3)])
def test_the_last_guess_is_the_models_own(residual):
    model, tokens = small(residual), some_tokens()
    guesses = lens.guesses(model, tokens)
    assert guesses.shape == (4, 2, 11, 256)
    assert torch.equal(guesses[-1], model(tokens))
    assert not torch.allclose(guesses[-2], guesses[-1], atol=1e-3)


def test_each_stream_is_what_leaves_that_layer():
    """Caught by hooks on the layers, not computed the same way again."""
    model, tokens, caught = small(), some_tokens(), []
    hooks = [
        layer.register_forward_hook(lambda *a: caught.append(a[2][0])) for layer in model.layers
    ]
    model(tokens)
    for hook in hooks:
        hook.remove()
    streams = lens.streams(model, tokens)
    assert torch.equal(streams[0], model.embed(tokens))
    for seen, want in zip(streams[1:], caught, strict=True):
        assert torch.equal(seen, want)


def test_prompts_of_any_length_keep_their_order():
    model = small()
    prompts = ["Ada has the key.", "Ben", "It rains. Ada", "Cora"]
    ends = lens.at_the_end(model, prompts)
    for i, prompt in enumerate(prompts):
        alone = lens.streams(model, torch.tensor([tokenizer.encode(prompt)]))[:, 0, -1]
        torch.testing.assert_close(ends[:, i], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_rank_is_the_place_in_the_sorted_list(seed):
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, 23, generator=draw)
    token = torch.randint(23, (3, 5), generator=draw)
    ranks = lens.rank(logits, token)
    for place in np.ndindex(3, 5):
        order = np.argsort(-logits[place].numpy()).tolist()
        assert ranks[place] == 1 + order.index(int(token[place]))


def test_tokens_that_are_level_share_the_better_rank():
    assert lens.rank(torch.tensor([[2.0, 2.0, 3.0]]), torch.tensor([1])).tolist() == [2]


def test_entropy_in_bits():
    even = torch.zeros(2, 32)
    torch.testing.assert_close(lens.entropy(even), torch.full((2,), 5.0))
    sure = torch.tensor([[90.0, 0.0, 0.0]])
    assert lens.entropy(sure).item() < 1e-6
    p = np.array([0.5, 0.25, 0.125, 0.125])
    found = lens.entropy(torch.tensor(np.log(p) + 7.0))
    assert math.isclose(found.item(), 1.75, abs_tol=1e-9)


def test_following_an_answer_agrees_with_the_guesses():
    model = small()
    asked = [("Ada has the", "key"), ("Where is Ben? Ben is in the", "park")]
    ranks, undecided = lens.follow(model, asked)
    assert ranks.shape == undecided.shape == (4, 2)
    for n, (prompt, answer) in enumerate(asked):
        logits = lens.guesses(model, torch.tensor([tokenizer.encode(prompt)]))[:, 0, -1]
        for layer in range(4):
            above = (logits[layer] > logits[layer, tokenizer.word_id(answer)]).sum()
            assert ranks[layer, n] == above + 1
    with pytest.raises(ValueError, match="'keys' is no word"):
        lens.follow(model, [("Ada has the", "keys")])


def test_wrong_tokens_are_refused():
    with pytest.raises(ValueError, match="the vocabulary has 0 to 255"):
        lens.streams(small(), torch.full((1, 3), 256))
