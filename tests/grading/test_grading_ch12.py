"""Chapter 12's exercises: mistakes in a learner's own words, and agreement with the package."""

import math

import pytest

from grading import check
from grading.checks.ch12 import EXERCISES
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from tinymodels import ledger
from tinymodels.serving.chain import usable
from tinymodels.serving.lru import Lru

COURSE = Course()
STEM = "12__serving"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}
SEEDS = [*CHECK_SEEDS, *student_seeds("ann", 5)]


def by_slices(prompt, stored, ratios, piece):
    step, n = math.lcm(piece, *ratios), 0
    while n + step < len(prompt) and prompt[: n + step] == stored[: n + step]:
        n += step
    return n


def no_step_too_many(prompt, stored, ratios, piece):
    step, n = math.lcm(piece, *ratios), 0
    while n + step <= len(prompt) and prompt[: n + step] == stored[: n + step]:
        n += step
    return n


def stored_until(x, layers, window):
    import torch

    x, found = x[max(0, x.shape[0] - window) :], []
    t = torch.arange(len(x))
    for layer in layers:
        row, x = layer(x, t[:, None] >= t[None])
        found.append(row)
    return tuple(found)


class Sorted:
    """No order is kept: whoever goes is looked up by time."""

    def __init__(self, budget, ttl):
        self.budget, self.ttl, self.all, self.n = budget, ttl, {}, 0

    @property
    def used(self):
        return sum(size for size, _, _ in self.all.values())

    def young(self, now):
        self.all = {k: v for k, v in self.all.items() if now < v[1] + self.ttl}
        self.n += 1

    def get(self, name, now):
        self.young(now)
        if name in self.all:
            self.all[name] = (self.all[name][0], now, self.n)
        return name in self.all

    def put(self, name, size, now):
        self.young(now)
        if size <= self.budget:
            self.all.pop(name, None)
            while self.used > self.budget - size:
                self.all.pop(min(self.all, key=lambda k: self.all[k][2]))
            self.all[name] = (size, now, self.n)
        return size <= self.budget


def paid(turns, hit, miss, output):
    return sum(f * hit + (p - f) * miss + w * output for p, f, w in turns) / 1e6


class TakesTheOldestName(Sorted):
    def get(self, name, now):
        self.young(now)
        if name in self.all:
            size, _, n = self.all[name]
            self.all[name] = (size, now, n)
        return name in self.all


@pytest.mark.parametrize(
    ("id", "answer"), [("12.1", by_slices), ("12.2", stored_until), ("12.3", Sorted)]
)
def test_right_answers_in_other_words_pass(id, answer):
    assert check(id, answer).status == "passed"


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("12.1", no_step_too_many, "nothing_left"),
        ("12.3", TakesTheOldestName, "first_in_first_out"),
        ("12.4", lambda t, h, m, o: (sum(p * h + w * o for p, f, w in t) / 1e6, 0.0), None),
        ("12.5", lambda far, win, other, p, r: (far / other, win / (r * other - far)), None),
    ],
)
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly")
    assert name is None or result.misconception == name


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("12.4", paid, "with"),
        ("12.4", lambda t, h, m, o: paid(t, m, m, o), "without"),
        ("12.4", lambda t, h, m, o: [p * m / 1e6 for p, f, w in t], None),
        ("12.5", lambda far, win, other, p, r: (far + win / p) / other, "the_ratio"),
    ],
)
def test_what_is_no_pair_is_told_what_a_pair_would_be(id, answer, name):
    result = check(id, answer)
    assert result.misconception == (name and f"only_{name}")
    asked = {"12.4": "with the prefix cache, without it", "12.5": "ratio, interval"}[id]
    assert f"the answer should be a pair: {asked}, and a value of type" in str(result)


@pytest.mark.parametrize("id", BY_ID)
def test_each_named_mistake_is_told_by_its_own_message(id):
    for mistake in BY_ID[id].misconceptions:
        assert check(id, mistake.answer).misconception == mistake.name
    texts = [m.message for m in BY_ID[id].misconceptions]
    assert len(texts) == len(set(texts)) >= 9


@pytest.mark.parametrize("seed", SEEDS)
def test_each_case_has_what_it_is_there_for(seed):
    for case in BY_ID["12.1"].cases(Draw(seed, "12.1")):
        prompt, stored = case.inputs["prompt"], case.inputs["stored"]
        if prompt[0] == stored[0]:
            step = math.lcm(*case.inputs["ratios"], case.inputs["piece"])
            same = next(
                (i for i, (a, b) in enumerate(zip(prompt, stored)) if a != b),
                min(len(prompt), len(stored)),
            )
            want = usable(len(prompt), same, step)
            assert int(BY_ID["12.1"].expected(case.inputs)["tokens"].value) == want > 0
    lengths = [
        (len(c.inputs["x"]), c.inputs["window"]) for c in BY_ID["12.2"].cases(Draw(seed, "12.2"))
    ]
    assert [length > 2 * window for length, window in lengths] == [True, True, False]
    assert lengths[2][0] < lengths[2][1]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_memory_of_the_exercise_is_the_course_s_lru(seed):
    """Without a TTL, and where no name is put twice: the package's class, call for call."""
    memory, lru = answers(COURSE, STEM)["12.3"](40, 10**9), Lru(40)
    draw = Draw(seed, "lru")
    for at in range(60):
        name, size = str(draw.integer(0, 9)), draw.integer(1, 45)
        if name in lru:
            assert memory.get(name, at)
            lru.touch([name])
        else:
            leaving = lru.room(size)
            assert memory.put(name, size, at) == (leaving is not None)
            for old in leaving or ():
                lru.drop(old)
            if leaving is not None:
                lru.add(name, size)
        assert memory.used == lru.used


def test_bill_and_disk_are_the_ledger_s():
    made = answers(COURSE, STEM)
    turns = ((9000, 0, 700), (12_000, 9000, 30))
    paid, bare = made["12.4"](turns, 0.003, 0.14, 0.6)
    prices = dict(hit_price=0.003, miss_price=0.14, output_price=0.6)
    want = sum(ledger.bill(f, p - f, w, **prices).total for p, f, w in turns)
    assert paid == pytest.approx(want)
    assert bare == pytest.approx(sum(ledger.bill(0, p, w, **prices).total for p, f, w in turns))
    ratio, interval = made["12.5"](3514.25, 3_214_336, 890, 128, 8)
    assert ratio == pytest.approx(ledger.disk_rate("deepseek-v4-flash", 128) / 890)
    assert ledger.disk_rate("deepseek-v4-flash", round(interval)) / 890 == pytest.approx(
        8, abs=0.01
    )
