"""Chapter 13's exercises: the fault lab is what the notebook shows, and tests are graded fairly."""

import pytest
import torch

from grading import check
from grading.checks.ch13 import EXERCISES
from grading.course_notebook import Course, execute
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from grading.explain import same
from grading.observe import observe
from grading.references.lab_caches import FAULTS, RIGHT, broken

COURSE = Course()
STEM = "13__capstone"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}
SHOWN = {
    "13.1": "TurnedKeys", "13.2": "Pooled", "13.3": "Beams", "13.4": "Window",
    "13.5": "EightBits", "13.6": "Groups",
}  # fmt: skip


@pytest.fixture(scope="module")
def notebook():
    """The names of the exercise notebook, as a learner has them."""
    names = {"__name__": "learner"}
    for place, cell in enumerate(COURSE.cells(STEM)):
        if cell.role != "check":
            execute(cell.text, f"<cell {place}>", names)
    return names


@pytest.mark.parametrize("id", SHOWN)
def test_the_shown_cache_has_the_fault_that_is_named_first(id, notebook):
    exercise = BY_ID[id]
    mistake = exercise.misconceptions[0]
    assert mistake.name == "as_it_was"
    for seed in (*CHECK_SEEDS, *student_seeds("ann")):
        for case in exercise.cases(Draw(seed, id)):
            ours = observe(exercise, notebook[SHOWN[id]], case.inputs)
            assert same(ours, observe(exercise, mistake.answer, case.inputs))
    assert check(id, notebook[SHOWN[id]]).misconception == "as_it_was"


# ---------------------------------------------------------------- other words


class LearnerKeys:
    def __init__(self, dim):
        self.dim, self.seen = dim, []

    def append(self, key_BTD):
        from tinymodels.attention.rope import rotate
        from tinymodels.config import Rope

        for t in range(key_BTD.shape[1]):
            at = torch.tensor([len(self.seen)])
            self.seen.append(rotate(key_BTD[:, t : t + 1], Rope(self.dim), at))
        return torch.cat(self.seen, 1)


class LearnerGroups:
    def __init__(self, size):
        self.size, self.tokens, self.entries = size, [], []

    def append(self, x_BTD):
        self.tokens += x_BTD.unbind(1)
        whole = len(self.tokens) // self.size
        parts = [self.tokens[i * self.size : (i + 1) * self.size] for i in range(whole)]
        self.entries = [sum(part) / self.size for part in parts]

    def read(self):
        return torch.stack(self.entries, 1)


def test_right_answers_in_other_words_pass():
    assert check("13.1", LearnerKeys).status == "passed"
    assert check("13.6", LearnerGroups).status == "passed"


# ---------------------------------------------------------------- the test of one's own

SIZES = {"batch": 3, "dim": 6, "window": 5, "group": 3}


def test_right_caches_agree_however_they_are_asked():
    x = torch.randn(3, 17, 6, generator=torch.Generator().manual_seed(4))
    plain = RIGHT[0](**SIZES).append(x)
    for make in RIGHT:
        for cuts in ((17,), (1,) * 17, (4, 1, 12)):
            cache = make(**SIZES)
            cache.append(x.flip(0)[:, :7])
            cache.reset()
            for part in x.split(cuts, 1):
                given = cache.append(part)
            for ours, theirs in zip(given, plain):
                allowed = 0.01 * theirs.abs().amax(-1, keepdim=True) + 1e-5
                assert ((ours - theirs).abs() <= allowed).all()


def _differ(ours, theirs):
    return bool(((ours - theirs).abs() > 0.03 * theirs.abs().amax(-1, keepdim=True)).any())


def _text(seed=6):
    return torch.randn(3, 12, 6, generator=torch.Generator().manual_seed(seed))


def _stale(make):
    """The last row, token by token and at once."""
    whole, x = make(**SIZES).append(_text()), _text()
    by_token = make(**SIZES)
    rows = [by_token.append(token)[0] for token in x.split(1, 1)]
    return _differ(rows[-1][:, -1], whole[0][:, -1])


def _unreset(make):
    used = make(**SIZES)
    used.append(_text(7)[:, :4])
    used.reset()
    return _differ(used.append(_text())[0], make(**SIZES).append(_text())[0])


