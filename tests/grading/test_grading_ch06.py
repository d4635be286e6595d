"""Chapter 06's exercises: mistakes in a learner's own words, and the part they fill."""

import pytest
import torch

from grading import check
from grading.checks.ch06 import EXERCISES, PARTS, limit
from grading.checks.ch06_saving import V1_TO_V2
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from grading.explain import same
from grading.misconceptions.ch06_kernel import KERNEL, LatentLines
from grading.observe import observe
from tinymodels import ledger
from tinymodels.parts import Parts
from tinymodels.presets import tiny_v2, tiny_v3
from tinymodels.published import get
from tinymodels.transformer import Transformer

COURSE = Course()
STEM = "06__mla"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}


@pytest.mark.parametrize("preset", [tiny_v2, tiny_v3])
def test_a_passed_absorption_runs_in_models_with_a_latent(preset):
    """A prompt, then token by token: the same logits, and it is asked in every layer."""
    field, fit = PARTS["06.3"]
    mine, calls = fit(answers(COURSE, STEM)["06.3"]), []

    def counted(*given):
        calls.append(given[0].shape[1])
        return mine(*given)

    tokens = torch.randint(256, (2, 13), generator=torch.Generator().manual_seed(3))
    whole, own = (
        Transformer(preset(), parts, seed=4).double().requires_grad_(False)
        for parts in (None, Parts(**{field: counted}))
    )
    memories = [model.new_cache(2, 13, "float64") for model in (whole, own)]
    for part in tokens.split([6, 1, 1, 5], dim=1):
        ours, theirs = (model(part, memory) for model, memory in zip((own, whole), memories))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    assert calls.count(1) == 2 * len(whole.config)


def test_the_kernel_of_the_mistakes_is_the_kernel_of_the_exercise():
    """A mistake's two lines stand in the same text as the learner's."""
    cell = next(c for c in COURSE.cells(STEM) if c.role == "exercise" and c.exercise_id == "06.5")

    def bare(text):
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        return [line for line in lines if line and '"""' not in line]

    rest = bare(KERNEL.replace("{score}", "").replace("{add}", ""))
    theirs = bare(cell.solution)
    assert [line for line in theirs if line in rest] == rest and len(theirs) == len(rest) + 4
    exercise = BY_ID["06.5"]
    if not exercise.unavailable():
        case = exercise.cases(Draw(5, "kernel"))[0]
        ours = observe(exercise, LatentLines(), case.inputs)
        mine = observe(exercise, answers(COURSE, STEM)["06.5"], case.inputs)
        assert same(ours, mine)


# ---------------------------------------------------------------- other code, same mistake


def learner_cache(x, past, down, norm, up_k, up_v, eps, normed=True, weighed=True):
    rows = [past[:, i] for i in range(past.shape[1])]
    for t in range(x.shape[1]):
        latent = torch.stack([down @ x[b, t] for b in range(len(x))])
        if normed:
            latent = latent * torch.rsqrt((latent**2).mean(-1, keepdim=True) + eps)
        rows.append(latent * norm if weighed else latent)
    kept = torch.stack(rows, dim=1)
    key, value = (torch.stack([kept @ matrix.T for matrix in up], dim=2) for up in (up_k, up_v))
    return [kept, key, value]


def learner_scores(nope, rope, key, rope_key, start=None, root=None):
    from tinymodels.attention.rope import rotate
    from tinymodels.config import Rope

    (B, T, H, D), (S, R) = nope.shape, rope_key.shape[1:]
    at = torch.arange(T) + (S - T if start is None else start)
    query = torch.cat([nope, rotate(rope, Rope(R), at)], dim=-1)
    shared = rotate(rope_key, Rope(R), torch.arange(S))[:, :, None].expand(B, S, H, R)
    score = query.transpose(1, 2) @ torch.cat([key, shared], dim=-1).permute(0, 2, 3, 1)
    return score / ((D + R) if root is None else root) ** 0.5


def learner_absorb(nope, rope, latent, rope_key, up_k, up_v, scale, visible, late=True):
    outputs = []
    for h in range(nope.shape[2]):
        query = torch.cat([nope[:, :, h] @ up_k[h], rope[:, :, h]], dim=-1)
        score = scale * query @ torch.cat([latent, rope_key], dim=-1).transpose(1, 2)
        weight = torch.where(visible, score, -1e30).softmax(-1)
        if late:
            outputs.append(weight @ latent @ up_v[h].T)
        else:
            outputs.append(weight @ (latent @ up_v[h].T))
    return torch.stack(outputs, dim=2)


