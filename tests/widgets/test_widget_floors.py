"""Who owns, who borrows: every floor of every sharing says what its configuration says.

What holds for each widget is asked of this one too, at every setting.
"""

import pytest
from test_widget_every import *  # noqa: F403 - its tests, for the widget below

from tinymodels.widgets.floors import ROWS, SHARING, Floors, floors, look, model


@pytest.fixture
def widget():
    return Floors()


def test_the_released_tower():
    """The sharing lists of the released configuration, written out once more."""
    owners = {0: None, 1: None} | {i: 2 + 6 * ((i - 2) // 6) for i in range(2, 20)}
    choosers = owners | {i: i // 4 * 4 for i in range(20, 40)}
    owners |= {i: 20 for i in range(20, 40)}
    for floor in floors("released", "fp4"):
        i = floor.number
        assert (floor.owner, floor.chooser) == (owners[i], choosers[i])
        added = {2: 178, 8: 178, 14: 178, 20: 356}.get(i, 0)
        assert floor.rate == added


@pytest.mark.parametrize(
    ("sharing", "row", "number"),
    [
        ("released", "bf16", "3,200"),
        ("released", "fp8", "1,650"),
        ("released", "fp4", "890"),
        ("none", "bf16", "37,120"),
        ("none", "fp4", "10,324"),
        ("halves", "fp4", "534"),
    ],
)
def test_the_numbers_of_the_chapter(sharing, row, number):
    assert look(5, sharing, row).number == number


def test_words_and_marks_say_the_same_on_every_floor():
    for sharing in SHARING:
        for row in ROWS:
            every = floors(sharing, row)
            for floor in every:
                view = look(floor.number, sharing, row)
                chart = view.chart
                assert (chart["owner"], chart["chooser"]) == (floor.owner, floor.chooser)
                assert [f["here"] for f in chart["floors"]].index(True) == floor.number
                sharers = [f.number for f in every if floor.owner is not None]
                sharers = [i for i in sharers if every[i].owner == floor.owner]
                assert [i for i, f in enumerate(chart["floors"]) if f["shares"]] == sharers
                if floor.owner not in (None, floor.number):
                    assert f"entries of layer {floor.owner}" in view.lines[0]
                left, right = view.lines[1].split(": ")[1].split(" = ")
                count = eval(left.replace("×", "*").replace(",", ""))  # noqa: S307 - our own sum
                assert f"{count:,.0f}" == view.number == right.split()[0]


def test_an_unknown_sharing_is_named():
    with pytest.raises(ValueError, match="sharing is 'all'; it can be one of released, halves"):
        model("all")
