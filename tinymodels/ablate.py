"""What a trained model loses when a part of it no longer says anything of its own.

The same stories are asked for two kinds of facts: *fixed* ones, true in every text and told in
none of these, and *given* ones, told in the story and true nowhere else. Then a part is taken
away, in one of two manners:

    mean_ablated         what a part says is replaced by what it says on average
    without_looking_back  the question's tokens no longer see the story's

A part whose mean is as good as itself was not needed. (A mean, not zero: a part's constant share
is no knowledge, and without it all that follows would be off.)

Only the question is touched, or one token of it: the story is read as ever.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tinymodels import stories, tokenizer
from tinymodels.dice import Dice
from tinymodels.measure import share

Part = tuple[str, int]  # ("ffn" or "attention", layer)
KINDS = ("fixed", "given", "given, who")


@dataclass(frozen=True)
class Questions:
    """Stories, each with one question, side by side; shorter ones are filled up behind.

    last_B: index of the token that answers. story_B: how many tokens the story has, <bos> among
    them. kinds: one of `KINDS` each: `Where does Ada live?`, `What does Ada have?` and `Who has the
    lamp?`. chance_B: what a guess would get, among the values there are (fixed) or those named in
    the story (given).
    """

    tokens_BT: Int[Tensor, "B T"]
    last_B: Int[Tensor, "B"]
    story_B: Int[Tensor, "B"]
    answer_B: Int[Tensor, "B"]
    chance_B: Float[Tensor, "B"]
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.kinds)

    def asked_BT(self) -> Bool[Tensor, "B T"]:
        """True for the tokens of the question, up to the one that answers."""
        place_T = torch.arange(self.tokens_BT.shape[1])
        return (place_T >= self.story_B[:, None]) & (place_T <= self.last_B[:, None])

    def by_kind(self, value_B: Iterable) -> dict[str, float]:
        """The mean over the questions of each kind."""
        pairs: list[tuple[str, Any]] = [(k, float(v)) for k, v in zip(self.kinds, value_B)]
        return {kind: share(v for k, v in pairs if k == kind) for kind in KINDS}


def questions(count: int = 60, sentences: int = 8, seed: int = 0) -> Questions:
    """Everything that is asked after `count` stories of four facts. Seeds share no story."""
    prompts, lengths, answers, kinds, chances = [], [], [], [], []
    for i in range(count):
        told = stories.story(Dice("ablate", seed, i), sentences, 4, early=True)
        given = [fact.relation for _, fact in told.given]
        for one in told.questions:
            if one.answer not in tokenizer.WORDS:
                continue  # a stranger's spelled name is more than one token
            fact, who = one.fact, one.answer == one.fact.subject
            prompts.append(tokenizer.encode(told.prompt(one)))
            lengths.append(len(tokenizer.encode(told.paragraph + "\n")))
            answers.append(tokenizer.word_id(one.answer))
            kinds.append("fixed" if fact.relation.fixed else "given, who" if who else "given")
            named = len(fact.relation.values) if fact.relation.fixed else given.count(fact.relation)
            chances.append(1 / named)
    longest = max(map(len, prompts))
    # What follows the answering token cannot change what the model says there.
    filled = [p + [tokenizer.BOS] * (longest - len(p)) for p in prompts]
    lasts = torch.tensor([len(p) - 1 for p in prompts])
    return Questions(
        torch.tensor(filled), lasts, torch.tensor(lengths), torch.tensor(answers),
        torch.tensor(chances), tuple(kinds),
    )  # fmt: skip


@torch.no_grad()
def right(model: nn.Module, asked: Questions) -> dict[str, float]:
    """The share of right answers by kind: the likeliest next token is the answer or it is not."""
    logits_BTV = model(asked.tokens_BT.to(model.device)).cpu()
    best_B = logits_BTV[torch.arange(len(asked)), asked.last_B].argmax(-1)
    return asked.by_kind(best_B == asked.answer_B)


# ---------------------------------------------------------------- means


@torch.no_grad()
def means(model: nn.Module, asked: Questions) -> dict[Part, Float[Tensor, "X"]]:
    """What every part says on average at the token that answers: one vector a part."""
    found: dict[Part, Tensor] = {}
    rows = torch.arange(len(asked))

    def noting(part: Part):
        def note(_module, _given, said):
            said_BTX, _rest = _split(said)
            found[part] = said_BTX[rows, asked.last_B].mean(0)

        return note

    with ExitStack() as stack:
        for part, module in parts(model).items():
            stack.callback(module.register_forward_hook(noting(part)).remove)
        model(asked.tokens_BT.to(model.device))
    return found


def parts(model: nn.Module) -> dict[Part, nn.Module]:
    """Every layer's two halves: attention looks back, the FFN works in place."""
    kinds = ("attention", "ffn")
    return {(k, i): getattr(layer, k) for i, layer in enumerate(model.layers) for k in kinds}


