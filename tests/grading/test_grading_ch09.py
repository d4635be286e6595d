"""Chapter 09's exercises: mistakes in a learner's own words, and what the checks draw."""

import numpy as np
import pytest
import torch

from grading import check
from grading.checks.ch09 import EXERCISES, PARTS
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from tinymodels import ledger, replay
from tinymodels.parts import Parts, reference_who_runs
from tinymodels.presets import tiny_v4_1
from tinymodels.published import get
from tinymodels.transformer import Transformer
from tinymodels.widgets.tower import look

COURSE = Course()
STEM = "09__ced"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}


def learner_rows(stream, encoder, kv, norm, rope, start, eps, state=None, late=0):
    from tinymodels.attention.rope import rotate
    from tinymodels.config import Rope

    x = stream[encoder - 1 if state is None else state]
    row = torch.einsum("btx,edx->ebtd", x, kv)
    row = row * torch.rsqrt((row**2).mean(-1, keepdim=True) + eps) * norm[:, None, None]
    at = torch.arange(x.shape[1]) + start + late
    tail = torch.stack([rotate(one[..., -rope:].contiguous(), Rope(rope), at) for one in row])
    return torch.cat([row[..., :-rope], tail], dim=-1)


def learner_runs(prompt, written, layers, encoder, window, more=0):
    table = torch.zeros(layers, prompt + written)
    for layer in range(layers):
        for token in range(prompt + written):
            table[layer, token] = layer < encoder or token >= prompt - window - more
    return table.long()


def learner_replay(x, layers, window, run, wider=0):
    tokens = x[:, max(0, x.shape[1] - run) :].clone()
    n = tokens.shape[1]
    visible = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        visible[i, max(0, i - window + 1 - wider) : i + 1] = True
    for layer in layers:
        tokens = layer(tokens, visible)
    return tokens[:, n - 1]


def learner_hides(x, layers, window, run):
    """The whole prompt goes through, and the mask cuts it at the replay's start."""
    T = x.shape[1]
    visible = torch.eye(T, dtype=torch.bool)
    for i in range(T):
        visible[i, max(0, T - run, i - window + 1) : i + 1] = True
    for layer in layers:
        x = layer(x, visible)
    return x[:, -1]


def learner_exact(prompt, window, layers, itself=1):
    back = sum(window - 1 for _ in range(layers))
    exact = prompt <= window or layers == 1
    return min(prompt, back + itself), exact, 0 if exact else back - (window - 1)


def numpys(*given):
    run, exact, words = learner_exact(*given)
    return np.int64(run), np.bool_(exact), np.int64(words)


def test_right_answers_in_other_words_pass():
    assert check("09.1", learner_rows).status == "passed"
    assert check("09.2", learner_runs).status == "passed"
    for kind in (torch.bool, torch.float32, torch.uint8):
        assert check("09.2", lambda *a: learner_runs(*a).to(kind)).status == "passed"  # noqa: B023
    assert check("09.3", learner_replay).status == "passed"
    assert check("09.4", learner_exact).status == "passed"
    assert check("09.4", numpys).status == "passed"


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("09.1", lambda *a: learner_rows(*a, state=-1), "last_state"),
        ("09.1", lambda *a: learner_rows(*a, late=-a[5]), "from_zero"),
        ("09.1", lambda *a: learner_rows(*a, late=1), "one_place_late"),
        ("09.2", lambda *a: learner_runs(*a, more=1), "one_more"),
        ("09.2", lambda *a: learner_runs(*a, more=999), "all_run"),
        ("09.3", lambda *a: learner_replay(*a, wider=1), "wide_window"),
        ("09.3", lambda *a: learner_replay(*a, wider=999), "no_window"),
        ("09.3", lambda x, f, w, run: learner_replay(x, f, w, 999), "whole_prompt"),
        ("09.3", learner_hides, "hidden_not_left_out"),
        ("09.4", lambda *a: learner_exact(*a, itself=0), "last_forgotten"),
    ],
)
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly") and result.misconception == name, result


