"""Training: the same result after a stop, a kill or a second run; and the shipped ones re-run."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from tinymodels import checkpoints, data, train
from tinymodels.measure import (
    fixed_fact_accuracy,
    given_fact_accuracy,
    recall_accuracy,
    right_answers,
)
from tinymodels.parts import reference_attention
from tinymodels.run import Run, learning_rate

TINY = Run("tiny_v1", "text", seed=3, steps=20, size=3, length=37, rate=3e-3, warmup=5)


def weights_equal(one, other) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items())
    return all(n == m and torch.equal(a, b) for (n, a), (m, b) in pairs)


def command(folder, *more: str) -> list[str]:
    settings = "--preset tiny_v1 --task text --seed 3 --steps 20 --size 3 --length 37 --rate 0.003"
    return [
        sys.executable,
        "-m",
        "tinymodels.train",
        *settings.split(),
        "--out",
        str(folder),
        *more,
    ]


# ---------------------------------------------------------------- the same result


@pytest.mark.parametrize("task", data.TASKS)
def test_ten_steps_a_stop_and_ten_more_equal_twenty_bit_for_bit(task, tmp_path):
    run = replace(TINY, task=task)
    straight = train.Training(run, tmp_path / "straight")
    straight.until(20, save_every=100, quiet=True)
    train.train(run, tmp_path / "stopped", stop_after=10, quiet=True)
    torch.manual_seed(999)  # whatever happens in between
    resumed = train.Training(run, tmp_path / "stopped")
    resumed.resume()
    assert len(resumed.losses) == 10
    resumed.until(20, save_every=100, quiet=True)
    assert resumed.losses == straight.losses
    assert weights_equal(resumed.model, straight.model)
    assert resumed.cpu_seconds > 0


def test_a_killed_process_resumes_to_the_same_state(tmp_path):
    straight = train.Training(replace(TINY, warmup=100), tmp_path / "straight")
    straight.until(19, save_every=100, quiet=True)
    folder = tmp_path / "killed"
    state = folder / f"{TINY.name}.state"
    process = subprocess.Popen(
        command(folder, "--save-every", "1"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    arguments = ["--resume", "--stop-after", "19"]
    done = subprocess.run(command(folder, *arguments), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "19 of 20 steps" in done.stdout
    resumed = train.Training(straight.run, folder)
    resumed.resume()
    assert resumed.losses == straight.losses
    assert weights_equal(resumed.model, straight.model)


def test_a_finished_run_leaves_a_checkpoint_and_no_state(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "measure", lambda model, *settings: {"loss": 1.5})
    trained = train.train(TINY, tmp_path, save_every=7, quiet=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"{TINY.name}.json", f"{TINY.name}.safetensors",
    ]  # fmt: skip
    assert weights_equal(checkpoints.load(TINY.name, folder=tmp_path), trained.model)
    told = checkpoints.describe(TINY.name, tmp_path)
    assert told["command"] == TINY.command and told["tokens"] == 20 * 3 * 37
    assert told["first_losses"] == pytest.approx(trained.losses, abs=1e-5)
    assert told["measured"] == {"loss": 1.5}
    assert told["curve"]["loss"] == [pytest.approx(sum(trained.losses) / 20, abs=1e-4)]


def test_a_kill_during_the_write_leaves_the_older_state(tmp_path, monkeypatch):
    run = replace(TINY, steps=4)
    train.train(run, tmp_path, stop_after=2, quiet=True)

    def torn(state, file):
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(train.torch, "save", torn)
    with pytest.raises(KeyboardInterrupt):
        train.train(run, tmp_path, resume=True, stop_after=3, quiet=True)
    monkeypatch.undo()
    again = train.Training(run, tmp_path)
    again.resume()
    assert len(again.losses) == 2


def test_different_seeds_train_different_models(tmp_path):
    losses = []
    for seed in (0, 1):
        training = train.Training(replace(TINY, seed=seed), tmp_path)
        losses.append([training.step() for _ in range(3)])
    assert losses[0] != losses[1]


# ---------------------------------------------------------------- it learns


@pytest.mark.parametrize("task", data.TASKS)
@pytest.mark.parametrize(
    "size, length, steps", [(8, 512, 6000), (16, 256, 100), (3, 37, 7), (1, 9, 1)]
)
def test_rows_grow_games_end_and_a_step_keeps_its_number_of_tokens(task, size, length, steps):
    run = replace(TINY, task=task, size=size, length=length, steps=steps)
    stages = [run.stage(step) for step in range(steps)]
    lengths = [stage.length for stage in stages]
    assert lengths == sorted(lengths)
    games = [stage.games for stage in stages]
    assert games[0] == 1.0 and games == sorted(games, reverse=True)
    for stage in stages:
        assert size * length - stage.length < stage.rows * stage.length <= size * length
    if steps >= 100:
        last = run.stage(steps - 1)
        assert (last.rows, last.length, last.games) == (size, length, 0.0)
        assert [run.stage(s) for s in range(steps)].count(last) == steps * 30 // 100
    for step in (0, steps // 2, steps - 1):
        assert run.batch(step).tokens.shape == (stages[step].rows, stages[step].length)


@pytest.mark.parametrize("task", data.TASKS)
def test_the_loss_falls(task, tmp_path, monkeypatch):
    stage = data.Stage(32, 32)
    monkeypatch.setattr(Run, "stage", lambda run, step: stage)
    training = train.Training(replace(TINY, task=task, steps=60, warmup=10), tmp_path)
    losses = [training.step() for _ in range(60)]
    fall = 2.0 if task == "text" else 0.8
    assert sum(losses[-5:]) / 5 < losses[0] - fall


def test_the_learning_rate_rises_and_falls_to_a_tenth():
    run = replace(TINY, steps=1000, warmup=50, rate=0.01)
    rates = [learning_rate(run, step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01 / 50)
    assert max(rates) == pytest.approx(0.01, rel=0.01)
    assert rates.index(max(rates)) in (49, 50)
    assert rates[-1] == pytest.approx(0.001, rel=0.01)
    assert rates[50:] == sorted(rates[50:], reverse=True)


def test_words_that_can_be_known_count_twice_over(tmp_path):
    model = train.build(TINY)
    batch = data.batch("text", 0, 0, data.Stage(2, 77))
    total, error = train.loss_of(model, batch)
    each_BT = torch.nn.functional.cross_entropy(
        model(batch.tokens).transpose(1, 2), batch.targets, reduction="none"
    )
    known = batch.known != data.IGNORED
    torch.testing.assert_close(error, each_BT.mean())
    torch.testing.assert_close(total, each_BT.mean() + each_BT[known].mean())
    none = replace(batch, known=torch.full_like(batch.known, data.IGNORED))
    assert torch.equal(*train.loss_of(model, none))


def test_what_layers_want_to_learn_is_trained_on_and_not_reported(tmp_path):
    training = train.Training(replace(TINY, preset="tiny_v3_2", length=61), tmp_path)
    batch = training.run.batch(0)
    total, error = train.loss_of(training.model, batch)
    logits, lessons = training.model.with_losses(batch.tokens)
    assert len(lessons) == 5 and min(lessons) > 0
    without = data.Batch(batch.tokens, batch.targets, torch.full_like(batch.known, data.IGNORED))
    plain, same = train.loss_of(training.model, without)
    assert torch.equal(error, same)
    assert (plain - error).item() == pytest.approx(sum(lessons).item(), rel=1e-4)


@pytest.mark.parametrize("window", [None, 1, 5, 50])
@pytest.mark.parametrize("seed", [0, 1])
def test_training_attention_equals_the_reference(window, seed):
    draw = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(3, 23, heads, 10, generator=draw, dtype=torch.float64) for heads in (6, 3, 3)
    )
    fused = train.fused_attention(query, key, value, window=window)
    reference = reference_attention(query, key, value, window=window)
    torch.testing.assert_close(fused, reference, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- measures


class Echo(torch.nn.Module):
    """Says the token it reads; right when the answer is the prompt's last token."""

    def __init__(self):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens_BT):
        return torch.nn.functional.one_hot(tokens_BT, 256).float()


