"""The ledger: formula = measured = published, row by row, and one row longer a chapter."""

import pytest

from tinymodels.published import PUBLISHED
from tinymodels.widgets import ledger_widget
from tinymodels.widgets.ledger_entries import ENTRIES, entries
from tinymodels.widgets.ledger_table import Line, lines, look

RATES = {
    "00": 512,
    "01": 389_120,
    "02": 4_096,
    "03": 0,
    "04": 0,
    "05": 3_112_960,
    "06": 69_120,
    "07": 48_068,
    "08": 3_514.25,
    "09": 37_120,
    "10": 1_650,
    "11": 890,
    "12": 890,
}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.chapter)
def test_formula_rate_and_storage_agree(entry):
    assert entry.rate() == RATES[entry.chapter]
    assert entry.measure() == RATES[entry.chapter]
    if entry.formula != "not kept":
        assert eval(entry.formula.replace("×", "*")) == RATES[entry.chapter]


def test_on_the_disk_a_file_is_weighed(monkeypatch):
    """Its size, whatever the memory of it would be."""
    from tinymodels.serving import store

    right = store.save
    monkeypatch.setattr(store, "save", lambda *a, **k: right(*a, **k) + bytes(512))
    assert ENTRIES[-1].measure() == RATES["12"] + 1


def test_what_is_called_published_was_published():
    printed = {entry.what: entry for entry in ENTRIES if entry.printed}
    names = {
        "DeepSeek 67B (V1)": "deepseek-67b",
        "DeepSeek V3.2": "deepseek-v3.2",
        "DeepSeek V4-Flash": "deepseek-v4-flash",
        "DeepSeek V4.1-Flash": "deepseek-v4.1-flash",
    }
    assert set(printed) == set(names)
    for what, name in names.items():
        figure = PUBLISHED[name].rate
        assert printed[what].status == figure.status and figure.status in "CR"
        assert printed[what].printed == f"{int(figure.value):,}"


def test_what_was_not_published_is_never_called_so():
    for line, entry in zip(lines("12"), ENTRIES):
        assert entry.printed or line.published in ("not printed [D]", "our own")


def test_each_chapter_adds_one_row():
    for length, chapter in enumerate(RATES, start=1):
        assert [entry.chapter for entry in entries(chapter)] == list(RATES)[:length]


def test_a_chapter_without_a_row_is_refused():
    with pytest.raises(ValueError, match="'14'; the ledger has 00 to 12"):
        ledger_widget(through="14")


def test_a_disagreement_shows():
    wrong = Line("01", "a model", "2 × 3", 6, 7, "our own")
    assert "formula 6 ≠ measured 7" in look((wrong,), plain=False).lines[0]


def test_bars_follow_the_axis():
    every = lines("06")
    plain = [row["end"] for row in look(every, True).chart["rows"]]
    tenfold = [row["end"] for row in look(every, False).chart["rows"]]
    assert max(plain) == 1 and plain[1] == pytest.approx(389_120 / 3_112_960)
    assert plain[3] == tenfold[3] == 0
    assert tenfold[1] > 2 * plain[1]


def test_the_words_hold_the_whole_table():
    text = repr(ledger_widget(through="01"))
    assert len(text.splitlines()) == 3
    assert text.splitlines()[2].split()[-4:] == ["389,120", "389,120", "389,120", "[R]"]
