"""What real files carry that has nothing to do with the bytes must not stop them being counted."""

import json

import pytest

from tinymodels import ledger
from tinymodels.convert import config_from
from tinymodels.families import load


def shapes(layers: int, heads: int, kv_heads: int | None, width: int, **more) -> dict:
    return dict(
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        hidden_size=width, **more,
    )  # fmt: skip


def block(share: int | None, **more) -> dict:
    rest = dict(num_sink_tokens=None, sparsify=None, window_length=None)
    return {"attention": {"n_heads_in_group": share, **rest, **more}, "ffn": {"ffn_mult": 2.6}}


NAS = dict(model_type="nemotron-nas", rope_scaling={"rope_type": "llama3", "factor": 8.0})
OLMO1 = dict(model_type="hf_olmo", d_model=4096, n_heads=32, n_layers=32, max_sequence_length=2048)
LATENT = shapes(
    27, 16, 16, 2048, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
    q_lora_rank=None, intermediate_size=10944, moe_intermediate_size=1408, n_routed_experts=64,
    num_experts_per_tok=6,
)  # fmt: skip
GLM4V = shapes(40, 32, 2, 4096, model_type="glm4v", vision_config={"hidden_size": 1536})
OMNI = shapes(
    48, 32, 4, 2048, model_type="qwen3_omni_moe_text", head_dim=128, sliding_window=None,
    use_sliding_window=False,
)  # fmt: skip

# name: (values, bytes a token in bf16)
RATES = {
    "nemotron-super": (
        shapes(
            6, 64, None, 8192, **NAS, block_configs=[
                block(8), block(None, no_op=True), block(16), block(None, replace_with_linear=True),
                block(8, no_op=False), block(8)]),
        3 * 2 * 8 * 128 * 2 + 2 * 4 * 128 * 2,
    ),
    "olmo-7b, first files": (OLMO1, 32 * 2 * 4096 * 2),
    "olmo, one kv head": ({**OLMO1, "multi_query_attention": True}, 32 * 2 * 128 * 2),
    "olmo, kv heads": ({**OLMO1, "n_kv_heads": 8, "multi_query_attention": None}, 131_072),
    "phi-3-small": (
        shapes(32, 32, 8, 4096, model_type="phi3small", dense_attention_every_n_layers=2,
               blocksparse_num_local_blocks=16, rope_embedding_base=1_000_000),
        32 * 4096,
    ),
    "glm-4.1v, flat": (GLM4V, 40 * 2 * 2 * 128 * 2),
    "glm-4.5v, flat": (
        shapes(46, 96, 8, 4096, model_type="glm4v_moe", head_dim=128), 46 * 4096,
    ),
    "qwen3-omni": (
        {"model_type": "qwen3_omni_moe", "thinker_config": {
            "model_type": "qwen3_omni_moe_thinker", "text_config": OMNI}},
        48 * 2 * 4 * 128 * 2,
    ),
    "llama-3.2-11b-vision": (
        {"model_type": "mllama", "text_config": shapes(
            40, 32, 8, 4096, model_type="mllama_text_model",
            cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38])},
        32 * 4096,
    ),
    "phi-3.5-vision": (
        shapes(32, 32, 32, 3072, model_type="phi3_v", sliding_window=None), 32 * 2 * 3072 * 2,
    ),
    "santacoder": (
        dict(model_type="gpt2", n_embd=2048, n_head=16, n_layer=24, n_inner=8192,
             attention_head_type="multiquery"),
        24 * 2 * 128 * 2,
    ),
    "phi-2, first files": (
        dict(model_type="phi-msft", n_embd=2560, n_head=32, n_head_kv=None, n_layer=32),
        32 * 2 * 2560 * 2,
    ),
    "phi, fewer kv heads": (
        dict(model_type="phi-msft", n_embd=2560, n_head=32, n_head_kv=8, n_layer=32),
        32 * 2 * 8 * 80 * 2,
    ),
    "gemma 4 sees its images both ways": (
        shapes(12, 6, 3, 96, model_type="gemma4_text", head_dim=14, global_head_dim=22,
               sliding_window=7, use_bidirectional_attention="vision"),
        2 * 2 * 3 * 22 * 2,
    ),
    "nemotron-h, first files": (
        shapes(3, 24, 3, 3000, model_type="nemotron_h", attention_head_dim=96,
               hybrid_override_pattern="M*-", mamba_num_heads=6, mamba_head_dim=10, n_groups=2,
               ssm_state_size=14),
        2 * 3 * 96 * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RATES)
def test_rates(name):
    values, rate = RATES[name]
    assert ledger.rate(config_from(values)) == rate


def test_a_stated_head_dim_under_its_other_name_is_no_default():
    values, _ = RATES["nemotron-h, first files"]
    assert not any(note.startswith("head_dim") for note in config_from(values).notes)
    with pytest.raises(ValueError, match="head_dim is 64 but attention_head_dim is 96"):
        config_from({**values, "head_dim": 64})


