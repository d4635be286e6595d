"""Parameters to the unit, by tensor; active ones; and the work of writing a token."""

import pytest

from tinymodels import config as c
from tinymodels import ledger
from tinymodels.config import ModelConfig
from tinymodels.families import config_from
from tinymodels.ledger.flops import attended, scored
from tinymodels.published import PUBLISHED
from tinymodels.published_v4 import csa2_layers

PARAMETERS = {
    "deepseek-67b": (67_425_001_472, 67.43),
    "deepseek-v2": (235_741_434_880, 235.74),
    "deepseek-v2-lite": (15_706_484_224, 15.71),
    "deepseek-v3": (671_026_419_200, 671.03),
    "deepseek-v3.2": (671_877_944_064, 671.88),
    "deepseek-v4-flash": (284_332_240_471, 284.33),
    "deepseek-v4-pro": (1_572_997_201_763, 1573.0),
    "deepseek-v4.1-flash": (551_566_165_104, 551.57),
}

ACTIVE = {
    "deepseek-67b": (66_586_140_672, 66.6),
    "deepseek-v2": (20_851_512_320, 20.9),
    "deepseek-v2-lite": (2_451_435_008, 2.45),
    "deepseek-v3": (36_625_618_432, 36.6),
    "deepseek-v3.2": (37_477_143_296, 37.5),
    "deepseek-v4-flash": (13_270_101_591, 13.3),
    "deepseek-v4-pro": (48_852_402_019, 48.9),
    "deepseek-v4.1-flash": (15_815_918_704, 15.8),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name):
    exact, billions = PARAMETERS[name]
    assert ledger.parameters(name) == exact
    assert round(exact / 1e9, 2 if billions < 1000 else 0) == billions
    assert sum(ledger.parameter_parts(name).values()) == exact


@pytest.mark.parametrize("name", sorted(set(PARAMETERS) - {"deepseek-v3.2"}))
def test_parameters_round_to_the_published_total(name):
    printed = PUBLISHED[name].parameters.value
    digits = {15.7: 1, 1600: -2}.get(printed, 0)
    assert round(PARAMETERS[name][0] / 1e9, digits) == printed


def test_the_indexer_of_v3_2():
    assert ledger.parameters("deepseek-v3.2") - ledger.parameters("deepseek-v3") == 851_524_864


@pytest.mark.parametrize("name", ACTIVE)
def test_active(name):
    exact, billions = ACTIVE[name]
    assert ledger.active(name) == exact
    assert round(exact / 1e9, 2 if billions == 2.45 else 1) == billions
    head = PUBLISHED[name].config.vocab * PUBLISHED[name].config.width
    assert ledger.active(name, head=False) == exact - head


def test_active_of_v4_1_in_prefill():
    assert ledger.active("deepseek-v4.1-flash", "prefill") == 8_242_819_384
    assert ledger.active("deepseek-v4.1-flash", "prefill", head=False) == 7_580_905_784
    assert ledger.active("deepseek-v4-flash", "prefill") == ACTIVE["deepseek-v4-flash"][0]


def test_ffn_share():
    assert round(100 * ledger.ffn_share("deepseek-67b")) == 76
    assert round(100 * ledger.ffn_share("deepseek-v4.1-flash"), 1) == 98.8


def test_parts_of_v1():
    assert ledger.parameter_parts("deepseek-67b") == {
        "embedding": 102_400 * 8192,
        "attention": 95 * (2 * 8192 * 8192 + 2 * 8192 * 1024),
        "indexer": 0,
        "ffn": 95 * 3 * 8192 * 22_016,
        "norms": (2 * 95 + 1) * 8192,
        "residual": 0,
        "head": 102_400 * 8192,
    }