def learner_saving(old_layers, heads, dim, layers, latent, rope_key, bits, rope=True):
    old = 32 * old_layers * heads * dim
    new = layers * bits * (latent + (rope_key if rope else 0))
    return new / 8, 100 - 100 * new / old


def test_right_answers_in_other_words_pass():
    assert check("06.1", learner_cache).status == "passed"
    assert check("06.2", learner_scores).status == "passed"
    assert check("06.3", learner_absorb).status == "passed"
    assert check("06.4", learner_saving).status == "passed"


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("06.1", lambda *a: learner_cache(*a, normed=False), None),
        ("06.1", lambda *a: learner_cache(*a, weighed=False), "no_norm_weight"),
        ("06.2", lambda *a: learner_scores(*a, start=0), "queries_from_zero"),
        ("06.2", lambda *a: learner_scores(*a, root=a[0].shape[-1]), "scaled_by_nope"),
        ("06.3", lambda *a: learner_absorb(*a[:6], 1.0, a[7]), "not_scaled"),
        ("06.3", lambda *a: learner_absorb(*a[:7], torch.ones_like(a[7])), "no_mask"),
        ("06.4", lambda *a: learner_saving(*a, rope=False), "no_rope"),
        ("06.4", lambda *a: learner_saving(*a[:6], 16), "always_16_bits"),
    ],
)  # fmt: skip
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly") and result.misconception == name, result


def test_expanding_earns_all_but_the_point_for_thrift():
    def values_made(*given):
        return learner_absorb(*given, late=False)

    def all_values_made(nope, rope, latent, rope_key, up_k, up_v, scale, visible):
        value = torch.einsum("bsc,hvc->bhsv", latent, up_v)
        query = torch.einsum("bthd,hdc->bhtc", nope, up_k)
        score = query @ latent[:, None].mT + rope.transpose(1, 2) @ rope_key[:, None].mT
        weight = (score * scale).masked_fill(~visible, -float("inf")).softmax(-1)
        return (weight @ value).transpose(1, 2)

    assert check("06.3", values_made).status == "passed"  # one head at a time is no more
    result = check("06.3", all_values_made)
    assert (result.status, result.earned, result.misconception) == ("partly", 3, "expanded")


# ---------------------------------------------------------------- what the checks draw


@pytest.mark.parametrize("seed", [*CHECK_SEEDS, *student_seeds("ann", 5)])
def test_each_case_has_what_it_is_there_for(seed):
    caches = [case.inputs for case in BY_ID["06.1"].cases(Draw(seed, "06.1"))]
    assert {(c["past"].shape[1] > 0, c["x"].shape[1] > 1) for c in caches} == {
        (False, True), (True, True), (True, False)
    }  # fmt: skip
    whole, newest, one = (case.inputs for case in BY_ID["06.2"].cases(Draw(seed, "06.2")))
    assert whole["nope"].shape[1] == whole["key"].shape[1]
    assert newest["nope"].shape[1] < newest["key"].shape[1] and one["nope"].shape[1] == 1
    weighed = [case.inputs for case in BY_ID["06.3"].cases(Draw(seed, "06.3"))]
    for inputs in weighed:
        assert torch.tensor(inputs["visible"]).any(-1).all()
        B, S, _ = inputs["latent"].shape
        if inputs["weigh"]:  # what expanding makes is far above the limit
            for up in (inputs["up_k"], inputs["up_v"]):
                assert B * S * up.shape[0] * up.shape[1] > 1.5 * limit(inputs)
    assert sum(inputs["weigh"] for inputs in weighed) == 1
    hidden = ~torch.tensor(weighed[-1]["visible"])  # more than order hides
    assert hidden.tril(hidden.shape[1] - len(hidden)).any()


def test_the_real_models_are_counted_as_the_ledger_counts_them():
    saving = answers(COURSE, STEM)["06.4"]
    old, new = (get(name).config for name in ("deepseek-67b", "deepseek-v2"))
    a, b = old.layers[0].attention, new.layers[0].attention
    shape = len(old), a.kv_heads, a.head_dim, len(new), b.kv_rank, b.rope_dim
    assert shape == V1_TO_V2
    assert saving(*shape, 16)[0] == ledger.rate("deepseek-v2")
    assert [round(saving(*shape, bits)[1], 1) for bits in (16, 8, 6)] == [82.2, 91.1, 93.3]