def _leaked(make):
    """The entries, which know no positions, after texts were exchanged between two groups."""
    moved, order = make(**SIZES), torch.tensor([1, 2, 0])
    moved.append(_text()[:, :9])
    moved.select(order)
    entries = moved.append(_text()[order, 9:])[1]
    return _differ(entries, make(**SIZES).append(_text())[1][order])


def _wide(make):
    return make(**SIZES).append(_text())[0].shape[1] != SIZES["window"]


def _drowned(make):
    """The first row, beside a token that is much larger, and alone."""
    x = _text()
    x[:, 1] *= 1000
    both, alone = make(**SIZES).append(x[:, :2])[0], make(**SIZES).append(x[:, :1])[0]
    return _differ(both[:, :1], alone)


def _early(make):
    return make(**SIZES).append(_text()[:, :2])[1].shape[1] > 0


ASKS = dict(zip(FAULTS, (_stale, _unreset, _leaked, _wide, _drowned, _early), strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_test_that_asks_one_thing_earns_one_point(fault):
    result = check("13.7", ASKS[fault])
    assert (result.status, result.earned) == ("partly", 1)
    assert "blames no cache" not in result.message


@pytest.mark.parametrize("caught", [FAULTS[:2], FAULTS[2:4]])
def test_who_catches_two_is_not_taken_for_one_who_catches_fewer(caught):
    result = check("13.7", lambda make: any(ASKS[fault](make) for fault in caught))
    assert (result.status, result.earned) == ("partly", 2)
    assert "blames no cache" not in result.message and "12 of the 12" not in result.message


def test_who_catches_nothing_is_told():
    assert check("13.7", lambda make: False).misconception == "blames_none"


def test_who_looks_for_the_name_of_the_fault_earns_nothing():
    """The lab's caches carry it; what is handed out does not, nor anything that leads to it."""
    result = check("13.7", lambda make: bool(getattr(make(**SIZES), "fault", "")))
    assert (result.status, result.earned) == ("wrong", 0)
    assert result.misconception == "blames_none"
    seen = set()

    def is_broken(make):
        cache = make(**SIZES)
        assert not hasattr(cache, "__dict__")
        does = {name: getattr(cache, name) for name in dir(cache) if not name.startswith("__")}
        assert not any(hasattr(function, "__self__") for function in does.values())
        seen.add((type(cache), *does))
        return False

    assert check("13.7", is_broken).misconception == "blames_none"
    assert [names[1:] for names in seen] == [("append", "reset", "select")]


@pytest.mark.parametrize("right_ones_first", [True, False])
def test_who_counts_the_turns_earns_nothing(right_ones_first):
    turns = []

    def is_broken(make):
        turns.append(1)
        turn = (len(turns) - 1) % (len(RIGHT) + len(FAULTS))
        return turn >= len(RIGHT) if right_ones_first else turn < len(FAULTS)

    assert check("13.7", is_broken).earned == 0


def test_one_right_cache_blamed_and_nothing_is_earned():
    """One of the four takes an order that is too short, which none has promised to refuse."""

    def takes_too_short_an_order(make):
        try:
            make(**SIZES).select(torch.tensor([1, 0]))
        except RuntimeError:
            return False
        return True

    asks = (takes_too_short_an_order, *ASKS.values())
    result = check("13.7", lambda make: any(ask(make) for ask in asks))
    assert (result.status, result.earned) == ("wrong", 0)
    assert result.misconception is None
    assert "You blamed a right cache: this one keeps the whole text" in result.message


def test_a_test_that_gives_no_verdict_is_told():
    assert "True or False" in check("13.7", lambda make: "broken").message


def test_broken_caches_differ_from_right_ones_where_they_should():
    """A text of one chunk that no one resets, selects or cuts shows four of the six nothing."""
    x = torch.randn(3, 12, 6, generator=torch.Generator().manual_seed(5))
    whole = RIGHT[1](**SIZES).append(x)
    hidden = []
    for fault in FAULTS:
        given = broken(fault)(**SIZES).append(x)
        if all(a.shape == b.shape and (a - b).abs().max() < 0.1 for a, b in zip(given, whole)):
            hidden.append(fault)
    assert hidden == [f for f in FAULTS if "window" not in f]
