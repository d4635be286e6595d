"""Chapter 11's exercises: other code that is right, mistakes in a learner's own words."""

from functools import partial

import pytest
import torch

from grading import check
from grading.checks.ch11 import EXERCISES
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from tinymodels import ledger
from tinymodels.formats import E2M1, FP4, MXFP4, encode, pack_nibbles, quantise, scale_values

STEM = "11__fp4"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}


@pytest.fixture(scope="module")
def solved():
    return answers(Course(), STEM)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_solutions_are_the_courses_own_quantiser(solved, seed):
    """Together they are what the cache does."""
    values = 3 * torch.randn(7, 16, generator=torch.Generator().manual_seed(seed))
    codes, scales = quantise(values, FP4, 16)
    scale_N, ready_NG = solved["11.3"](values)
    assert torch.equal(scale_N, scale_values(scales[:, 0], FP4, torch.float32))
    mine = solved["11.1"](ready_NG)
    assert torch.equal(mine, codes)
    packed, again = solved["11.2"](mine)
    assert torch.equal(packed, pack_nibbles(codes)) and torch.equal(again, codes)
    wide = values.repeat(1, 2)
    found = scale_values(quantise(wide, MXFP4, 32)[1][:, 0], MXFP4, torch.float32)
    assert torch.equal(solved["11.4"](wide)[0], found)


def test_the_real_model_is_counted_as_the_ledger_counts_it(solved):
    rows, keys = solved["11.6"]((2, 2, 2, 1), 512, 128)
    assert (rows, keys) == (720, 170) and rows + keys == ledger.rate("deepseek-v4.1-flash")


# ---------------------------------------------------------------- other code


def learner_codes(values, tie=None, keep=True):
    table, rows = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], []
    for row in values.tolist():
        rows.append([])
        for x in row:

            def far(c, x=x):
                return abs(table[c] - abs(x)), (c % 2 if tie is None else tie * c)

            rows[-1].append(min(range(8), key=far))
    sign = torch.signbit(values) if keep else values < 0
    return torch.tensor(rows, dtype=torch.uint8) + (8 * sign).to(torch.uint8)


def learner_scale(values, late=False):
    most = torch.max(values.abs(), 1).values
    scale = torch.maximum(most / 6, torch.tensor(2.0**-9))
    stored = scale.clamp(max=448).to(torch.float8_e4m3fn).float()
    by = scale if late else stored
    return [stored, torch.clip(values / by.unsqueeze(1), -6, 6)]


def learner_power(values, power=lambda e: e):
    most = values.abs().max(dim=1).values
    scale = torch.full_like(most, 2.0**-30)
    while (most > 6 * scale).any():
        scale = torch.where(most > 6 * scale, 2 * scale, scale)
    return power(scale), most / power(scale) / 6


def learner_through(values, rounded, limit, stop=True):
    way = values.clamp(-limit, limit) if stop else values
    return way + (rounded - way).detach()


def learner_rate(ratios, dim, index, up=True):
    def blocks(n, size):
        return (n + size - 1) // size if up else n // size

    row, key = dim * 4 // 8 + blocks(dim, 16), index * 4 // 8 + blocks(index, 32)
    return [sum(size / ratio for ratio in ratios) for size in (row, key)]


def test_right_answers_in_other_words_pass():
    assert check("11.1", learner_codes).status == "passed"
    assert check("11.1", lambda values: encode(values, E2M1)).status == "passed"
    assert check("11.3", learner_scale).status == "passed"
    assert check("11.4", learner_power).status == "passed"
    assert check("11.5", learner_through).status == "passed"
    assert check("11.6", learner_rate).status == "passed"


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("11.1", lambda v: learner_codes(v, tie=1), "ties_down"),
        ("11.1", lambda v: learner_codes(v, tie=-1), "ties_up"),
        ("11.1", lambda v: learner_codes(v, keep=False), "minus_zero"),
        ("11.3", lambda v: learner_scale(v, late=True), "divided_by_the_chosen"),
        ("11.4", lambda v: learner_power(v, lambda s: s / 2), None),
        ("11.5", lambda *a: learner_through(*a, stop=False), "everywhere"),
        ("11.6", lambda *a: learner_rate(*a, up=False), "short_block_dropped"),
    ],
)
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly") and result.misconception == name, result


def learner_nibbles(codes, second):
    """One byte at a time. second(byte tensor, codes): what is said to be taken out of it."""
    rows = [[int(r[i]) + 16 * int(r[i + 1]) for i in range(0, len(r), 2)] for r in codes]
    packed = torch.tensor(rows, dtype=torch.uint8)
    return packed, second(packed, codes)


def one_by_one(packed, codes):
    return torch.tensor([[n for b in r.tolist() for n in (b % 16, b // 16)] for r in packed])


def test_codes_must_be_taken_out_of_the_bytes():
    assert check("11.2", lambda codes: learner_nibbles(codes, one_by_one)).status == "passed"

    def strict(codes):
        if (codes > 15).any():
            raise ValueError("no nibble")
        return learner_nibbles(codes.long(), one_by_one)

    assert check("11.2", strict).status == "passed"
    for second in (lambda b, codes: codes, lambda b, codes: codes.clone()):
        result = check("11.2", partial(learner_nibbles, second=second))
        assert (result.status, result.earned) == ("partly", 1), result
        assert result.misconception == "input_again" and "your input" in result.message
    result = check("11.2", lambda codes: learner_nibbles(codes, lambda b, codes: codes & 15))
    assert result.status == "partly" and result.misconception is None
    assert "was not taken out of the first" in result.message


# ---------------------------------------------------------------- what the checks draw


@pytest.mark.parametrize("seed", [*CHECK_SEEDS, *student_seeds("ann", 5)])
def test_each_case_has_what_it_is_there_for(seed):
    small, large, ties = (c.inputs["values"] for c in BY_ID["11.1"].cases(Draw(seed, "11.1")))
    assert small.abs().max() < 6 < large.abs().max() and (small < 0).any()
    assert sorted(ties[0].tolist()) == [0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0]
    normal, tiny, huge = (c.inputs["values"] for c in BY_ID["11.3"].cases(Draw(seed, "11.3"))[::2])
    assert (tiny.abs().amax(1) == 0).any() and huge.abs().max() > 2688
    assert (normal.amax(1) < normal.abs().amax(1)).any()  # the largest is negative
    scales, _ = learner_scale(normal)
    assert ((normal.abs().amax(1) / scales) > 6).any()  # rounded down, so something is cut
    exact = BY_ID["11.4"].cases(Draw(seed, "11.4"))[2].inputs["values"].abs().amax(1) / 6
    assert (exact.log2() == exact.log2().round()).all()
    through = BY_ID["11.5"].cases(Draw(seed, "11.5"))[0].inputs
    beyond = through["values"].abs() > through["limit"]
    assert beyond.any(1).all() and (~beyond).any(1).all()
    assert (through["values"].abs() == through["limit"]).any(1).all()
