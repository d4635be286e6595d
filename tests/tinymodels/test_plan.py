"""Who keeps rows, who borrows them, and which rows: the table that everything else adds up."""

from collections import Counter

import pytest

from tinymodels import config as c
from tinymodels.config import ModelConfig
from tinymodels.layouts import BF16, plain
from tinymodels.plan import Store, plan
from tinymodels.published import PUBLISHED


def model(*attentions, **rest) -> ModelConfig:
    layers = tuple(c.Layer(a, c.Dense(20)) for a in attentions)
    return ModelConfig("probe", vocab=30, width=12, layers=layers, context=70, **rest)


ROPE = c.Rope(6)


def test_a_store_counts_complete_rows():
    row = plain("row", BF16, x=5)
    grown, grouped, ring = Store(row), Store(row, ratio=4), Store(row, window=3)
    assert [grown.rows(n) for n in (0, 1, 7)] == [0, 1, 7]
    assert [grouped.rows(n) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    assert [ring.rows(n) for n in (0, 2, 3, 4, 90)] == [0, 2, 3, 3, 3]
    assert grouped.nbytes(11) == 20
    with pytest.raises(ValueError, match="tokens is -1"):
        grown.rows(-1)


def test_kinds_of_layers_of_the_published_models():
    kinds = {n: Counter(p.attention for p in plan(m.config)) for n, m in PUBLISHED.items()}
    assert kinds == {
        "deepseek-67b": {"GQA": 95},
        "deepseek-v2": {"MLA": 60},
        "deepseek-v2-lite": {"MLA": 27},
        "deepseek-v3": {"MLA": 61},
        "deepseek-v3.2": {"DSA": 61},
        "deepseek-v4-flash": {"SWA": 2, "CSA": 21, "HCA": 20},
        "deepseek-v4-pro": {"CSA": 30, "HCA": 31},
        "deepseek-v4.1-flash": {
            "SWA": 2,
            "CSA2 full": 4,
            "CSA2 reindex": 4,
            "CSA2 reuse": 30,
        },
    }


def test_owners_of_v4_1():
    owners = [p.owner for p in plan(PUBLISHED["deepseek-v4.1-flash"].config)]
    assert owners == [0, 1] + [2] * 6 + [8] * 6 + [14] * 6 + [20] * 20


def test_a_borrower_keeps_only_its_window():
    for p in plan(PUBLISHED["deepseek-v4.1-flash"].config):
        borrows = p.owner != p.layer
        assert (p.main is None and p.index is None and p.open_values == 0) or not borrows
        assert p.window.window == 128 and p.window.layout.nbytes == 528


def test_open_values():
    csa, hca = 8 * 2 * 2 * (512 + 128), 128 * 2 * 512  # slots x (value, gate) x halves x dims
    flash = plan(PUBLISHED["deepseek-v4-flash"].config)
    assert {p.attention: p.open_values for p in flash} == {"SWA": 0, "CSA": csa, "HCA": hca}
    v4_1 = {p.layer: p.open_values for p in plan(PUBLISHED["deepseek-v4.1-flash"].config)}
    assert {layer: v for layer, v in v4_1.items() if v} == {2: 2048, 8: 2048, 14: 2048}


@pytest.mark.parametrize("kv_heads, name", [(6, "MHA"), (3, "GQA"), (1, "MQA")])
def test_names_of_gqa(kv_heads, name):
    (p,) = plan(model(c.GQA(6, kv_heads, 10)))
    assert (p.attention, p.owner, p.main.layout.nbytes) == (name, 0, kv_heads * 10 * 2 * 2)


def test_a_sliding_layer_keeps_a_window_and_a_sharing_one_nothing():
    sliding, sharing = plan(
        model(c.GQA(6, 2, 10, window=9), c.GQA(6, 2, 10, window=9, kv_source=0))
    )
    assert sliding.main is None and sliding.window.rows(50) == 9
    assert (sharing.owner, sharing.main, sharing.index, sharing.window) == (0, None, None, None)


def test_rows_by_format():
    shapes = dict(heads=6, head_dim=96, rope_dim=6, q_rank=7, out_groups=2, out_rank=5, window=9)
    index = c.Indexer(heads=3, dim=64, top_k=5)
    full = c.CSA2(mode="full", ratio=3, rope=ROPE, indexer=index, **shapes)
    sizes = {}
    for row in ("bf16", "fp8", "fp4"):
        (p,) = plan(model(full), row=row)
        sizes[row] = (p.main.layout.nbytes, p.index.layout.nbytes, p.window.layout.nbytes)
    assert sizes == {
        "bf16": (192, 128, 192),
        "fp8": (96 + 3, 64 + 4, 96 + 3),
        "fp4": (48 + 6, 32 + 2, 96 + 3),
    }


def test_v3_2_and_v4_index_keys_differ_in_format():
    (dsa, *_), (_, _, csa, *_) = (
        plan(PUBLISHED[name].config) for name in ("deepseek-v3.2", "deepseek-v4-flash")
    )
    assert (dsa.index.layout.nbytes, csa.index.layout.nbytes) == (132, 68)


def test_a_recurrent_layer_has_state_and_no_rows():
    (p,) = plan(model(c.Recurrent("Mamba", state=77, conv=13)))
    assert (p.attention, p.constant_values) == ("Mamba", 90)
    assert p.main is p.index is p.window is None


def test_a_layer_without_attention_keeps_nothing_and_has_no_owner():
    (p,) = plan(model(c.NoAttention()))
    assert (p.owner, p.main, p.index, p.window, p.open_values, p.constant_values) == (
        None, None, None, None, 0, 0,
    )  # fmt: skip


def test_bits_apply_to_every_row():
    config = PUBLISHED["deepseek-v4-flash"].config
    p = plan(config, kv_bits=6)[2]
    assert (p.main.layout.nbytes, p.index.layout.nbytes, p.window.layout.nbytes) == (384, 96, 384)
    assert (p.main.ratio, p.index.ratio, p.window.window) == (4, 4, 128)


def test_a_model_that_declares_its_bits():
    config = model(c.GQA(6, 3, 10), kv_bits=8)
    assert plan(config)[0].main.layout.nbytes == 60
    assert plan(config, row="bf16")[0].main.layout.nbytes == 120
    assert plan(config, kv_bits=4)[0].main.layout.nbytes == 30
