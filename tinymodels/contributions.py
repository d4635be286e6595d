"""What each sublayer adds to the residual stream: read it, count its votes, take it out, swap it.

With one stream and pre-norm nothing is ever overwritten, so what leaves the last layer is a sum:

    stream = embedding + attention 0 + ffn 0 + attention 1 + ffn 1 + ...

Every piece has the stream's shape. The head is linear once the last norm's divisor is known, so
a logit is a sum over the same pieces (direct logit attribution). And since a piece is one tensor
at one place, it can be replaced while the model runs (ablation, patching).
"""

from collections.abc import Callable, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .step import Step
from .transformer import Transformer

Change = Callable[[Tensor], Tensor]  # what a sublayer found, [B, T, X] -> what is added instead


def sublayers(model: Transformer) -> dict[str, nn.Module]:
    """`attention 0`, `ffn 0`, `attention 1`, ... in the order in which they run.

    Errors: ValueError for a model with several copies of the stream (mHC): there a sublayer's
    answer is spread and mixed, and the sum above does not hold.
    """
    if model.config.residual is not None:
        raise ValueError(
            f"{model.config.name} keeps {model.config.residual.copies} copies of the stream; "
            "contributions add up only where there is one"
        )
    pairs = ((i, layer) for i, layer in enumerate(model.layers))
    return {
        f"{kind} {i}": getattr(layer, kind) for i, layer in pairs for kind in ("attention", "ffn")
    }


@contextmanager
def changed(model: Transformer, changes: Mapping[str, Change]):
    """While this is open, each named sublayer adds `change(found_BTX)` instead of found_BTX.

    Errors: ValueError for a name that no sublayer has.
    """
    known = sublayers(model)
    for name in changes:
        if name not in known:
            raise ValueError(f"no sublayer is named {name!r}; there are {', '.join(known)}")
    hooks = [known[name].register_forward_hook(_replacing(make)) for name, make in changes.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _replacing(change: Change):
    """A forward hook; attention answers with a pair (found, step), a feed-forward with found."""

    def hook(_module, _given, answer):
        if isinstance(answer, tuple):
            return change(answer[0]), *answer[1:]
        return change(answer)

    return hook


@torch.no_grad()
def contributions(
    model: Transformer, tokens_BT: Int[Tensor, "B T"]
) -> dict[str, Float[Tensor, "B T X"]]:
    """What the embedding and each sublayer added, by name, in order: their sum is the stream."""
    model.check_tokens(tokens_BT)
    found: dict[str, Tensor] = {}

    def noting(name: str) -> Change:
        def note(found_BTX):
            found[name] = found_BTX
            return found_BTX

        return note

    with changed(model, {name: noting(name) for name in sublayers(model)}):
        step = Step(tokens_BT)
        stream = model.open(step)
        model.run(range(len(model.layers)), stream, step)
    return {"embedding": stream, **found}


@torch.no_grad()
def votes(
    model: Transformer,
    pieces: Mapping[str, Float[Tensor, "B T X"]],
    word_B: Int[Tensor, " B"],
    against_B: Int[Tensor, " B"],
) -> dict[str, Float[Tensor, " B"]]:
    """What each piece adds, at the last token, to the logit of one word minus that of another.

    The last norm divides the whole stream by one number; that number is taken as it is. Then the
    votes of all pieces add up to the model's own difference of logits.
    """
    last_BX = sum(piece[:, -1] for piece in pieces.values())
    divisor_B1 = (last_BX.square().mean(-1, keepdim=True) + model.norm.eps).sqrt()
    towards_BX = (model.head.weight[word_B] - model.head.weight[against_B]) * model.norm.weight
    return {
        name: (piece[:, -1] / divisor_B1 * towards_BX).sum(-1) for name, piece in pieces.items()
    }


def ablated(found_BTX: Tensor) -> Tensor:
    """A change: the sublayer runs and adds nothing."""
    return torch.zeros_like(found_BTX)


def patched(other_BTX: Float[Tensor, "B T X"], position: int = -1) -> Change:
    """A change: at one position, what the sublayer found in another run; elsewhere its own."""

    def change(found_BTX):
        found_BTX = found_BTX.clone()
        found_BTX[:, position] = other_BTX[:, position]
        return found_BTX

    return change
