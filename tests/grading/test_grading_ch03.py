"""Chapter 03's exercises in a learner's own words: other code, the same verdict."""

import pytest
import torch
from torch.nn.functional import rms_norm

from grading import check
from grading.course_notebook import Course, answers
from grading.draw import Draw
from grading.references.counting_sublayer import CountingSublayer
from tinymodels import residual
from tinymodels.config import HyperConnections

COURSE = Course()
NOTEBOOK = "03__residual_stream"


def test_a_block_with_torchs_own_norm_passes():
    def learner(x, attention, ffn, one, two, eps):
        x = attention(rms_norm(x, x.shape[-1:], one, eps)) + x
        return torch.add(x, ffn(rms_norm(x, x.shape[-1:], two, eps)))

    assert check("03.1", learner).status == "passed"

    def usual_eps(x, attention, ffn, one, two, eps):
        return learner(x, attention, ffn, one, two, 1e-6)

    result = check("03.1", usual_eps)
    assert (result.status, result.earned) == ("partly", 2)

    def loop_post_norm(x, attention, ffn, one, two, eps):
        for part, weight in ((attention, one), (ffn, two)):
            x = rms_norm(x + part(x), x.shape[-1:], weight, eps)
        return x

    assert check("03.1", loop_post_norm).misconception == "post_norm"


def test_patching_by_hooks_passes_and_waste_is_half_right():
    def learner(sublayers, x, other, which, position):
        def run(x, until, taken=None):
            for sublayer in sublayers[:until]:
                y = sublayer(x)
                if taken is not None and sublayer is sublayers[which]:
                    keep = torch.arange(x.shape[1]) != position
                    y = torch.where(keep[:, None], y, taken)
                x = x + y
            return x

        return run(x, None, sublayers[which](run(other, which)))

    assert check("03.2", learner).status == "passed"

    def wasteful(sublayers, x, other, which, position):
        for sublayer in sublayers:
            sublayer(x)
        return learner(sublayers, x, other, which, position)

    result = check("03.2", wasteful)
    assert (result.status, result.earned) == ("partly", 2)
    assert "more often than they need" in result.message

    def a_slice(sublayers, x, other, which, position):
        return learner([lambda y, s=s: s(y[:, :1]) for s in sublayers], x, other, which, position)

    assert check("03.2", a_slice).status in ("wrong", "error")


def test_the_models_own_functions_pass():
    assert check("03.3", residual.sinkhorn).status == "passed"

    def model(copies, found, pre, post, comb):
        new = residual.spread_and_mix(copies, residual.Mixes(pre, post, comb), found)
        return new, residual.weighted_sum(pre, new)

    assert check("03.4", model).status == "passed"


def test_sinkhorn_in_logarithms_is_told_apart():
    """Without eps the logarithmic form is the same mathematics, and the check says what lacks."""

    def learner(logits, iterations, eps):
        log = logits.log_softmax(-1)
        log = log - log.logsumexp(-2, keepdim=True)
        for _ in range(iterations - 1):
            log = log - log.logsumexp(-1, keepdim=True)
            log = log - log.logsumexp(-2, keepdim=True)
        return log.exp()

    assert check("03.3", learner).misconception == "no_eps"


def test_a_wrong_shape_is_named_by_its_axis():
    result = check("03.4", lambda copies, found, pre, post, comb: (found, found))
    assert "the new copies has shape" in result.message
    assert check("03.4", lambda *given: given[0]).status == "wrong"


def test_traffic_is_the_formula_and_a_float_is_as_good():
    streams = {"separate": (4, 4), "fused": (3, 2), "single": (2, 2)}

    def learner(layers, copies, width, bits, schedule):
        a, b = streams[schedule]
        return layers * (a * copies + b) * width * bits / 4

    assert check("03.5", learner).status == "passed"
    solution = answers(COURSE, NOTEBOOK, "solution")["03.5"]
    assert solution(40, 4, 5120, 16, "single") == 8_192_000


