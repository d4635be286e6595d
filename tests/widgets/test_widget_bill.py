"""The bill adds up what the ledger and the roofline say, and refuses what it must."""

import json
from fractions import Fraction

import pytest

from tinymodels import ledger, roofline
from tinymodels.families import load
from tinymodels.widgets import Bill
from tinymodels.widgets.bill import LABELS, RELEASED, costs, known, seconds_text

LLAMA = {
    "model_type": "llama",
    "hidden_size": 96,
    "num_hidden_layers": 7,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 5000,
    "vocab_size": 1000,
}


def at(widget, **changes):
    widget.set(**changes)
    return widget.view


def test_v1_on_eight_cards_by_hand():
    """(640e9 - 134,850,002,944) / (389,120 x 4,096) = 316.9."""
    view = Bill("DeepSeek 67B (V1)", context=4096, batch=16, card="H100", cards=8).view
    assert view.number == "316" and "4,096 tokens fit" in view.unit
    assert "Weights 135 GB" in view.lines[0] and "1.59 GB" in view.lines[0]
    assert "reading the weights" in view.lines[3]


@pytest.mark.parametrize("label", [*LABELS, *RELEASED])
def test_the_count_is_the_largest_that_fits(label):
    model = known(label)
    for context, bits, cards in ((1024, 16, 32), (131_072, 4, 8), (1_048_576, 8, 1)):
        c = costs(model, context, 3, bits, 8, "B200", cards)
        assert c.memory == cards * 192 * 10**9
        assert c.weights == Fraction(model.weights.total * bits, 8).__floor__()
        assert c.request == ledger.exact(model.config, context, kv_bits=8)["total"]
        if c.weights <= c.memory:
            assert c.weights + c.fit * c.request <= c.memory
            assert c.weights + (c.fit + 1) * c.request > c.memory
        else:
            assert c.fit == 0
        assert c.fits == (c.weights + 3 * c.request <= c.memory)


def test_formats_change_what_they_should():
    widget = Bill("Llama 3.1 8B", context=8192, batch=32, card="H200", cards=1)
    plain = widget.view
    fewer = at(widget, cache_bits=8)
    assert int(fewer.number.replace(",", "")) >= 2 * int(plain.number.replace(",", ""))
    assert fewer.chart["parts"][0]["text"] == plain.chart["parts"][0]["text"]
    light = at(widget, cache_bits=0, weight_bits=4)
    assert light.chart["parts"][1]["text"] == plain.chart["parts"][1]["text"]
    assert light.chart["times"][2]["text"] == plain.chart["times"][2]["text"]


def test_too_many_are_said_to_be_too_many():
    widget = Bill("DeepSeek 67B (V1)", context=131_072, batch=64, card="H100", cards=8)
    assert "too many" in widget.view.lines[1] and widget.view.lines[2].startswith("If it did fit")
    assert "was made for 4,096 tokens" in widget.view.lines[4]
    chart = widget.view.chart
    assert chart["parts"][1]["end"] == 1 and 0 < chart["room"][0]["at"] < 1
    assert at(widget, cards=2, batch=1, context=1024).number != "0"
    assert at(widget, cards=1).number == "0"


def test_what_is_named_takes_longest():
    widget = Bill("Qwen2 7B", card="H100", cards=1)
    seen = set()
    for context in (1024, 1_048_576):
        for batch in (1, 1024):
            widget.set(context=context)
            view = at(widget, batch=batch)
            (most,) = (bar for bar in view.chart["times"] if bar["most"])
            assert most["end"] == 1 and most["label"] in view.lines[3]
            seen.add(most["label"])
    assert seen == {"reading the weights", "reading the caches"}


def test_a_model_of_yours(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    mine = Bill(mine=path, parameters=3e6, card="L4", cards=1, batch=1)
    assert mine.settings["model"].startswith("yours: ")
    rate = ledger.rate(load(path))
    assert rate == 2 * 7 * 3 * 16 * 2
    assert mine.view.number == f"{(24 * 10**9 - 6_000_000) // (rate * 4096):,}"
    assert mine.controls[0]["values"][1:] == (*LABELS, *RELEASED)
    few = Bill(mine=path, parameters=3e6, active=1e6)
    assert few.view.chart["times"][1] != mine.view.chart["times"][1]


def test_what_cannot_be_shown_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    with pytest.raises(ValueError, match="add parameters="):
        Bill(mine=path)
    with pytest.raises(ValueError, match="no model 'GPT-9'"):
        Bill("GPT-9")
    with pytest.raises(ValueError, match="card is 'H7'"):
        Bill(card="H7")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00512, "5.12 ms"), (0.9999, "1.00 s"), (999.6e-6, "1.00 ms"), (0.0999, "99.9 ms"),
     (0.0001234, "123 µs"), (12.34, "12.3 s"), (3e-7, "under 1 µs"), (1e-6, "1.00 µs")],
)  # fmt: skip
def test_seconds_in_about_three_digits(seconds, text):
    assert seconds_text(seconds) == text


def test_the_step_is_the_rooflines():
    c = costs(known("gpt-oss 20B"), 4096, 7, 4, 0, "A100", 2)
    found = RELEASED["gpt-oss 20B"]
    weights = roofline.Weights(found.weights, found.active, found.experts, found.top_k)
    config = found.config("gpt-oss 20B")
    assert c.step == roofline.decode(config, 4096, 7, "A100", 2, weights, weight_bits=4)


def test_bits_that_the_model_keeps_anyway_still_change_the_picture():
    """16 bits are what V2 keeps: the bytes are the same, and the picture says that they were asked
    for. A control that moves nothing looks broken."""
    widget = Bill("DeepSeek-V2")
    kept, asked = (at(widget, cache_bits=bits).chart["parts"][1]["text"] for bits in (0, 16))
    assert asked == kept + " at 16 bits"
