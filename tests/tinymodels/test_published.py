"""The published table: names, shapes as printed, figures and their status; no torch."""

import subprocess
import sys
from collections import Counter

import pytest

from tinymodels.config import Dense, MoE
from tinymodels.published import PUBLISHED, config_of, get
from tinymodels.published_v4 import v4_ratios

NAMES = (
    "deepseek-67b deepseek-v2 deepseek-v2-lite deepseek-v3 deepseek-v3.2 "
    "deepseek-v4-flash deepseek-v4-pro deepseek-v4.1-flash"
).split()


def test_the_eight_names_in_order():
    assert list(PUBLISHED) == NAMES
    assert [m.config.name for m in PUBLISHED.values()] == NAMES


def test_layers_width_vocabulary_and_context():
    shapes = {
        n: (len(m.config), m.config.width, m.config.vocab, m.config.context)
        for n, m in PUBLISHED.items()
    }
    assert shapes == {
        "deepseek-67b": (95, 8192, 102400, 4096),
        "deepseek-v2": (60, 5120, 102400, 131072),
        "deepseek-v2-lite": (27, 2048, 102400, 32768),
        "deepseek-v3": (61, 7168, 129280, 131072),
        "deepseek-v3.2": (61, 7168, 129280, 131072),
        "deepseek-v4-flash": (43, 4096, 129280, 1048576),
        "deepseek-v4-pro": (61, 7168, 129280, 1048576),
        "deepseek-v4.1-flash": (40, 5120, 129280, 1048576),
    }


def test_rates_and_their_status():
    rates = {n: (m.rate.value, m.rate.status) for n, m in PUBLISHED.items()}
    assert rates == {
        "deepseek-67b": (389_120, "R"),
        "deepseek-v2": (69_120, "D"),
        "deepseek-v2-lite": (31_104, "D"),
        "deepseek-v3": (70_272, "D"),
        "deepseek-v3.2": (48_068, "R"),
        "deepseek-v4-flash": (3_514.25, "R"),
        "deepseek-v4-pro": (5_031.4375, "D"),
        "deepseek-v4.1-flash": (890, "C"),
    }


def test_every_figure_has_a_source_and_a_status():
    for m in PUBLISHED.values():
        assert m.config.source
        for figure in (m.rate, m.parameters, *m.active.values(), *m.more.values()):
            assert figure.status in ("C", "R", "D") and figure.source and figure.unit


def test_feed_forward_shapes():
    found = {}
    for n, m in PUBLISHED.items():
        kinds = Counter(layer.ffn for layer in m.config.layers)
        found[n] = [
            (f.width, count)
            if isinstance(f, Dense)
            else (f.width, f.shared, f.experts, f.top_k, count)
            for f, count in kinds.items()
        ]
    assert found == {
        "deepseek-67b": [(22016, 95)],
        "deepseek-v2": [(12288, 1), (1536, 2, 160, 6, 59)],
        "deepseek-v2-lite": [(10944, 1), (1408, 2, 64, 6, 26)],
        "deepseek-v3": [(18432, 3), (2048, 1, 256, 8, 58)],
        "deepseek-v3.2": [(18432, 3), (2048, 1, 256, 8, 58)],
        "deepseek-v4-flash": [(2048, 1, 256, 6, 3), (2048, 1, 256, 6, 40)],
        "deepseek-v4-pro": [(3072, 1, 384, 6, 3), (3072, 1, 384, 6, 58)],
        "deepseek-v4.1-flash": [(2304, 1, 384, 6, 40)],
    }


def test_routing():
    moe = {n: m.config.layers[-1].ffn for n, m in PUBLISHED.items()}
    assert all(isinstance(f, MoE) for n, f in moe.items() if n != "deepseek-67b")
    assert (moe["deepseek-v2"].scoring, moe["deepseek-v2"].groups, moe["deepseek-v2"].scale) == (
        "softmax", 8, 16.0,
    )  # fmt: skip
    v3 = moe["deepseek-v3"]
    assert (v3.scoring, v3.groups, v3.top_groups, v3.scale, v3.normalise) == (
        "sigmoid",
        8,
        4,
        2.5,
        True,
    )
    v4_1 = moe["deepseek-v4.1-flash"]
    assert (v4_1.scoring, v4_1.scale, v4_1.limit, v4_1.selection_bias) == (
        "sqrtsoftplus",
        1.5,
        10.0,
        True,
    )
    hashed = [layer.ffn.hash_routed for layer in PUBLISHED["deepseek-v4-flash"].config.layers]
    assert hashed == [True] * 3 + [False] * 40


def test_ratios_of_v4():
    flash = [layer.attention.ratio for layer in PUBLISHED["deepseek-v4-flash"].config.layers]
    pro = [layer.attention.ratio for layer in PUBLISHED["deepseek-v4-pro"].config.layers]
    assert flash == [0, 0] + [4, 128] * 20 + [4]
    assert pro == [128, 128] + [4, 128] * 29 + [4]
    for even in (1, 2, 6):
        with pytest.raises(ValueError, match="odd number >= 3"):
            v4_ratios(even, 0)


def test_sharing_lists_of_v4_1():
    layers = [layer.attention for layer in PUBLISHED["deepseek-v4.1-flash"].config.layers]
    assert [a.ratio for a in layers] == [0, 0] + [2] * 18 + [1] * 20
    by_mode = {m: [i for i, a in enumerate(layers) if a.mode == m] for m in ("full", "reindex")}
    assert by_mode == {"full": [2, 8, 14, 20], "reindex": [24, 28, 32, 36]}
    reuse = {i: (a.kv_source, a.index_source) for i, a in enumerate(layers) if a.mode == "reuse"}
    assert reuse[3] == (2, 2) and reuse[13] == (8, 8) and reuse[23] == (20, 20)
    assert reuse[25] == (20, 24) and reuse[39] == (20, 36) and len(reuse) == 30
    pools = {i: a.candidates for i, a in enumerate(layers) if a.candidates}
    assert list(pools) == [20, 24, 28, 32, 36]
    assert {(p.source, p.block, p.keep) for p in pools.values()} == {(20, 8, 2048)}


def test_ropes():
    for name in ("deepseek-v4-flash", "deepseek-v4.1-flash"):
        for layer in PUBLISHED[name].config.layers:
            rope, far = layer.attention.rope, layer.attention.ratio > 0
            assert (rope.theta, rope.yarn is not None) == (
                (160_000, True) if far else (10_000, False)
            )
    yarn = PUBLISHED["deepseek-v4.1-flash"].config.layers[2].attention.rope.yarn
    assert (yarn.factor, yarn.original_context, yarn.mscale_all_dim) == (16, 65_536, 0)


def test_get_names_the_valid_ones_and_the_nearest():
    assert get("deepseek-v3") is PUBLISHED["deepseek-v3"]
    with pytest.raises(ValueError) as refused:
        get("deepseek-v4.1")
    assert "did you mean deepseek-v4.1-flash?" in str(refused.value)
    assert all(name in str(refused.value) for name in NAMES)
    with pytest.raises(ValueError, match="no published model is named None"):
        get(None)


def test_config_of_takes_names_configs_and_entries():
    entry = PUBLISHED["deepseek-v2"]
    assert config_of("deepseek-v2") is config_of(entry) is config_of(entry.config) is entry.config


def test_no_torch_no_numpy():
    code = (
        "import sys, tinymodels.ledger, tinymodels.families, tinymodels.convert;"
        "print([m for m in ('torch', 'numpy', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
