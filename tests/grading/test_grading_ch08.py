"""Chapter 08's exercises: right answers and mistakes in a learner's own words, what is drawn."""

import pytest
import torch

from grading import check
from grading.checks.ch08 import EXERCISES, PARTS
from grading.checks.ch08_bytes import V4_FLASH
from grading.course_notebook import Course, answers
from grading.draw import CHECK_SEEDS, Draw, student_seeds
from tinymodels import ledger
from tinymodels.attention.csa import Compressor
from tinymodels.attention.seen import all_rows, complete_groups, look
from tinymodels.attention.sliding import Sliding
from tinymodels.parts import Parts
from tinymodels.presets import tiny_v4, tiny_v4_1
from tinymodels.step import Step
from tinymodels.transformer import Transformer

COURSE = Course()
STEM = "08__groups"
BY_ID = {exercise.id: exercise for exercise in EXERCISES}


@pytest.fixture(scope="module")
def solved():
    return answers(COURSE, STEM)


# ---------------------------------------------------------------- the solutions are the model's


@pytest.mark.parametrize(("id", "overlap"), [("08.2", False), ("08.3", True)])
def test_pooling_is_the_compressors(solved, id, overlap):
    pooling, draw = Compressor(14, 11, 5, 1e-6, overlap, True).double(), torch.Generator()
    draw.manual_seed(6)
    for p in pooling.parameters():
        torch.nn.init.normal_(p, generator=draw)
    x = torch.randn(2, 23, 14, generator=draw).double()
    step = Step(torch.zeros(2, 23, dtype=torch.long))
    entries, at = pooling(x, step, None)
    mine = solved[id](pooling.value(x), pooling.gate(x), pooling.position_bias)
    torch.testing.assert_close(pooling.norm(mine), entries, rtol=0, atol=1e-12)
    assert at.tolist() == [0, 5, 10, 15]


# ---------------------------------------------------------------- the parts they fill


def made(preset, parts=None):
    model = Transformer(preset(), parts, seed=4).double().requires_grad_(False)
    for p in model.parameters():
        if p.dim() > 1:
            p.mul_(6)
    return model


@pytest.mark.parametrize(
    ("preset", "asked"),
    [(tiny_v4, {"08.2", "08.3", "08.4"}), (tiny_v4_1, {"08.2", "08.4"})],  # its groups lie apart
)
def test_passed_pieces_run_in_the_tiny_model(solved, preset, asked):
    """A prompt, then some tokens that end a group of 4 and of 16."""
    calls, mine = set(), {}
    for id, (field, fit) in PARTS.items():

        def counted(*given, id=id, fit=fit):
            calls.add(id)
            return fit(solved[id])(*given)

        mine[field] = counted
    tokens = torch.randint(256, (2, 34), generator=torch.Generator().manual_seed(3))
    logits = []
    for model in (made(preset), made(preset, Parts(**mine))):
        memory = model.new_cache(2, 34, "float64")
        logits += [torch.cat([model(x, memory) for x in tokens.split([29, 1, 1, 1, 2], 1)], 1)]
    torch.testing.assert_close(*logits, rtol=0, atol=1e-10)
    assert calls == asked


def test_a_wrong_piece_is_missed(solved):
    tokens = torch.randint(256, (2, 19), generator=torch.Generator().manual_seed(3))
    right = made(tiny_v4)(tokens)
    for id, (field, _) in PARTS.items():
        wrong = Parts(**{field: lambda *given, id=id: 1 + 2 * solved[id](*given)})
        assert (made(tiny_v4, wrong)(tokens) - right).abs().max() > 1e-3, id


def test_the_references_of_the_parts_are_the_models(solved):
    draw = torch.Generator().manual_seed(2)
    value, gate = torch.randn(2, 2, 22, 14, generator=draw).double()
    bias = torch.randn(5, 14, generator=draw).double()
    query, row = (torch.randn(s, generator=draw).double() for s in ((2, 4, 3, 14), (2, 9, 14)))
    visible, sink = torch.rand(4, 9, generator=draw) > 0.5, torch.randn(3, generator=draw).double()
    given = {"08.2": (value, gate, bias), "08.3": (value, gate, bias)}
    given["08.4"] = (query, row, visible, sink)
    for id, (field, _) in PARTS.items():
        reference = getattr(Parts(), field)(*given[id])
        torch.testing.assert_close(solved[id](*given[id]), reference, rtol=0, atol=1e-12)


