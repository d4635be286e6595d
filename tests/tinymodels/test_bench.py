"""`python -m tinymodels bench`: runs both models, refuses what it cannot compare."""

import json
import sys
from dataclasses import replace

import pytest
import torch

from tinymodels import bench
from tinymodels.__main__ import main

SHORT = ["--context", "13", "--new", "3", "--rounds", "1"]


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers", reason="transformers is a test extra")


@pytest.mark.parametrize("style", bench.STYLES)
def test_json_and_table_say_the_same_of_one_run(style, transformers, capsys, monkeypatch):
    made = []
    compare = bench.compare
    monkeypatch.setattr(bench, "compare", lambda *n: made.append(compare(*n)) or made[-1])
    assert main(["bench", *SHORT, "--style", style, "--json"]) == 0
    said, run = json.loads(capsys.readouterr().out), made[0]
    assert (said["context"], said["new"], said["rounds"]) == (13, 3, 1)
    assert said["agreement"] < 1e-5
    for name in ("prefill", "decode"):
        ratio = said["ours"][name] / said["theirs"][name]
        assert ratio > 0 and said["ratios"][name] == pytest.approx(ratio)
        assert f"{ratio:.2f}x" in bench.table(run)
    assert f"{style.upper()}-style" in bench.table(run)
    assert said["versions"]["transformers"] == transformers.__version__


def test_the_clock_can_be_that_of_the_processor(transformers, monkeypatch):
    calls = []
    monkeypatch.setitem(bench.CLOCKS, "cpu", lambda: calls.append(0) or float(len(calls)))
    made = bench.compare(13, 3, 1, "cpu")
    assert made.clock == "cpu" and "tokens a CPU second" in bench.table(made)
    assert (made.ours.prefill, made.theirs.decode) == (13, 1)  # one tick a pass
    assert "CPU second" not in bench.table(replace(made, clock="wall"))


def test_other_weights_are_no_comparison(transformers, capsys, monkeypatch):
    theirs, ours = bench.pair()
    ours.layers[3].attention.kv_norm.weight.mul_(1.1)
    monkeypatch.setattr(bench, "pair", lambda style: (theirs, ours))
    assert main(["bench", *SHORT]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "of the largest logit" in err and err.count("\n") == 1


def test_both_read_the_same_prompt_and_write_the_same_tokens(transformers):
    theirs, ours = bench.pair()
    tokens = torch.randint(1000, (1, 9))
    with torch.inference_mode():
        sides = ((theirs, bench.start_theirs), (ours, bench.start_ours))
        runs = [bench.read_and_write(model, tokens, 4, start) for model, start in sides]
    (_, seconds, a), (_, _, b) = runs
    assert len(seconds) == 4 and a.shape == b.shape == (1, 5, 1000)
    assert torch.equal(a.argmax(-1), b.argmax(-1))


def test_without_transformers(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["bench", *SHORT]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "transformers is not installed" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "'0' must be an integer >= 1"),
        (["--context", "-3"], "'-3' must be"),
        (["--new", "x"], "'x' must be"),
        (["--context", "4090"], "at most 4096 tokens"),
        (["--fast"], "--fast"),
        (["--clock", "sun"], "sun"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1
