"""The logit lens: what a model would say if it stopped after each layer.

The last thing a model does is to norm its stream and to multiply it by the head. Nothing stops
us from doing the same with the stream as it leaves an earlier layer: out come logits, and with
them a guess (nostalgebraist, "interpreting GPT: the logit lens", 2020).
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from . import tokenizer
from .step import Step


@torch.no_grad()
def streams(model, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "L+1 B T X"]:
    """The residual stream as it enters the first layer, then as it leaves each layer.

    Where there are several copies of it (mHC), they are folded as at the model's end.
    """
    model.check_tokens(tokens_BT)
    step = Step(tokens_BT)
    stream = model.open(step)
    seen = [model.fold(stream)]
    for i in range(len(model.layers)):
        stream, step = model.run(range(i, i + 1), stream, step)
        seen.append(model.fold(stream))
    return torch.stack(seen)


@torch.no_grad()
def guesses(model, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "L+1 B T V"]:
    """Logits after the embedding and after each layer; the last ones are the model's own."""
    return model.head(model.norm(streams(model, tokens_BT)))


@torch.no_grad()
def at_the_end(model, prompts: list[str]) -> Float[Tensor, "L+1 N X"]:
    """`streams` at the last token of each prompt. Prompts may differ in length."""
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    seen: dict[int, Tensor] = {}
    for length in sorted(set(map(len, ids))):
        same = [i for i, row in enumerate(ids) if len(row) == length]
        rows_BT = torch.tensor([ids[i] for i in same], device=model.device)
        seen.update(zip(same, streams(model, rows_BT)[:, :, -1].unbind(1)))
    return torch.stack([seen[i] for i in range(len(ids))], dim=1)


@torch.no_grad()
def follow(
    model, asked: list[tuple[str, str]]
) -> tuple[Int[Tensor, "L+1 N"], Float[Tensor, "L+1 N"]]:
    """How N answers come up: the rank of each, and the entropy of the guess, after each layer.

    asked: pairs of a prompt and the word that should follow, one token each.
    """
    logits_LNV = model.head(model.norm(at_the_end(model, [prompt for prompt, _ in asked])))
    answer_N = torch.tensor([tokenizer.word_id(a) for _, a in asked], device=model.device)
    return rank(logits_LNV, answer_N.expand(len(logits_LNV), -1)), entropy(logits_LNV)


def rank(logits_NV: Float[Tensor, "*N V"], token_N: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """The place of a token among all tokens: 1 if none has a higher logit."""
    own_N1 = logits_NV.gather(-1, token_N.unsqueeze(-1))
    return (logits_NV > own_N1).sum(-1) + 1


def entropy(logits_NV: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """How undecided a guess is, in bits: 0 for certainty, log2(V) if all tokens are alike.

    2 to the power of it is the number of equally likely tokens that would be as undecided.
    """
    log_NV = logits_NV.log_softmax(-1)
    return -(log_NV.exp() * log_NV).sum(-1) / math.log(2)
