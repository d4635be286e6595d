"""Every exercise of the course: its solution passes, its stub is not attempted, and each
named mistake is rejected under its own name."""

import re
from dataclasses import replace

import pytest
import torch

from grading import check
from grading.audit import MUTANT_SECONDS, audit_exercise, mutated_answers
from grading.checks import EXERCISES
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from grading.equivalents import EQUIVALENT
from grading.exercise import Misconception
from grading.explain import same
from grading.misconceptions.ch01_kernel import ADD, KERNEL, LOAD, KernelLines
from grading.observe import observe
from grading.verdict import assess, passes
from tools.percent import read

COURSE = Course()
MISTAKES = [
    pytest.param(exercise, mistake, id=f"{exercise.id}-{mistake.name}")
    for exercise in EXERCISES
    for mistake in exercise.misconceptions
]
BY_ID = {exercise.id: exercise for exercise in EXERCISES}
each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=[e.id for e in EXERCISES])


@pytest.fixture(scope="module")
def solutions():
    return {k: v for stem in COURSE.notebooks() for k, v in answers(COURSE, stem).items()}


@pytest.fixture(scope="module")
def stubs():
    return {k: v for stem in COURSE.notebooks() for k, v in answers(COURSE, stem, "text").items()}


@pytest.fixture(autouse=True)
def skip_unavailable(request):
    exercise = request.node.callspec.params.get("exercise") if hasattr(
        request.node, "callspec") else None  # fmt: skip
    if exercise is not None and exercise.unavailable():
        pytest.skip(exercise.unavailable())


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES)
def test_each_mistake_is_rejected_under_its_own_name(exercise, mistake):
    result = check(exercise.id, mistake.answer)
    assert result.status in ("wrong", "partly", "error")
    assert result.earned < exercise.points or exercise.points == 0
    assert result.misconception == mistake.name
    assert result.message.startswith(mistake.message)


@each_exercise
def test_mistakes_are_many_and_their_messages_different(exercise):
    assert len(exercise.misconceptions) >= 5
    for field in ("name", "message"):
        values = [getattr(mistake, field) for mistake in exercise.misconceptions]
        assert len(set(values)) == len(values)
    assert 2 <= len(exercise.hints) <= 5


MEASURED = ("13.8",)  # trained models answer for it, ten seconds for each who is graded


@pytest.mark.parametrize("exercise", [
    pytest.param(e, id=e.id, marks=pytest.mark.slow if e.id in MEASURED else ())
    for e in EXERCISES
])  # fmt: skip
def test_the_solution_passes_whoever_is_graded(exercise, solutions):
    students = [student_seeds(name) for name in ("ann", "ben", "cyd", "dee")]
    for seeds in (CHECK_SEEDS, *students):
        result = assess(exercise, solutions[exercise.id], seeds)
        assert result.status == "passed", result
        assert result.earned == exercise.points


@pytest.mark.parametrize("id", MEASURED)
def test_a_measured_solution_passes_on_one_draw(id, solutions):
    """Where that takes long; the test above goes through all draws when it is not in a hurry."""
    result = assess(BY_ID[id], solutions[id], CHECK_SEEDS[:1])
    assert (result.status, result.earned) == ("passed", BY_ID[id].points), result


@each_exercise
def test_the_stub_is_not_attempted(exercise, stubs):
    result = check(exercise.id, stubs[exercise.id])
    assert (result.status, result.earned) == ("not_attempted", 0)


@each_exercise
def test_the_notebook_says_what_the_check_says(exercise):
    """Title and points in the text are those of the exercise."""
    cells = read(COURSE.sources / f"{exercise.notebook}.py").cells
    points = next(
        cell.metadata["points"] for cell in cells
        if cell.metadata.get("exercise_id") == exercise.id and "exercise" in cell.tags
    )  # fmt: skip
    assert points == exercise.points
    header = next(c.text for c in cells if c.text.startswith(f"## {exercise.id} "))
    assert header.startswith(f"## {exercise.id} {exercise.title}".split(":")[0])
    assert re.search(r"difficulty [1-5]/5, importance [1-5]/5, about \d+ minutes", header)
    assert ("(optional)" in header) == exercise.optional


@each_exercise
def test_sizes_differ_and_are_no_powers_of_two(exercise):
    for seed in (*CHECK_SEEDS, *student_seeds("ann", 8), *student_seeds("ben", 8)):
        for case in exercise.cases(Draw(seed, exercise.id)):
            for value in case.inputs.values():
                if isinstance(value, torch.Tensor):
                    sizes = [n for n in value.shape if n > 3]
                    assert len(set(sizes)) == len(sizes), case.says
                    assert all(n & (n - 1) for n in sizes), case.says
                    assert value.shape[0] > 1, case.says


@each_exercise
def test_every_student_has_inputs_of_their_own(exercise):
    """Other numbers than check()'s and than another student's, the same at every grading."""

    def drawn(seeds):
        return [
            {name: value.tolist() if isinstance(value, torch.Tensor) else repr(value)
             for name, value in case.inputs.items()}
            for seed in seeds for case in exercise.cases(Draw(seed, exercise.id))
        ]  # fmt: skip

    ann, again, ben, own = (
        drawn(seeds) for seeds in
        (student_seeds("ann"), student_seeds("ann"), student_seeds("ben"), CHECK_SEEDS)
    )  # fmt: skip
    assert repr(ann) == repr(again)
    assert repr(ann) != repr(ben) and repr(ann) != repr(own)


