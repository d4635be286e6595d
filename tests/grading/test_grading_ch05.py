"""Chapter 05's exercises: mistakes in a learner's own words, and what the checks draw."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from grading import check
from grading.checks.ch05 import EXERCISES, LARGEST
from grading.checks.ch05_requests import SOME
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from grading.references.largest_tensor import LargestTensor
from kernels.pages import in_pages
from tinymodels import ledger
from tinymodels.families import load

COURSE = Course()
STEM = "05__the_bill"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}
CONFIGS = Path(__file__).parents[1] / "configs"


# ---------------------------------------------------------------- other code, same answer


def head_by_head(query, key, value, share=True, mask=True):
    B, T, H, D = query.shape
    S, K = key.shape[1:3]
    heads = []
    for h in range(H):
        k = h // (H // K) if share else h % K
        score = query[:, :, h] @ key[:, :, k].transpose(1, 2) / D**0.5
        if mask:
            position = torch.arange(S)
            late = position[None] > (S - T + torch.arange(T))[:, None]
            score = torch.where(late, -float("inf"), score)
        heads.append(score.softmax(-1) @ value[:, :, k])
    return torch.stack(heads, 2)


def stretched(query, key, value):
    """No repeat_interleave in sight, but `@` between [K, G] and [K, 1] copies all the same."""
    B, T, H, D = query.shape
    S, K = key.shape[1:3]
    query = query.unflatten(2, (K, H // K)).permute(0, 2, 3, 1, 4)
    key, value = (x.permute(0, 2, 1, 3)[:, :, None] for x in (key, value))
    seen = torch.ones(T, S).tril(S - T) == 1
    score = (query @ key.transpose(-1, -2) / D**0.5).masked_fill(~seen, -torch.inf)
    return (score.softmax(-1) @ value).permute(0, 3, 1, 2, 4).flatten(2, 3)


def read_config(c, n, divide=False, everywhere=False):
    heads = c["num_attention_heads"]
    dim = c["hidden_size"] // heads if divide or not c.get("head_dim") else c["head_dim"]
    row = 2 * (c.get("num_key_value_heads") or heads) * dim
    row *= {"float32": 4}.get(c.get("torch_dtype"), 2)
    total = 0
    for i in range(c["num_hidden_layers"] - (c.get("num_kv_shared_layers") or 0)):
        windowed = everywhere or not c.get("layer_types") or "sliding" in c["layer_types"][i]
        total += row * (min(n, c["sliding_window"]) if windowed and c.get("sliding_window") else n)
    return total


def fit(cards, card, percent, weights, rate, context, page):
    free = cards * card * (100 - percent) // 100 - weights
    pages = context // page + (context % page > 0)
    return free // (rate * page * pages) if free > 0 else 0


def row_by_row(pool, table, position):
    P = pool.shape[1]
    texts = []
    for b, row in enumerate(position.tolist()):
        texts.append(torch.stack([pool[table[b, s // P], s % P] for s in row]))
    return torch.stack(texts)


@pytest.mark.parametrize(
    ("id", "answer"),
    [("05.1", head_by_head), ("05.2", read_config), ("05.3", fit), ("05.4", row_by_row)],
)
def test_right_answers_in_other_words_pass(id, answer):
    assert check(id, answer).status == "passed"


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("05.1", lambda q, k, v: head_by_head(q, k, v, share=False), "taking_turns"),
        ("05.1", lambda q, k, v: head_by_head(q, k, v, mask=False), "no_mask"),
        ("05.2", lambda c, n: read_config(c, n, divide=True), "head_dim_divided"),
        ("05.2", lambda c, n: read_config(c, n, everywhere=True), "window_everywhere"),
        ("05.3", lambda *a: fit(*a[:2], 0, *a[3:]), "forgets_reserve"),
        ("05.3", lambda *a: fit(*a[:6], 1), "no_pages"),
        ("05.4", lambda p, t, s: p.flatten(0, 1)[s], "no_table"),
        ("05.4", lambda p, t, s: p[t[0][s // p.shape[1]], s % p.shape[1]], "first_text"),
    ],
)
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly") and result.misconception == name, result


def test_copies_that_torch_makes_unseen_cost_a_point():
    result = check("05.1", stretched)
    assert (result.status, result.earned, result.misconception) == ("partly", 2, "repeats")


def test_a_pool_laid_out_costs_a_point():
    def laid_out(pool, table, position):
        rows = pool[table].flatten(1, 2)
        return rows.gather(1, position[..., None].expand(*position.shape, pool.shape[2]))

    result = check("05.4", laid_out)
    assert (result.status, result.earned, result.misconception) == ("partly", 2, "laid_out")


def test_a_missing_field_is_no_mistake_of_the_first_part():
    """Who knows neither windows nor layers that share has the two points for plain models."""

    def plain(c, n):
        return read_config(
            {k: v for k, v in c.items() if "window" not in k and "kv_sh" not in k}, n
        )

    result = check("05.2", plain)
    assert (result.status, result.earned) == ("partly", 2)


# ---------------------------------------------------------------- what the checks draw and count


def test_views_are_not_new_and_what_is_laid_out_is():
    x = torch.randn(3, 5, 7)
    with LargestTensor([x]) as largest:
        x.transpose(0, 2)[1:].unflatten(0, (2, 3)).expand(9, 2, 3, 5, 3)
        assert largest.numbers == 0
        x[:2].contiguous()
        assert largest.numbers == 0  # it lay in order already
        x.sum(0)
        assert largest.numbers == 35
        x.repeat_interleave(4, dim=1)
        assert largest.numbers == 3 * 20 * 7
    with LargestTensor() as largest:
        x[:, :1].expand(3, 999, 7)
        assert largest.numbers == 3 * 5 * 7  # nothing is given: the view counts as what it views
        x[:, :1].expand(3, 999, 7) + 0
        assert largest.numbers == 3 * 999 * 7


@pytest.mark.parametrize("seed", [*CHECK_SEEDS, *student_seeds("ann", 5)])
def test_each_case_has_what_it_is_there_for(seed):
    for case in BY_ID["05.1"].cases(Draw(seed, "05.1")):
        B, T, H, D = case.inputs["query"].shape
        S, K = case.inputs["key"].shape[1:3]
        expected = BY_ID["05.1"].expected(case.inputs)
        assert K > 2 and H // K > 2
        if T < S:  # keys for every head would be seen
            assert B * S * H * D > float(expected[LARGEST].value)
    configs = [c.inputs for c in BY_ID["05.2"].cases(Draw(seed, "05.2"))]
    assert any("num_key_value_heads" not in c["config"] for c in configs)
    for c in configs:
        if c["config"].get("head_dim"):
            wide = c["config"]["hidden_size"] // c["config"]["num_attention_heads"]
            assert c["config"]["head_dim"] != wide
        if kinds := c["config"].get("layer_types"):
            assert len(kinds) == c["config"]["num_hidden_layers"]
    fits = [c for c in BY_ID["05.3"].cases(Draw(seed, "05.3"))]
    counts = [int(BY_ID["05.3"].expected(c.inputs)["requests"].value) for c in fits]
    assert all((n > 10) == (c.part == SOME) for n, c in zip(counts, fits))
    for case in BY_ID["05.4"].cases(Draw(seed, "05.4")):
        table, position = case.inputs["table"], case.inputs["position"]
        P = case.inputs["pool"].shape[1]
        place = position // P
        assert (place >= 1).all() and (table.gather(1, place) >= 0).all()
        assert len(set(table[table >= 0].tolist())) == int((table >= 0).sum())


def test_one_machine_is_full_to_the_last_byte():
    case = BY_ID["05.3"].cases(Draw(0, "05.3"))[2]
    answer = answers(COURSE, STEM)["05.3"]
    whole = answer(**case.inputs)
    assert answer(**{**case.inputs, "weight_bytes": case.inputs["weight_bytes"] + 1}) == whole - 1


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mistral-7b-v0.1", "gpt-oss-20b"])
def test_the_solution_reads_released_files_as_the_ledger_does(name):
    path = CONFIGS / f"{name}.json"
    answer = answers(COURSE, STEM)["05.2"]
    for tokens in (100, 50_000):
        assert (
            answer(json.loads(path.read_text()), tokens)
            == ledger.exact(load(path), tokens)["total"]
        )


def test_the_solution_finds_what_the_kernel_finds():
    entry = torch.randn(3, 35, 2, 6, generator=torch.Generator().manual_seed(1))
    pool, table = in_pages(entry, 5)
    position = torch.tensor([[0, 34, 7], [4, 5, 6], [33, 12, 30]])
    rows = answers(COURSE, STEM)["05.4"](pool.flatten(2), table.long(), position)
    wanted = torch.stack([entry[b, position[b]].flatten(1) for b in range(3)])
    assert torch.equal(rows, wanted)


def test_measuring_leaves_kernels_available():
    """In a process that has not met `kernels` before: torch's compiler must not come first."""
    code = """
import torch
from grading.references.largest_tensor import LargestTensor
with LargestTensor():
    torch.ones(3) + 1
from kernels import backend
print(backend.current().reason)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "imported before" not in done.stdout