@pytest.mark.parametrize("family, rope", [("deepseek_v2", "linear"), ("deepseek_v3", "dynamic")])
def test_a_rope_that_is_not_described_is_counted_and_not_built(family, rope):
    scaled = {**LATENT, "model_type": family, "rope_scaling": {"type": rope, "factor": 4.0}}
    config = config_from(scaled)
    assert ledger.rate(config) == 27 * 576 * 2
    assert any(rope in note for note in config.notes)
    assert all(layer.ffn is None for layer in config.layers)
    assert config_from({**scaled, "rope_scaling": None}).layers[0].ffn is not None


CLA = shapes(10, 12, 4, 96, model_type="hunyuan", head_dim=14, use_cla=True, cla_share_factor=3)


@pytest.mark.parametrize("family", ["hunyuan", "hunyuan_v1_moe", "hunyuan_v1_dense"])
def test_layers_that_read_the_rows_of_an_earlier_one(family):
    lines = ledger.per_layer(config_from({**CLA, "model_type": family}), 7)
    assert [x["owner"] for x in lines] == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9]
    assert [x["main"] for x in lines] == [7 * 224, 0, 0] * 3 + [7 * 224]
    for whole in (dict(use_cla=False), dict(cla_share_factor=None), dict(cla_share_factor=1)):
        assert ledger.rate(config_from({**CLA, **whole, "model_type": family})) == 10 * 224
    with pytest.raises(ValueError, match="use_mla is true"):
        config_from({**CLA, "use_mla": True})


def test_a_nested_model_that_says_its_architecture_only():
    inside = shapes(12, 10, 10, 1280, architectures=["DeepseekV2ForCausalLM"], use_mla=False)
    around = {"model_type": "deepseek_vl_v2", "architectures": ["DeepseekOCRForCausalLM"]}
    assert ledger.rate(config_from({**around, "language_config": inside})) == 12 * 2 * 1280 * 2
    for unknown in (dict(model_type="other"), dict(architectures=["Other"])):
        with pytest.raises(ValueError, match="is no architecture known here"):
            config_from({**around, "language_config": {**inside, **unknown}})


@pytest.mark.parametrize(
    "model_type, sentence",
    [
        ("lama", "nearest: llama"),
        ("qwen3_mo", "nearest: qwen3_moe"),
        ("xyzzy", 'read with "model_type": "llama"'),
        ("rwkv", "state of fixed size"),
        ("rwkv7", "state of fixed size"),
        ("xlstm", "state of fixed size"),
    ],
)
def test_architectures_that_are_not_read(model_type, sentence):
    with pytest.raises(ValueError, match=sentence) as refused:
        config_from({**DECODER, "model_type": model_type}, "given.json")
    text = str(refused.value)
    assert text.startswith(f"given.json: {model_type!r} ") and len(text) < 300


AROUND = dict(
    hidden_size=1024, max_position_embeddings=512, rms_norm_eps=1e-6, intermediate_size=7,
    rope_theta=5.0, rope_scaling={"type": "default"}, attention_bias=True, vocab_size=9,
)  # fmt: skip
INSIDE = shapes(
    36, 32, 8, 4096, model_type="llama", head_dim=128, max_position_embeddings=40_960,
    rms_norm_eps=1e-5, intermediate_size=12_288, rope_theta=1e6, attention_bias=False,
    rope_scaling={"rope_type": "llama3", "factor": 8.0}, vocab_size=100,
)  # fmt: skip


@pytest.mark.parametrize("name", AROUND)
def test_a_wrapper_has_values_of_its_own(name):
    config = config_from({name: AROUND[name], "model_type": "wrapper", "llm_config": INSIDE})
    assert ledger.rate(config) == 36 * 4096
    assert (config.width, config.context, config.vocab) == (4096, 40_960, 100)


@pytest.mark.parametrize(
    "name, value",
    [("head_dim", 64), ("num_hidden_layers", 35), ("num_key_value_heads", 4), ("hidden_size", 512)],
)
def test_what_the_bytes_depend_on_must_agree(name, value):
    inside = {k: v for k, v in INSIDE.items() if k != "head_dim" or name == "head_dim"}
    with pytest.raises(ValueError, match=f"{name} inside is .* but {name} around it is {value}"):
        config_from({name: value, "model_type": "wrapper", "text_config": inside}, "given.json")


def test_infinity_where_mamba_files_write_it(tmp_path):
    file = tmp_path / "nemotron.json"
    values, rate = RATES["nemotron-h, first files"]
    text = json.dumps({**values, "time_step_limit": [0.0, float("inf")]})
    assert "Infinity" in text
    file.write_text(text)
    assert ledger.rate(load(file)) == rate
    for other in ('"time_step_limit": [NaN, 1.0]', '"rope_theta": Infinity', '"a": [[Infinity]]'):
        file.write_text("{" + other + ", " + json.dumps(values)[1:])
        with pytest.raises(ValueError, match="no JSON number"):
            load(file)


