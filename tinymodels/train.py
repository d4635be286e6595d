"""Train a tiny model from its preset, a task and a seed; stop and go on with the same result.

    python -m tinymodels.train --preset tiny_v1 --task text --seed 0

writes `tiny_v1-text-seed0.safetensors` (bf16) and a `.json` beside it: the command, the data's
fingerprint, the losses, and what the finished model knows. Killed at any moment, the same command
with `--resume` goes on from the last saved step and ends, on the same machine, bit for bit where
the straight run ends: a batch depends on its step alone, and all other state is in the file.
"""

import argparse
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from tqdm import tqdm

from tinymodels import checkpoints, data
from tinymodels.measure import measure
from tinymodels.moe import Routing, watch_routing
from tinymodels.parts import Parts
from tinymodels.run import DEFAULTS, Run, learning_rate
from tinymodels.transformer import Transformer

FIRST_LOSSES = 20  # stored one by one, so that a run can be compared at its start
CURVE_EVERY = 100  # later losses are stored as means of this many steps


# ---------------------------------------------------------------- one step


def fused_attention(query_BTHD, key_BSKD, value_BSKD, *, window=None, impl=None):
    """Causal attention through torch's fused kernel, for equally many queries and keys.

    The same function as the course's twin, several times faster, and with a gradient.
    """
    query, key, value = (x.transpose(1, 2) for x in (query_BTHD, key_BSKD, value_BSKD))
    if window is None:
        mask = {"is_causal": True}
    else:
        ones_TT = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
        mask = {"attn_mask": ones_TT.tril() & ones_TT.triu(1 - window)}
    return scaled_dot_product_attention(query, key, value, enable_gqa=True, **mask).transpose(1, 2)


@torch.no_grad()
def scale_up(model: Transformer) -> None:
    """Make first weights fit for narrow models: matrices 1 / sqrt(inputs), embeddings 1.

    Models are born with weights of 0.02, which suits widths of thousands. At width 64 the first
    scores and sums would all but vanish, and with them the gradient of everything that takes two
    layers to find.
    """
    model.embed.weight.mul_(50)
    for matrix in model.layers.parameters():
        if matrix.dim() > 1:
            matrix.mul_(50 / matrix.shape[-1] ** 0.5)


def build(run: Run) -> Transformer:
    """The untrained model of a run. Errors: ValueError for an unknown preset."""
    config = checkpoints.preset(run.preset)
    if run.length > config.context:
        raise ValueError(f"length is {run.length}; {run.preset} is made for {config.context}")
    model = Transformer(config, Parts(attention=fused_attention), seed=run.seed)
    scale_up(model)
    return model


def optimiser(model: nn.Module, run: Run) -> torch.optim.AdamW:
    """AdamW (arXiv 1711.05101); matrices decay, norms and biases do not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": run.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=run.rate, betas=(0.9, 0.95))


def loss_of(model: nn.Module, batch: data.Batch) -> tuple[Tensor, Tensor]:
    """What is minimised, and the mean error of the next token, in nats.

    Minimised is that error plus the error on the words that can be known. Those are one in
    fifteen; without the second term the dice of the stories drown what they teach. What layers
    want to be trained on besides the text (an indexer's lesson) is added.
    """
    logits_BTV, lessons = model.with_losses(batch.tokens)
    logits_NV = logits_BTV.float().flatten(0, 1)
    error = cross_entropy(logits_NV, batch.targets.flatten(), ignore_index=data.IGNORED)
    total = error
    if (batch.known != data.IGNORED).any():
        total = error + cross_entropy(logits_NV, batch.known.flatten(), ignore_index=data.IGNORED)
    return sum(lessons, total), error


def balance(model: nn.Module, routed: dict[str, list[Routing]]) -> None:
    """Move the bias of every router that has one by what its experts had to do (V3, section
    2.1.2). routed: from `watch_routing`. V2's routers, without one, have a lesson instead."""
    for name, passes in routed.items():
        router = model.get_submodule(name)
        if router.bias is not None:
            router.balance(sum(routing.load(router.config.experts) for routing in passes))


# ---------------------------------------------------------------- state on disk


def _save(state: dict, path: Path) -> None:
    """All or nothing: a kill during the write leaves the file that was there before."""
    partial = path.with_suffix(".tmp")
    with open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _load(path: Path, run: Run) -> dict:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        was = state["run"]
    except Exception as problem:
        raise ValueError(
            f"{path} is no saved training state ({type(problem).__name__}); delete it and "
            "train from the start"
        ) from None
    changed = [key for key, value in asdict(run).items() if was.get(key) != value]
    if changed:
        listed = ", ".join(f"{key} {was.get(key)} -> {asdict(run)[key]}" for key in changed)
        raise ValueError(f"{path} belongs to a run with other settings ({listed}); delete it first")
    return state


class Training:
    """A run under way: model, optimiser, losses so far; `losses` has one entry a step done."""

    def __init__(self, run: Run, folder: Path, device: str = "cpu"):
        self.run, self.device = run, device
        self.path = folder / f"{run.name}.state"
        self.model = build(run).to(device)
        self.optimiser = optimiser(self.model, run)
        self.losses: list[float] = []
        self.wall_seconds = self.cpu_seconds = 0.0

    def resume(self) -> None:
        """Go on from the saved state, if there is one. Errors: ValueError for a foreign one."""
        if not self.path.exists():
            return
        state = _load(self.path, self.run)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.losses = state["losses"]
        self.wall_seconds, self.cpu_seconds = state["wall_seconds"], state["cpu_seconds"]
        torch.set_rng_state(state["random"])
        if self.device.startswith("cuda"):
            torch.cuda.set_rng_state_all(state["cuda_random"])

    def save(self) -> None:
        """Everything the rest of the run depends on, in one file."""
        cuda = torch.cuda.get_rng_state_all() if self.device.startswith("cuda") else []
        state = {
            "run": asdict(self.run),
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "losses": self.losses,
            "wall_seconds": self.wall_seconds,
            "cpu_seconds": self.cpu_seconds,
            "random": torch.get_rng_state(),
            "cuda_random": cuda,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _save(state, self.path)

    def step(self) -> float:
        """One batch, one update. Errors: ValueError when the loss is no longer a number."""
        wall, cpu = time.perf_counter(), time.process_time()
        run, done = self.run, len(self.losses)
        batch = run.batch(done).to(self.device)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(run, done)
        with watch_routing(self.model) as routed:
            total, error = loss_of(self.model, batch)
        if not torch.isfinite(total):
            raise ValueError(f"the loss at step {done} is {total.item()}; try a lower --rate")
        self.optimiser.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), run.clip)
        self.optimiser.step()
        balance(self.model, routed)
        self.losses.append(float(error.detach()))
        self.wall_seconds += time.perf_counter() - wall
        self.cpu_seconds += time.process_time() - cpu
        return self.losses[-1]

    def until(self, step: int, save_every: int, quiet: bool = False) -> None:
        """Train up to `step` (or the run's end), saving on the way and where it stops."""
        if not self.losses:
            torch.manual_seed(self.run.seed)
        self.model.train()
        last = min(step, self.run.steps)
        with tqdm(total=self.run.steps, initial=len(self.losses), disable=quiet) as bar:
            while len(self.losses) < last:
                bar.set_postfix_str(f"loss {self.step():.3f}", refresh=False)
                bar.update()
                if len(self.losses) % save_every == 0:
                    self.save()
        self.save()


