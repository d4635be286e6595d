"""The model as a whole: what it refuses, what it leaves untouched, and the learner's parts."""

import pytest
import torch

from tinymodels.cache import ModelCache
from tinymodels.config import GQA, Dense, ModelConfig, Rope, uniform
from tinymodels.parts import Parts
from tinymodels.presets import tiny_v1, tiny_v2, tiny_v3_2, tiny_v4_1
from tinymodels.transformer import Transformer


@pytest.fixture(scope="module")
def model():
    return Transformer(tiny_v1()).requires_grad_(False)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(1, 0, dtype=torch.int64), "nothing to read"),
        (torch.zeros(0, 3, dtype=torch.int64), "nothing to read"),
        (torch.zeros(3, dtype=torch.int64), "they need \\[batch, tokens\\]"),
        (torch.zeros(1, 3), "torch.float32; they must be a tensor of int64"),
        ([[1, 2]], "list; they must be a tensor"),
        (torch.tensor([[1, 256]]), "run from 1 to 256; the vocabulary has 0 to 255"),
        (torch.tensor([[-1, 2]]), "run from -1 to 2"),
    ],
)
def test_bad_tokens_are_named_and_leave_the_cache(model, tokens, message):
    memory = model.new_cache(1, 5)
    model(torch.tensor([[1, 2]]), memory)
    for call in (lambda: model(tokens, memory), lambda: model(tokens)):
        with pytest.raises(ValueError, match=message):
            call()
    assert memory.length == 2
    assert [c.main.length for c in memory.layers] == [2] * 4


def test_context_beyond_capacity(model):
    memory = model.new_cache(2, 5)
    model(torch.ones(2, 4, dtype=torch.int64), memory)
    with pytest.raises(ValueError, match="4 tokens are cached and 2 more do not fit"):
        model(torch.ones(2, 2, dtype=torch.int64), memory)
    with pytest.raises(ValueError, match="batch of 3; the cache was made for 2"):
        model(torch.ones(3, 1, dtype=torch.int64), memory)
    assert memory.bytes()["global"] == 2 * 4 * 512
    model(torch.ones(2, 1, dtype=torch.int64), memory)  # still usable, to the last row


def test_a_cache_of_another_model_is_refused_and_stays_clean(model):
    tokens = torch.ones(2, 3, dtype=torch.int64)
    for config in (tiny_v1(layers=6), tiny_v1(layers=2), tiny_v2()):
        memory = ModelCache(config, 2, 9)
        with pytest.raises(ValueError, match=f"made for {config.name}"):
            model(tokens, memory)
        assert memory.length == 0 and not memory.interrupted
    with pytest.raises(ValueError, match="cache is str; make one with"):
        model(tokens, "x")
    model(tokens, ModelCache(tiny_v1(), 2, 9))  # an equal config is the same model


@pytest.mark.parametrize("preset", [tiny_v1, tiny_v3_2, tiny_v4_1])
@pytest.mark.parametrize(
    ("storage", "made_in", "used_in", "message"),
    [
        ("packed", torch.float32, torch.float64, "packed rows .* come back as torch.float32, the"),
        ("packed", torch.bfloat16, torch.float32, "come back as torch.bfloat16, the model comp"),
        ("float32", torch.bfloat16, torch.bfloat16, "float32 rows .* computes in torch.bfloat16"),
        ("float64", torch.float32, torch.float32, "float64 rows .* computes in torch.float32"),
    ],
)
def test_a_cache_for_other_numbers_is_refused(preset, storage, made_in, used_in, message):
    model = Transformer(preset()).requires_grad_(False).to(made_in)
    memory, tokens = model.new_cache(2, 5, storage), torch.ones(2, 3, dtype=torch.int64)
    model = model.to(used_in)
    for read in (model, model.prefill):
        with pytest.raises(ValueError, match=message):
            read(tokens, memory)
    assert memory.length == 0 and not memory.interrupted
    assert model(tokens, model.new_cache(2, 5)).dtype is used_in


def test_an_interrupted_pass_cannot_be_continued_by_mistake():
    def stops(*args, **kwargs):
        raise KeyboardInterrupt

    model = Transformer(tiny_v1(), Parts(attention=stops))
    memory = model.new_cache(1, 5)
    tokens = torch.ones(1, 2, dtype=torch.int64)
    with pytest.raises(KeyboardInterrupt):
        model(tokens, memory)
    with pytest.raises(ValueError, match="interrupted"):
        model(tokens, memory)
    memory.reset()
    assert memory.length == 0


def test_own_parts_are_used(model):
    def uniform_attention(query_BTHD, key_BSKD, value_BSKD, **_):
        return query_BTHD * 0

    mine = Transformer(tiny_v1(), Parts(attention=uniform_attention)).requires_grad_(False)
    tokens = torch.tensor([[5, 6, 7]])
    assert mine.parts.own() == ("attention",)
    assert model.parts.own() == ()
    assert not torch.allclose(mine(tokens), model(tokens))


def test_same_seed_same_weights_and_another_seed_others():
    a, b, c = (Transformer(tiny_v1(), seed=s).state_dict() for s in (3, 3, 4))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["embed.weight"], c["embed.weight"])


def test_parameters_are_a_quarter_of_a_million(model):
    count = sum(p.numel() for p in model.parameters())
    # 2 x 256 x 64, and per layer 2 x 64 x 64 + 2 x 64 x 32 + 3 x 64 x 192 + 2 x 64, and 64
    assert count == 2 * 256 * 64 + 4 * (8_192 + 4_096 + 36_864 + 128) + 64 == 229_952


def test_window_is_a_limit_on_what_is_seen():
    """With a window of 5, a token 5 back cannot change the output of one layer."""
    config = ModelConfig(
        "windowed", 11, 12, uniform(1, GQA(6, 3, 2, Rope(2), window=5), Dense(7)), 50
    )
    model = Transformer(config).double().requires_grad_(False)
    tokens = torch.randint(11, (2, 23), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 10] = (other[:, 10] + 1) % 11
    differs = (model(tokens) - model(other)).abs().amax(dim=(0, 2)) > 0
    assert differs.nonzero().flatten().tolist() == [10, 11, 12, 13, 14]
    memory = model.new_cache(2, 23, "float64")
    parts = [model(part, memory) for part in tokens.split([4, 1, 1, 9, 8], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(tokens), rtol=0, atol=1e-10)
    assert memory.layers[0].window.length == 5


def test_kinds_that_are_only_counted_are_refused():
    shared = GQA(6, 3, 2, kv_source=0)
    config = ModelConfig("shared", 11, 12, uniform(1, shared, Dense(7)), 50)
    with pytest.raises(ValueError, match="layer 0: .* can be counted but not run"):
        Transformer(config)


def test_the_package_hands_out_its_two_main_names():
    import tinymodels

    assert tinymodels.Transformer is Transformer
    assert tinymodels.Parts is Parts
    with pytest.raises(AttributeError, match="no attribute 'Transfomer'"):
        tinymodels.Transfomer  # noqa: B018