class Oracle(Echo):
    """Finds the newest earlier place of the last token and says what followed it there."""

    def forward(self, tokens_BT):
        out_BTV = torch.zeros(*tokens_BT.shape, 256)
        for b, row in enumerate(tokens_BT.tolist()):
            followed: dict[int, int] = {}
            for t, token in enumerate(row):
                out_BTV[b, t, followed.get(token, 0)] = 1.0
                if t:
                    followed[row[t - 1]] = token
        return out_BTV


def test_right_answers_reads_the_end_of_each_prompt_whatever_its_length():
    asked = [([0, 7, 9], 9), ([0, 5], 7), ([0] * 40 + [3], 3), ([4], 4), ([0, 8, 8, 1], 8)]
    assert right_answers(Echo(), asked, size=2) == [True, False, True, True, False]


def test_recall_measure_gives_full_marks_to_a_perfect_memory_and_none_to_a_parrot():
    perfect, parrot = (recall_accuracy(m, 121, count=3) for m in (Oracle(), Echo()))
    assert set(perfect["pairs"]) == {"4", "8", "16", "32"}
    for kind in ("pairs", "distance"):
        assert set(perfect[kind].values()) == {1.0}
        assert set(parrot[kind].values()) == {0.0}


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "change, named",
    [
        ({"task": "poems"}, "poems"),
        ({"steps": 0}, "steps"),
        ({"seed": -1}, "seed"),
        ({"rate": 0.0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"task": "recall", "length": 4}, "length"),
    ],
)
def test_runs_refuse_bad_settings(change, named):
    with pytest.raises(ValueError, match=named):
        replace(TINY, **change)


