"""Chapter 07's exercises: mistakes in a learner's own words, and the part they fill."""

import sys

import numpy as np
import pytest
import torch

from grading import check
from grading.checks.ch07 import EXERCISES, PARTS
from grading.checks.ch07_reads import V3_2
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from grading.explain import same
from grading.misconceptions.ch07_kernel import KERNEL, GatherLines
from grading.observe import observe
from tinymodels import ledger
from tinymodels.parts import Parts
from tinymodels.presets import tiny_v3_2
from tinymodels.published import get
from tinymodels.transformer import Transformer

COURSE = Course()
STEM = "07__sparse_attention"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}


def test_a_passed_choice_runs_in_v3_2():
    """A prompt, then token by token: the same logits, and it is asked in every layer."""
    field, fit = PARTS["07.2"]
    mine, calls = fit(answers(COURSE, STEM)["07.2"]), []

    def counted(score_BTS, visible_TS, k):
        calls.append(score_BTS.shape[1])
        return mine(score_BTS, visible_TS, k).int() * 1

    tokens = torch.randint(256, (2, 45), generator=torch.Generator().manual_seed(3))
    whole, own = (
        Transformer(tiny_v3_2(), parts, seed=4).double().requires_grad_(False)
        for parts in (None, Parts(**{field: fit(counted)}))
    )
    memories = [model.new_cache(2, 45, "float64") for model in (whole, own)]
    for part in tokens.split([31, 1, 1, 12], dim=1):
        ours, theirs = (model(part, memory) for model, memory in zip((own, whole), memories))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    assert calls.count(1) == 2 * len(whole.config)


def test_another_choice_gives_other_logits():
    """A model asks the part it was given: the newest entries are not the best ones."""

    def newest(score_BTS, visible_TS, k):
        S, (B, T) = score_BTS.shape[-1], score_BTS.shape[:2]
        first_T1 = visible_TS.sum(-1, keepdim=True) - min(k, S)
        return (first_T1 + torch.arange(min(k, S))).clamp(min=-1).expand(B, T, -1)

    tokens = torch.randint(256, (2, 61), generator=torch.Generator().manual_seed(3))
    whole, own = (
        Transformer(tiny_v3_2(), parts, seed=4).requires_grad_(False)
        for parts in (None, Parts(select=newest))
    )
    assert (whole(tokens) - own(tokens))[:, 40:].abs().max() > 1e-2


def test_the_kernel_of_the_mistakes_is_the_kernel_of_the_exercise():
    """A mistake's two lines stand in the same text as the learner's."""
    cell = next(c for c in COURSE.cells(STEM) if c.role == "exercise" and c.exercise_id == "07.5")

    def bare(text):
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        return [line for line in lines if line and '"""' not in line]

    rest = bare(KERNEL.replace("{row}", "").replace("{entry}", ""))
    theirs = bare(cell.solution)
    assert [line for line in theirs if line in rest] == rest and len(theirs) <= len(rest) + 6
    exercise = BY_ID["07.5"]
    if not exercise.unavailable():
        for case in exercise.cases(Draw(5, "kernel")):
            ours = observe(exercise, GatherLines(), case.inputs)
            mine = observe(exercise, answers(COURSE, STEM)["07.5"], case.inputs)
            assert same(ours, mine)


# ---------------------------------------------------------------- other code, same mistake


def learner_scores(query, weight, key, cut=True):
    total = 0
    for i in range(query.shape[2]):
        match = query[:, :, i] @ key.transpose(1, 2)
        total = total + (match.clamp(min=0) if cut else match) * weight[:, :, i, None]
    return total


def learner_select(score, visible, k, order=1, empty=-1):
    B, T, S = score.shape
    rows = []
    for b in range(B):
        for t in range(T):
            seen = [s for s in range(S) if visible[t, s]]
            seen.sort(key=lambda s: (-float(score[b, t, s]), order * s))
            best = sorted(seen[:k])
            rows.append(best + [empty] * (min(k, S) - len(best)))
    return torch.tensor(rows).view(B, T, min(k, S))


def plain_topk(score, k):
    return torch.topk(score, min(k, score.shape[-1]), dim=-1)[1]


def learner_reads(layers, latent, rope, index, k, context, all_index=True):
    row, chosen = 2 * latent + 2 * rope, k if k < context else context
    keys = context if all_index else chosen
    return [layers * (row + 2 * index), layers * (chosen * row + keys * 2 * index)]


def learner_threshold(key, k, bits, enough=0):
    low, high = 0, 2**bits  # low is reached by k keys, high is not
    while high - low > 1:
        middle = (low + high) // 2
        if len([x for x in key.tolist() if x >= middle]) >= k + enough:
            low = middle
        else:
            high = middle
    return low


