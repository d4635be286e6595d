"""The router's load: what is recorded is what a router does, and the words say what is shown."""

import pytest
import torch

from tinymodels.config import MoE
from tinymodels.moe import Router, balanced
from tinymodels.widgets.router_load import EVERY, RouterLoad, look, record

CONFIG = MoE(8, 7, 2, scoring="sqrtsoftplus", selection_bias=True, normalise=True, scale=1.5)


def made(seed, config=CONFIG, batches=4, tokens=23):
    draw = torch.Generator().manual_seed(seed)
    router = Router(5, config)
    router.gate.weight.data.normal_(generator=draw)
    return router, [0.5 + torch.randn(tokens, 5, generator=draw) for _ in range(batches)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_moment_is_what_the_router_does(seed):
    router, batches = made(seed)
    balance = record(router, batches, gammas=(0.0, 0.07))
    assert not router.bias.any()  # the router itself is left as it was
    for gamma, moments in balance.runs:
        bias_E = torch.zeros(7)
        for moment, x_nX in zip(moments, batches, strict=True):
            router.bias.copy_(bias_E)
            routing = router(x_nX)
            assert moment.loads == tuple(routing.load(7).tolist())
            assert moment.biases == pytest.approx(bias_E.tolist(), abs=1e-6)
            bias_E = balanced(bias_E, routing.load(7), gamma)
        router.bias.zero_()


def test_a_bias_evens_the_load_out_and_none_does_not():
    router, batches = made(3, batches=40, tokens=300)
    balance = record(router, batches, gammas=(0.0, 0.05))
    left, moved = (balance.moments(gamma) for gamma in (0.0, 0.05))

    def late(moments):
        return sum(m.busiest() for m in moments[-10:]) / 10

    assert late(moved) < late(left) - 0.2
    assert {m.same for m in left} == {1.0} and {m.moved for m in left} == {0.0}


def test_weights_that_the_bias_moves_are_measured_against_those_of_the_scores():
    """By hand: one token, two of three experts, scores from logits 0, 0 and far below."""
    config = MoE(8, 3, 2, scoring="sqrtsoftplus", selection_bias=True, normalise=True)
    router = Router(1, config)
    router.gate.weight.data.copy_(torch.tensor([[1.0], [1.0], [-40.0]]))
    x = torch.full((5, 1), 0.5)
    moment = record(router, [x, x], gammas=(0.1,)).moments(0.1)[1]
    assert moment.loads == (5, 5, 0) and moment.same == 1.0
    assert moment.biases == pytest.approx((-0.1, -0.1, 0.1))
    assert moment.moved == pytest.approx(0, abs=1e-6)  # both moved alike: half and half, as before
    router.gate.weight.data[1] = 3.0
    moment = record(router, [x] * 2, gammas=(0.1,)).moments(0.1)[1]
    one, two = torch.nn.functional.softplus(torch.tensor([0.5, 1.5])).sqrt().tolist()
    right = torch.tensor([one, two]) / (one + two)
    wrong = torch.tensor([one - 0.1, two - 0.1]) / (one + two - 0.2)
    assert moment.moved == pytest.approx(((wrong - right).norm() / right.norm()).item(), rel=1e-4)


def test_words_and_bars_say_the_same(balance):
    for gamma, moments in balance.runs:
        for step, moment in enumerate(moments):
            view = look(balance, gamma, step, weighs=False)
            shares = [load * 7 / sum(moment.loads) for load in moment.loads]
            assert view.number == f"{max(shares):.2f}" == f"{moment.busiest():.2f}"
            assert f"{min(shares):.2f}" in view.lines[0] and "11 tokens, 2 experts" in view.lines[0]
            chart = view.chart
            ends = [bar["end"] * chart["most"] for bar in chart["loads"]]
            assert ends == pytest.approx(shares)
            assert [bar["over"] for bar in chart["loads"]] == [share > 1 for share in shares]
            assert chart["fair"][0]["at"] * chart["most"] == pytest.approx(1)
            widest = max(abs(b) for m in moments for b in m.biases) or 1.0
            signed = [(b["end"] + b["at"] - 1) * 2 * widest for b in chart["biases"]]
            assert signed == pytest.approx(list(moment.biases), abs=1e-6)
            assert len(chart["path"]) == step + 1


def test_weighing_changes_the_words_and_no_load(balance):
    right, wrong = (look(balance, 0.2, 4, weighs) for weighs in (False, True))
    others = [key for key in right.chart if key != "weights"]
    assert [right.chart[key] for key in others] == [wrong.chart[key] for key in others]
    assert right.number == wrong.number
    off = balance.moments(0.2)[4].moved
    (free,), (spoken,) = right.chart["weights"], wrong.chart["weights"]
    assert free["end"] == 0 and 0 < spoken["end"] <= 1 and spoken["text"] == f"off by {off:.1%}"
    assert "off by 0 %" in right.lines[1]
    assert f"off by {balance.moments(0.2)[4].moved:.1%}" in wrong.lines[1]
    assert balance.moments(0.2)[4].moved > 0.01
    assert "nothing has been moved" in look(balance, 0.2, 0, True).lines[1]


def test_the_slider_goes_through_the_steps(balance):
    widget = RouterLoad(balance, gamma=0.2)
    steps = widget._controls[0].values
    assert steps == tuple(range(0, 6, EVERY))
    numbers = []
    for step in steps:
        widget.set(step=step)
        numbers.append(widget.view.number)
    assert numbers == [f"{balance.moments(0.2)[s].busiest():.2f}" for s in steps]


def test_wrong_records_are_refused():
    router, batches = made(0)
    with pytest.raises(ValueError, match="no bias"):
        record(Router(5, MoE(8, 7, 2)), batches)
    with pytest.raises(ValueError, match="same number of tokens"):
        record(router, [batches[0], batches[1][:5]])
    with pytest.raises(ValueError, match="one or more"):
        record(router, [])
