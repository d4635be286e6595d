"""A fault of V4.1's released decode, on a copy of a model, so that it can be looked at.

While a group of two tokens is open there is no new key to publish, and that code then scores
against the keys that were published last: those of the decoder's owner, from the step before.
They are real keys of the same text and of the same size. Nothing stops, and the choice is wrong.
"""

from copy import deepcopy
from dataclasses import replace
from types import MethodType

from .attention.csa2 import CSA2
from .step import Step


def with_stale_keys(model):
    """A copy of `model` that decodes with the fault; whole texts and the model itself stay right.

    Errors: ValueError for a model in which no layer owns groups of several tokens.
    """
    broken, last = deepcopy(model), {}
    owners = [b.attention for b in broken.layers if _owns(b.attention)]
    if all(owner.config.ratio < 2 for owner in owners):
        raise ValueError(f"{model.config.name} owns no groups of several tokens: none stays open")

    def publish(self: CSA2, x_BTX, step: Step, cache=None) -> Step:
        fresh = CSA2.publish(self, x_BTX, step, cache)
        if fresh is step:
            return step
        stale = None if step.start == 0 else last.get("keys")
        last["keys"] = fresh.far.key_BSD
        still_open = x_BTX.shape[1] == 1 and (step.start + 1) % self.config.ratio
        if cache is None or stale is None or not still_open:
            return fresh
        entries = fresh.far.entry_BSD.shape[1]
        return replace(fresh, far=replace(fresh.far, key_BSD=stale[:, :entries]))

    for owner in owners:
        owner.publish = MethodType(publish, owner)
    return broken


def _owns(attention) -> bool:
    return isinstance(attention, CSA2) and attention.config.mode == "full"