def test_the_stand_in_is_the_same_in_numpy():
    draw = Draw(3, "stand-in")
    for looks_back in (True, False):
        sublayer = CountingSublayer(draw.normal(6, 6), looks_back)
        x_BTX = draw.normal(2, 5, 6)
        found = sublayer(x_BTX)
        for text in range(2):
            by_hand = torch.tensor(sublayer.on_one_text(x_BTX[text].double().numpy()))
            assert (found[text].double() - by_hand).abs().max() < 1e-5
        assert sublayer.calls == 1
    with pytest.raises(ValueError, match="takes the whole stream"):
        sublayer(x_BTX[0])


def test_a_passed_update_is_what_the_model_does():
    """The learner's own Sinkhorn and update, in place of the model's, give the model's stream."""
    solved = answers(COURSE, NOTEBOOK, "solution")
    config = HyperConnections(3)
    hyper = residual.Hyper(7, config, 1e-6).requires_grad_(False)
    draw = Draw(4, "update")
    for p in hyper.parameters():
        p.copy_(draw.normal(*p.shape))
    copies, found = draw.normal(2, 5, 3, 7), draw.normal(2, 5, 7)
    _, mixes = hyper.read(copies)
    new, _ = solved["03.4"](copies, found, *mixes)
    torch.testing.assert_close(new, hyper.write(copies, mixes, found), rtol=0, atol=1e-5)


def test_a_passed_block_goes_into_a_model(capsys):
    """With a cache and without, dense and with experts."""
    from grading import my_parts, progress
    from tinymodels.parts import Parts, reference_block
    from tinymodels.presets import tiny_v1, tiny_v3, tiny_v4
    from tinymodels.transformer import Transformer

    solution = answers(COURSE, NOTEBOOK, "solution")["03.1"]
    calls = []

    def mine(*given):
        calls.append(1)
        return solution(*given)

    source = "# name: block\nfrom tinymodels.parts import reference_block as block\n"
    progress.keep_source("03.1", source)
    assert my_parts().block is reference_block
    assert "block: yours, from exercise 03.1" in capsys.readouterr().out
    tokens_BT = torch.arange(1, 12)[None].repeat(2, 1)
    for config in (tiny_v1(layers=3), tiny_v3()):
        own, plain = (Transformer(config, p).double() for p in (Parts(block=mine), Parts()))
        for model in (own, plain):
            for i, p in enumerate(model.parameters()):
                draw = torch.Generator().manual_seed(i)
                p.data += 0.1 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
        with torch.no_grad():
            wanted = plain(tokens_BT)
            assert (own(tokens_BT) - wanted).abs().max() < 1e-9
        assert len(calls) == len(config)
        cache = own.float().new_cache(2, 11, "float32")
        steps = [own(part, cache) for part in tokens_BT.split([4, 6, 1], dim=1)]
        assert (torch.cat(steps, 1) - wanted).abs().max() < 1e-4
        calls.clear()
    Transformer(tiny_v4(), Parts(block=mine))(tokens_BT)  # four copies: the model's own layers
    assert not calls


def test_a_passed_sinkhorn_goes_into_a_model(tmp_path, monkeypatch, capsys):
    """my_parts() hands it on, the model calls it, and says the same words as before."""
    from grading import my_parts, progress
    from tinymodels.presets import tiny_v4, tiny_v4_1
    from tinymodels.transformer import Transformer

    source = (
        "# name: sinkhorn\nCALLS = []\n\ndef sinkhorn(logits, iterations, eps):\n"
        "    CALLS.append(iterations)\n    matrix = logits.softmax(-1) + eps\n"
        "    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)\n"
        "    for _ in range(iterations - 1):\n"
        "        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)\n"
        "        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)\n    return matrix\n"
    )
    progress.keep_source("03.3", source)
    parts = my_parts()
    assert "sinkhorn: yours, from exercise 03.3" in capsys.readouterr().out
    assert parts.own() == ("sinkhorn",)
    tokens_BT = torch.arange(1, 12)[None]
    for config in (tiny_v4(), tiny_v4_1()):
        mine, plain = Transformer(config, parts).double(), Transformer(config).double()
        for model in (mine, plain):
            for i, p in enumerate(model.parameters()):
                draw = torch.Generator().manual_seed(i)
                p.data += 0.1 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
        with torch.no_grad():
            gap = (mine(tokens_BT) - plain(tokens_BT)).abs().max()
        assert gap < 1e-9
        assert parts.sinkhorn.__globals__["CALLS"]
        parts.sinkhorn.__globals__["CALLS"].clear()
