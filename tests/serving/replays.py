"""A text read without a cache, as if its prefixes had been replayed one after the other.

`after(model, text, prefixes)`: rows of the first prefix are those of one pass over all of it. A
replay at a prefix P then reads them, begins its windows W tokens before P, and makes the rows of
what follows; the next replay reads those, and so on. Logits of the last token.
"""

from dataclasses import replace

import pytest
import torch

from tinymodels.attention import seen
from tinymodels.attention.csa import CSA
from tinymodels.attention.csa2 import CSA2
from tinymodels.residual import newest
from tinymodels.step import Step

WINDOW = 16


def after(model, text, prefixes):
    """Logits [V]. prefixes: lengths in tokens, rising."""
    tokens = torch.tensor([text])
    with pytest.MonkeyPatch.context() as patch:
        if model.config.decoder_start is None:
            return _of_all_layers(model, tokens, prefixes, patch)[0]
        return _of_an_encoder(model, tokens, prefixes, patch)[0]


def _of_an_encoder(model, tokens, prefixes, patch):
    """V4.1. Groups of a prefix are kept, all later ones are made anew."""
    made, right = {}, CSA2.publish
    now = [0, 0]  # the prefix whose rows are kept, the first token that is run

    def publish(self, x, step, cache=None):
        if step.far is not None and step.far.owner == self.layer:
            return step
        step = right(self, x, step, cache)
        far, (prefix, first) = step.far, now
        if prefix:
            old, ratio = made[self.layer], far.ratio
            kept, skip = prefix // ratio, (prefix - first) // ratio
            entry = torch.cat([old.entry_BSD[:, :kept], far.entry_BSD[:, skip:]], dim=1)
            key = torch.cat([old.key_BSD[:, :kept], far.key_BSD[:, skip:]], dim=1)
            far = replace(far, entry_BSD=entry, key_BSD=key)
        made[self.layer] = far
        return replace(step, far=far)

    patch.setattr(CSA2, "publish", publish)
    encoder, layers, length = model.config.decoder_start, len(model.layers), tokens.shape[1]
    for prefix in (0, *prefixes):
        now[:] = prefix, max(0, prefix - WINDOW)
        step = Step(tokens[:, now[1] :], now[1])
        stream, step = model.run(range(encoder), model.open(step), step)
        step = model.layers[encoder].publish(stream, step)
    last = min(WINDOW, length - now[1])
    step = replace(step, tokens_BT=tokens[:, -last:], start=length - last)
    stream, _ = model.run(range(encoder, layers), newest(stream, last), step)
    return model.close(stream)[:, -1]


def _of_all_layers(model, tokens, prefixes, patch):
    """V4. Every pass reads the whole text; what tokens before a replay become is of no account."""
    made, far, ask, whole = {}, CSA.far, CSA.ask, seen.in_window
    now = [0]  # the prefix whose rows are kept

    def joined(self, name, new):
        if now[0]:
            kept = now[0] // self.ratio
            new = torch.cat([made[id(self), name][:, :kept], new[:, kept:]], dim=1)
        made[id(self), name] = new
        return new

    def asked(self, *args):
        found = ask(self, *args)
        return found._replace(key_BSD=joined(self, "ask", found.key_BSD))

    def cut(step, entries, window):
        return whole(step, entries, window) & (torch.arange(entries) >= now[0] - WINDOW)

    patch.setattr(CSA, "far", lambda self, *args: joined(self, "far", far(self, *args)))
    patch.setattr(CSA, "ask", asked)
    patch.setattr(seen, "in_window", cut)
    for now[0] in (0, *prefixes):
        logits = model(tokens)[:, -1]
    return logits