@pytest.mark.parametrize("seed", [*CHECK_SEEDS, *student_seeds("ann", 5)])
def test_each_case_has_what_it_is_there_for(seed):
    rows = [case.inputs for case in BY_ID["09.1"].cases(Draw(seed, "09.1"))]
    assert [(r["start"] > 0, r["stream"].shape[2] > 1) for r in rows] == [
        (False, True), (True, True), (True, False)
    ]  # fmt: skip
    assert all(1 < r["encoder"] < len(r["stream"]) - 1 for r in rows)
    runs = [case.inputs for case in BY_ID["09.2"].cases(Draw(seed, "09.2"))]
    assert {(r["prompt"] > r["window"], r["written"] > 0) for r in runs} >= {
        (True, True), (True, False), (False, True)
    }  # fmt: skip
    assert any(r["prompt"] + 0 < r["window"] for r in runs)
    replays = [case.inputs for case in BY_ID["09.3"].cases(Draw(seed, "09.3"))]
    kinds = [(r["run"] > r["window"], r["run"] < r["x"].shape[1]) for r in replays]
    assert kinds == [(False, True), (False, True), (True, True), (True, True), (True, False)]
    assert [r["run"] < r["window"] for r in replays] == [False, True, False, False, False]
    exact = [case.inputs for case in BY_ID["09.4"].cases(Draw(seed, "09.4"))]
    assert {e["layers"] == 1 for e in exact} == {True, False}
    assert {(e["prompt"] > e["window"]) - (e["prompt"] < e["window"]) for e in exact} == {-1, 0, 1}


def test_the_answers_agree_with_the_real_model_and_the_tiny_one():
    """The table sums to the tower's number; 61 and 45 are where the error ends and fades."""
    solved = answers(COURSE, STEM)
    config = get("deepseek-v4.1-flash").config
    table = solved["09.2"](512, 3, len(config), config.decoder_start, 128)
    assert f"{int(table.sum()):,}" == look(7, 512, "ced").number
    assert solved["09.4"](100_000, 128, 20) == (2541, False, 2413)
    assert ledger.rate(config) == 890
    run, exact, words = solved["09.4"](80, 16, 4)
    model = replay.random_model()
    tokens = torch.randint(256, (2, 80 + words + 2), generator=torch.Generator().manual_seed(2))
    want = model(tokens[:, :80])[:, -1]
    assert not exact
    for n, right in ((run, True), (run - 1, False)):
        off = replay.error(replay.last_logits(model, tokens[:, :80], n), want)
        assert (off < 1e-12) == right
    errors = replay.fading(model, tokens, 80)
    assert max(errors[words:]) < 1e-12 < errors[words - 1]


@pytest.mark.parametrize("length", [3, 16, 17, 41])
def test_a_passed_table_says_what_the_decoder_runs(length):
    """The same logits and the same work as the course's, in chunks too; another table tells."""
    field, fit = PARTS["09.2"]
    mine, calls = fit(answers(COURSE, STEM)["09.2"]), []

    def counted(*given):
        calls.append(given)
        return mine(*given)

    def shorter(prompt, written, layers, encoder, window):
        return mine(prompt, written, layers, encoder, window - 5)

    tokens = torch.randint(256, (2, length), generator=torch.Generator().manual_seed(3))
    found = {}
    ways = {"course": None, "mine": counted, "shorter": shorter}
    for name, way in ways.items():
        parts = None if way is None else Parts(**{field: way})
        model = Transformer(tiny_v4_1(), parts, seed=4).double().requires_grad_(False)
        memory = model.new_cache(2, length, "float64")
        chunks = tokens.split([1, length - 1], dim=1)
        model.prefill(chunks[0], memory, last=False)
        found[name] = model.prefill(chunks[1], memory), dict(memory.work)
    assert torch.equal(found["course"][0], found["mine"][0])
    assert found["course"][1] == found["mine"][1]
    assert calls[-1] == (length, 0, 8, 4, 16)
    assert found["shorter"][1][4] == min(length, 11)
    for shape in ((5, 3, 9, 4, 7), (20, 0, 9, 4, 7), (20, 3, 9, 4, 7)):
        assert torch.equal(mine(*shape), reference_who_runs(*shape))