def test_tensors_of_v4_1_have_the_released_names_and_shapes():
    """The released code at small dimensions: 8 layers, 6 heads of 64, width 48."""
    indexer = c.Indexer(heads=7, dim=32, top_k=6, rope_dim=8)
    shapes = dict(heads=6, head_dim=64, rope_dim=8, q_rank=40, out_groups=2, out_rank=20, window=8)
    attentions = csa2_layers(
        (0, 2, 2, 2, 1, 1, 1, 1), (1, 4), (1, 4, 6), None, indexer, c.Rope(8), c.Rope(8), **shapes
    )
    experts = c.MoE(36, 8, top_k=2, shared=1, selection_bias=True)
    model = ModelConfig(
        "small",
        vocab=96,
        width=48,
        layers=tuple(c.Layer(a, experts) for a in attentions),
        context=64,
        residual=c.HyperConnections(4, single_pass=True),
    )
    found = {(i, w.name): w.shape for i, w in ledger.weights(model)}
    everywhere = {
        "attn.attn_sink": (6,),
        "attn.wq_a.weight": (40, 48),
        "attn.q_norm.weight": (40,),
        "attn.wq_b.weight": (384, 40),
        "attn.wkv.weight": (64, 48),
        "attn.kv_norm.weight": (64,),
        "attn.wo_a.weight": (40, 192),
        "attn.wo_b.weight": (48, 40),
        "attn_norm.weight": (48,),
        "ffn_norm.weight": (48,),
        "ffn.gate.weight": (8, 48),
        "ffn.gate.bias": (8,),
        **{f"hc_{s}_fn": (24, 192) for s in ("attn", "ffn")},
        **{f"hc_{s}_base": (24,) for s in ("attn", "ffn")},
        **{f"hc_{s}_scale": (3,) for s in ("attn", "ffn")},
        **{
            f"ffn.{e}.{w}.weight": (36, 48)
            for e in ("experts", "shared_experts")
            for w in ("w1", "w3")
        },
        **{f"ffn.{e}.w2.weight": (48, 36) for e in ("experts", "shared_experts")},
    }
    owners = {
        "attn.compressor.wkv.weight": (64, 48),
        "attn.compressor.norm.weight": (64,),
        "attn.indexer.wk.weight": (32, 64),
        "attn.indexer.k_norm.weight": (32,),
    }
    choosers = {"attn.indexer.wq_b.weight": (224, 40), "attn.indexer.weights_proj.weight": (7, 48)}
    expected = {
        (None, "embed.weight"): (96, 48),
        (None, "norm.weight"): (48,),
        (None, "head.weight"): (96, 48),
    }
    for i in range(8):
        expected |= {(i, name): shape for name, shape in everywhere.items()}
    for i in (1, 4):
        expected |= {(i, name): shape for name, shape in owners.items()}
    expected[1, "attn.compressor.wgate.weight"] = (64, 48)
    for i in (1, 4, 6):
        expected |= {(i, name): shape for name, shape in choosers.items()}
    assert found == expected
    copies = {w.copies for _, w in ledger.weights(model) if w.name.startswith("ffn.experts")}
    assert copies == {8}


