"""The ladder: seven states, from no idea to all six, and how the switches hang together."""

import pytest

from tinymodels.widgets import Ladder
from tinymodels.widgets.ladder import RUNGS, STATUS, along, states

RATES = (3_112_960, 389_120, 69_120, 48_068, 3_514.25, 1_650, 890)
STATUSES = ("D", "R", "D", "R", "R", "D", "C")
FACTORS = (None, 8, 71.11, 1.787, 7.220, 11.6, 1.854)


def test_the_number_falls_through_the_known_values():
    assert tuple(state.rate for state in states()) == RATES
    assert tuple(state.status for state in states()) == STATUSES


def test_each_idea_is_worth_what_it_is_worth_alone():
    for state, factor in zip(states(), FACTORS):
        assert state.factor == (factor if factor is None else pytest.approx(factor, rel=1e-3))


def test_arithmetic_evaluates_to_the_number():
    for state in states():
        assert eval(state.arithmetic.replace("×", "*")) == state.rate  # digits and signs only


def test_switches_take_their_foundations_along():
    widget = Ladder()
    widget.set(groups=True)
    assert widget.settings == {
        "gqa": True,
        "latent": True,
        "fp8": True,
        "groups": True,
        "sharing": False,
        "fp4": False,
    }
    assert widget.view.number == "3,514.25"
    widget.set(latent=False)
    assert [name for name, on in widget.settings.items() if on] == ["gqa"]
    widget.set(fp4=True)
    assert all(widget.settings.values()) and widget.view.number == "890"
    widget.set(gqa=False)
    assert not any(widget.settings.values()) and widget.view.number == "3,112,960"


def test_the_picture_shows_what_has_been_reached_and_no_more():
    for reached in range(len(RUNGS) + 1):
        rows = Ladder(reached).view.chart["rows"]
        assert [row["end"] is not None for row in rows] == [i <= reached for i in range(7)]
        assert [row["here"] for row in rows].index(True) == reached


def test_bars_shrink_and_stand_by_the_marks():
    ends = [along(rate) for rate in RATES]
    assert ends == sorted(ends, reverse=True)
    assert along(100) == 0 and along(10_000) == pytest.approx(0.4)


def test_the_status_is_said_in_words():
    for reached, status in enumerate(STATUSES):
        assert f"{STATUS[status]} [{status}]" in Ladder(reached).view.unit


def test_each_switch_names_its_chapter():
    for control, rung in zip(Ladder()._controls, RUNGS):
        assert control.note.endswith(f"chapter\u00a0{rung.chapter}")


@pytest.mark.parametrize("reached", [-1, 7, "all"])
def test_a_ladder_has_seven_states(reached):
    with pytest.raises(ValueError, match="0 to 6"):
        Ladder(reached)