# ---------------------------------------------------------------- a whole run


def report(training: Training) -> dict:
    """What stands beside the weights. The model is measured as shipped, rounded to bf16."""
    run, losses = training.run, training.losses
    curve = [losses[i : i + CURVE_EVERY] for i in range(0, len(losses), CURVE_EVERY)]
    return {
        "name": run.name,
        "command": run.command,
        **asdict(run),
        "tokens": run.steps * run.size * run.length,
        "data_sha256": run.fingerprint(),
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "wall_seconds": round(training.wall_seconds, 1),
        "cpu_seconds": round(training.cpu_seconds, 1),
        "threads": torch.get_num_threads(),
        "device": training.device,
        "torch": torch.__version__,
        "first_losses": [round(x, 5) for x in losses[:FIRST_LOSSES]],
        "curve": {"every": CURVE_EVERY, "loss": [round(sum(c) / len(c), 4) for c in curve]},
        "measured": measure(training.model, run.task, run.size, run.length),
    }


def train(
    run: Run,
    folder: Path,
    resume: bool = False,
    stop_after: int | None = None,
    save_every: int = 200,
    device: str = "cpu",
    quiet: bool = False,
) -> Training:
    """Train and, at the end of the run, write the checkpoint into `folder`.

    stop_after: leave after that many steps with the state saved and no checkpoint written.
    Errors: ValueError when a state of the same run is there and `resume` is not asked, or when
    it belongs to other settings.
    """
    training = Training(run, folder, device)
    if resume:
        training.resume()
    elif training.path.exists():
        raise ValueError(f"{training.path} is an unfinished run; add --resume, or delete the file")
    training.until(run.steps if stop_after is None else stop_after, save_every, quiet)
    if len(training.losses) == run.steps:
        checkpoints.round_to_shipped(training.model)
        checkpoints.save(training.model, report(training), folder)
        training.path.unlink()
    return training


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 0, or 2 with one sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m tinymodels.train", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--preset", required=True, help="a function in tinymodels.presets: tiny_v1")
    parser.add_argument("--task", required=True, choices=data.TASKS)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the data")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--size", type=int, help="rows a step")
    parser.add_argument("--length", type=int, help="tokens a row")
    parser.add_argument("--rate", type=float, help="peak learning rate")
    parser.add_argument("--out", type=Path, default=Path("build/checkpoints"), help="folder")
    parser.add_argument("--resume", action="store_true", help="go on where a stopped run was saved")
    parser.add_argument("--stop-after", type=int, metavar="N", help="leave after N steps, saved")
    parser.add_argument("--save-every", type=int, default=200, metavar="N")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args(argv)
    given = {key: getattr(asked, key) for key in DEFAULTS[asked.task]}
    settings = DEFAULTS[asked.task] | {k: v for k, v in given.items() if v is not None}
    try:
        if asked.save_every < 1:
            raise ValueError(f"--save-every is {asked.save_every}; it must be at least 1")
        run = Run(preset=asked.preset, task=asked.task, seed=asked.seed, **settings)
        training = train(
            run, asked.out, asked.resume, asked.stop_after, asked.save_every, asked.device
        )
    except (ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    done = len(training.losses)
    where = training.path if done < run.steps else asked.out / f"{run.name}.safetensors"
    print(f"{run.name}: {done} of {run.steps} steps, loss {training.losses[-1]:.4f}, {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
