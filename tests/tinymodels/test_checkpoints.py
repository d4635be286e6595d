"""Checkpoints: what was saved comes back, and what is broken is refused by name."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tinymodels import checkpoints
from tinymodels.parts import Parts, reference_swiglu
from tinymodels.presets import tiny_v1
from tinymodels.transformer import Transformer

NAME = "tiny_v1-text-seed7"
ABOUT = {"name": NAME, "preset": "tiny_v1", "command": "python -m tinymodels.train ..."}


@pytest.fixture(scope="module")
def model():
    return Transformer(tiny_v1(), seed=7)


@pytest.fixture
def folder(model, tmp_path):
    checkpoints.save(model, ABOUT, tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def weights(folder):
    return folder / f"{NAME}.safetensors"


def test_what_was_saved_comes_back_rounded_to_bf16(model, folder):
    loaded = checkpoints.load(NAME, folder=folder)
    assert not loaded.training and loaded.dtype == torch.float32
    for (name, was), (same, now) in zip(model.state_dict().items(), loaded.state_dict().items()):
        assert name == same
        assert torch.equal(was.to(torch.bfloat16).float(), now), name
    assert checkpoints.describe(NAME, folder) == ABOUT
    assert checkpoints.available(folder) == [NAME]
    size = weights(folder).stat().st_size
    assert size < 2 * sum(p.numel() for p in model.parameters()) + 6000


def test_rounding_a_model_makes_it_equal_its_checkpoint(folder):
    rounded = Transformer(tiny_v1(), seed=7)
    checkpoints.round_to_shipped(rounded)
    tokens = torch.tensor([[0, 99, 120, 31, 200, 7], [0, 5, 6, 7, 8, 9]])
    with torch.no_grad():
        loaded = checkpoints.load(NAME, folder=folder)
        assert torch.equal(loaded(tokens), rounded(tokens))
        assert not torch.equal(loaded(tokens), Transformer(tiny_v1(), seed=7)(tokens))


def test_own_parts_reach_the_loaded_model(folder):
    calls = []

    def mine(*arguments):
        calls.append(1)
        return reference_swiglu(*arguments)

    loaded = checkpoints.load(NAME, parts=Parts(swiglu=mine), folder=folder)
    loaded(torch.tensor([[0, 9, 11]]))
    assert len(calls) == len(loaded.layers)


def test_nothing_half_written_stays(folder):
    assert sorted(p.suffix for p in folder.iterdir()) == [".json", ".safetensors"]


@pytest.mark.parametrize("name", ["tiny_v1-text-seed9", "nothing", "../" + NAME, "", None, 7])
def test_a_missing_checkpoint_is_named_with_what_there_is_and_how_to_make_it(name, folder):
    for path in folder.iterdir():
        shutil.copy(path, folder.parent)  # what lies outside the folder is out of reach
    for read in (checkpoints.load, checkpoints.describe):
        with pytest.raises(ValueError, match=f"there are: {NAME}") as refusal:
            read(name, folder=folder)
        assert str(name) in str(refusal.value)
    with pytest.raises(ValueError, match="--preset tiny_v1 --task text --seed 9"):
        checkpoints.load("tiny_v1-text-seed9", folder=folder)


@pytest.mark.parametrize("kept", [0, 5, 200, 9_000, -1])
def test_a_truncated_file_is_refused(kept, folder):
    whole = weights(folder).read_bytes()
    weights(folder).write_bytes(whole[:kept])
    with pytest.raises(ValueError, match=f"{NAME}.safetensors is broken.*make it anew"):
        checkpoints.load(NAME, folder=folder)


def test_a_flipped_bit_is_noticed(folder):
    damaged = bytearray(weights(folder).read_bytes())
    damaged[-1001] ^= 4
    weights(folder).write_bytes(damaged)
    with pytest.raises(ValueError, match=f"{NAME}.safetensors is damaged.*make it anew"):
        checkpoints.load(NAME, folder=folder)


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_a_file_made_by_others_is_refused(metadata, folder):
    save_file(load_file(weights(folder)), weights(folder), metadata)
    with pytest.raises(ValueError, match="not made by tinymodels.train"):
        checkpoints.load(NAME, folder=folder)


@pytest.mark.parametrize("layers, vocab", [(3, 256), (5, 256), (4, 250)])
def test_a_checkpoint_of_another_shape_is_refused(layers, vocab, tmp_path):
    other = Transformer(tiny_v1(layers=layers, vocab=vocab))
    checkpoints.save(other, ABOUT, tmp_path)
    with pytest.raises(ValueError, match=f"{NAME}.safetensors does not fit tiny_v1"):
        checkpoints.load(NAME, folder=tmp_path)


def test_a_checkpoint_of_an_unknown_preset_is_refused(model, tmp_path):
    checkpoints.save(model, ABOUT | {"preset": "tiny_v99"}, tmp_path)
    with pytest.raises(ValueError, match="unknown preset 'tiny_v99'.*tiny_v1"):
        checkpoints.load(NAME, folder=tmp_path)


def test_a_broken_description_is_refused(folder):
    path = folder / f"{NAME}.json"
    path.write_text(path.read_text()[:10])
    with pytest.raises(ValueError, match=f"{NAME}.json is no JSON"):
        checkpoints.describe(NAME, folder)


def test_a_failed_write_leaves_the_older_checkpoint(model, folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(OSError, match="no space"):
        checkpoints.save(Transformer(tiny_v1(), seed=8), ABOUT | {"new": 1}, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("name", checkpoints.available())
def test_every_shipped_checkpoint_loads_and_is_described(name):
    model, told = checkpoints.load(name), checkpoints.describe(name)
    assert told["name"] == name and model.config.name == told["preset"]
    assert told["parameters"] == sum(p.numel() for p in model.parameters())
    assert json.loads(json.dumps(told)) == told
    for key in ("command", "data_sha256", "tokens", "wall_seconds", "cpu_seconds", "measured"):
        assert told[key], key


def test_a_copy_elsewhere_loads_too(tmp_path):
    for name in checkpoints.available()[:1]:
        for suffix in (".json", ".safetensors"):
            shutil.copy(checkpoints.FOLDER / f"{name}{suffix}", tmp_path)
        assert checkpoints.load(name, folder=tmp_path).config.name == "tiny_v1"
