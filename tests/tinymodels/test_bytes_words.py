"""What `python -m tinymodels bytes` says beside its numbers: windows apart from growth, what is not
counted, and what was meant."""

import json
from pathlib import Path

import pytest

from tinymodels import ledger
from tinymodels.bytes_command import main
from tinymodels.bytes_terms import filling
from tinymodels.convert import config_from
from tinymodels.published import PUBLISHED

CONFIGS = Path(__file__).parents[1] / "configs"


def shapes(layers: int, heads: int, kv_heads: int | None, width: int, **more) -> dict:
    return dict(
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        hidden_size=width, **more,
    )  # fmt: skip


GEMMA = shapes(12, 6, 3, 96, model_type="gemma3_text", head_dim=14, sliding_window=7)
PHI = shapes(5, 6, 3, 96, model_type="phi3", sliding_window=900, max_position_embeddings=300)
LLAMA = shapes(5, 6, 3, 96, model_type="llama", max_position_embeddings=300)
MAMBA = shapes(
    5, 6, 3, 96, model_type="bamba", attn_layer_indices=[2], mamba_n_heads=6, mamba_d_head=32,
    mamba_d_state=10, max_position_embeddings=300,
)  # fmt: skip


def said(capsys, tmp_path, values, *options) -> str:
    """What is printed for these values, spaces made one."""
    file = tmp_path / "given.json"
    file.write_text(json.dumps(values))
    assert main([str(file), *map(str, options)]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", [*PUBLISHED, "gemma-3-27b", "gpt-oss-20b", "llama-3.1-8b"])
def test_what_a_token_adds_while_windows_fill_and_after(name):
    if name in PUBLISHED:
        config = PUBLISHED[name].config
    else:
        config = config_from(json.loads((CONFIGS / f"{name}.json").read_text()), name)
    adds, full_after = filling(config)
    group = 128  # a multiple of every ratio, so that whole entries are compared
    first = ledger.exact(config, group)
    assert first["global"] + first["window"] == group * adds
    if full_after:
        at = {n: ledger.exact(config, n)["window"] for n in (full_after - 1, full_after, 10**6)}
        assert at[full_after - 1] < at[full_after] == at[10**6]
    else:
        assert adds == ledger.rate(config) and not first["window"]


def test_windows_are_told_apart_from_growth(capsys, tmp_path):
    row = 2 * 3 * 14 * 2
    text = said(capsys, tmp_path, GEMMA)
    assert f"rate, bytes per token {2 * row}" in text
    assert f"while windows fill, bytes per token {12 * row:,}" in text
    assert "windows full after, tokens 7" in text
    text = said(capsys, tmp_path, PHI, "--kv-bits", 8)  # the window never closes
    assert "rate, bytes per token 0" in text
    assert f"while windows fill, bytes per token {5 * 2 * 3 * 16}" in text
    assert "windows full after, tokens 900" in text
    assert "windows full" not in said(capsys, tmp_path, LLAMA)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(LLAMA))
    text = said(capsys, tmp_path, GEMMA, "--diff", other)
    assert "no window" in text


def test_weights_that_are_not_counted_are_not_nothing(capsys, tmp_path):
    text = said(capsys, tmp_path, LLAMA, "--gpu", "h100")
    assert "0 B" not in text and "not counted" in text
    assert "take your weights off it" in text
    main(["deepseek-v3", "--gpu", "h100"])
    assert "take your weights" not in " ".join(capsys.readouterr().out.split())


def test_a_state_is_not_replayed(capsys, tmp_path):
    sentence = "a state cannot be replayed from a window"
    assert sentence in said(capsys, tmp_path, MAMBA)
    assert sentence not in said(capsys, tmp_path, GEMMA)


