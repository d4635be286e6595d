"""Configurations that are described whole: Llama and every DeepSeek, read back as published."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tinymodels import ledger
from tinymodels.config import Layer, Yarn
from tinymodels.convert import config_from
from tinymodels.presets import tiny_v3_2
from tinymodels.published import PUBLISHED
from tinymodels.transformer import Transformer

LLAMA = Path(__file__).parents[1] / "configs" / "llama-3.1-8b.json"

DEEPSEEK = {
    "deepseek-v2": (
        "deepseek_v2",
        dict(topk_method="group_limited_greedy", n_group=8, topk_group=3),
    ),
    "deepseek-v3": ("deepseek_v3", dict(n_group=8, topk_group=4)),
    "deepseek-v3.2": ("deepseek_v32", dict(n_group=8, topk_group=4)),
}


@pytest.mark.parametrize("name", DEEPSEEK)
def test_deepseek_reads_as_the_published_model(name):
    """A released configuration, written out from the published shapes, gives them back."""
    model_type, routing = DEEPSEEK[name]
    want = PUBLISHED[name].config
    attention, dense, experts = want.layers[0].attention, want.layers[0].ffn, want.layers[-1].ffn
    values = dict(
        model_type=model_type,
        vocab_size=want.vocab,
        hidden_size=want.width,
        num_hidden_layers=len(want),
        num_attention_heads=attention.heads,
        kv_lora_rank=512,
        q_lora_rank=1536,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        max_position_embeddings=want.context,
        intermediate_size=dense.width,
        moe_intermediate_size=experts.width,
        n_routed_experts=experts.experts,
        n_shared_experts=experts.shared,
        num_experts_per_tok=experts.top_k,
        first_k_dense_replace=sum(layer.ffn == dense for layer in want.layers),
        routed_scaling_factor=experts.scale,
        rope_scaling=dict(
            type="yarn",
            factor=40,
            original_max_position_embeddings=4096,
            mscale=attention.rope.yarn.mscale_all_dim,
            mscale_all_dim=attention.rope.yarn.mscale_all_dim,
        ),
        index_n_heads=64,
        index_head_dim=128,
        index_topk=2048,
        **routing,
    )
    assert config_from(values).layers == want.layers


def test_v4_reads_as_the_published_model():
    values = dict(
        model_type="deepseek_v4",
        vocab_size=129280,
        hidden_size=4096,
        num_hidden_layers=43,
        num_attention_heads=64,
        head_dim=512,
        qk_rope_head_dim=64,
        q_lora_rank=1024,
        o_groups=8,
        o_lora_rank=1024,
        sliding_window=128,
        compress_ratios=[0, 0] + [4, 128] * 20 + [4, 0],  # the last is the draft layer's
        index_n_heads=64,
        index_head_dim=128,
        index_topk=512,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        num_experts_per_tok=6,
        rope_scaling=dict(type="yarn", factor=16, original_max_position_embeddings=65536),
    )
    config, want = config_from(values), PUBLISHED["deepseek-v4-flash"].config
    assert config.layers == want.layers and config.residual == want.residual
    assert ledger.rate(config) == 21 * 640 * 2 / 4 + 20 * 512 * 2 / 128
    assert ledger.rate(config.with_(row="fp8")) == 3_514.25


V4_1 = dict(
    vocab_size=129280, dim=5120, n_layers=40, n_heads=64, head_dim=512, rope_head_dim=64,
    q_lora_rank=1280, o_groups=8, o_lora_rank=1024, window_size=128, max_seq_len=1_048_576,
    compress_ratios=[0, 0] + [2] * 18 + [1] * 20, kv_source_layers=[2, 8, 14, 20],
    index_source_layers=[2, 8, 14, 20, 24, 28, 32, 36], candidate_source_layer=20,
    candidate_topk_blocks=2048, candidate_block_size=8, index_n_heads=32, index_head_dim=128,
    index_topk=512, moe_inter_dim=2304, n_routed_experts=384, n_activated_experts=6,
    original_seq_len=65536, rope_factor=16.0, norm_eps=1e-20, route_scale=1.5, swiglu_limit=10.0,
)  # fmt: skip


def test_v4_1_reads_as_the_published_model():
    """In the names of the released inference code, without a model_type."""
    config, want = config_from(V4_1), PUBLISHED["deepseek-v4.1-flash"].config
    assert config.layers == want.layers and config.residual == want.residual
    assert (config.decoder_start, config.norm_eps, config.context) == (20, 1e-20, 1_048_576)
    assert [ledger.rate(config, row=row) for row in ("bf16", "fp8", "fp4")] == [3_200, 1_650, 890]


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(kv_source_layers=[2, 8, 14, 40]), "layers are numbered 0 to 39"),
        (dict(kv_source_layers=[]), "kv_source_layers is missing"),
        (dict(kv_source_layers=[8, 14, 20]), "no layer up to it owns entries"),
        (dict(kv_source_layers=[2, 8, 14], index_source_layers=[2, 8, 14]), "layer 20 has ratio 1"),
        (dict(compress_ratios=[0, 0, 2]), "does not reach all layers"),
        (dict(compress_ratios=[0, 0] + [-2] * 38), "compress_ratios.2. is -2"),
        (dict(candidate_source_layer=21), "is 21; it must be one of index_source_layers, 2, 8, "),
        (dict(candidate_source_layer=99), "is 99; it must be one of index_source_layers"),
        (dict(rope_head_dim=514), "qk_rope_head_dim is 514; at most all 512 of head_dim"),
        (dict(rope_head_dim=130), "qk_rope_head_dim is 130; at most all 128 of index_head_dim"),
        (dict(swiglu_limit=-1.0), "swiglu_limit is -1; it must be positive"),
        (dict(gate_temp=2.0), "gate_temp is 2; only 1 can be read"),
    ],
)
def test_v4_1_descriptions_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        config_from({**V4_1, **changes})


def test_llama_is_described_whole():
    values = {**json.loads(LLAMA.read_text()), "intermediate_size": 14336}
    config = config_from({**values, "rope_theta": 500000.0})
    assert ledger.parameters(config) == 8_030_261_248
    assert config.layers[0].attention.rope.theta == 500_000
    nested = {**values, "rope_parameters": {"rope_theta": 500000.0}}
    assert config_from(nested).layers == config.layers


@pytest.mark.parametrize("kind", ["deepseek_v2", "deepseek_v32"])
def test_families_whose_rope_turns_neighbours_say_so(kind):
    tiny = dict(
        model_type=kind, vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        kv_lora_rank=6, first_k_dense_replace=1,
    )  # fmt: skip
    assert config_from(tiny).layers[0].attention.rope.pairs == "adjacent"
    with pytest.raises(ValueError, match="rope_interleave is false; .* turns neighbours"):
        config_from(tiny | dict(rope_interleave=False))


def test_an_indexer_with_scaled_angles_is_counted_and_not_run():
    tiny = tiny_v3_2()
    rope = replace(tiny.layers[0].attention.rope, yarn=Yarn(4.0, 16, attention_factor=1.1))
    layer = Layer(replace(tiny.layers[0].attention, rope=rope), tiny.layers[0].ffn)
    config = tiny.with_(layers=(layer,))
    assert ledger.rate(config) > 0
    with pytest.raises(ValueError, match="layer 0: .* can be counted but not run"):
        Transformer(config)