@pytest.mark.parametrize(
    "blocks, message",
    [
        (None, "block_configs is missing"),
        ([block(8)], "block_configs has 1 entries; there are 2 layers"),
        ([block(8), 7], r"block_configs\[1\] is 7; it must be an object"),
        ([block(8), {"ffn": {}}], r"block_configs\[1\]"),
        ([block(8), block(5)], r"\[1\].attention: n_heads_in_group is 5; it must divide the 64"),
        ([block(8), block(None)], r"\[1\].attention: n_heads_in_group is missing"),
        ([block(8, no_op="no"), block(8)], r"\[0\].attention: no_op is 'no'"),
        ([block(8), block(8, window_length=99)], "only full layers can be read"),
    ],
)
def test_blocks_that_are_refused(blocks, message):
    with pytest.raises(ValueError, match=message) as refused:
        config_from(shapes(2, 64, None, 8192, **NAS, block_configs=blocks), "given.json")
    assert str(refused.value).startswith("given.json: ")


DECODER = shapes(2, 6, 3, 96, model_type="qwen2")


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(hidden_size=10**400), "hidden_size has 401 digits; at most"),
        (dict(max_position_embeddings=2**63), "max_position_embeddings has 19 digits; at most"),
        (dict(model_type="t5", is_encoder_decoder=True), "only decoder-only models are counted"),
        (dict(is_causal=False), "is_causal is false; an encoder keeps no cache"),
        (
            dict(model_type="gemma3_text", use_bidirectional_attention=True),
            "use_bidirectional_attention is true; an encoder keeps no cache",
        ),
        (
            dict(model_type="gpt2", attention_head_type="grouped"),
            "attention_head_type is 'grouped'",
        ),
        (
            dict(model_type="mllama", cross_attention_layers=["3"]),
            "cross_attention_layers.0. is '3'",
        ),
    ],
)
def test_clear_refusals(changes, message):
    assert config_from(DECODER)
    names = dict(n_embd=96, n_head=6, n_layer=2) if changes.get("model_type") == "gpt2" else DECODER
    with pytest.raises(ValueError, match=message) as refused:
        config_from({**names, **changes}, "given.json")
    assert str(refused.value).startswith("given.json: ")


FULL = [4, 8]
LINEAR = [1, 2, 3, 5, 6, 7]
KIMI = shapes(8, 6, 6, 96, model_type="kimi_linear", kv_lora_rank=22, qk_rope_head_dim=6)
MINIMAX = shapes(3, 6, 3, 96, model_type="minimax_m1")
V4 = shapes(
    2, 6, 1, 96, model_type="deepseek_v4", vocab_size=31, head_dim=22, qk_rope_head_dim=6,
    q_lora_rank=18, o_groups=3, o_lora_rank=10, sliding_window=7, index_n_heads=3,
    index_head_dim=14, index_topk=5, moe_intermediate_size=12, n_routed_experts=5,
    num_experts_per_tok=2, layer_types=["sliding_attention", "compressed_sparse_attention"],
)  # fmt: skip


def linear(full: list, kda: list) -> dict:
    return {**KIMI, "linear_attn_config": {"full_attn_layers": full, "kda_layers": kda}}


def compress(rate) -> dict:
    return {**V4, "compress_rates": {"compressed_sparse_attention": rate}}


@pytest.mark.parametrize(
    "sound, broken, message",
    [
        (
            linear(FULL, LINEAR),
            linear([4, "8"], LINEAR),
            "is '8'; it must be an integer from 1 to 8$",
        ),
        (linear(FULL, LINEAR), linear([4.0, 8], LINEAR), "full_attn_layers.0. is 4.0"),
        (linear(FULL, LINEAR), linear([4, 9], LINEAR), "full_attn_layers.1. is 9"),
        (linear(FULL, LINEAR), linear([4], LINEAR), "do not name each layer once"),
        (
            {**MINIMAX, "attn_type_list": [0, 1, 1]},
            {**MINIMAX, "attn_type_list": [0, 1, 1.0]},
            "attn_type_list.2. is 1.0; it must be one of 0, 1",
        ),
        (compress(6), compress("6"), "compress_rates: compressed_sparse_attention is '6'"),
        (compress(6), compress(-6), "compress_rates: compressed_sparse_attention is -6"),
        (compress(6), compress(0), "compressed_sparse_attention is 0; it must be an integer >= 1"),
        (INSIDE, {**INSIDE, "rope_theta": 10**400}, "rope_theta is 1000"),
        (INSIDE, {**INSIDE, "rope_theta": float("nan")}, "rope_theta is nan"),
        (INSIDE, {**INSIDE, "rope_theta": float("-inf")}, "rope_theta is -inf"),
    ],
)
def test_entries_of_another_type_or_size(sound, broken, message):
    assert ledger.rate(config_from(sound)) > 0
    with pytest.raises(ValueError, match=message):
        config_from(broken, "given.json")
