"""The trained tiny models: bf16 weights, and beside each a JSON of how it was made and measured.

checkpoints.available()                      names, such as "tiny_v1-text-seed0"
checkpoints.load("tiny_v1-text-seed0")       the model, in float32, ready to run
checkpoints.describe("tiny_v1-text-seed0")   its command, data, losses and measures
"""

import hashlib
import inspect
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tinymodels import presets
from tinymodels.config import ModelConfig
from tinymodels.parts import Parts
from tinymodels.transformer import Transformer

FOLDER = Path(__file__).parent
FORMAT = "tinymodels checkpoint 1"


def preset(name: str) -> ModelConfig:
    """The config of a preset, by name. Errors: ValueError that lists the presets there are."""
    functions = inspect.getmembers(presets, inspect.isfunction)
    known = {n: f for n, f in functions if n.startswith("tiny_")}
    if name not in known:
        raise ValueError(f"unknown preset {name!r}; presets are {', '.join(sorted(known))}")
    return known[name]()


def available(folder: Path = FOLDER) -> list[str]:
    """The names `load` takes, sorted."""
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def _how_to_make(name: str) -> str:
    parts = name.split("-")
    if len(parts) == 3 and parts[2].startswith("seed"):
        options = f"--preset {parts[0]} --task {parts[1]} --seed {parts[2][4:]}"
        return f"make it anew: python -m tinymodels.train {options} --out {FOLDER}"
    return "names look like tiny_v1-text-seed0"


def _path(name: str, suffix: str, folder: Path) -> Path:
    path = folder / f"{name}{suffix}"
    if not isinstance(name, str) or path.parent != folder or not path.is_file():
        there = ", ".join(available(folder)) or "none"
        raise ValueError(f"no checkpoint {path}; there are: {there}. Or {_how_to_make(str(name))}")
    return path


def _sha256(weights: dict[str, Tensor]) -> str:
    """Of names, shapes and bytes: a single flipped bit is noticed."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------- write


def _shipped(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor


@torch.no_grad()
def round_to_shipped(model: Transformer) -> None:
    """Round a model's weights, in place, to what its checkpoint will hold."""
    for tensor in model.state_dict().values():
        tensor.copy_(_shipped(tensor))


def save(model: Transformer, about: dict, folder: Path = FOLDER) -> None:
    """Write weights and JSON, the weights last: what `available` lists is complete.

    about: needs "name", "preset" and "command"; all of it goes into the JSON.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: _shipped(t).cpu().contiguous() for name, t in model.state_dict().items()}
    if model.config.tied:
        del weights["head.weight"]
    metadata = {
        "format": FORMAT,
        "preset": about["preset"],
        "command": about["command"],
        "sha256": _sha256(weights),
    }
    finals = [folder / f"{about['name']}{end}" for end in (".json", ".safetensors")]
    partials = [path.with_name(path.name + ".tmp") for path in finals]
    try:
        partials[0].write_text(json.dumps(about, indent=1) + "\n")
        save_file(weights, partials[1], metadata)
        for partial, final in zip(partials, finals):
            os.replace(partial, final)
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)


# ---------------------------------------------------------------- read


def load(name: str, parts: Parts | None = None, folder: Path = FOLDER) -> Transformer:
    """A trained model by name, in float32 on the CPU, in eval mode.

    Errors: ValueError that names the file and says how to make it anew, when it is missing,
    truncated, damaged, or was not made by `tinymodels.train`.
    """
    path = _path(name, ".safetensors", folder)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}
    except (SafetensorError, OSError, ValueError) as problem:
        raise ValueError(f"{path} is broken ({problem}); {_how_to_make(name)}") from None
    if metadata.get("format") != FORMAT:
        raise ValueError(
            f"{path} was not made by tinymodels.train (its format is "
            f"{metadata.get('format')!r}, not {FORMAT!r}); {_how_to_make(name)}"
        )
    if metadata.get("sha256") != _sha256(weights):
        raise ValueError(f"{path} is damaged: its checksum differs; {_how_to_make(name)}")
    model = Transformer(preset(metadata.get("preset", "")), parts)
    if model.config.tied:
        weights["head.weight"] = weights.get("embed.weight")
    try:
        model.load_state_dict({key: weights[key] for key in weights})
    except (RuntimeError, AttributeError) as problem:
        first = str(problem).strip().splitlines()[-1].strip()
        raise ValueError(
            f"{path} does not fit {metadata['preset']} as it is now ({first}); {_how_to_make(name)}"
        ) from None
    return model.eval()


def describe(name: str, folder: Path = FOLDER) -> dict:
    """The JSON beside a checkpoint. Errors: ValueError when it is missing or no JSON."""
    path = _path(name, ".json", folder)
    try:
        about = json.loads(path.read_text())
    except json.JSONDecodeError as problem:
        raise ValueError(f"{path} is no JSON ({problem}); {_how_to_make(name)}") from None
    missing = {"command", "preset"} - set(about if isinstance(about, dict) else ())
    if missing:
        raise ValueError(f"{path} lacks {', '.join(sorted(missing))}; {_how_to_make(name)}")
    return about