def test_the_audit_finds_a_check_that_is_too_weak(solutions, stubs):
    """A mistake that passes, and two that cannot be told apart, are both reported."""
    exercise = BY_ID["01.4"]
    solution, stub = solutions["01.4"], stubs["01.4"]
    assert audit_exercise(exercise, solution, stub, students=1).problems == ()

    harmless = Misconception("harmless", "This is right.", solution)
    twin = replace(exercise.misconceptions[0], name="twin")
    weak = replace(exercise, misconceptions=(*exercise.misconceptions, harmless, twin))
    problems = audit_exercise(weak, solution, stub, students=0).problems
    assert any("harmless passes" in text for text in problems)
    assert any("twin is taken for forgets_two" in text for text in problems)
    assert audit_exercise(exercise, stub, solution, students=0).problems
    first, second, *others = exercise.misconceptions
    same_words = replace(exercise, misconceptions=(first, replace(second, message=first.message)))
    found = audit_exercise(same_words, solution, stub, students=0)
    assert found.recognised == 0 and "the message of another" in found.problems[0]


SLOW = ("01.1", "01.5", "01.6")
FEWEST = {"00": 8, "01": 8, "03": 5}  # mutants by chapter; elsewhere 3


@pytest.mark.parametrize(
    "exercise", [pytest.param(e, id=e.id) for e in EXERCISES if e.id not in SLOW]
)
def test_mutants_of_the_solution_do_not_pass(exercise):
    """All of them for quick exercises; `python -m grading audit --full` does every exercise."""
    survivors, total = [], 0
    exercise = replace(exercise, seconds=min(exercise.seconds, MUTANT_SECONDS))
    for mutant, answer in mutated_answers(exercise.id, COURSE.cells(exercise.notebook)):
        total += 1
        if answer is not None and passes(exercise, answer, CHECK_SEEDS):
            survivors.append(mutant.change)
    assert total >= FEWEST.get(exercise.id[:2], 3)
    assert set(survivors) <= set(EQUIVALENT.get(exercise.id, {}))


def test_the_kernel_of_the_mistakes_is_the_kernel_of_the_exercise(solutions):
    """A mistake's two lines stand in the same text as the learner's."""
    cell = next(c for c in COURSE.cells("01__attention")
                if c.role == "exercise" and c.exercise_id == "01.6")  # fmt: skip

    def bare(text):
        lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
        return [line for line in lines if line.strip() and '"""' not in line]

    assert bare(cell.solution) == bare(KERNEL.format(load=LOAD, add=ADD))
    exercise = BY_ID["01.6"]
    if not exercise.unavailable():
        case = exercise.cases(Draw(5, "kernel"))[0]
        ours = observe(exercise, KernelLines(), case.inputs)
        assert same(ours, observe(exercise, solutions["01.6"], case.inputs))


# The same mistakes as a learner would write them: other code, same answer, same name.


def learner_einsum(query, key, value, scale=True, aligned=True, later=float("-inf")):
    score = torch.einsum("bthd,bshd->bhts", query, key)
    score = score / query.shape[-1] ** 0.5 if scale else score
    T, S = score.shape[-2:]
    shift = S - T if aligned else 0
    for t in range(T):
        score[..., t, shift + t + 1 :] = later
    return torch.einsum("bhts,bshd->bthd", torch.softmax(score, dim=-1), value)


def test_mistakes_in_a_learners_own_words():
    assert check("01.1", learner_einsum).status == "passed"
    for kind, name in (
        ({"scale": False}, "no_scale"),
        ({"aligned": False}, "mask_top_left"),
        ({"later": 0.0}, "masked_with_zero"),
    ):
        result = check("01.1", lambda q, k, v, kind=kind: learner_einsum(q, k, v, **kind))
        assert result.misconception == name, result

    def torch_is_causal(query, key, value):
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, key, value, is_causal=True).transpose(1, 2)

    assert check("01.1", torch_is_causal).misconception == "mask_top_left"

    def stored_but_unused(cache, query, key, value):
        old = cache or (key[:, :0], value[:, :0])
        kept = tuple(torch.hstack([a, b]) for a, b in zip(old, (key, value)))
        return learner_einsum(query, key, value), kept

    assert check("01.2", stored_but_unused).misconception == "attends_new_only"

    def no_cache_at_all(model, prompt, count):
        for _ in range(count):
            prompt = torch.hstack([prompt, model(prompt)[:, -1:].argmax(-1)])
        return prompt[:, -count:]

    result = check("01.3", no_cache_at_all)
    assert (result.status, result.earned, result.misconception) == ("partly", 2, "recomputes")
    assert check("01.4", lambda L, X, H, K, D, b: L * K * D * b / 8).misconception == "forgets_two"


def test_an_unknown_mistake_gets_no_name():
    """A message that blames the learner for what they did not do is worse than none."""
    result = check("01.1", lambda q, k, v: learner_einsum(q, k, v) + 0.1)
    assert (result.status, result.misconception) == ("wrong", None)
    result = check("01.1", lambda q, k, v: learner_einsum(q, k, v) * float("nan"))
    assert (result.status, result.misconception) == ("wrong", None)


def test_a_cache_in_a_global_is_found_and_a_list_is_a_pair():
    kept = {}

    def outside(cache, query, key, value):
        if cache is None:
            kept.clear()
        for name, new in (("key", key), ("value", value)):
            kept[name] = torch.hstack([kept[name], new]) if name in kept else new
        return learner_einsum(query, kept["key"], kept["value"]), [kept["key"], kept["value"]]

    def handed_on(cache, query, key, value):
        pairs = zip(cache or (key[:, :0], value[:, :0]), (key, value))
        kept = [torch.hstack(pair) for pair in pairs]
        return [learner_einsum(query, *kept), kept]

    assert check("01.2", outside).misconception == "kept_outside"
    assert check("01.2", handed_on).status == "passed"
    told = check("01.2", lambda *given: handed_on(*given)[0]).message
    assert "the answer should be a pair: output, cache, and one Tensor of shape" in told