def test_right_answers_in_other_words_pass():
    assert check("07.1", learner_scores).status == "passed"
    assert check("07.2", learner_select).status == "passed"
    assert check("07.3", learner_reads).status == "passed"
    assert check("07.3", lambda *a: np.array(learner_reads(*a))).status == "passed"
    assert check("07.4", learner_threshold).status == "passed"


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("07.1", lambda *a: learner_scores(*a, cut=False), "no_relu"),
        ("07.1", lambda q, w, k: learner_scores(q, torch.ones_like(w), k), "not_weighted"),
        ("07.2", lambda *a: learner_select(*a, order=-1), "last_of_equals"),
        ("07.2", lambda *a: learner_select(*a, empty=0), "zero_for_none"),
        ("07.2", lambda s, v, k: learner_select(s, torch.ones_like(v), k), "no_mask"),
        (
            "07.2",
            lambda s, v, k: learner_select(s - torch.arange(s.shape[2]) / 2e5, v, k),
            "nudged",
        ),
        ("07.2", lambda s, v, k: plain_topk(s.masked_fill(~v, -9e9), k), "topk_alone"),
        ("07.3", lambda *a: learner_reads(*a, all_index=False), "index_of_chosen"),
        ("07.4", lambda *a: learner_threshold(*a, enough=1), "more_than_k"),
        ("07.4", lambda key, k, bits: int(key.topk(k).values[-1]), "sorted"),
    ],
)
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly") and result.misconception == name, result


def by_list(key, k, bits):
    keys = key.tolist()
    keys.sort()
    return keys[-k]


@pytest.mark.parametrize(
    "answer",
    [
        lambda key, k, bits: int(torch.sort(-key)[0][k - 1]) * -1,
        lambda key, k, bits: sorted(key.tolist())[-k],
        by_list,
        lambda key, k, bits: int(np.sort(key.numpy())[-k]),
        lambda key, k, bits: int(np.partition(key.numpy(), -k)[-k]),
    ],
)
def test_sorting_earns_all_but_the_point_for_counting(answer):
    """With torch, Python or numpy, and whoever profiled before profiles on."""
    before = sys.getprofile()
    result = check("07.4", answer)
    assert (result.status, result.earned, result.misconception) == ("partly", 2, "sorted")
    assert sys.getprofile() is before


# ---------------------------------------------------------------- what the checks draw


@pytest.mark.parametrize("seed", [*CHECK_SEEDS, *student_seeds("ann", 5)])
def test_each_case_has_what_it_is_there_for(seed):
    for case in BY_ID["07.1"].cases(Draw(seed, "07.1")):
        assert (case.inputs["weight"] < 0).any() and (case.inputs["weight"] > 0).any()
    first, ties, zeros, close, whole, some, above = BY_ID["07.2"].cases(Draw(seed, "07.2"))
    visible = torch.tensor(first.inputs["visible"])
    assert (visible.sum(-1) > first.inputs["k"]).all() and not visible.all()
    sorted_BTS = first.inputs["score"].sort(-1).values
    assert (sorted_BTS.diff() > 0).all()
    score, k = ties.inputs["score"], ties.inputs["k"]
    cut = score.masked_fill(~visible, -9).sort(-1, descending=True).values
    assert (cut[..., k - 1] == cut[..., k]).any()  # the tie decides who is in
    assert (zeros.inputs["score"] == 0).all()
    gaps = close.inputs["score"].sort(-1).values.diff()
    assert 0 < gaps.min() and gaps.max() < 1e-6
    for case in (whole, some, above):
        seen = torch.tensor(case.inputs["visible"]).sum(-1)
        assert (seen < case.inputs["k"]).any()
    assert above.inputs["k"] > above.inputs["score"].shape[-1]
    contexts = {c.inputs["context"] > c.inputs["k"] for c in BY_ID["07.3"].cases(Draw(seed, "c"))}
    assert contexts == {True, False}
    for case in BY_ID["07.4"].cases(Draw(seed, "07.4")):
        assert 0 <= int(case.inputs["key"].min()) and 1 <= case.inputs["k"] <= len(
            case.inputs["key"]
        )
        assert int(case.inputs["key"].max()) < 2 ** case.inputs["bits"]
    for case in BY_ID["07.5"].cases(Draw(seed, "07.5")):
        index = case.inputs["index"]
        assert (index.max(-1).values < case.inputs["entry"].shape[1]).all()
        assert not torch.equal(index[0], index[1])


def test_the_real_model_is_counted_as_the_ledger_counts_it():
    count = answers(COURSE, STEM)["07.3"]
    config = get("deepseek-v3.2").config
    a = config.layers[0].attention
    shape = len(config), a.kv_rank, a.rope_dim, a.indexer.dim, a.indexer.top_k
    assert shape == V3_2
    kept, read = count(*shape, 131_072)
    assert kept == ledger.rate("deepseek-v3.2", row="bf16") == 85_888
    assert count(*shape[:3], 0, 131_072, 131_072)[1] == 131_072 * ledger.rate("deepseek-v3")
    assert read < 0.3 * 131_072 * ledger.rate("deepseek-v3")
