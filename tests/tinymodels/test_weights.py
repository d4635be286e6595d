"""Loading released weights: whole stacks of experts, buffers, and every refusal."""

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is a test extra")

import transformers  # noqa: E402

from tinymodels import convert  # noqa: E402
from tinymodels.transformer import Transformer  # noqa: E402
from tinymodels.weights import rename  # noqa: E402

from .deepseek_pairs import CASES, pair  # noqa: E402

MLP1 = "model.layers.1.mlp"


def changed(case: str, change) -> tuple[str, bool]:
    """(the error of loading what `change` made of the released weights, whether ours changed)."""
    theirs, ours = pair(case, torch.float32)
    before = {k: v.clone() for k, v in ours.state_dict().items()}
    state = {k: v + 1 for k, v in theirs.state_dict().items()}
    change(state)
    with pytest.raises(ValueError) as error:
        convert.load(ours, state)
    return str(error.value), any(
        not torch.equal(before[k], v) for k, v in ours.state_dict().items()
    )


def swap(name: str, shape: tuple[int, ...]):
    return lambda state: state.update({name: torch.zeros(shape)})


def without(name: str):
    return lambda state: state.pop(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(f"{MLP1}.gate.e_score_correction_bias"), "layers.1.ffn.router.bias: missing"),
        (without(f"{MLP1}.gate.weight"), "layers.1.ffn.router.gate.weight: missing"),
        (without(f"{MLP1}.experts.down_proj"), "layers.1.ffn.experts.down: missing"),
        (without(f"{MLP1}.experts.gate_up_proj"), "layers.1.ffn.experts.gate_up: missing"),
        (
            swap(f"{MLP1}.experts.gate_up_proj", (15, 60, 26)),
            "gate_up_proj: shape (15, 60, 26), but layers.1.ffn.experts.gate_up has (15, 26, 60)",
        ),
        (
            swap(f"{MLP1}.experts.down_proj", (14, 60, 13)),
            "down_proj: shape (14, 60, 13), but layers.1.ffn.experts.down has (15, 60, 13)",
        ),
        (
            swap(f"{MLP1}.gate.e_score_correction_bias", (14,)),
            "shape (14,), but layers.1.ffn.router.bias has (15,)",
        ),
        (swap("model.layers.0.mlp.experts.down_proj", (15, 60, 13)), "no layers.0.ffn.experts"),
        (swap(f"{MLP1}.experts.15.down_proj.weight", (60, 13)), "no layers.1.ffn.experts.down[15]"),
        (swap("model.layers.3.mlp.gate.weight", (15, 60)), "no layers.3.ffn.router.gate.weight"),
        (
            swap(f"{MLP1}.experts.3.up_proj.weight", (13, 60)),
            "experts.gate_up[3], up is there twice",
        ),
        (swap("model.layers.1.self_attn.indexer.wk.weight", (10, 60)), "attention.indexer.key"),
        (swap(f"{MLP1}.router.weight", (3,)), "router.weight: not a name known from transformers"),
    ],
)
def test_one_fault_is_named_once_and_nothing_is_changed(change, message):
    error, touched = changed("v3 groups", change)
    assert message in error and not touched
    assert error.count("\n") == 1, error


def test_an_indexer_is_asked_for_whole():
    start = "model.layers.2.self_attn.indexer.k_norm"
    error, touched = changed("v32 small", without(f"{start}.bias"))
    assert "layers.2.attention.indexer.key_norm.bias: missing" in error and not touched


def test_buffers_and_every_expert_are_copied():
    theirs, ours = pair("v3 groups", torch.float32)
    state, mine = theirs.state_dict(), ours.state_dict()
    stack = state[f"{MLP1}.experts.gate_up_proj"]
    for e in (0, 7, 14):
        gate, up, down = ours.layers[1].ffn.experts.matrices(e)
        assert torch.equal(gate, stack[e, :13]) and torch.equal(up, stack[e, 13:])
        assert torch.equal(down, state[f"{MLP1}.experts.down_proj"][e])
    bias = state[f"{MLP1}.gate.e_score_correction_bias"]
    assert bias.std() > 0.1 and torch.equal(mine["layers.1.ffn.router.bias"], bias)


