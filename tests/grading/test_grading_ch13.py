"""Chapter 13's exercises: the fault lab is what the notebook shows, and tests are graded fairly."""

from dataclasses import replace

import pytest
import torch

from grading import check
from grading.checks import ch13_frontier
from grading.checks.ch13 import EXERCISES
from grading.checks.ch13_frontier import FRONTIER
from grading.course_notebook import Course, answers, execute
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from grading.explain import same
from grading.observe import observe
from grading.references.lab_caches import FAULTS, RIGHT, broken
from grading.verdict import assess
from tinymodels import frontier

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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_test_that_asks_one_thing_earns_one_point(fault):
    """Here by peeping; what counts is what it blames."""

    def is_broken(make):
        return getattr(make(**SIZES), "fault", "") == fault

    result = check("13.7", is_broken)
    assert (result.status, result.earned) == ("partly", 1)
    assert "blames no cache" not in result.message


@pytest.mark.parametrize("caught", [FAULTS[:2], FAULTS[2:4]])
def test_who_catches_two_is_not_taken_for_one_who_catches_fewer(caught):
    result = check("13.7", lambda make: getattr(make(**SIZES), "fault", "") in caught)
    assert (result.status, result.earned) == ("partly", 2)
    assert "blames no cache" not in result.message and "12 of the 12" not in result.message


def test_who_catches_nothing_is_told():
    assert check("13.7", lambda make: False).misconception == "blames_none"


def test_one_right_cache_blamed_and_nothing_is_earned():
    def is_broken(make):
        return type(make(**SIZES)).__name__ == "Plain" or bool(make(**SIZES).fault)

    result = check("13.7", is_broken)
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


# ---------------------------------------------------------------- the frontier

OTHER = replace(frontier.EXAMPLE, norm_eps=3e-6)


@pytest.fixture
def nobody_errs(monkeypatch):
    """tiny_v1's weakest seed misses none: three seeds together may miss three."""
    monkeypatch.setattr(ch13_frontier, "weakest", lambda texts: 0)


def test_weights_are_measured_and_not_believed(tmp_path, monkeypatch, nobody_errs):
    """Files of an untrained model, under the right names, earn the point for the bytes alone."""
    for seed in frontier.SEEDS:
        model = frontier.Transformer(OTHER, seed=seed)
        frontier._save(model, [5.5] * 20, seed, frontier.path(OTHER, seed, tmp_path))
    monkeypatch.chdir(tmp_path)
    wrong = frontier.wrong
    monkeypatch.setattr(frontier, "wrong", lambda model, texts: wrong(model, texts, count=1))
    result = assess(FRONTIER, lambda: OTHER, CHECK_SEEDS[:1])
    assert (result.status, result.earned) == ("partly", 1)
    assert "forgets more" in result.message


@pytest.mark.parametrize(("weakest", "wrong", "right"), [
    (0, (1, 1, 1), True), (0, (2, 1, 1), False), (2, (9, 0, 0), True), (2, (10, 0, 0), False),
])  # fmt: skip
def test_one_answer_too_many_fails_and_the_message_counts(monkeypatch, weakest, wrong, right):
    monkeypatch.setattr(ch13_frontier, "weakest", lambda texts: weakest)
    monkeypatch.setattr(ch13_frontier, "_is_there", lambda config, seed: True)
    monkeypatch.setattr(ch13_frontier, "_is_copied", lambda model: False)
    monkeypatch.setattr(frontier, "load", lambda config, seed: seed)
    monkeypatch.setattr(frontier, "wrong", lambda seed, texts: wrong[seed])
    result = check("13.8", lambda: OTHER)
    assert result.status == ("passed" if right else "partly")
    assert right or (result.earned == 1 and "4 counted, 3 would do" in result.message)


def test_a_configuration_that_is_not_trained_is_told_how(tmp_path, monkeypatch, nobody_errs):
    monkeypatch.chdir(tmp_path)
    result = check("13.8", lambda: OTHER.with_(context=998))
    assert (result.status, result.earned) == ("partly", 1)
    assert "frontier.train" in result.message and "stopped" not in result.message


def copy_the_lessons_weights(config, folder):
    """As if they had been trained for `config`."""
    for seed in frontier.SEEDS:
        weights = frontier.path(frontier.EXAMPLE, seed, frontier.FOLDER).read_bytes()
        frontier.path(config, seed, folder).write_bytes(weights)


@pytest.mark.parametrize("change", [{"name": "mine"}, {"context": 2048}, {"row": "fp8"}])
def test_the_model_of_the_lesson_earns_nothing(change, tmp_path, monkeypatch, nobody_errs):
    """Nor do its weights under another name, made for a longer text or stored in other rows."""
    config = frontier.EXAMPLE.with_(**change)
    copy_the_lessons_weights(config, tmp_path)
    monkeypatch.chdir(tmp_path)
    result = check("13.8", lambda: config)
    assert (result.status, result.earned) == ("wrong", 0)
    assert "model of the lesson" in result.message


def test_copied_weights_earn_nothing_for_what_they_know(tmp_path, monkeypatch, nobody_errs):
    """The lesson's weights in a configuration that differs in a number without weights."""
    copy_the_lessons_weights(OTHER, tmp_path)
    monkeypatch.chdir(tmp_path)
    result = check("13.8", lambda: OTHER)
    assert (result.status, result.earned) == ("partly", 1)
    assert "model of the lesson" in result.message


def test_the_solution_is_another_and_its_weights_are_shipped():
    config = answers(COURSE, STEM)["13.8"]()
    assert frontier.fingerprint(config) != frontier.fingerprint(frontier.EXAMPLE)
    assert all(frontier.path(config, s, frontier.FOLDER).is_file() for s in frontier.SEEDS)


@pytest.mark.parametrize(("seed", "steps"), [(1, 2)] + [
    pytest.param(seed, 20, marks=pytest.mark.slow) for seed in frontier.SEEDS
])  # fmt: skip
def test_the_solution_is_trained_as_all_others(seed, steps):
    """Its first steps are made again."""
    config = answers(COURSE, STEM)["13.8"]()
    stored = frontier.about(config, seed)["first_losses"].split()
    _, losses = frontier.learn(config, seed, steps)
    assert losses == pytest.approx([float(x) for x in stored[:steps]], abs=2e-3)