SHAPES = {
    "deepseek-67b": (
        "llama",
        dict(vocab_size=102400, hidden_size=8192, intermediate_size=22016, num_hidden_layers=95,
             num_attention_heads=64, num_key_value_heads=8),
    ),
    "deepseek-v2": (
        "deepseek_v2",
        dict(vocab_size=102400, hidden_size=5120, intermediate_size=12288, num_hidden_layers=60,
             num_attention_heads=128, num_key_value_heads=128, n_shared_experts=2,
             n_routed_experts=160, moe_intermediate_size=1536, num_experts_per_tok=6,
             first_k_dense_replace=1),
    ),
    "deepseek-v3": ("deepseek_v3", {}),
    "deepseek-v3.2": ("deepseek_v32", {}),
    "deepseek-v4-flash": ("deepseek_v4", dict(compress_ratios=[0, 0] + [4, 128] * 20 + [4])),
    "deepseek-v4-pro": (
        "deepseek_v4",
        dict(hidden_size=7168, num_hidden_layers=61, num_attention_heads=128, q_lora_rank=1536,
             o_groups=16, index_topk=1024, n_routed_experts=384, moe_intermediate_size=3072,
             compress_ratios=[128, 128] + [4, 128] * 29 + [4]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_equal_transformers(name):
    """The same shapes built without storage by an implementation that is not ours. It keeps the
    router's balancing bias as a buffer; hash tables and rotary tables are buffers too."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model_type, shapes = SHAPES[name]
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(model_type, **shapes)
        )
    theirs = sum(p.numel() for p in model.parameters())
    theirs += sum(
        b.numel() for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")
    )
    assert ledger.parameters(name) == theirs
    assert ledger.parameters(config_from(model.config.to_dict())) == theirs


def test_ties_biases_and_borrowed_keys():
    """A table that is head and embedding is stored once and met once; 9 tokens, width 8."""
    own = c.GQA(6, 3, 10, bias=True)
    layers = (
        c.Layer(own, c.Dense(7, bias=True)),
        c.Layer(c.GQA(6, 3, 10, kv_source=0), c.Dense(7, gated=False)),
    )
    model = ModelConfig("tied", 9, 8, layers, context=5, tied=True)
    attention = 60 * 8 + 60 + 2 * (30 * 8 + 30) + 8 * 60 + (60 * 8 + 8 * 60)
    ffn = (3 * 7 * 8 + 7 + 7 + 8) + 2 * 7 * 8
    assert ledger.parameter_parts(model) == {
        "embedding": 72, "attention": attention, "indexer": 0, "ffn": ffn, "norms": 5 * 8,
        "residual": 0, "head": 0,
    }  # fmt: skip
    assert ledger.active(model) == attention + ffn + 40 + 72
    assert ledger.active(model, head=False) == attention + ffn + 40
    assert ledger.decode_flop_parts(model, 3)["head", "bf16"] == 2 * 72


# ---------------------------------------------------------------- work

K4, M1 = 4096, 1_048_576


def test_work_from_4k_to_1m():
    """As stated in flops.py: FP8 linear, BF16 core, head, router and mixing, FP4 scores."""
    near, far = (ledger.decode_flops("deepseek-v4.1-flash", n) for n in (K4, M1))
    assert (round(near / 1e9, 1), round(far / 1e9, 1)) == (19.9, 25.3)
    assert round(100 * (far / near - 1)) == 27
    growth = {
        n: ledger.decode_flops(n, M1) / ledger.decode_flops(n, K4)
        for n in ("deepseek-v3", "deepseek-v4-flash")
    }
    assert round(growth["deepseek-v3"], 2) == 166.46
    assert round(growth["deepseek-v4-flash"], 2) == 3.71


def test_work_without_what_groups_are_pooled_from():
    """The other natural count: the compressors' projections left out (FP8, as linear layers)."""

    def work(name, n):
        pooled = (w for _, w in ledger.weights(name) if "compressor" in w.name and w.is_matrix)
        return ledger.decode_flops(name, n) - sum(w.active_count for w in pooled)

    near, far = (work("deepseek-v4.1-flash", n) for n in (K4, M1))
    assert (round(near / 1e9, 1), round(far / 1e9, 1)) == (19.9, 25.3)
    name = "deepseek-v4-flash"
    assert round(work(name, M1) / work(name, K4), 2) == 3.76


def test_parts_of_the_work_of_v3():
    n = 5000
    parts = ledger.decode_flop_parts("deepseek-v3", n)
    assert parts["attention core", "bf16"] == 61 * 2 * 128 * (512 + 64 + 512) * n
    assert parts["router", "bf16"] == 58 * 2 * 256 * 7168
    assert parts["head", "bf16"] == 2 * 129_280 * 7168
    attention = 1536 * 7168 + 128 * 192 * 1536 + 576 * 7168 + 128 * 256 * 512 + 7168 * 128 * 128
    ffn = 3 * 3 * 7168 * 18_432 + 58 * 9 * 3 * 7168 * 2048
    assert parts["linear", "fp8"] == 2 * (61 * attention + ffn)


def test_parts_of_the_work_of_v4_1():
    n = 40_001
    parts = ledger.decode_flop_parts("deepseek-v4.1-flash", n)
    assert parts["attention core", "bf16"] == 2 * 64 * 1024 * (2 * 128 + 38 * (128 + 512))
    pairs = 3 * (n // 2) + n + 4 * 16_384
    assert parts["indexer scores", "fp4"] == 2 * 32 * 128 * pairs
    assert parts["residual mixing", "bf16"] == 2 * 80 * 24 * 4 * 5120


def test_weights_of_one_give_plain_flops():
    ones = dict.fromkeys(ledger.PRECISION_WEIGHTS, 1)
    parts = ledger.decode_flop_parts("deepseek-v3.2", 300)
    assert ledger.decode_flops("deepseek-v3.2", 300, ones) == sum(parts.values())
    assert parts["indexer scores", "fp8"] > 0 == parts["indexer scores", "fp4"]


def test_entries_read_and_scored():
    v4 = PUBLISHED["deepseek-v4-flash"].config
    assert [attended(v4, layer, 70) for layer in (0, 2, 3)] == [70, 70 + 17, 70]
    assert [attended(v4, layer, 4000) for layer in (0, 2, 3)] == [128, 128 + 512, 128 + 31]
    v4_1 = PUBLISHED["deepseek-v4.1-flash"].config
    reuse, reindex = v4_1.layers[3].attention, v4_1.layers[24].attention
    assert reuse.indexer is None and attended(v4_1, 3, 900) == 128 + 450
    assert [scored(reindex, n) for n in (900, 50_000)] == [900, 16_384]


def test_models_that_are_not_described_are_not_counted():
    unknown = ModelConfig("file", None, None, (c.Layer(c.GQA(6, 3, 10), None),), context=9)
    for count in (ledger.parameters, ledger.active, lambda m: ledger.decode_flops(m, 5)):
        with pytest.raises(ValueError, match="file: parameters are not counted"):
            count(unknown)