def test_visibility_and_the_sink_are_the_models(solved):
    step = Step(torch.zeros(2, 9, dtype=torch.long), start=6)
    visible = solved["08.1"](6, 9, 5, 3)
    assert torch.equal(visible, complete_groups(step, 5, 3))
    draw = torch.Generator().manual_seed(3)
    query, row, sink = (
        torch.randn(size, generator=draw).double() for size in ((2, 9, 3, 10), (2, 5, 10), (3,))
    )
    visible[0] = False
    theirs = look(query, sink, all_rows(row, visible))
    mine = solved["08.4"](query, row, visible, sink)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    assert not mine[:, 0].any()


def test_the_turn_back_is_the_models(solved):
    """One head of a window layer, before the output matrix."""
    config = tiny_v4().layers[0].attention
    layer = Sliding(64, config, 1e-6).double().requires_grad_(False)
    draw = torch.Generator().manual_seed(3)
    query, row = (torch.randn(2, 7, 32, generator=draw).double() for _ in range(2))
    at = 50 + torch.arange(7)

    def attend(turned_query, turned_row):
        none = torch.full((1,), -1e9).double()
        return look(turned_query[:, :, None], none, all_rows(turned_row, None))[:, :, 0]

    mine = solved["08.5"](query, row, at, at, 8, attend)
    layer.sink.fill_(-1e9)
    layer.output = torch.nn.Identity()
    from tinymodels.attention.rope import rotate_tail, turn_of

    turn = turn_of(config.rope, at, torch.float64)
    step = Step(torch.zeros(2, 7, dtype=torch.long), start=50)
    turned = rotate_tail(query, turn)[:, :, None].expand(2, 7, 4, 32)
    theirs = layer.attend(turned, step, all_rows(rotate_tail(row, turn), None))
    torch.testing.assert_close(mine, theirs[:, :, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 3, 4, 127, 128, 1000])
def test_bytes_are_the_ledgers(solved, n):
    ratios, *sizes = V4_FLASH
    exact = ledger.exact("deepseek-v4-flash", n)
    assert solved["08.6"](n, list(ratios), *sizes) == (exact["global"], exact["window"])
    pro = [128, 128] + [4, 128] * 29 + [4]
    exact = ledger.exact("deepseek-v4-pro", n)
    assert solved["08.6"](n, pro, *sizes) == (exact["global"], exact["window"])


# ---------------------------------------------------------------- other code, same mistake


def learner_visible(start, new, groups, m, ahead=0):
    rows = [[(j + 1) * m - 1 <= start + t + ahead for j in range(groups)] for t in range(new)]
    return torch.tensor(rows)


def learner_pool(value, gate, bias, open_too=False, bias_too=True):
    m, entries = len(bias), []
    for first in range(0, value.shape[1], m):
        v, g = value[:, first : first + m], gate[:, first : first + m]
        if v.shape[1] == m or open_too:
            weight = torch.exp(g + bias[: g.shape[1]] if bias_too else g)
            entries.append((weight * v).sum(1) / weight.sum(1))
    return torch.stack(entries, 1)


def learner_overlap(value, gate, bias, empty=-1e30):
    m, D = len(bias), value.shape[2] // 2
    G = value.shape[1] // m
    gate = gate[:, : G * m] + bias.repeat(G, 1)
    value = torch.cat([torch.zeros_like(value[:, :m]), value], 1)
    gate = torch.cat([torch.full_like(gate[:, :m], empty), gate], 1)
    entries = []
    for j in range(G):
        a, b, c = j * m, (j + 1) * m, (j + 2) * m
        v = torch.cat([value[:, a:b, :D], value[:, b:c, D:]], 1)
        g = torch.cat([gate[:, a:b, :D], gate[:, b:c, D:]], 1)
        entries.append((torch.softmax(g, 1) * v).sum(1))
    return torch.stack(entries, 1)


def learner_sink(query, row, visible, sink, use=True, top=None):
    score = (query.flatten(1, 2) @ row.mT).view(*query.shape[:3], -1) / query.shape[-1] ** 0.5
    top = score.amax(-1, keepdim=True) if top is None else top
    weight = torch.exp(score - top) * visible[:, None]
    total = weight.sum(-1, keepdim=True)
    total = total + (sink[:, None] - top).exp() if use else total.clamp(min=1e-30)
    return (weight / total) @ row[:, None]


