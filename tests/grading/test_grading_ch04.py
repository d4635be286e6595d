"""Chapter 04's exercises: mistakes in a learner's own words, and the part they fill."""

import math

import pytest
import torch

from grading import check
from grading.checks.ch04 import ACTIVE, EXERCISES, PARTS, TOTAL
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from tinymodels import ledger
from tinymodels.parts import Parts
from tinymodels.presets import tiny_v1, tiny_v4
from tinymodels.published import get
from tinymodels.transformer import Transformer

COURSE = Course()
STEM = "04__ffn_and_experts"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}


def test_a_passed_swiglu_runs_in_models_with_and_without_experts():
    field, fit = PARTS["04.1"]
    mine = fit(answers(COURSE, STEM)["04.1"])
    tokens = torch.tensor([[5, 9, 2, 77, 31, 8, 120], [1, 4, 4, 90, 17, 201, 3]])
    calls = []

    def counted(*given):
        calls.append(given)
        return mine(*given)

    for config in (tiny_v1(), tiny_v4()):
        calls.clear()
        whole, own = (
            Transformer(config, parts, seed=4).requires_grad_(False)
            for parts in (None, Parts(**{field: counted}))
        )
        assert torch.equal(own(tokens), whole(tokens)) and len(calls) >= len(config)
    assert {given[2] for given in calls} == {config.layers[0].ffn.limit}


# ---------------------------------------------------------------- other code, same mistake


def learner_swiglu(gate, up, limit=None, cut=True):
    if limit is not None and cut:
        gate = torch.minimum(gate, torch.tensor(limit))
        up = torch.where(up > limit, limit, torch.where(up < -limit, -limit, up))
    return gate / (1 + torch.exp(-gate)) * up


def learner_route(x, gate, bias, k, scale, weigh_bias=False, over_all=False, root=True):
    experts, weights = [], []
    for row in x.reshape(-1, x.shape[-1]):
        score = torch.nn.functional.softplus(gate @ row)
        score = torch.sqrt(score) if root else score
        order = sorted(range(len(bias)), key=lambda e: (-float(score[e] + bias[e]), e))[:k]
        chosen = torch.stack([score[e] + (bias[e] if weigh_bias else 0) for e in order])
        experts.append(order)
        weights.append(scale * chosen / (score.sum() if over_all else chosen.sum()))
    shape = (*x.shape[:-1], k)
    return torch.tensor(experts).reshape(shape), torch.stack(weights).reshape(shape)


def learner_update(bias, experts, gamma, mean_over=None, at_mean=0.0):
    new = bias.clone()
    mean = experts.numel() / (mean_over or len(bias))
    for e in range(len(bias)):
        load = int((experts == e).sum())
        step = gamma if load < mean else -gamma if load > mean else at_mean * gamma
        new[e] = bias[e] + step
    return new


def test_right_answers_in_other_words_pass():
    assert check("04.1", learner_swiglu).status == "passed"
    assert check("04.2", learner_route).status == "passed"
    assert check("04.3", learner_update).status == "passed"


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("04.1", lambda g, u, limit=None: learner_swiglu(g, u, limit, cut=False), "ignores_limit"),
        ("04.1", lambda g, u, limit=None: learner_swiglu(u, g, limit), None),
        ("04.2", lambda *a: learner_route(*a, weigh_bias=True), "bias_weighs"),
        ("04.2", lambda *a: learner_route(*a, over_all=True), "share_of_all"),
        ("04.2", lambda *a: learner_route(*a, root=False), "no_root"),
        ("04.3", lambda *a: learner_update(*a, at_mean=-1.0), "mean_moves"),
        ("04.4", lambda L, X, F, E, s, k: (L * E * 3 * X * F, L * k * 3 * X * F), None),
        ("04.4", lambda L, X, F, E, s, k: (L * (E + s) * 3 * X * F, L * (k + s) * 3 * X * F),
         "no_router"),
    ],
)  # fmt: skip
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly") and result.misconception == name, result


def test_a_bare_topk_earns_all_but_the_point_for_ties():
    def route(x, gate, bias, k, scale):
        score = torch.nn.functional.softplus(x @ gate.T).sqrt()
        experts = (score + bias).topk(k).indices
        weights = score.gather(-1, experts)
        return experts, weights / weights.sum(-1, keepdim=True) * scale

    result = check("04.2", route)
    assert (result.status, result.earned, result.misconception) == ("partly", 3, "topk")


def test_numbers_written_down_instead_of_passed_in_are_found():
    """The text says 1.5 for V4; `scale` and gamma are arguments all the same."""
    fixed = check("04.2", lambda x, gate, bias, k, scale: learner_route(x, gate, bias, k, 1.5))
    assert fixed.status in ("wrong", "partly")
    for gamma in (0.001, 0.05):
        result = check("04.3", lambda bias, experts, _, gamma=gamma: learner_update(
            bias, experts, gamma))  # fmt: skip
        assert result.status in ("wrong", "partly")


def test_a_pair_may_be_a_list():
    assert check("04.2", lambda *given: list(learner_route(*given))).status == "passed"
    assert check("04.2", lambda *given: learner_route(*given)[0]).misconception == "experts_alone"


# ---------------------------------------------------------------- what the checks draw


@pytest.mark.parametrize("seed", [*CHECK_SEEDS, *student_seeds("ann", 5)])
def test_each_case_has_what_it_is_there_for(seed):
    cut = [c.inputs for c in BY_ID["04.1"].cases(Draw(seed, "04.1")) if c.inputs["limit"]]
    for inputs in cut:
        for name in ("gate", "up"):
            assert (inputs[name] > inputs["limit"]).any() and (
                inputs[name] < -inputs["limit"]
            ).any()
    _, tied, faint = (c.inputs for c in BY_ID["04.2"].cases(Draw(seed, "04.2")))
    assert (tied["x"] == 0).all(-1).any() and not tied["bias"].any()
    logits = faint["x"] @ faint["gate"].T
    assert (logits < -17).all() and torch.isfinite(logits).all()
    for case in BY_ID["04.3"].cases(Draw(seed, "04.3")):
        experts, bias = case.inputs["experts"], case.inputs["bias"]
        load = torch.bincount(experts.flatten(), minlength=len(bias)).float()
        assert load[-1] == 0 and load.max() > 2 * math.floor(load.mean())
        assert (load == load.mean()).any() == (case.part.startswith("a whole mean"))
        assert (load == load.mean().floor()).any()


def test_the_real_model_is_counted_as_the_ledger_counts_it():
    name = "deepseek-v4.1-flash"
    config = get(name).config
    e = config.layers[0].ffn
    counted = answers(COURSE, STEM)["04.4"](
        len(config), config.width, e.width, e.experts, e.shared, e.top_k
    )
    assert counted[0] == ledger.parameter_parts(name)["ffn"]
    ffn = [w.active_count for _, w in ledger.weights(name) if w.part == "ffn"]
    assert counted[1] == sum(ffn)
    case = BY_ID["04.4"].cases(Draw(0, "04.4"))[0]
    expected = BY_ID["04.4"].expected
    wanted = [expected(case.inputs | {"asked": part})[part] for part in (TOTAL, ACTIVE)]
    assert [int(w.value) for w in wanted] == list(counted)
