"""config.json of other models: twelve with known answers, and files that must be refused."""

import json
from pathlib import Path

import pytest

from tinymodels import ledger, roofline
from tinymodels.convert import config_from
from tinymodels.families import load

CONFIGS = Path(__file__).parents[1] / "configs"

# file: (bytes per token, sliding layers x window x bytes, constant bytes), rows in bf16
ANSWERS = {
    "falcon-7b": (32 * 2 * 1 * 64 * 2, 0, 0),
    "llama-3.1-8b": (32 * 2 * 8 * 128 * 2, 0, 0),
    "mistral-7b-v0.1": (0, 32 * 4096 * 4096, 0),
    "qwen2-7b": (28 * 2 * 4 * 128 * 2, 0, 0),
    "gemma-3-27b": (10 * 2 * 16 * 128 * 2, 52 * 1024 * 8192, 0),
    "gemma-4-e2b": (3 * 2 * 1 * 512 * 2, 12 * 512 * 1024, 0),
    "gpt-oss-20b": (12 * 2 * 8 * 64 * 2, 12 * 128 * 2048, 0),
    "kimi-k2": (61 * 576 * 2, 0, 0),
    "deepseek-v3.2": (61 * 576 * 2 + 61 * 128 * 2, 0, 0),
    "qwen3-next-80b-a3b": (12 * 2 * 2 * 256 * 2, 0, 36 * 2 * (32 * 128 * 128 + 8192 * 3)),
    "minimax-m1": (10 * 2 * 8 * 128 * 2, 0, 70 * 2 * 64 * 128 * 128),
    "jamba-1.5-mini": (4 * 2 * 8 * 128 * 2, 0, 28 * 2 * 8192 * (16 + 3)),
}


def values_of(name: str) -> dict:
    return json.loads((CONFIGS / f"{name}.json").read_text())


def changed(name: str, **changes) -> dict:
    values = {**values_of(name), **changes}
    return {key: value for key, value in values.items() if value is not ...}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_twelve(name):
    config = load(CONFIGS / f"{name}.json")
    rate, window, constant = ANSWERS[name]
    assert config.name == name and config.row == "bf16"
    for n in (1, 777, 2_000_000):
        held = ledger.exact(config, n, batch=3)
        assert held["global"] == 3 * rate * n
        assert held["total"] == held["global"] + held["window"] + 3 * constant
    assert ledger.rate(config) == rate
    assert held["window"] == 3 * window
    assert ledger.constant(config) == constant


def test_every_file_has_an_answer():
    assert sorted(p.stem for p in CONFIGS.glob("*.json")) == sorted(ANSWERS)


def test_who_shares_in_gemma_4():
    lines = ledger.per_layer(config_from(values_of("gemma-4-e2b")), 600)
    assert [x["owner"] for x in lines[:15]] == list(range(15))
    assert {x["owner"] for x in lines[15:]} == {13, 14}
    assert [x["owner"] for x in lines if x["layer"] in (19, 24, 29, 34)] == [14] * 4
    assert all(x["main"] == x["window"] == 0 for x in lines[15:])


def test_defaults_that_were_taken_are_noted():
    notes = load(CONFIGS / "gemma-3-27b.json").notes
    assert any("one full layer in 6" in note for note in notes)
    assert any("max_position_embeddings" in note and "131072" in note for note in notes)
    assert not any("head_dim" in note for note in notes)


