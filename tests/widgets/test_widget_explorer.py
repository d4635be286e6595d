"""The bytes explorer's arithmetic and its words."""

import pytest

from tinymodels import ledger
from tinymodels.presets import tiny_v1
from tinymodels.published import PUBLISHED
from tinymodels.widgets import BytesExplorer, explorer
from tinymodels.widgets.explorer import OWN, PRESETS, YARDSTICKS, Shape, compare, look, shape_of

PHOTO, PHONE, CARD = YARDSTICKS


def test_bytes_of_models_one_can_look_up():
    rates = {name: shape.rate() for name, shape in PRESETS.items()}
    assert rates == {
        "tiny V1, the model of this course": 512,
        "DeepSeek 67B (V1)": 389_120,
        "LLaMA 65B (MHA)": 2_621_440,
        "Llama 2 7B (MHA)": 524_288,
        "Llama 3.1 8B (GQA)": 131_072,
        "Qwen2 7B (GQA)": 57_344,
        "Falcon 7B (MQA)": 8_192,
    }


def test_the_explorer_and_the_ledger_count_the_same():
    for config in (tiny_v1(), PUBLISHED["deepseek-67b"].config):
        shape = shape_of(config)
        assert shape.rate() == ledger.rate(config)
        for context in (1, 100, 4096):
            there = Shape(shape.layers, shape.kv_heads, shape.head_dim, 16, context)
            assert there.total() == ledger.exact(config, context)["global"]


def test_every_preset_can_be_set_by_the_controls():
    values = {control.name: control.values for control in explorer.controls()}
    for shape in PRESETS.values():
        for name in ("layers", "kv_heads", "head_dim", "bits"):
            assert getattr(shape, name) in values[name], (shape, name)


def test_a_model_with_other_memory_has_no_shape():
    with pytest.raises(ValueError, match="deepseek-v2"):
        shape_of(PUBLISHED["deepseek-v2"].config)


def test_formula_evaluates_to_the_number():
    for control in explorer.controls()[1:5]:
        for value in control.values:
            sizes = {"layers": 7, "kv_heads": 2, "head_dim": 96, "bits": 8, control.name: value}
            shape = Shape(**sizes)
            terms = [float(part.split()[0]) for part in shape.formula().split(" × ")]
            product = 1.0
            for term in terms:
                product *= term
            assert product == shape.rate()


@pytest.mark.parametrize(
    ("nbytes", "stick", "text"),
    [
        (51_002_736_640, PHOTO, "17,001 photos of 3 MB"),
        (51_002_736_640, PHONE, "6.4 phones' memories of 8 GB"),
        (51_002_736_640, CARD, "64 % of one 80 GB card"),
        (2_048, CARD, "less than 0.1 % of one 80 GB card"),
        (120_000, PHOTO, "4.0 % of a photo"),
        (3_000_000, PHOTO, "100 % of a photo"),
        (800_000_000_000, CARD, "10 cards of 80 GB"),
    ],
)
def test_comparisons_read_well(nbytes, stick, text):
    assert compare(nbytes, stick) == text


def test_a_bar_is_longer_for_more_bytes_and_ends_agree_with_the_marks():
    ends = [look(Shape(1 + n, 8, 128)).chart["bars"][0]["end"] for n in range(0, 127, 9)]
    assert ends == sorted(set(ends))
    ticks = look(Shape(3, 2, 16)).chart["ticks"]
    for tick, nbytes in zip(ticks, (1e3, 1e6, 1e9, 1e12)):
        assert tick["at"] == pytest.approx(explorer.along(nbytes))


def test_a_shape_moved_by_hand_is_ones_own_and_found_again():
    widget = BytesExplorer("Llama 3.1 8B (GQA)")
    widget.set(layers=28)
    assert widget.settings["model"] == OWN
    widget.set(kv_heads=4)
    assert widget.settings["model"] == "Qwen2 7B (GQA)"


def test_a_model_chosen_sets_the_shape_and_leaves_the_context():
    widget = BytesExplorer("Qwen2 7B (GQA)", context=512)
    widget.set(model="DeepSeek 67B (V1)")
    assert widget.view.number == "389,120" and widget.settings["context"] == 512
    widget.set(model=OWN)
    assert widget.view.number == "389,120"


def test_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match="no model 'GPT-9'"):
        BytesExplorer("GPT-9")


def test_words_carry_the_exact_numbers():
    text = repr(BytesExplorer(context=131_072))
    for number in ("389,120", "51,002,736,640", "95 layers", "131,072 tokens"):
        assert number in text
