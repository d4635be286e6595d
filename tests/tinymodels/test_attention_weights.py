"""The weights shown are the weights used: mixing the values with them gives the layer's output."""

import pytest
import torch

from tinymodels.attention.weights import attention_weights
from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform
from tinymodels.step import Step
from tinymodels.transformer import Transformer


def model_with(attention, layers=3):
    config = ModelConfig("m", 31, 14, uniform(layers, attention, Dense(9)), 50)
    model = Transformer(config, seed=2).double().requires_grad_(False)
    for p in model.parameters():
        p.mul_(5)
    return model


def test_weights_reproduce_the_output():
    model = model_with(GQA(6, 3, 10, Rope(10)))
    tokens = torch.randint(31, (2, 13), generator=torch.Generator().manual_seed(1))
    looks, step, x = attention_weights(model, tokens), Step(tokens), model.embed(tokens)
    for layer, weight_BHTS in zip(model.layers, looks):
        torch.testing.assert_close(weight_BHTS.sum(-1), torch.ones(2, 6, 13).double())
        assert (weight_BHTS.triu(1) == 0).all()
        normed = layer.attention_norm(x)
        value = layer.attention.value(normed).unflatten(-1, (3, 10)).repeat_interleave(2, dim=2)
        mixed = torch.einsum("bhts,bshd->bthd", weight_BHTS, value).flatten(-2)
        want, _ = layer.attention(normed, step)
        torch.testing.assert_close(layer.attention.output(mixed), want, rtol=0, atol=1e-10)
        x, _ = layer(x, step)


def test_other_attention_is_refused():
    model = model_with(GQA(6, 3, 10, Rope(10), window=4), layers=1)
    with pytest.raises(ValueError, match="layer 0 is no plain multi-head attention"):
        attention_weights(model, torch.zeros(1, 5, dtype=torch.int64))
