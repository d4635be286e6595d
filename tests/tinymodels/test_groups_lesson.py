"""What chapter 08 says of the shipped V4 models, for every seed that is there."""

from unittest.mock import patch

import pytest
import torch

from tinymodels import checkpoints, data
from tinymodels.attention import seen

NAMES = [name for name in checkpoints.available() if name.startswith("tiny_v4-recall")]
TEXTS = data.batch("recall", 0, 0, data.Stage(8, 256), held_out=True)


def loaded(name):
    return checkpoints.load(name).requires_grad_(False)


@pytest.mark.parametrize("name", NAMES)
def test_gates_pick_the_values_of_pairs(name):
    model, caught = loaded(name), []
    compressor = model.layers[3].attention.compressor
    handle = compressor.gate.register_forward_hook(lambda *x: caught.append(x[2]))
    model(TEXTS.tokens)
    handle.remove()
    weight = (caught[0].unflatten(1, (16, 16)) + compressor.position_bias).softmax(2)
    weight_BT = weight.mean(-1).flatten(1) * 16
    values, noise = (
        weight_BT[torch.isin(TEXTS.tokens, torch.tensor(kind))].mean()
        for kind in (data.VALUES, data.NOISE)
    )
    assert values > 1.5 and noise < 0.9


@pytest.mark.parametrize("name", NAMES)
def test_the_last_sink_gets_more_where_nothing_is_asked_and_is_not_needed(name):
    model, sinks, plain = loaded(name), [], seen.softmax_with_sink

    def noting(scores, sink):
        weights = plain(scores, sink)
        sinks.append(1 - sum(weight.sum(-1) for weight in weights).mean(-1))
        return weights

    here = TEXTS.targets != data.IGNORED
    with patch.object(seen, "softmax_with_sink", noting):
        right = (model(TEXTS.tokens).argmax(-1) == TEXTS.targets)[here].float().mean()
    assert len(sinks) == 7
    assert sinks[-1][~here].mean() > 1.8 * sinks[-1][here].mean()
    for layer in model.layers:
        layer.attention.sink.fill_(-1e9)
    without = (model(TEXTS.tokens).argmax(-1) == TEXTS.targets)[here].float().mean()
    assert right > 0.97 and without > right - 0.02


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_mask_tells_of_the_future_and_the_right_one_does_not(name):
    model, tokens = loaded(name), TEXTS.tokens[:2].clone()
    other = tokens.clone()
    other[:, 100] = (other[:, 100] + 1) % 256

    def started(step, entries, ratio):
        return torch.arange(entries) < (step.positions_T // ratio + 1)[:, None]

    for mask, early in ((seen.complete_groups, []), (started, [96, 97, 98, 99])):
        with patch.object(seen, "complete_groups", mask):
            moved = (model(tokens) - model(other)).abs().amax(-1) > 1e-4
        assert moved[:, :100].any(0).nonzero().flatten().tolist() == early
