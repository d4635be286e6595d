"""V2 to V3.2 learn: the loss falls on both tasks, experts share the work, indexers find more."""

import pytest
import torch

from tinymodels import data, train
from tinymodels.moe import watch_routing
from tinymodels.run import Run

PRESETS = ("tiny_v2", "tiny_v2_lite", "tiny_v3", "tiny_v3_2")
by_preset = pytest.mark.parametrize("preset", PRESETS)


def run_of(preset: str, task: str, steps: int = 30, length: int = 61) -> Run:
    return Run(preset, task, seed=1, steps=steps, size=3, length=length, rate=4e-3, warmup=3)


@by_preset
@pytest.mark.parametrize("task", data.TASKS)
def test_the_loss_falls(preset, task, tmp_path):
    """By a quarter of a nat in 30 steps; without learning it moves by a few hundredths."""
    training = train.Training(run_of(preset, task), tmp_path)
    training.until(30, save_every=100, quiet=True)
    first, last = sum(training.losses[:3]) / 3, sum(training.losses[-3:]) / 3
    assert first - last > 0.25, training.losses


@pytest.mark.parametrize("preset", ["tiny_v3", "tiny_v3_2"])
def test_a_stop_changes_no_bit(preset, tmp_path):
    """Biases of routers are no parameters, but part of the state."""
    run = run_of(preset, "text", steps=8)
    straight = train.Training(run, tmp_path / "straight")
    straight.until(8, save_every=100, quiet=True)
    train.train(run, tmp_path / "stopped", stop_after=3, quiet=True)
    resumed = train.Training(run, tmp_path / "stopped")
    resumed.resume()
    resumed.until(8, save_every=100, quiet=True)
    assert resumed.losses == straight.losses
    ours, theirs = resumed.model.state_dict(), straight.model.state_dict()
    assert all(torch.equal(v, theirs[k]) for k, v in ours.items())
    biases = [v for k, v in ours.items() if k.endswith("router.bias")]
    assert len(biases) == 3 and all(b.any() for b in biases)


def test_each_step_moves_a_bias_against_the_load(tmp_path):
    training = train.Training(run_of("tiny_v3", "text"), tmp_path)
    batch = training.run.batch(0)
    with watch_routing(training.model) as seen, torch.no_grad():
        training.model(batch.tokens)
    training.step()
    for name, (routing,) in seen.items():
        load = routing.load(8).float()
        want = 1e-3 * (load.mean() - load).sign()
        torch.testing.assert_close(training.model.get_submodule(name).bias, want)


def test_a_router_without_a_bias_is_left_alone(tmp_path):
    training = train.Training(run_of("tiny_v2", "text"), tmp_path)
    training.step()
    assert not [n for n, _ in training.model.named_buffers() if n.endswith("router.bias")]