def one_by_one(state):
    """The same weights as released files name them: every expert by itself."""
    apart = {}
    for name, value in state.items():
        if name.endswith("experts.gate_up_proj"):
            for e, (gate, up) in enumerate(v.chunk(2) for v in value):
                apart[name.replace("gate_up_proj", f"{e}.gate_proj.weight")] = gate
                apart[name.replace("gate_up_proj", f"{e}.up_proj.weight")] = up
        elif name.endswith("experts.down_proj"):
            for e, down in enumerate(value):
                apart[name.replace("down_proj", f"{e}.down_proj.weight")] = down
        else:
            apart[name] = value
    return apart


def test_released_files_name_every_expert_by_itself():
    theirs, ours = pair("v3 groups", torch.float32)
    again = Transformer(ours.config, seed=5)
    convert.load(again, one_by_one(theirs.state_dict()))
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in ours.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            without(f"{MLP1}.experts.3.up_proj.weight"),
            "layers.1.ffn.experts.gate_up[3], up: missing",
        ),
        (
            without(f"{MLP1}.experts.14.down_proj.weight"),
            "layers.1.ffn.experts.down[14], down: missing",
        ),
        (
            swap(f"{MLP1}.experts.5.gate_proj.weight", (14, 60)),
            "shape (14, 60), but layers.1.ffn.experts.gate_up[5], gate has (13, 60)",
        ),
    ],
)
def test_a_faulty_expert_is_named_alone(change, message):
    theirs, ours = pair("v3 groups", torch.float32)
    before = ours.layers[1].ffn.experts.gate_up.clone()
    state = {k: v + 1 for k, v in one_by_one(theirs.state_dict()).items()}
    change(state)
    with pytest.raises(ValueError) as error:
        convert.load(ours, state)
    assert message in str(error.value) and str(error.value).count("\n") == 1
    assert torch.equal(ours.layers[1].ffn.experts.gate_up, before)


def test_a_tied_head_is_one_with_the_embedding():
    theirs, ours = pair("v2 groups", torch.float32, tie_word_embeddings=True)
    assert ours.config.tied and ours.head.weight is ours.embed.weight
    state = theirs.state_dict()
    convert.load(ours, {k: v for k, v in state.items() if k != "lm_head.weight"})
    assert torch.equal(ours.head.weight, state["model.embed_tokens.weight"])
    with pytest.raises(ValueError, match="head.weight differs from embed.weight"):
        convert.load(ours, state | {"lm_head.weight": state["lm_head.weight"] + 1})


def test_each_name_leads_to_one_place():
    for case in CASES:
        names = list(one_by_one(pair(case, torch.float32)[0].state_dict()))
        ours = [rename(n, "transformers") for n in names]
        assert None not in ours and len(set(ours)) == len(ours)


@torch.no_grad()
def test_llama_is_built_from_its_configuration():
    """V1: the dictionary of a configuration, and the same logits."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=60,
        intermediate_size=52,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=10,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        max_position_embeddings=99,
        initializer_range=0.3,
        attn_implementation="eager",
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    ours = Transformer(convert.config_from(config.to_dict()))
    convert.load(ours, theirs.state_dict())
    tokens = torch.randint(97, (2, 23))
    want = theirs(tokens).logits
    scale = want.abs().max()
    torch.testing.assert_close(ours(tokens) / scale, want / scale, rtol=0, atol=1e-5)


def test_what_is_no_tensor_is_named():
    listed = {"model.norm.weight": [1.0, 2.0]}
    message, moved = changed(next(iter(CASES)), lambda state: state.update(listed))
    assert "model.norm.weight: a list, not a tensor" in message and not moved
