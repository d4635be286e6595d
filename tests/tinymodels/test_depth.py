"""What depth buys, as shipped: sizes are equal, runs can be made again, and the gap is wide."""

import json

import pytest
import torch

from tinymodels import data, depth, study, tent, tokenizer
from tinymodels.transformer import Transformer

RESULTS = depth.results()
LOOKED, FOLDED = RESULTS["look_up"]["runs"], RESULTS["fold"]["runs"]


def of(layers):
    return [run for run in LOOKED if run["layers"] == layers]


def test_every_run_is_there_once():
    wanted = [(layers, seed) for layers in depth.WIDTHS for seed in depth.SEEDS]
    assert [(run["layers"], run["seed"]) for run in LOOKED] == wanted
    wanted = [(f, s, i) for f in depth.FOLDS for s in depth.SHAPES for i in depth.FOLD_SEEDS]
    assert [(run["folds"], run["shape"], run["seed"]) for run in FOLDED] == wanted
    for run in LOOKED:
        assert len(run["right"]) == len(run["loss"]) == depth.STEPS // depth.EVERY


def test_parameters_are_equal_and_bytes_grow_with_layers():
    for layers in depth.WIDTHS:
        model = Transformer(depth.config(layers))
        assert {sum(p.numel() for p in model.parameters())} == {r["parameters"] for r in LOOKED}
        assert {run["bytes_per_token"] for run in of(layers)} == {layers * 2 * 4 * 16 * 2}
    assert {run["parameters"] for run in FOLDED} == {241}
    for shape, sizes in depth.SHAPES.items():
        drawn = depth._draw(sizes, 0)
        network = tuple(zip(drawn[::2], drawn[1::2]))
        assert tent.parameters(network) == 241
        assert tent.units(network) == {"one layer of 80": 80, "four layers of 8": 32}[shape]


@pytest.mark.parametrize("layers", depth.WIDTHS)
def test_a_run_begins_as_it_was_written_down(layers):
    """Twenty steps made again. Processors differ in the last digits, hence the small slack."""
    seed = 1
    again = depth.look_up(layers, seed, steps=study.FIRST, measure=False)
    (shipped,) = (run for run in of(layers) if run["seed"] == seed)
    assert again["first_losses"] == pytest.approx(shipped["first_losses"], abs=2e-3)
    (other,) = (run for run in of(layers) if run["seed"] == 2)
    assert again["first_losses"] != pytest.approx(other["first_losses"], abs=2e-3)


@pytest.mark.parametrize("shape", depth.SHAPES)
def test_a_fold_begins_as_it_was_written_down(shape):
    again = depth.fold(shape, 3, 2, steps=study.FIRST)
    (shipped,) = (r for r in FOLDED if (r["shape"], r["folds"], r["seed"]) == (shape, 3, 2))
    assert again["first_losses"] == pytest.approx(shipped["first_losses"], abs=1e-3)


def test_one_layer_guesses_and_two_find():
    """In every seed; a guess among two to four words named second is right a third of the time."""
    assert all(0.2 < run["right"][-1] < 0.4 for run in of(1))
    for layers in (2, 4):
        assert all(run["right"][-1] > 0.97 for run in of(layers))


def test_one_layer_had_stopped_learning():
    """More steps would not have helped: the second half of its training gained almost nothing."""
    for run in of(1):
        half = len(run["right"]) // 2
        assert run["right"][-1] - run["right"][half] < 0.06


def test_texts_ask_for_what_was_named_before():
    batch = depth.texts(7, seed=0, step=3)
    for row, known in zip(batch.tokens.tolist(), batch.known.tolist()):
        named = row[1:]
        for t, answer in enumerate(known):
            if answer != data.IGNORED:
                earlier = [named[i + 1] for i in range(0, t - 1) if named[i] == row[t]]
                assert earlier and answer in earlier, tokenizer.decode(row)


def test_results_that_are_not_there_say_how_to_make_them(tmp_path):
    with pytest.raises(ValueError, match="python -m tinymodels.depth"):
        depth.results(tmp_path / "no.json")
    (tmp_path / "half.json").write_text('{"look_up":')
    with pytest.raises(ValueError, match="half.json cannot be read"):
        depth.results(tmp_path / "half.json")
    with pytest.raises(ValueError, match="layers is 3"):
        depth.config(3)


def test_the_command_writes_what_is_shipped(tmp_path, monkeypatch, capsys):
    """The whole command, cut short: same shape of file, and nothing half-written is left."""
    for name, value in {
        "WIDTHS": {1: 426, 2: 170},
        "SEEDS": (0,),
        "STEPS": 4,
        "EVERY": 2,
        "FOLDS": (1,),
        "FOLD_SEEDS": (0,),
        "FOLD_STEPS": 5,
    }.items():
        monkeypatch.setattr(depth, name, value)
    out = tmp_path / "depth.json"
    assert depth.main(["--out", str(out)]) == 0
    made = json.loads(out.read_text())
    assert made.keys() == RESULTS.keys()
    assert made["look_up"]["runs"][0].keys() == LOOKED[0].keys()
    assert made["fold"]["runs"][0].keys() == FOLDED[0].keys()
    assert [p.name for p in tmp_path.iterdir()] == ["depth.json"]
    assert "2 layers, seed 0" in capsys.readouterr().out
    assert depth.main(["--out", str(tmp_path / "nowhere" / "depth.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_error_of_the_best_constant_is_what_the_chapter_says():
    x = (torch.arange(depth.POINTS) + 0.5) / depth.POINTS
    for folds in depth.FOLDS:
        y = tent.tent(x, folds)
        assert (y - y.mean()).square().mean().sqrt().item() == pytest.approx(0.289, abs=2e-3)
