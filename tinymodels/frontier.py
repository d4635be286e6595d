"""The frontier hunt: how few bytes a token does a small model need to look everything up?

    python -m tinymodels.frontier            trains EXAMPLE and ships it, checkpoints/frontier/

A learner writes a `ModelConfig` and calls `train(config)`: three seeds on the recall games, with
the settings of every recall model of this course, into files beside the notebook. The files are
named by the configuration, so that many can lie side by side, and hold the weights themselves:
what is graded is measured on them, on texts that nobody has seen.

The folder holds the weights of a second configuration too, that of the solution of 13.8; its
notebook's `frontier.train` makes them.
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from . import checkpoints, data, ledger, measure, study
from . import train as training
from .cache import allocate
from .config import GQA, Dense, Layer, ModelConfig, Rope
from .dice import Dice
from .moe import watch_routing
from .presets import tiny_v1
from .run import DEFAULTS, Run
from .transformer import Transformer

FOLDER = checkpoints.FOLDER / "frontier"
SEEDS = (0, 1, 2)
WINDOW = 16  # tokens; what a window holds does not grow, and so it must be small
LENGTH = DEFAULTS["recall"]["length"]
MOST_BYTES = ledger.rate(tiny_v1()) / 20
MARGIN = 1  # wrong answers a seed: the least that a set of questions can tell apart

EXAMPLE = ModelConfig(
    name="frontier",
    vocab=256,
    width=64,
    layers=(
        Layer(GQA(4, kv_heads=2, head_dim=16, rope=Rope(16, pairs="half"), window=4), Dense(192)),
        Layer(GQA(4, kv_heads=1, head_dim=6), Dense(192)),
    ),
    context=1024,
)
"""Two layers. The first sees four tokens, so that a word can tell which word stood before it;
the second keeps one key and one value of 6 numbers, for all heads."""


def fingerprint(config: ModelConfig) -> str:
    """Eight letters for what a model is; its name, source and notes do not count."""
    text = repr(config.with_(name="", source="", notes=()))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def same_weights(config: ModelConfig, other: ModelConfig) -> bool:
    """Do both train to the same weights, or as good as the same? How rows are stored, and for how
    long a text a model is made, does not change them, nor do names; norm_eps does, by a hair."""
    alike = {"context": 1, "row": "bf16", "kv_bits": None, "norm_eps": 1.0}
    return fingerprint(config.with_(**alike)) == fingerprint(other.with_(**alike))


def path(config: ModelConfig, seed: int, folder: Path) -> Path:
    return folder / f"frontier-{fingerprint(config)}-seed{seed}.safetensors"


# ---------------------------------------------------------------- what counts before training


def bytes_per_token(config: ModelConfig) -> float:
    """What a token adds, weighed: storage is allocated for 1,024 tokens, and for none."""
    held = allocate(config, LENGTH * 4).bytes()["global"]
    return (held - allocate(config, 0).bytes()["global"]) / (LENGTH * 4)


def widest_window(config: ModelConfig) -> int:
    """Tokens in the widest window, 0 without one."""
    return max(getattr(layer.attention, "window", None) or 0 for layer in config.layers)


def parameters(config: ModelConfig) -> int:
    """Numbers that are trained."""
    return sum(p.numel() for p in Transformer(config).parameters())


def refusals(config: ModelConfig) -> list[str]:
    """Why a configuration is out of the hunt, a sentence each; none: it may be trained.

    Errors: ValueError for what is no configuration, or none that can run.
    """
    if not isinstance(config, ModelConfig):
        raise ValueError(f"a ModelConfig is wanted; {type(config).__name__} came")
    if config.vocab != 256:
        raise ValueError(f"vocab is {config.vocab}; the games have 256 tokens")
    if config.kv_bits is not None:
        raise ValueError("kv_bits only counts bytes, nothing is stored so; choose `row` instead")
    found = []
    if (rate := bytes_per_token(config)) > MOST_BYTES:
        found.append(f"a token adds {rate:g} bytes; at most {MOST_BYTES:g} are allowed")
    if (window := widest_window(config)) > WINDOW:
        found.append(f"a window holds {window} tokens; at most {WINDOW} are allowed")
    if (count := parameters(config)) > (most := parameters(tiny_v1())):
        found.append(f"{count:,} parameters; at most {most:,} are allowed, those of tiny_v1")
    return found


# ---------------------------------------------------------------- training


def run_of(seed: int) -> Run:
    """The settings of all recall models; only seed and steps of the data come from it."""
    return Run("tiny_v1", "recall", seed, **DEFAULTS["recall"])


def learn(config: ModelConfig, seed: int, steps: int | None = None):
    """-> the model after the first `steps` steps of the run (all), and its losses."""
    run = run_of(seed)
    torch.manual_seed(seed)
    model = study.untrained(config, seed)

    routed: dict = {}
    say = _progress(seed, run.steps)

    def loss_at(step):
        with watch_routing(model) as seen:
            found = training.loss_of(model, run.batch(step))
        routed.clear()
        routed.update(seen)
        return found

    def after(done):
        training.balance(model, routed)
        say(done)

    steps = run.steps if steps is None else steps
    losses = study.descend(model, run, steps, loss_at, after)
    return model.eval(), losses


def _progress(seed: int, steps: int):
    begin = time.perf_counter()

    def after(done: int) -> None:
        if done % 300 == 0:
            took = time.perf_counter() - begin
            print(f"seed {seed}: {done:,} of {steps:,} steps, {took:.0f} s", flush=True)

    return after


def train(config: ModelConfig, folder: Path | str = ".") -> dict[str, float]:
    """Train what is not trained yet, some minutes a seed; -> {seed: recall}.

    A seed that is finished stays; stopped and called again, it begins the unfinished one anew.
    Errors: ValueError with the reasons where the configuration is out of the hunt.
    """
    if reasons := refusals(config):
        raise ValueError("; ".join(reasons))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        if not path(config, seed, folder).exists():
            model, losses = learn(config, seed)
            _save(model, losses, seed, path(config, seed, folder))
    return {str(s): recall(load(config, s, folder), 0) for s in SEEDS}


def _save(model: Transformer, losses: list[float], seed: int, at: Path) -> None:
    weights = {n: _shipped(t) for n, t in model.state_dict().items()}
    if model.config.tied:
        del weights["head.weight"]
    about = {
        "seed": str(seed),
        "config": repr(model.config),
        "first_losses": " ".join(f"{x:.5f}" for x in losses[: study.FIRST]),
        "loss": " ".join(f"{x:.4f}" for x in study.means(losses, 100)),
    }
    partial = at.with_suffix(".tmp")
    save_file(weights, partial, about)
    partial.replace(at)


def _shipped(tensor: Tensor) -> Tensor:
    """Weights in bf16, tables of whole numbers as they are."""
    return (tensor.bfloat16() if tensor.is_floating_point() else tensor).contiguous()


def about(config: ModelConfig, seed: int, folder: Path = FOLDER) -> dict[str, str]:
    """What stands beside the weights: seed, first losses, the curve."""
    with safe_open(path(config, seed, folder), "pt") as file:
        return file.metadata()


def load(config: ModelConfig, seed: int, folder: Path | str | None = None) -> Transformer:
    """The trained model of a seed; looked for here and among what is shipped, if no folder is
    named. Errors: ValueError that says how to train it."""
    folders = (Path("."), FOLDER) if folder is None else (Path(folder),)
    found = next((p for f in folders if (p := path(config, seed, f)).is_file()), None)
    if found is None:
        raise ValueError(
            f"{path(config, seed, folders[0]).name} is not here: this configuration is not trained "
            "yet. frontier.train(config) does it, and writes its files beside the notebook"
        )
    model = Transformer(config)
    try:
        with safe_open(found, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}
        if config.tied:
            weights["head.weight"] = weights["embed.weight"]
        model.load_state_dict(weights)
    except Exception as problem:
        raise ValueError(
            f"{found.name} cannot be read ({type(problem).__name__}); delete it, and train anew"
        ) from None
    return model.eval()


# ---------------------------------------------------------------- measuring


@torch.no_grad()
def wrong(model: Transformer, texts: int, count: int = 16) -> int:
    """How many of `questions(count)` are answered wrong, through the packed cache.

    texts: number of the set of texts, `count` for each number of pairs, 4 to 48. All questions
    of a text are read in one pass.
    """
    found = 0
    for pairs in _pairs():
        made = [data.recall(Dice("frontier", texts, pairs, i), LENGTH, pairs) for i in range(count)]
        tokens_BT = torch.tensor([m.tokens for m in made])
        best_BT = model(tokens_BT, model.new_cache(count, LENGTH)).argmax(-1)
        found += sum(
            int(best_BT[b, at - 1] != tokens_BT[b, at])
            for b, text in enumerate(made)
            for at in text.answers
        )
    return found


def questions(count: int = 16) -> int:
    """Of one set of texts: 960."""
    return count * sum(min(pairs, 16) for pairs in _pairs())


def _pairs() -> list[int]:
    return [p for p in measure.PAIRS if 1 + 2 * p + 3 * min(p, 16) <= LENGTH]


def recall(model: Transformer, texts: int, count: int = 16) -> float:
    """The share of the questions that is answered right."""
    return 1 - wrong(model, texts, count) / questions(count)


def weakest_of_v1(texts: int) -> int:
    """How many tiny_v1's weakest seed answers wrong on the same texts, of those shipped."""
    names = [n for n in checkpoints.available() if n.startswith("tiny_v1-recall-")]
    return max(wrong(checkpoints.load(name), texts) for name in names)


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    about = __doc__.split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tinymodels.frontier", description=about)
    parser.add_argument("--out", type=Path, default=FOLDER)
    try:
        print(train(EXAMPLE, parser.parse_args(argv).out))
    except (ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
