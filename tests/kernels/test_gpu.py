"""The command for a machine with a GPU, tried with steps that need none."""

import json

import pytest
import torch

from kernels import __main__ as command
from kernels import backend, gpu

SAYS = ("-c", "print('all is well')")


@pytest.fixture
def card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA Some Card")


def step(name, *arguments, needs=(), minutes=1.0):
    return gpu.Step(name, arguments, needs, minutes)


def test_a_step_that_fails_stops_no_other(card, tmp_path, capsys):
    steps = [step("a", "-c", "raise SystemExit('something broke')"), step("b", *SAYS),
             step("c", *SAYS, needs=("torch", "no_such_package")),
             step("d", "-c", "print('so far', flush=True); import time; time.sleep(60)",
                  minutes=0.1)]
    outcomes = gpu.run(steps, tmp_path / "results")
    assert [one.outcome for one in outcomes] == ["failed", "passed", "left out", "timed out"]
    assert "something broke" in outcomes[0].words and "all is well" in outcomes[1].words
    assert outcomes[2].words == "not installed: no_such_package"
    assert "so far" in outcomes[3].words and 5 < outcomes[3].seconds < 50
    path, = (tmp_path / "results").iterdir()
    assert path.name.endswith("-nvidia-some-card-gpu.json")
    content = json.loads(path.read_text())
    assert content["torch"] == torch.__version__ and len(content["steps"]) == 4
    assert str(path) in capsys.readouterr().out


def test_what_was_done_is_written_before_the_next_step(card, tmp_path, monkeypatch):
    def run_step(one):
        if one.name == "b":
            raise KeyboardInterrupt  # the machine is taken away
        return gpu.Outcome(one.name, "passed", 1.0, "")

    monkeypatch.setattr(gpu, "run_step", run_step)
    with pytest.raises(KeyboardInterrupt):
        gpu.run([step("a"), step("b")], tmp_path)
    content = json.loads(next(tmp_path.iterdir()).read_text())
    assert [one["step"] for one in content["steps"]] == ["a"]


def test_steps_name_files_that_exist():
    for one in gpu.STEPS:
        for word in one.command:
            if word.startswith("tests/"):
                assert (gpu.ROOT / word).exists(), word


@pytest.mark.skipif(backend.current().name == "cuda", reason="there is a GPU")
def test_without_a_gpu_it_is_one_sentence(capsys):
    for words, said in ((["gpu"], "gpu tries and times compiled kernels on a GPU"),
                        (["gpu", "polish"], "no step 'polish'; there are: check, presets, bench")):
        assert command.main(words) == 2
        told = capsys.readouterr()
        assert told.out == "" and told.err.count("\n") == 1 and said in told.err