@pytest.mark.parametrize(
    "name, changes, rate",
    [
        ("llama-3.1-8b", dict(num_key_value_heads=None), 32 * 2 * 32 * 128 * 2),  # MHA by default
        ("llama-3.1-8b", dict(num_key_value_heads=...), 32 * 2 * 32 * 128 * 2),
        ("llama-3.1-8b", dict(head_dim=96), 32 * 2 * 8 * 96 * 2),  # stated beats width / heads
        ("mistral-7b-v0.1", dict(sliding_window=None), 131_072),  # null: no window
        ("mistral-7b-v0.1", dict(sliding_window=...), 0),  # absent: the family's 4096
        ("qwen2-7b", dict(use_sliding_window=True), 57_344),  # from layer 28 of 28 on: none
        ("qwen2-7b", dict(use_sliding_window=True, max_window_layers=21), 57_344 * 21 // 28),
        ("gpt-oss-20b", dict(layer_types=...), 24_576),
        ("falcon-7b", dict(multi_query=False), 32 * 2 * 71 * 64 * 2),
        ("qwen3-next-80b-a3b", dict(full_attention_interval=6), 8 * 2 * 2 * 256 * 2),
        ("jamba-1.5-mini", dict(attn_layer_period=4, attn_layer_offset=1), 8 * 4096),
        ("kimi-k2", dict(kv_lora_rank=320), 61 * 384 * 2),
        ("deepseek-v3.2", dict(index_head_dim=...), 85_888),
    ],
)
def test_variations(name, changes, rate):
    assert ledger.rate(config_from(changed(name, **changes), name)) == rate


def test_falcon_40b_under_its_first_names():
    values = dict(model_type="RefinedWeb", hidden_size=8192, n_head=128, n_head_kv=8, n_layer=60)
    assert ledger.rate(config_from(values)) == 60 * 2 * 8 * 64 * 2


QUARK = dict(
    quant_method="quark",
    export={"kv_cache_group": ["*k_proj", "*v_proj"], "pack_method": "reorder"},
    layer_quant_config={
        name: {"output_tensors": {"dtype": "fp8_e4m3"}} for name in ("*k_proj", "*v_proj")
    },
)


@pytest.mark.parametrize(
    "declared, bits",
    [
        (dict(kv_cache_dtype="fp8_e4m3"), 8),
        (dict(kv_cache_dtype="auto"), None),
        (dict(quantization_config={"quant_method": "fp8"}), None),  # the weights' own
        (dict(quantization_config={"kv_cache_scheme": {"num_bits": 8, "type": "float"}}), 8),
        (dict(quantization_config={"kv_cache_quant_algo": "FP8"}), 8),
        (dict(kv_cache_dtype="int4"), 4),
        (dict(quantization_config={"quant_method": "fp8", "kv_cache_scheme": "static"}), 8),
        (dict(quantization_config={"kv_cache_scheme": None, "kv_cache_quant_algo": ""}), None),
        (dict(compression_config={"kv_cache_scheme": {"num_bits": 8, "type": "float"}}), 8),
        (dict(quantization_config={"kv_cache_quant_algo": "NVFP4"}), 4),
        (
            dict(quantization_config={"quant_method": "quark", "export": {"kv_cache_group": []}}),
            None,
        ),
        (dict(quantization_config=QUARK), 8),
    ],
)
def test_a_declared_cache_format(declared, bits):
    config = config_from(changed("llama-3.1-8b", **declared))
    assert config.kv_bits == bits
    assert ledger.rate(config) == 131_072 * (bits or 16) // 16
    assert ledger.rate(config, row="bf16") == 131_072


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("llama-3.1-8b", dict(num_hidden_layers=...), "num_hidden_layers is missing"),
        ("llama-3.1-8b", dict(num_attention_heads=...), "num_attention_heads is missing"),
        ("llama-3.1-8b", dict(hidden_size=...), "hidden_size is missing"),
        ("llama-3.1-8b", dict(num_hidden_layers="32"), "num_hidden_layers is '32'"),
        ("llama-3.1-8b", dict(num_hidden_layers=32.0), "num_hidden_layers is 32.0"),
        ("llama-3.1-8b", dict(num_attention_heads=True), "num_attention_heads is True"),
        ("llama-3.1-8b", dict(num_key_value_heads=0), "num_key_value_heads is 0"),
        ("llama-3.1-8b", dict(num_key_value_heads=-8), "num_key_value_heads is -8"),
        ("llama-3.1-8b", dict(num_key_value_heads=5), "5; it must divide the 32 query heads"),
        ("llama-3.1-8b", dict(num_attention_heads=24), "the heads must divide the width"),
        ("llama-3.1-8b", dict(num_hidden_layers=10**9), "at most 10000"),
        ("llama-3.1-8b", dict(rms_norm_eps=float("nan")), "rms_norm_eps is nan"),
        ("llama-3.1-8b", dict(tie_word_embeddings="no"), "must be true or false"),
        ("llama-3.1-8b", dict(model_type="bert"), "bert is an encoder"),
        ("llama-3.1-8b", dict(model_type="abacus"), "'abacus' is no architecture known here"),
        ("llama-3.1-8b", dict(model_type=7), "model_type is 7"),
        ("llama-3.1-8b", dict(model_type=..., architectures=...), "model_type is missing"),
        ("llama-3.1-8b", dict(is_encoder_decoder=True), "only decoder-only models"),
        ("llama-3.1-8b", dict(kv_cache_dtype="fp7"), "kv_cache_dtype is 'fp7'"),
        (
            "llama-3.1-8b",
            dict(quantization_config={**QUARK, "layer_quant_config": {}}),
            "kv_cache_group names '.k_proj'; layer_quant_config must give its output_tensors",
        ),
        (
            "llama-3.1-8b",
            dict(quantization_config={"kv_cache_scheme": "often"}),
            "kv_cache_scheme is 'often'; known are bf16",
        ),
        (
            "llama-3.1-8b",
            dict(quantization_config={"kv_cache_scheme": {"num_bits": "8"}}),
            "it must give num_bits from 1 to 32",
        ),
        (
            "llama-3.1-8b",
            dict(kv_cache_dtype="fp8", quantization_config={"kv_cache_quant_algo": "NVFP4"}),
            "kv_cache_dtype says 8 bits and kv_cache_quant_algo 4; they must agree",
        ),
        ("gpt-oss-20b", dict(layer_types=["full_attention"] * 23), "23 entries; there are 24"),
        (
            "gpt-oss-20b",
            dict(layer_types=["full_attention"] * 23 + ["other"]),
            "layer_types.23. is",
        ),
        ("gpt-oss-20b", dict(layer_types="full_attention"), "it must be a list"),
        ("gpt-oss-20b", dict(sliding_window=0), "sliding_window is 0"),
        ("minimax-m1", dict(attn_type_list=[0, 1]), "2 entries; there are 80 layers"),
        ("minimax-m1", dict(attn_type_list=...), "attn_type_list is missing"),
        ("minimax-m1", dict(attn_type_list=[2] * 80), "it must be one of 0, 1"),
        ("minimax-m1", dict(attn_type_list=[True] * 80), "it must be one of 0, 1"),
        ("jamba-1.5-mini", dict(attn_layer_offset=8), "below attn_layer_period"),
        ("kimi-k2", dict(kv_lora_rank=...), "kv_lora_rank is missing"),
        ("falcon-7b", dict(num_attention_heads=70), "they must agree"),
        ("gemma-4-e2b", dict(text_config=[3]), "text_config is .3.; it must be an object"),
        ("gemma-3-27b", dict(num_hidden_layers=48), "48; they must agree"),
    ],
)
def test_refusals_name_the_file_and_the_field(name, changes, message):
    with pytest.raises(ValueError, match=message) as refused:
        config_from(changed(name, **changes), "given.json")
    assert str(refused.value).startswith("given.json: ")


