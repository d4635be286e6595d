"""The ledger against literal tables: bytes at every n, parameters to the unit, work, money, cards.

Nothing here is computed from a configuration: the right sides are the published arithmetic.
"""

import pytest

from tinymodels import config as c
from tinymodels import ledger
from tinymodels.config import ModelConfig
from tinymodels.ledger.ladder import unshared
from tinymodels.published import PUBLISHED

W = 128

# {model: n -> (global, window, open state)}, written out by hand.
EXACT = {
    "deepseek-67b": lambda n: (389_120 * n, 0, 0),
    "deepseek-v2": lambda n: (69_120 * n, 0, 0),
    "deepseek-v2-lite": lambda n: (31_104 * n, 0, 0),
    "deepseek-v3": lambda n: (70_272 * n, 0, 0),
    "deepseek-v3.2": lambda n: (48_068 * n, 0, 0),
    "deepseek-v4-flash": lambda n: (
        21 * (n // 4) * 652 + 20 * (n // 128) * 584,
        43 * 584 * min(n, W),
        12_206_080,
    ),
    "deepseek-v4-pro": lambda n: (
        30 * (n // 4) * 652 + 31 * (n // 128) * 584,
        61 * 584 * min(n, W),
        18_710_528,
    ),
    "deepseek-v4.1-flash": lambda n: (1068 * (n // 2) + 356 * n, 40 * 528 * min(n, W), 24_576),
}

# The same in plain bf16: no scales, no FP8, no FP4; half-built groups stay in fp32.
EXACT_BF16 = {
    **{name: EXACT[name] for name in list(EXACT)[:4]},
    "deepseek-v3.2": lambda n: (61 * (576 + 128) * 2 * n, 0, 0),
    "deepseek-v4-flash": lambda n: (
        21 * (n // 4) * (512 + 128) * 2 + 20 * (n // 128) * 512 * 2,
        43 * 1024 * min(n, W),
        12_206_080,
    ),
    "deepseek-v4-pro": lambda n: (
        30 * (n // 4) * 1280 + 31 * (n // 128) * 1024,
        61 * 1024 * min(n, W),
        18_710_528,
    ),
    "deepseek-v4.1-flash": lambda n: (
        3 * 1280 * (n // 2) + 1280 * n,
        40 * 1024 * min(n, W),
        24_576,
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_bytes_at_every_n(name):
    for n in (*range(3 * W + 9), 1000, 4097, 1_048_575):
        for row, table in ((None, EXACT), ("bf16", EXACT_BF16)):
            held = ledger.exact(name, n, row=row)
            grown, window, opened = table[name](n)
            assert held == {
                "global": grown,
                "window": window,
                "open_state": opened,
                "total": grown + window + opened,
            }, (n, row)


@pytest.mark.parametrize("name", EXACT)
def test_rate_is_the_published_one(name):
    assert ledger.rate(name) == PUBLISHED[name].rate.value
    period = 128  # the least common multiple of all ratios
    steps = ledger.exact(name, 7 * period)["global"] - ledger.exact(name, 6 * period)["global"]
    assert steps == ledger.rate(name) * period


def test_rates_are_integers_when_whole():
    types = {n: type(ledger.rate(n)) for n in PUBLISHED}
    assert types.pop("deepseek-v4-flash") is types.pop("deepseek-v4-pro") is float
    assert set(types.values()) == {int}


def test_v4_1_first_tokens():
    held = {n: ledger.exact("deepseek-v4.1-flash", n)["global"] for n in (1, 2, 3, 127)}
    assert held == {1: 356, 2: 1_780, 3: 2_136, 127: 112_496}


def test_v4_flash_first_tokens():
    held = {n: ledger.exact("deepseek-v4-flash", n)["global"] for n in (3, 127, 128)}
    assert held == {3: 0, 127: 424_452, 128: 449_824}


@pytest.mark.parametrize(
    "name, window",
    [
        ("deepseek-v4-flash", 3_214_336),
        ("deepseek-v4-pro", 4_559_872),
        ("deepseek-v4.1-flash", 2_703_360),
    ],
)
def test_full_windows(name, window):
    assert ledger.exact(name, W)["window"] == window == ledger.exact(name, 90_000)["window"]
    assert ledger.exact(name, W - 1)["window"] == window // W * (W - 1)


@pytest.mark.parametrize(
    "bits, rate, reduction", [(16, 69_120, 82.2), (8, 34_560, 91.1), (6, 25_920, 93.3)]
)
def test_v2_by_bits(bits, rate, reduction):
    assert ledger.rate("deepseek-v2", kv_bits=bits) == rate
    assert round(100 * (1 - rate / ledger.rate("deepseek-67b")), 1) == reduction


@pytest.mark.parametrize("name", EXACT)
def test_layers_sum_to_the_whole_and_batch_multiplies(name):
    n = 131
    lines = ledger.per_layer(name, n, batch=3)
    one, three = ledger.exact(name, n), ledger.exact(name, n, batch=3)
    assert sum(x["main"] + x["index"] for x in lines) == three["global"] == 3 * one["global"]
    assert sum(x["window"] for x in lines) == three["window"] == 3 * one["window"]
    assert three["total"] == 3 * one["total"]
    assert [x["layer"] for x in lines] == list(range(len(PUBLISHED[name].config)))
    assert ledger.persistent(name, n, batch=3) == three["global"]


def test_lines_of_v4_1():
    lines = ledger.per_layer("deepseek-v4.1-flash", 1001, batch=2)
    assert lines[8] == {
        "layer": 8,
        "attention": "CSA2 full",
        "owner": 8,
        "main": 2 * 500 * 288,
        "index": 2 * 500 * 68,
        "window": 2 * 128 * 528,
    }
    assert (lines[20]["main"], lines[20]["index"]) == (2 * 1001 * 288, 2 * 1001 * 68)
    assert [lines[i]["owner"] for i in (0, 1, 2, 7, 8, 13, 19, 21, 24, 39)] == [
        0,
        1,
        2,
        2,
        8,
        8,
        14,
        20,
        20,
        20,
    ]
    assert all(x["main"] == x["index"] == 0 for x in lines if x["owner"] != x["layer"])


@pytest.mark.parametrize("interval, ratio, digits", [(128, 32, 0), (892, 8.0, 1), (4096, 4.8, 1)])
def test_disk_ratio(interval, ratio, digits):
    by_hand = (3_514.25 + 3_214_336 / interval) / 890
    found = ledger.disk_rate("deepseek-v4-flash", interval) / ledger.rate("deepseek-v4.1-flash")
    assert found == pytest.approx(by_hand) and round(found, digits) == ratio


def test_recurrent_state_is_constant():
    layers = (
        c.Layer(c.Recurrent("state", 70, conv=9), None),
        c.Layer(c.GQA(6, 3, 10, window=5), None),
    )
    model = ModelConfig("probe", None, None, layers, context=40)
    for n in (0, 3, 5, 80):
        held = ledger.exact(model, n, batch=7)
        assert ledger.constant(model, batch=7) == 7 * 79 * 2
        assert held == {
            "global": 0,
            "window": 7 * min(n, 5) * 120,
            "open_state": 0,
            "total": 7 * (min(n, 5) * 120 + 158),
        }
    assert ledger.rate(model) == 0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ledger.exact("deepseek-v3", -1), "tokens is -1"),
        (lambda: ledger.exact("deepseek-v3", 1.0), "tokens is 1.0"),
        (lambda: ledger.exact("deepseek-v3", 5, batch=0), "batch is 0"),
        (lambda: ledger.exact("deepseek-v3", True), "tokens is True"),
        (lambda: ledger.disk_rate("deepseek-v3", 0), "interval is 0"),
        (lambda: ledger.rate("gpt-5"), "no published model"),
        (lambda: ledger.decode_flops("deepseek-v3", 0), "context is 0"),
        (lambda: ledger.active("deepseek-v3", "training"), "phase is 'training'"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---------------------------------------------------------------- the ladder


def test_steps():
    rungs = [(s.name, s.switch, s.without, s.rate, s.status) for s in ledger.steps()]
    assert rungs == [
        ("V1", "GQA", 3_112_960, 389_120, "R"),
        ("V2", "latent", 4_915_200, 69_120, "D"),
        ("V3", "latent", 4_997_120, 70_272, "D"),
        ("V3.2 in bf16", "indexer keys", 70_272, 85_888, "D"),
        ("V3.2", "FP8", 85_888, 48_068, "R"),
        ("V4-Flash", "groups", 25_372, 3_514.25, "R"),
        ("V4-Pro", "groups", 37_664, 5_031.4375, "D"),
        ("V4.1 unshared in bf16", "groups", 48_640, 37_120, "D"),
        ("V4.1 in bf16", "sharing", 37_120, 3_200, "D"),
        ("V4.1 in FP8", "FP8", 3_200, 1_650, "D"),
        ("V4.1-Flash", "FP4", 1_650, 890, "C"),
    ]


def test_the_arithmetic_shown_gives_the_rate():
    for step in ledger.steps():
        assert eval(step.arithmetic.replace("x", "*")) == step.rate, step.name
        assert step.published == (step.status != "D")


def test_sharing_is_worth_the_same_in_either_format():
    alone = unshared(PUBLISHED["deepseek-v4.1-flash"].config)
    assert (ledger.rate(alone, row="bf16"), ledger.rate(alone)) == (37_120, 10_324)
    assert 37_120 / 3_200 == 10_324 / 890 == 11.6


# ---------------------------------------------------------------- money and cards


def test_a_bill():
    bill = ledger.bill(900_000, 50_000, 2_000, hit_price=0.003, miss_price=0.2, output_price=0.6)
    assert (bill.hit, bill.miss, bill.output) == pytest.approx((0.0027, 0.01, 0.0012))
    assert bill.total == pytest.approx(0.0139)


def test_published_prices():
    prices = {
        n: (m.price.hit, m.price.miss, m.price.output) for n, m in PUBLISHED.items() if m.price
    }
    assert prices == {
        "deepseek-v4-flash": (0.0028, 0.14, 0.28),
        "deepseek-v4-pro": (0.022, None, 1.98),
        "deepseek-v4.1-flash": (0.003, None, 0.6),
    }


def test_an_unknown_price_must_be_assumed():
    price = PUBLISHED["deepseek-v4.1-flash"].price
    with pytest.raises(ValueError, match="miss_price is not known; assume one"):
        ledger.bill(1, 1, 1, hit_price=price.hit, miss_price=price.miss, output_price=price.output)
    with pytest.raises(TypeError, match="miss_price"):
        ledger.bill(1, 1, 1, hit_price=0.1, output_price=0.1)
    with pytest.raises(ValueError, match="hit_tokens is -4"):
        ledger.bill(-4, 1, 1, hit_price=0.1, miss_price=0.1, output_price=0.1)
    with pytest.raises(ValueError, match="output_price is nan"):
        ledger.bill(4, 1, 1, hit_price=0.1, miss_price=0.1, output_price=float("nan"))


def test_room_on_cards():
    weights = ledger.weight_bytes("deepseek-v3", "fp8")
    assert weights == 671_026_419_200 and ledger.weight_bytes("deepseek-v3") == 2 * weights
    room = ledger.room("deepseek-v3", "h200", 131_072, weights)
    sequence = 131_072 * 70_272
    assert (room.cards, room.sequence_bytes) == (5, sequence)
    assert room.sequences == (5 * 141 * 10**9 - weights) // sequence == 3
    eight = ledger.room("deepseek-v3", "H200", 131_072, weights, cards=8)
    assert eight.sequences == (8 * 141 * 10**9 - weights) // sequence == 49
    assert ledger.room("deepseek-v3", "H200", 131_072, weights, cards=4).sequences == 0


@pytest.mark.parametrize(
    "typed, name", [("rtx4090", "RTX 4090"), ("4090", "RTX 4090"), ("b-200", "B200")]
)
def test_names_of_cards(typed, name):
    assert ledger.gpu(typed).name == name


def test_memory_of_cards():
    sizes = {n: ledger.gpu(n).memory for n in ("H100", "H200", "RTX 4090", "B200")}
    assert sizes == {
        "H100": 80 * 10**9,
        "H200": 141 * 10**9,
        "RTX 4090": 24 * 10**9,
        "B200": 192 * 10**9,
    }
    with pytest.raises(ValueError, match="no card is named 'H300'; did you mean H"):
        ledger.gpu("H300")
    with pytest.raises(ValueError, match="holds no bytes"):
        ledger.room("deepseek-v3", "H100", 0, 0)