def _split(said):
    """What a half adds to the stream, and what else it hands on (attention: the step)."""
    return (said[0], said[1:]) if isinstance(said, tuple) else (said, None)


# ---------------------------------------------------------------- taking away


@contextmanager
def mean_ablated(
    model: nn.Module,
    taken: Iterable[Part],
    mean: dict[Part, Float[Tensor, "X"]],
    asked: Questions,
) -> Iterator[None]:
    """While open, the parts in `taken` say their mean at the token that answers.

    mean: from `means`, best of other stories than those that are asked. Errors: ValueError for a
    part that the model does not have.
    """
    every, rows = parts(model), torch.arange(len(asked))
    taken = tuple(taken)
    for part in taken:
        if part not in every:
            raise ValueError(f"no part {part}; parts are ('ffn' or 'attention', layer)")

    def silenced(value_X: Tensor):
        def silence(_module, _given, said):
            said_BTX, rest = _split(said)
            said_BTX = said_BTX.clone()
            said_BTX[rows, asked.last_B] = value_X
            return said_BTX if rest is None else (said_BTX, *rest)

        return silence

    with ExitStack() as stack:
        for part in taken:
            hook = every[part].register_forward_hook(silenced(mean[part]))
            stack.callback(hook.remove)
        yield


@contextmanager
def without_looking_back(
    model: nn.Module, layers: Iterable[int], asked: Questions
) -> Iterator[None]:
    """While open, in these layers the question's tokens see each other (and <bos>), and nothing of
    the story. What the story's tokens do among themselves stays.

    For models of plain attention (`Parts.attention`), run on the tokens of `asked` as a whole.
    """
    place_T = torch.arange(asked.tokens_BT.shape[1])
    told_BT = (place_T < asked.story_B[:, None]) & (place_T > 0)
    hidden_BTT = asked.asked_BT()[:, :, None] & told_BT[:, None, :]

    def attention(query_BTHD, key_BSKD, value_BSKD, *, window=None, impl="torch"):
        shared = query_BTHD.shape[2] // key_BSKD.shape[2]
        key_BSHD, value_BSHD = (x.repeat_interleave(shared, 2) for x in (key_BSKD, value_BSKD))
        score_BHTT = torch.einsum("bthd,bshd->bhts", query_BTHD, key_BSHD)
        later_TT = place_T[None, :] > place_T[:, None]
        unseen_BTT = (hidden_BTT | later_TT).to(query_BTHD.device)
        score_BHTT = score_BHTT / math.sqrt(query_BTHD.shape[-1])
        score_BHTT = score_BHTT.masked_fill(unseen_BTT[:, None], -torch.inf)
        return torch.einsum("bhts,bshd->bthd", score_BHTT.softmax(-1), value_BSHD)

    with ExitStack() as stack:
        for i in layers:
            half = model.layers[i].attention
            stack.callback(setattr, half, "parts", half.parts)
            half.parts = replace(half.parts, attention=attention)
        yield
