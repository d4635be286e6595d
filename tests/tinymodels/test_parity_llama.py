"""Promise 5 for V1: the same weights in transformers' Llama give the same logits.

DeepSeek 67B is released as a Llama. Attention runs eager there, so that no fused kernel rounds
differently, and in float64 throughout.
"""

import pytest
import torch

from tinymodels import convert
from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform
from tinymodels.transformer import Transformer

from .fp64_reference import float64_throughout

transformers = pytest.importorskip("transformers", reason="transformers is a test extra")

from transformers.models.llama import modeling_llama  # noqa: E402

SHAPES = [
    dict(heads=6, kv_heads=3, dim=10, width=60, ffn=52, layers=3, vocab=97, theta=1e4, bias=False),
    dict(heads=5, kv_heads=5, dim=14, width=45, ffn=37, layers=2, vocab=83, theta=5e5, bias=False),
    dict(heads=7, kv_heads=1, dim=6, width=35, ffn=61, layers=5, vocab=101, theta=1e4, bias=False),
]


def pair(shape, dtype, seed=0):
    """The same random model twice: theirs and ours."""
    torch.manual_seed(seed)
    theirs_config = transformers.LlamaConfig(
        vocab_size=shape["vocab"],
        hidden_size=shape["width"],
        intermediate_size=shape["ffn"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        head_dim=shape["dim"],
        rope_parameters={"rope_type": "default", "rope_theta": shape["theta"]},
        rms_norm_eps=1e-6,
        max_position_embeddings=512,
        initializer_range=0.3,
        attn_implementation="eager",
        tie_word_embeddings=False,
    )
    theirs = transformers.LlamaForCausalLM(theirs_config).to(dtype).eval()
    if dtype is torch.float64:  # its frequencies are made in float32, before .to()
        exponent = torch.arange(0, shape["dim"], 2).double() / shape["dim"]
        theirs.model.rotary_emb.inv_freq = shape["theta"] ** -exponent
    attention = GQA(
        shape["heads"],
        shape["kv_heads"],
        shape["dim"],
        rope=Rope(shape["dim"], shape["theta"], pairs="half"),
    )
    layers = uniform(shape["layers"], attention, Dense(shape["ffn"]))
    config = ModelConfig("llama", shape["vocab"], shape["width"], layers, 512, norm_eps=1e-6)
    ours = Transformer(config).to(dtype).requires_grad_(False)
    convert.load(ours, theirs.state_dict(), source="transformers")
    return theirs, ours


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", [1, 2, 29])
@torch.no_grad()
def test_prefill(shape, length):
    theirs, ours = pair(shape, torch.float64)
    tokens = torch.randint(shape["vocab"], (2, length))
    with float64_throughout(modeling_llama):
        want = theirs(tokens, use_cache=False).logits
    assert want.std() > 0.3
    torch.testing.assert_close(ours(tokens), want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_decode_after_a_prompt(shape):
    theirs, ours = pair(shape, torch.float64, seed=1)
    tokens = torch.randint(shape["vocab"], (2, 23))
    memory, past = ours.new_cache(2, 23, "float64"), None
    for part in tokens.split([11, *[1] * 12], dim=1):
        with float64_throughout(modeling_llama):
            out = theirs(part, cache=past, use_cache=True)
        past = out.past_key_values
        torch.testing.assert_close(ours(part, memory), out.logits, rtol=0, atol=1e-10)


@torch.no_grad()
def test_fp32():
    theirs, ours = pair(SHAPES[0], torch.float32)
    tokens = torch.randint(97, (2, 31))
    want = theirs(tokens).logits
    scale = want.abs().max()  # 1e-5 of the largest logit
    torch.testing.assert_close(ours(tokens) / scale, want / scale, rtol=0, atol=1e-5)


def test_every_problem_is_named_and_nothing_is_changed():
    theirs, ours = pair(SHAPES[0], torch.float32)
    before = {k: v.clone() for k, v in ours.state_dict().items()}
    state = dict(theirs.state_dict())
    del state["model.norm.weight"]
    state["model.layers.0.mlp.up_proj.weight"] = torch.zeros(3, 4)
    state["model.layers.9.mlp.up_proj.weight"] = torch.zeros(52, 60)
    state["model.rotary.weight"] = torch.zeros(3)
    with pytest.raises(ValueError) as error:
        convert.load(ours, state)
    for part in (
        "norm.weight: missing",
        "model.layers.0.mlp.up_proj.weight: shape (3, 4), but layers.0.ffn.up.weight has (52, 60)",
        "this model has no layers.9.ffn.up.weight",
        "model.rotary.weight: not a name known from transformers",
    ):
        assert part in str(error.value)
    assert str(error.value).count("missing") == 1
    assert all(torch.equal(before[k], v) for k, v in ours.state_dict().items())
    with pytest.raises(ValueError, match="source is 'gguf'"):
        convert.load(ours, {"x": torch.zeros(1)}, source="gguf")
