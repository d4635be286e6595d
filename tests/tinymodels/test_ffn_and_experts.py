"""What chapter 04 says of FFNs and experts, on the shipped models."""

import pytest
import torch

from tinymodels import checkpoints, data, ledger, tokenizer
from tinymodels.cache import allocate
from tinymodels.config import MoE
from tinymodels.ffn import swiglu
from tinymodels.moe import Router
from tinymodels.presets import tiny_v2, tiny_v3
from tinymodels.step import Step
from tinymodels.widgets.router_load import record
from tinymodels.world import fixed_facts

SEEDS = [name for name in checkpoints.available() if name.startswith("tiny_v1-text-")]
each_seed = pytest.mark.parametrize("name", SEEDS)
FACTS = fixed_facts()


def tokens_of(text):
    return torch.tensor([tokenizer.encode(text)])


@torch.no_grad()
def push(model, layer):
    """How much each unit pushes the answer of each fixed fact: [facts, units]."""
    ffn, entered = model.layers[layer].ffn, []
    hook = ffn.register_forward_pre_hook(lambda _, x: entered.append(x[0][0, -1]))
    for fact in FACTS:
        model(tokens_of(fact.begin()))
    hook.remove()
    x_NX = torch.stack(entered)
    said_NF = swiglu(ffn.gate(x_NX), ffn.up(x_NX))
    writes_VF = (model.head.weight * model.norm.weight)[: tokenizer.VOCABULARY] @ ffn.down.weight
    writes_VF = writes_VF - writes_VF.mean(0)
    answers = torch.tensor([tokenizer.word_id(fact.value) for fact in FACTS])
    return said_NF * writes_VF[answers], writes_VF, said_NF


# ---------------------------------------------------------------- FFN


@each_seed
def test_an_ffn_sees_each_token_alone_and_attention_does_not(name):
    model = checkpoints.load(name).requires_grad_(False)
    tokens_BT = tokens_of("Ada has the key. Ben has the lamp.")
    x_BTX, step = model.layers[0](model.embed(tokens_BT), Step(tokens_BT))
    order = torch.tensor([3, 1, 4, 10, 5, 9, 2, 6, 8, 7, 0])
    for layer in model.layers:
        ffn, look = layer.ffn(x_BTX), layer.attention(x_BTX, step)[0]
        assert (layer.ffn(x_BTX[:, order]) - ffn[:, order]).abs().max() < 1e-4
        assert (layer.ffn(x_BTX[:, 7:8]) - ffn[:, 7:8]).abs().max() < 1e-4
        turned = layer.attention(x_BTX[:, order], step)[0]
        assert (turned - look[:, order]).abs().max() > 0.01


@each_seed
def test_the_last_ffn_pushes_the_answers_of_fixed_facts(name):
    push_NF, _, _ = push(checkpoints.load(name), layer=3)
    assert (push_NF.sum(-1) > 2).float().mean() > 0.8
    strongest = push_NF.amax(-1) / push_NF.clamp(min=0).sum(-1)
    assert strongest.mean() < 0.6  # no fact has a unit of its own: many push together


def test_unit_21_of_the_first_seed_is_about_ben():
    push_NF, writes_VF, said_NF = push(checkpoints.load("tiny_v1-text-seed0"), layer=3)
    begins = [fact.begin() for fact in FACTS]
    assert push_NF[begins.index("Ben is a")].argmax() == 21
    words = tokenizer.pieces(writes_VF[:, 21].topk(3).indices.tolist())
    assert {word.strip() for word in words} == {"Fernhill", "dog", "baker"}
    top = [FACTS[n].subject for n in said_NF[:, 21].topk(3).indices.tolist()]
    assert top == ["Ben"] * 3


# ---------------------------------------------------------------- experts


@pytest.fixture(scope="module")
def batches():
    """What enters the FFN of layer 2 for batches of held-out text."""
    model, got = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False), []
    hook = model.layers[2].ffn.register_forward_pre_hook(
        lambda _, x: got.append(x[0].flatten(0, -2))
    )
    for n in range(41):
        model(data.batch("text", 0, n, data.Stage(4, 256), held_out=True).tokens)
    hook.remove()
    return got


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_bias_evens_out_what_real_text_makes_uneven(batches, seed):
    config = MoE(24, 16, 2, scoring="sqrtsoftplus", selection_bias=True, normalise=True)
    router = Router(64, config)
    draw = torch.Generator().manual_seed(seed)
    router.gate.weight.data.copy_(torch.randn(16, 64, generator=draw) / 4)
    balance = record(router, batches)
    late = {g: sum(m.busiest() for m in run[-10:]) / 10 for g, run in balance.runs}
    assert late[0.0] > 1.8
    assert late[0.01] < 0.8 * late[0.0] and late[0.03] < 0.8 * late[0.0]
    assert late[0.001] > late[0.01]  # forty steps of a thousandth are too few
    assert late[0.1] > min(late[0.01], late[0.03])  # and steps of a tenth overshoot
    assert balance.moments(0.03)[-1].moved > 0.02


@pytest.mark.parametrize("preset", [tiny_v2, tiny_v3])
def test_experts_cost_parameters_and_no_byte_of_cache(preset):
    from dataclasses import replace

    def with_experts(factor):
        config = preset()
        layers = tuple(
            replace(layer, ffn=replace(layer.ffn, experts=factor * layer.ffn.experts))
            if isinstance(layer.ffn, MoE)
            else layer
            for layer in config.layers
        )
        return config.with_(layers=layers)

    few, many = with_experts(1), with_experts(3)
    assert ledger.parameters(many) > 1.5 * ledger.parameters(few)
    assert ledger.rate(many) == ledger.rate(few)
    assert allocate(many, 101).bytes() == allocate(few, 101).bytes()


def test_ffn_shares_and_active_parameters_as_the_chapter_says_them():
    shares = {name: round(100 * ledger.ffn_share(name), 1) for name in
              ("deepseek-67b", "deepseek-v3", "deepseek-v4.1-flash")}  # fmt: skip
    assert shares == {"deepseek-67b": 76.2, "deepseek-v3": 98.0, "deepseek-v4.1-flash": 98.8}
    assert round(ledger.active("deepseek-v4.1-flash") / 1e9, 1) == 15.8
    assert round(ledger.parameter_parts("deepseek-v4.1-flash")["ffn"] / 1e9) == 545