@pytest.mark.parametrize("values", [[], "text", None, 7, True])
def test_not_an_object(values):
    with pytest.raises(ValueError, match="a configuration is a JSON object, not"):
        config_from(values)


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "is not JSON"),
        (b'{"model_type": "llama", "hid', "is not JSON"),
        (b'{"hidden_size": NaN}', "NaN is no JSON number"),
        (b'{"hidden_size": -Infinity}', "-Infinity is no JSON number"),
        (b'{"a": 1, "a": 2}', "a stands there twice, as 1 and 2"),
        (b"\xff\xfe\x00", "cannot be read as text"),
        (b"[" * 100_000, "is"),
    ],
)
def test_broken_files(tmp_path, text, message):
    file = tmp_path / "broken.json"
    file.write_bytes(text)
    with pytest.raises(ValueError, match=message) as refused:
        load(file)
    assert "broken.json" in str(refused.value)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(ValueError, match="there is no such file"):
        load(tmp_path / "none.json")
    folder = tmp_path / "some-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values_of("llama-3.1-8b")))
    assert load(folder).name == load(folder / "config.json").name == "some-model"


def test_a_layer_that_attends_and_has_a_state():
    """Falcon-H1: reading the cache reads the rows and the state beside them."""
    values = dict(
        model_type="falcon_h1", num_hidden_layers=3, hidden_size=66, num_attention_heads=6,
        num_key_value_heads=3, mamba_d_ssm=55, mamba_n_heads=5, mamba_d_state=7, mamba_d_conv=3,
    )  # fmt: skip
    config = config_from(values)
    row, state = 2 * 3 * 11 * 2, 2 * (55 * 7 + (55 + 2 * 7) * 2)
    assert ledger.rate(config) == 3 * row
    assert ledger.constant(config) == 3 * state
    assert roofline.cache_read(config, 13) == 3 * (13 * row + state)
