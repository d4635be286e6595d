"""The fault of the released decode: where it shows, where it cannot, and that it stays a copy."""

import pytest
import torch

from tinymodels import checkpoints, data
from tinymodels.presets import tiny_v4, tiny_v4_1
from tinymodels.stale_keys import with_stale_keys
from tinymodels.transformer import Transformer


def random_model(seed):
    model = Transformer(tiny_v4_1(), seed=seed).double().requires_grad_(False)
    for p in model.parameters():
        if p.dim() > 1:
            p.mul_(6)
    return model


def gaps(model, whole, tokens):
    cache = model.new_cache(*tokens.shape, "float64")
    steps = torch.cat([model(part, cache) for part in tokens.split(1, dim=1)], dim=1)
    return (whole(tokens) - steps).abs().amax((0, 2))


@pytest.mark.parametrize("seed", [0, 1])
def test_decode_leaves_prefill_when_an_open_group_has_more_entries_than_places(seed):
    """Token 18 is the first: 9 entries of 2 tokens, 8 places, one group open."""
    model = random_model(seed)
    tokens = torch.randint(256, (2, 41), generator=torch.Generator().manual_seed(seed))
    assert gaps(model, model, tokens).max() < 1e-10
    broken = gaps(with_stale_keys(model), model, tokens)
    assert broken[:18].max() < 1e-10 and broken[18:].max() > 1e-2
    assert gaps(model, model, tokens).max() < 1e-10  # the model itself is left as it was


def test_one_pass_and_a_second_text_are_untouched():
    model = random_model(2)
    broken = with_stale_keys(model)
    tokens = torch.randint(256, (2, 37), generator=torch.Generator().manual_seed(2))
    assert torch.equal(broken(tokens), model(tokens))
    first = gaps(broken, model, tokens)
    assert torch.equal(gaps(broken, model, tokens), first)  # nothing is left of the text before


def test_a_model_without_such_groups_is_named():
    with pytest.raises(ValueError, match="tiny_v4 owns no groups of several tokens"):
        with_stale_keys(Transformer(tiny_v4()))


def test_no_word_is_lost_and_logits_are_off_on_the_trained_model():
    model = checkpoints.load("tiny_v4_1-recall-seed0").requires_grad_(False)
    batch = data.batch("recall", 0, 0, data.Stage(4, 256), held_out=True)
    broken, asked = with_stale_keys(model), batch.targets != data.IGNORED
    cache = broken.new_cache(4, 256, "float32")
    parts = batch.tokens.split([200] + [1] * 56, dim=1)
    said = torch.cat([broken(part, cache) for part in parts], dim=1)
    right = (said.argmax(-1) == batch.targets)[:, 200:][asked[:, 200:]]
    assert right.float().mean() > 0.97
    exact = checkpoints.load("tiny_v4_1-recall-seed0").double().requires_grad_(False)
    off = gaps(with_stale_keys(exact), exact, batch.tokens[:2, :40])
    assert off[:18].max() < 1e-10 and off.max() > 0.5