def test_notes_are_announced(capsys, tmp_path):
    text = said(capsys, tmp_path, GEMMA)
    count = len(config_from(GEMMA).notes)
    assert count > 1 and f"{count} notes on how the file was read: --explain" in text
    assert "notes on how" not in said(capsys, tmp_path, GEMMA, "--explain")
    main(["deepseek-v3"])
    assert "notes on how" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "values, part",
    [
        ({**LLAMA, "num_nextn_predict_layers": 1}, "num_nextn_predict_layers is 1: draft layers"),
        ({**LLAMA, "num_mtp_modules": 3}, "num_mtp_modules is 3: draft layers"),
        ({**MAMBA, "mamba_ssm_dtype": "float32"}, "mamba_ssm_dtype is float32"),
        ({**MAMBA, "mamba_ssm_cache_dtype": "float32"}, "mamba_ssm_cache_dtype is float32"),
        ({**LLAMA, "model_type": "olmo2", "sliding_window": 7}, "sliding_window is 7, but"),
        ({**LLAMA, "model_type": "cohere", "model_max_length": 900}, "model_max_length is 900"),
        (
            dict(model_type="falcon", hidden_size=96, num_attention_heads=12, num_hidden_layers=2,
                 new_decoder_architecture=True, num_kv_heads=3),
            "holds 4 times as much",
        ),
    ],
)  # fmt: skip
def test_notes(values, part):
    assert any(part in note for note in config_from(values).notes)


@pytest.mark.parametrize(
    "values, silent",
    [
        ({**LLAMA, "num_nextn_predict_layers": 0}, "draft"),
        ({**LLAMA, "mamba_ssm_dtype": "float32"}, "float32"),
        ({**MAMBA, "mamba_ssm_dtype": "bfloat16"}, "float32"),
        ({**LLAMA, "model_type": "olmo2", "sliding_window": None}, "sliding_window"),
        ({**LLAMA, "model_type": "cohere", "model_max_length": 200}, "model_max_length"),
    ],
)
def test_notes_that_would_be_wrong(values, silent):
    assert not any(silent in note for note in config_from(values).notes)


def test_the_longer_of_two_contexts():
    cohere = {**LLAMA, "model_type": "cohere"}
    assert config_from({**cohere, "model_max_length": 900}).context == 900
    assert config_from({**cohere, "model_max_length": 200}).context == 300
    assert config_from({**cohere, "model_max_length": 10**30}).context == 300  # "no limit"
    baichuan = shapes(5, 6, None, 96, model_type="baichuan", model_max_length=900)
    assert config_from(baichuan).context == 900


def test_layers_that_read_the_one_before_stand_in_one_line(capsys, tmp_path):
    sharing = shapes(12, 6, 3, 96, model_type="hunyuan", use_cla=True, cla_share_factor=3)
    text = said(capsys, tmp_path, sharing)
    assert "4 0, 3 ... 9 GQA itself" in text
    assert "4 1, 4 ... 10 GQA, shared 1 before" in text
    assert "4 2, 5 ... 11 GQA, shared 2 before" in text
    assert "1 before: of the layer before" in text
    gemma = shapes(30, 6, 3, 96, model_type="gemma3n_text", head_dim=14, num_kv_shared_layers=10)
    text = said(capsys, tmp_path, gemma)  # few owners, each of many: by name
    assert "GQA, shared layer 18" in text and "before" not in text


STATES = dict(
    model_type="mamba", hidden_size=60, intermediate_size=120, num_hidden_layers=3, state_size=7
)


def test_a_memory_that_no_text_fills(capsys, tmp_path):
    file = tmp_path / "states.json"
    file.write_text(json.dumps(STATES))
    assert main([str(file), "--context", "9999", "--explain"]) == 0
    said = capsys.readouterr()
    assert said.err == ""  # no "more than it is made for"
    text = " ".join(said.out.split())
    assert "no context is stated, and nothing here depends on it" in text
    assert "max_position_embeddings" not in text
    assert config_from({**STATES, "max_position_embeddings": 77}).context == 77


def test_with_several_sequences_the_rate_is_still_of_one(capsys, tmp_path):
    one = said(capsys, tmp_path, GEMMA)
    many = said(capsys, tmp_path, GEMMA, "--batch", 3)
    assert "rate, bytes per token 336" in one
    assert "rate, bytes per token of each 336" in many
    assert "while windows fill, bytes per token of each 2,016" in many


def test_an_unknown_option_gets_the_known_ones(capsys):
    assert main(["deepseek-v3", "--tokens", "5"]) == 2
    text = capsys.readouterr().err
    assert "unrecognized arguments: --tokens 5; the options are --context, --batch, " in text
    assert text.count("\n") == 1