def test_unknown_preset_and_too_long_rows_are_refused():
    with pytest.raises(ValueError, match="tiny_v9.*tiny_v1"):
        train.build(replace(TINY, preset="tiny_v9"))
    with pytest.raises(ValueError, match="length"):
        train.build(replace(TINY, length=100_000))


def test_an_unfinished_run_is_neither_overwritten_nor_mixed_up(tmp_path):
    train.train(TINY, tmp_path, stop_after=1, quiet=True)
    with pytest.raises(ValueError, match="--resume"):
        train.train(TINY, tmp_path, quiet=True)
    with pytest.raises(ValueError, match="size 3 -> 4"):
        train.train(replace(TINY, size=4), tmp_path, resume=True, quiet=True)
    state = tmp_path / f"{TINY.name}.state"
    for content in (b"", b"not a state", state.read_bytes()[:5000]):
        state.write_bytes(content)
        with pytest.raises(ValueError, match="no saved training state"):
            train.train(TINY, tmp_path, resume=True, quiet=True)


def test_a_loss_that_is_no_number_stops_the_run(tmp_path):
    training = train.Training(TINY, tmp_path)
    with torch.no_grad():
        training.model.head.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="nan.*--rate"):
        training.step()


@pytest.mark.parametrize(
    "more, said",
    [
        (["--preset", "tiny_v9", "--task", "text"], "tiny_v9"),
        (["--preset", "tiny_v1", "--task", "text", "--steps", "0"], "steps"),
        (["--preset", "tiny_v1", "--task", "text", "--save-every", "0"], "--save-every"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_sentence(more, said, tmp_path, capsys):
    assert train.main([*more, "--out", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err
    assert captured.err.count("\n") == 1 and not os.listdir(tmp_path)


def test_the_command_line_of_a_run_makes_the_same_run(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        train,
        "train",
        lambda run, *more: seen.append(run) or (_ for _ in ()).throw(ValueError("x")),
    )
    run = Run("tiny_v1", "recall", seed=2, steps=7, size=5, length=99, rate=0.0025)
    train.main(run.command.split()[3:])
    assert seen == [run]


# ---------------------------------------------------------------- the shipped ones


@pytest.mark.parametrize("steps", [4, pytest.param(train.FIRST_LOSSES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", checkpoints.available())
def test_the_first_steps_of_a_shipped_run_give_its_stored_losses(name, steps, tmp_path):
    """Other processors add in another order, and training spreads the difference; over 20 steps
    it stays well below the 2e-3 allowed. On one machine the losses are the same to the bit."""
    told = checkpoints.describe(name)
    run = Run(**{key: told[key] for key in Run.__dataclass_fields__})
    assert run.command == told["command"] and run.name == name
    training = train.Training(run, tmp_path)
    training.model.train()
    losses = [training.step() for _ in range(steps)]
    assert len(told["first_losses"]) == train.FIRST_LOSSES
    assert losses == pytest.approx(told["first_losses"][:steps], abs=2e-3)
    assert run.fingerprint() == told["data_sha256"]


def test_models_are_shipped_and_small():
    names = checkpoints.available()
    assert "tiny_v1-text-seed0" in names
    assert sum(p.stat().st_size for p in checkpoints.FOLDER.iterdir() if p.is_file()) <= 24_000_000


def test_the_shipped_text_model_measures_as_written_and_well():
    """At the three quick measures. Another processor may tip a near tie: 2 % are allowed."""
    model, told = (f("tiny_v1-text-seed0") for f in (checkpoints.load, checkpoints.describe))
    measured = told["measured"]
    fixed = fixed_fact_accuracy(model)
    assert fixed["statement"] == pytest.approx(measured["fixed"]["statement"], abs=0.02)
    assert fixed["question"] == pytest.approx(measured["fixed"]["question"], abs=0.02)
    given = given_fact_accuracy(model, 10)
    assert given["all"] == pytest.approx(measured["given"]["10"]["all"], abs=0.02)
    assert min(fixed["statement"], fixed["question"]) > 0.95
    assert given["all"] > 0.9 > given["chance"] + 0.2
    assert min(given["value"], given["subject"]) > 0.8
