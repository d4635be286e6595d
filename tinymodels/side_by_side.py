"""One prompt, every generation: what each would write, how sure it is, and what it holds for it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from . import checkpoints, tokenizer
from .quality import FOLLOWS, OWN, SEEDS, short

HEAD = f"{'':9}{'right word':>11}{'rank':>6}{'growing':>10}{'all held':>10}   writes"


@dataclass(frozen=True)
class Answer:
    """seed: the first that is trained. probability, rank: of the right word. growing, held: bytes
    after the prompt, without and with windows and open groups."""

    model: str
    seed: int
    writes: str
    probability: float
    rank: int
    growing: int
    held: int

    @property
    def line(self) -> str:
        return (
            f"{short(self.model):9}{self.probability:>11.1%}{self.rank:>6}{self.growing:>10,}"
            f"{self.held:>10,}   {self.writes.strip()}"
        )


@torch.no_grad()
def ask(model: str, task: str, prompt: Sequence[int], right: int, new: int = 1) -> Answer | None:
    """The prompt's tokens, then `new` more, the likeliest each time, up to the end of a sentence.

    None where no seed is trained. Errors: ValueError for an empty prompt or `new` below 1.
    """
    if not prompt or new < 1:
        raise ValueError(f"{len(prompt)} tokens and {new} new ones: both must be at least 1")
    names = {seed: f"{model}-{task}-seed{seed}" for seed in SEEDS}
    seed = next((s for s, name in names.items() if name in checkpoints.available()), None)
    if seed is None:
        return None
    ready = checkpoints.load(names[seed])
    cache = ready.new_cache(1, len(prompt) + new)
    logits_V = ready.prefill(torch.tensor([list(prompt)]), cache)[0]
    held = cache.bytes()
    rank = 1 + int((logits_V > logits_V[right]).sum())
    said = [int(logits_V.argmax())]
    while len(said) < new and not tokenizer.decode(said).endswith("."):
        said.append(int(ready(torch.tensor([said[-1:]]), cache)[0, -1].argmax()))
    chance = logits_V.softmax(-1)[right].item()
    writes = tokenizer.decode(said, line_start=False)
    return Answer(model, seed, writes, chance, rank, held["global"], held["total"])


def table(task: str, prompt: Sequence[int], right: int, new: int = 1) -> str:
    """A line a generation, with the bytes it holds; last, who is not trained on this yet."""
    models = [name for name in FOLLOWS if name != OWN]
    found = {name: ask(name, task, prompt, right, new) for name in models}
    lines = [HEAD, *(answer.line for answer in found.values() if answer)]
    if missing := [short(name) for name, answer in found.items() if answer is None]:
        lines.append(f"not trained on this yet: {', '.join(missing)}")
    return "\n".join(lines)
