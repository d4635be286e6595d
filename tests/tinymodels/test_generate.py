"""Writing with the cache equals writing without; sampling follows its settings."""

import pytest
import torch

from tinymodels.generate import generate_without_cache, next_token_probabilities, stream
from tinymodels.presets import tiny_v1
from tinymodels.transformer import Transformer


@pytest.fixture(scope="module")
def model():
    model = Transformer(tiny_v1(), seed=1)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4 if p.dim() > 1 else 1)
    return model.requires_grad_(False)


PROMPT = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def test_greedy_with_the_cache_is_greedy_without(model):
    slow = generate_without_cache(model, PROMPT, 17)
    assert torch.equal(model.generate(PROMPT, 17, storage="float32"), slow)
    assert slow.shape == (2, 22)
    assert len(set(slow[0].tolist())) > 5  # the text is no constant


def test_each_token_is_run_once(model):
    memory = model.new_cache(2, 21)
    out = model.generate(PROMPT, 17, cache=memory)
    assert out.shape == (2, 22)
    assert memory.length == 21  # the last token written has not been read


def test_stream_yields_as_it_goes_and_continues_a_cache(model):
    memory = model.new_cache(2, 40, "float32")
    first = torch.stack(list(stream(model, PROMPT, 3, cache=memory)), dim=1)
    assert memory.length == 7
    more = torch.stack(list(stream(model, first[:, -1:], 4, cache=memory)), dim=1)
    assert torch.equal(
        torch.cat([PROMPT, first, more], 1), generate_without_cache(model, PROMPT, 7)
    )


def test_seeds(model):
    a, b, c = (model.generate(PROMPT, 12, temperature=1.0, seed=s) for s in (5, 5, 6))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_new_zero_gives_the_prompt(model):
    assert torch.equal(model.generate(PROMPT, 0), PROMPT)


def test_temperature_and_top_p_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    same = next_token_probabilities(logits)
    torch.testing.assert_close(same, torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    top = next_token_probabilities(logits, top_p=0.8)
    torch.testing.assert_close(top, torch.tensor([[0.625, 0.375, 0.0, 0.0]]))
    smallest = next_token_probabilities(logits, top_p=1e-6)
    torch.testing.assert_close(smallest, torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    cold = next_token_probabilities(logits, temperature=0.5)
    want = torch.tensor([[0.25, 0.09, 0.0225, 0.0025]]) / 0.365
    torch.testing.assert_close(cold, want)
    tie = next_token_probabilities(torch.tensor([[1.0, 2.0, 2.0]]), temperature=0)
    assert tie.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0}, "top_p is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_p": None}, "top_p is None"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"new": -1}, "new is -1"),
        ({"new": 2.0}, "new is 2.0"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_read(model, settings, message):
    memory = model.new_cache(2, 30)
    with pytest.raises(ValueError, match=message):
        stream(model, PROMPT, **({"new": 3, "cache": memory} | settings))
    assert memory.length == 0


@pytest.mark.parametrize("temperature", [1e-3, 1e-39, 5e-324])
def test_the_coldest_temperature_takes_the_likeliest(model, temperature):
    cold = model.generate(PROMPT, 3, temperature=temperature)
    assert torch.equal(cold, model.generate(PROMPT, 3))


def test_no_room_is_said_before_anything_is_read(model):
    memory = model.new_cache(2, 6)
    with pytest.raises(ValueError, match="do not fit in the capacity of 6"):
        model.generate(PROMPT, 3, cache=memory)
    assert memory.length == 0