def test_large_scores_are_among_the_cases():
    result = check("08.4", lambda *given: learner_sink(*given, top=torch.zeros(1)))
    assert (result.status, result.misconception) == ("partly", "bare_exponentials"), result
    for seed in (*CHECK_SEEDS, *student_seeds("ann", 5)):
        inputs = BY_ID["08.4"].cases(Draw(seed, "08.4"))[3].inputs
        score = torch.einsum("bthd,bsd->bths", inputs["query"], inputs["row"])
        assert (score / inputs["row"].shape[-1] ** 0.5).amax(-1).min() > 89  # exp is infinite


def learner_turn(query, row, query_at, row_at, R, attend, back=True):
    from tinymodels.attention.rope import rotate
    from tinymodels.config import Rope

    def at(x, where, **how):
        x = x.clone()
        x[..., -R:] = rotate(x[..., -R:], Rope(R), where, **how)
        return x

    out = attend(at(query, query_at), at(row, row_at))
    return at(out, query_at, back=True) if back else out


def learner_bytes(n, ratios, entry, key, window, up=False):
    csa, hca = [m for m in ratios if m == 4], [m for m in ratios if m > 4]
    far = sum((n + (m - 1 if up else 0)) // m * (entry + key) for m in csa)
    far += sum((n + (m - 1 if up else 0)) // m * entry for m in hca)
    return [far, entry * len(ratios) * (n if n < window else window)]


def test_right_answers_in_other_words_pass():
    mine = (learner_visible, learner_pool, learner_overlap, learner_sink, learner_turn)
    for number, answer in enumerate((*mine, learner_bytes), 1):
        assert check(f"08.{number}", answer).status == "passed", number


@pytest.mark.parametrize(
    ("id", "answer", "name"),
    [
        ("08.1", lambda *a: learner_visible(*a, ahead=-1), "one_late"),
        ("08.1", lambda *a: learner_visible(*a, ahead=a[3] - 1), "started"),
        ("08.2", lambda *a: learner_pool(*a, open_too=True), "half_built"),
        ("08.2", lambda *a: learner_pool(*a, bias_too=False), "no_bias"),
        ("08.3", lambda *a: learner_overlap(*a, empty=0.0), "first_weighs_nothing_real"),
        ("08.3", lambda *a: learner_overlap(a[0], a[1], torch.zeros_like(a[2])), "no_bias"),
        ("08.4", lambda *a: learner_sink(*a, use=False), "no_sink"),
        ("08.4", lambda *a: learner_sink(*a[:3], torch.zeros_like(a[3])), "zero_sink"),
        ("08.5", lambda *a: learner_turn(*a, back=False), "not_turned_back"),
        ("08.6", lambda *a: learner_bytes(*a, up=True), "rounded_up"),
        ("08.6", lambda *a: learner_bytes(*a)[::-1], "swapped"),
    ],
)
def test_mistakes_in_a_learners_own_words(id, answer, name):
    result = check(id, answer)
    assert result.status in ("wrong", "partly") and result.misconception == name, result


# ---------------------------------------------------------------- what the checks draw


@pytest.mark.parametrize("seed", [*CHECK_SEEDS, *student_seeds("ann", 5)])
def test_each_case_has_what_it_is_there_for(seed):
    seeing = [case.inputs for case in BY_ID["08.1"].cases(Draw(seed, "08.1"))]
    ends = [(c["start"] + c["new"]) % c["m"] for c in seeing if c["new"] == 1]
    assert ends == [0, seeing[0]["m"] - 1]  # one completes a group, one comes just before
    for id in ("08.2", "08.3"):
        left = [c.inputs["value"].shape[1] % len(c.inputs["bias"])
                for c in BY_ID[id].cases(Draw(seed, id))]  # fmt: skip
        assert 0 in left and any(left)
    some, one, none, _ = (case.inputs for case in BY_ID["08.4"].cases(Draw(seed, "08.4")))
    assert all(map(any, some["visible"])) and any(map(any, one["visible"]))
    assert not any(none["visible"][0]) and any(none["visible"][1])
    near, far, late = (case.inputs for case in BY_ID["08.5"].cases(Draw(seed, "08.5")))
    assert near["row_at"].diff().unique().tolist() == [1] and far["row_at"].diff().min() > 2
    assert far["row_at"][0] == 0 < late["row_at"][0]
