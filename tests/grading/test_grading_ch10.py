"""Chapter 10's exercises: mistakes in a learner's own words, the part they fill, real sizes."""

import pytest
import torch

from grading import check
from grading.checks.ch10 import EXERCISES, PARTS
from grading.checks.ch10_counts import REAL_MODES, ROWS, V4_1
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from tinymodels import ledger
from tinymodels.attention.indexer import candidate_blocks, top_k
from tinymodels.parts import Parts
from tinymodels.presets import tiny_v4_1
from tinymodels.published import get
from tinymodels.transformer import Transformer

COURSE = Course()
STEM = "10__csa2"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}


@pytest.mark.parametrize("storage", ["float64", "packed"])
def test_a_passed_sieve_runs_in_the_tiny_v4_1(storage):
    """A prompt, then token by token: the same logits, and it is asked in every pass."""
    field, fit = PARTS["10.2"]
    mine, calls = fit(answers(COURSE, STEM)["10.2"]), []

    def counted(*given):
        calls.append(given[0].shape[1])
        return mine(*given)

    tokens = torch.randint(256, (2, 57), generator=torch.Generator().manual_seed(3))
    course, own, other = (
        Transformer(tiny_v4_1(), parts, seed=4).double().requires_grad_(False)
        for parts in (None, Parts(**{field: counted}), Parts(**{field: nothing_old}))
    )
    for model in (course, own, other):
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(6)
    logits = [through(model, tokens, storage) for model in (course, own, other)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-10)
    assert calls.count(1) == 2 and sum(calls) == 57
    assert (logits[0] - logits[2]).abs().max() > 1e-3  # what a sieve leaves out is missed


def through(model, tokens, storage):
    memory = model.new_cache(2, 57, storage)
    return torch.cat([model(part, memory) for part in tokens.split([50, 1, 1, 5], dim=1)], dim=1)


def nothing_old(score_BTS, visible_TS, block, keep):
    return candidate_blocks(score_BTS, visible_TS, block, 1)


# ---------------------------------------------------------------- other code, same mistake


def learner_modes(modes, query, key, k, nearest=True, own=True):
    out = []
    for layer in range(len(modes)):
        full = [i for i in range(layer + 1) if modes[i] == "full"]
        asked = [i for i in range(layer + 1) if modes[i] in ("full", "reindex")]
        if modes[layer] == "window":
            out.append((-1, torch.full((query.shape[1], k), -1)))
            continue
        owner, at = full[-1], asked[-1] if nearest else full[-1]
        if modes[layer] == "reindex":
            at = layer
        at_query = query[at if own else owner]
        seen = torch.arange(query.shape[1])[:, None] >= torch.arange(query.shape[1])
        out.append((owner, top_k(torch.einsum("td,sd->ts", at_query, key[owner]), seen, k)))
    return [torch.tensor([o for o, _ in out]), torch.stack([c for _, c in out])]


def learner_sieve(score, visible, block, keep, pin=True, hide=True):
    out = torch.zeros(score.shape, dtype=torch.bool)
    for b in range(len(score)):
        for t in range(score.shape[1]):
            n, S = int(visible[t].sum()), score.shape[2]
            end = n if hide else S
            there = range(0, end, block)
            worth = {i: score[b, t, i : min(i + block, end)].max() for i in there}
            best = sorted(there, key=lambda i: (-worth[i], i))
            if pin and n:
                newest = (n - 1) // block * block
                best = [newest, *(i for i in best if i != newest)]
            for i in best[:keep]:
                out[b, t, i : min(i + block, n)] = True
    return out


def learner_sharing(ratios, owners, entry, key, window=0):
    every = [ratio or window for ratio in ratios]
    rates = [(entry + key) / ratio if ratio else 0 for ratio in every]
    return [sum(r for i, r in enumerate(rates) if i in owners), sum(rates)]


def learner_work(n, modes, ratios, window, k, pool, heads, dim, ih, idim, reuse=False):
    far = [n // r if r else 0 for r in ratios]
    read = sum(min(n, window) + min(f, k) for f in far)
    scored = sum(f for f, m in zip(far, modes) if m == "full")
    chooses = ("reindex", "reuse") if reuse else ("reindex",)
    scored += sum(min(f, pool) for f, m in zip(far, modes) if m in chooses)
    return [4 * read * heads * dim, 2 * scored * ih * idim]


def test_right_answers_in_other_words_pass():
    for id, answer in (
        ("10.1", learner_modes),
        ("10.2", learner_sieve),
        ("10.2", candidate_blocks),
        ("10.3", learner_sharing),
        ("10.4", learner_work),
    ):
        assert check(id, answer).status == "passed", id


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("10.1", lambda *a: learner_modes(*a, nearest=False), "reuse_of_owner"),
        ("10.1", lambda *a: learner_modes(*a, own=False), "owners_query"),
        ("10.2", lambda *a: learner_sieve(*a, pin=False), "not_pinned"),
        ("10.2", lambda *a: learner_sieve(*a, hide=False), "sees_the_future"),
        ("10.3", lambda *a: learner_sharing(*a, window=1), "windows_keep"),
        ("10.4", lambda *a: learner_work(*a, reuse=True), "reuse_scores"),
        ("10.4", lambda *a: learner_work(*a[:5], 10**9, *a[6:]), "reindex_scores_all"),
    ],
)
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly") and result.misconception == name, result


# ---------------------------------------------------------------- what the checks draw


@pytest.mark.parametrize("seed", [*CHECK_SEEDS, *student_seeds("ann", 5)])
def test_each_case_has_what_it_is_there_for(seed):
    for case in BY_ID["10.1"].cases(Draw(seed, "10.1")):
        assert case.inputs["query"].shape == case.inputs["key"].shape
        assert case.inputs["k"] < case.inputs["query"].shape[1]
    sieves = [case.inputs for case in BY_ID["10.2"].cases(Draw(seed, "10.2"))]
    for inputs in sieves[:2]:
        S, block = inputs["score"].shape[-1], inputs["block"]
        assert all(count > inputs["keep"] * block - block for count in inputs["counts"])
        assert any(count % block == 0 for count in inputs["counts"]) and S % block
        assert inputs["counts"][-1] == S  # one query sees into the last, shorter block
    assert 0 in sieves[2]["counts"] and 1 in sieves[2]["counts"]


def test_the_real_model_is_counted_as_the_ledger_counts_it():
    config = get("deepseek-v4.1-flash").config
    attentions = [layer.attention for layer in config.layers]
    ratios, owners = V4_1
    assert tuple(a.ratio for a in attentions) == ratios
    assert tuple(a.mode for a in attentions) == REAL_MODES
    assert tuple(i for i, a in enumerate(attentions) if a.mode == "full") == owners
    solved = answers(COURSE, STEM)
    for row, size in ROWS.items():
        shared, unshared = solved["10.3"](ratios, owners, *size)
        assert shared == ledger.rate(config, row)
        assert round(unshared / shared, 1) == 11.6
    for n in (1, 100, 4096, 1_048_576):
        counted = solved["10.4"](n, REAL_MODES, ratios, 128, 512, 16_384, 64, 512, 32, 128)
        parts = ledger.decode_flop_parts(config, n)
        assert counted == (parts["attention core", "bf16"], parts["indexer scores", "fp4"])
