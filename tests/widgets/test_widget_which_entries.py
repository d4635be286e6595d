"""Which entries: what is marked is what the model reads, and the words say what is shown.

What holds for each widget is asked of this one too, at every setting.
"""

import pytest
import torch
from test_widget_every import *  # noqa: F403 - its tests, for the widget below

from tinymodels import data, few_entries
from tinymodels.choices import wishes
from tinymodels.dice import Dice
from tinymodels.presets import tiny_v1, tiny_v3_2
from tinymodels.transformer import Transformer
from tinymodels.widgets.which_entries import WhichEntries, look, record

SOME = (1, 5, 90)


@pytest.fixture(scope="module")
def made():
    return data.recall(Dice("widget test", 1), 77, 6)


@pytest.fixture(scope="module")
def looks(made):
    model = Transformer(tiny_v3_2(), seed=2).requires_grad_(False)
    return record(model, made, SOME)


@pytest.fixture
def widget(looks):
    return WhichEntries(looks, question=2, k=5)


def test_what_is_recorded_is_what_the_model_reads(made, looks):
    model = Transformer(tiny_v3_2(), seed=2).requires_grad_(False)
    tokens = torch.tensor([made.tokens])
    assert len(looks.asked) == 6 and looks.tokens == 77
    for at, needle in zip(looks.asked, looks.needles):
        assert made.tokens[at + 1] == made.tokens[needle]  # the answer, where it was given
        assert made.tokens[at] == made.tokens[needle - 1]  # behind the word that is asked
    for k in SOME:
        few = few_entries.with_top_k(model, k)
        said = few(tokens)[0].argmax(-1)
        for q, at in enumerate(looks.asked):
            one = looks.looks[k][q]
            assert one.right == (int(said[at]) == made.tokens[at + 1])
            for (read, part), wish in zip(one.layers, wishes(few, tokens), strict=True):
                assert list(read) == wish.taken_BTS[0, at].nonzero().flatten().tolist()
                assert len(read) == min(k, at + 1) and max(read) <= at
                assert part == pytest.approx(wish.share_BTS[0, at, list(read)].sum().item())


def test_words_and_marks_say_the_same(looks):
    for k in SOME:
        for q, at in enumerate(looks.asked):
            one, view = looks.looks[k][q], look(looks, q, k)
            assert view.number == f"{min(k, at + 1)} of {at + 1}"
            assert len(view.chart["reads"]) == sum(len(read) for read, _ in one.layers)
            marked = [m["layer"] for m in view.chart["reads"] if m["needle"]]
            reading = [i for i, (read, _) in enumerate(one.layers) if looks.needles[q] in read]
            assert marked == reading
            for i in reading:
                assert str(i) in view.lines[1].partition(".")[0]
            assert ("No layer reads it" in view.lines[1]) == (not reading)
            assert ("does not find" in view.lines[1]) == (not one.right)
            assert f"token {at}" in view.lines[0] and f"token {looks.needles[q]}" in view.lines[0]


def test_a_model_without_indexers_is_refused(made):
    with pytest.raises(ValueError, match="without an indexer"):
        record(Transformer(tiny_v1()), made)
