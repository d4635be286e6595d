"""Linear probes: what can be read off a stream with one matrix (Alain and Bengio, 2016).

A probe is a classifier that looks at a model and never changes it. It is as simple as can be,
so that what it finds must have been there: one row of weights a class, fitted by least squares.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot, rms_norm

from . import data, stories, tokenizer
from .dice import Dice
from .lens import at_the_end, streams
from .world import HAS, MEN, PEOPLE, THINGS, WOMEN

Examples = tuple[Float[Tensor, "L N X"], Int[Tensor, "N"]]  # streams at one token each, classes
CHARACTERS = ("aeiou", "bcdfghjklmnpqrstvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", ".?", " ", "\n")
"""The classes of characters: vowels, consonants, capitals, ends of sentences, space, new line."""


def _with_one(x_NX: Float[Tensor, "N X"]) -> Float[Tensor, "N X+1"]:
    return torch.cat([x_NX, torch.ones_like(x_NX[:, :1])], dim=1)


def fit(
    x_NX: Float[Tensor, "N X"], label_N: Int[Tensor, "N"], classes: int, ridge: float = 1.0
) -> Float[Tensor, "X+1 C"]:
    """Weights whose scores come nearest to 1 for the right class and 0 for the others.

    ridge: how much large weights are held back; the last row is added whatever x is. Errors:
    ValueError for labels that do not fit.
    """
    if len(x_NX) != len(label_N) or not len(label_N):
        raise ValueError(f"{len(x_NX)} vectors and {len(label_N)} labels: each needs one")
    if label_N.min() < 0 or label_N.max() >= classes:
        raise ValueError(f"labels run to {int(label_N.max())}; there are {classes} classes, from 0")
    x, target_NC = _with_one(x_NX), one_hot(label_N, classes).to(x_NX.dtype)
    held_XX = ridge * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    return torch.linalg.solve(x.T @ x + held_XX, x.T @ target_NC)


def accuracy(weight_XC: Tensor, x_NX: Tensor, label_N: Tensor) -> float:
    """The share of vectors whose highest score is that of the right class."""
    return ((_with_one(x_NX) @ weight_XC).argmax(-1) == label_N).float().mean().item()


def by_layer(examples: Examples, train: int, ridge: float = 1.0) -> list[float]:
    """Fit on the first `train` examples of each layer, and measure on all the others.

    Streams are brought to one length first (RMS norm), as every layer does that reads them.
    """
    x_LNX, label_N = examples
    if not 0 < train < len(label_N):
        raise ValueError(f"train is {train}; of {len(label_N)} examples some must be left to test")
    classes, found = int(label_N.max()) + 1, []
    for x_NX in rms_norm(x_LNX, x_LNX.shape[-1:]):
        weight_XC = fit(x_NX[:train], label_N[:train], classes, ridge)
        found.append(accuracy(weight_XC, x_NX[train:], label_N[train:]))
    return found


# ---------------------------------------------------------------- what is asked


def pronouns(model) -> Examples:
    """Who is `She`? `Ada meets Ben. She`, for every pair that `She` and `He` tell apart.

    Classes are people. Read at the pronoun, which is the same for twelve of them.
    """
    asked = []
    for woman in WOMEN:
        for man in MEN:
            for first, second in ((woman, man), (man, woman)):
                for who, said in ((woman, "She"), (man, "He")):
                    asked.append((f"{first} meets {second}. {said}", PEOPLE.index(who)))
    asked = Dice("probe", "pronouns").shuffled(asked)
    labels = torch.tensor([who for _, who in asked], device=model.device)
    return at_the_end(model, [prompt for prompt, _ in asked]), labels


def answers(model, count: int = 900, sentences: int = 8) -> Examples:
    """What is the answer? Stories that give things to people, and `What does Ada have? Ada has
    the`. Classes are things. Read at the last word, which is `the` in all of them."""
    prompts: list[str] = []
    labels: list[int] = []
    told = 0
    while len(prompts) < count:
        story = stories.story(Dice("probe", "answers", told), sentences, 4, early=True)
        told += 1
        for asked in story.questions:
            if asked.fact.relation is HAS and asked.begin and asked.answer in THINGS:
                prompts.append(story.prompt(asked))
                labels.append(THINGS.index(asked.answer))
    return at_the_end(model, prompts[:count]), torch.tensor(labels[:count], device=model.device)


def characters(model, each: int = 50, length: int = 256) -> Examples:
    """What kind of character is this? Classes as in CHARACTERS, `each` tokens of every one."""
    kinds = {c: kind for kind, group in enumerate(CHARACTERS) for c in group}
    seen: list[list[Tensor]] = [[] for _ in CHARACTERS]
    row = 0
    while min(map(len, seen)) < each:
        ids, _ = data.text_row(Dice("probe", "characters", row), length)
        row += 1
        at_LTX = streams(model, torch.tensor([ids], device=model.device))[:, 0]
        for t, piece in enumerate(tokenizer.pieces(ids)):
            kind = kinds.get(piece)
            if kind is not None and len(seen[kind]) < each:
                seen[kind].append(at_LTX[:, t])
    order = Dice("probe", "order").shuffled(range(each * len(CHARACTERS)))
    x_LNX = torch.stack([x for group in seen for x in group], dim=1)[:, order]
    labels = torch.tensor([i // each for i in order], device=model.device)
    return x_LNX, labels
