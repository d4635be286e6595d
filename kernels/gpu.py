"""Everything that only a GPU can answer, as one command: python -m kernels gpu

    check     every kernel against its twin on the card
    presets   each tiny model trains, prefills and decodes there, with the kernels and as on a CPU
    bench     every kernel against the card's limits; writes kernels/results/DATE-CARD.json
    tests     all tests of the kernels, on the card

Each step runs in a process of its own within its minutes, and a step that fails stops no
other. What came out is written after every step to kernels/results/DATE-CARD-gpu.json, so
that a machine lent for a short time leaves behind what it managed.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from kernels import bench

ROOT = Path(__file__).parents[1]
TAIL = 4_000  # characters of a step's last words that are kept


@dataclass(frozen=True)
class Step:
    """A command, the packages it cannot do without, and the minutes it may take."""

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...]
    minutes: float


_PRESETS = "tests/kernels/test_presets.py"
STEPS = (
    Step("check", ("-m", "kernels", "check"), ("triton",), 3),
    Step("presets", ("-m", "pytest", "-q", "-p", "no:cacheprovider", _PRESETS),
         ("triton", "pytest", "jaxtyping", "safetensors"), 3),
    Step("bench", ("-m", "kernels", "bench"), ("triton",), 6),
    Step("tests", ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels",
                   f"--ignore={_PRESETS}", "--ignore=tests/kernels/test_compile.py"),
         ("triton", "pytest", "jaxtyping", "safetensors"), 10),
)


@dataclass(frozen=True)
class Outcome:
    """How a step ended: passed, failed, timed out, or left out because packages are missing."""

    step: str
    outcome: str
    seconds: float
    words: str  # the last it said


def run_step(step: Step) -> Outcome:
    missing = [name for name in step.needs if importlib.util.find_spec(name) is None]
    if missing:
        return Outcome(step.name, "left out", 0.0, f"not installed: {', '.join(missing)}")
    started = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, *step.command], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=60 * step.minutes)
    except subprocess.TimeoutExpired as error:
        heard = error.stdout or b""
        said = heard if isinstance(heard, str) else heard.decode(errors="replace")
        return Outcome(step.name, "timed out", time.perf_counter() - started, said[-TAIL:])
    outcome = "passed" if done.returncode == 0 else "failed"
    return Outcome(step.name, outcome, time.perf_counter() - started, done.stdout[-TAIL:])


def run(steps=STEPS, folder: Path = bench.RESULTS) -> list[Outcome]:
    """Run the steps one after another, printing and writing what came out."""
    card, today = torch.cuda.get_device_name(), datetime.date.today().isoformat()
    path = folder / f"{today}-{bench.slug(card)}-gpu.json"
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for step in steps:
        outcomes.append(run_step(step))
        last = outcomes[-1]
        print(f"--- {last.step}: {last.outcome}, {last.seconds:.0f} s\n{last.words}", flush=True)
        content = {"date": today, "card": card, **bench.versions(),
                   "steps": [asdict(outcome) for outcome in outcomes]}
        path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {path}")
    return outcomes
