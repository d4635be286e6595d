"""Named mistakes in exercise 10.1: the three modes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def best(score_TS, visible_TS, k: int):
    from tinymodels.attention.indexer import top_k

    return top_k(score_TS, visible_TS, k)


def by_score(score_TS, visible_TS, k: int):
    """The same places, best first."""
    score_TS = score_TS.masked_fill(~visible_TS, -float("inf"))
    order_TS = score_TS.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    return order_TS.masked_fill(~visible_TS.gather(-1, order_TS), -1)


def never_empty(score_TS, visible_TS, k: int):
    score_TS = score_TS.masked_fill(~visible_TS, -float("inf"))
    return score_TS.sort(dim=-1, descending=True, stable=True).indices[:, :k].sort(-1).values


def lower(T: int):
    return torch.ones(T, T, dtype=torch.bool).tril()


def answer(
    keys: Callable = lambda layer, mode, owner, before: owner,
    queries: Callable = lambda layer, owner: layer,
    asks: Callable = lambda mode: mode != "reuse",
    takes: Callable = lambda nearest, of_owner, first: nearest,
    owner_of: Callable = lambda owners: owners[-1],
    named: Callable = lambda layer, owner, asker: owner,
    pick: Callable = best,
    visible: Callable = lower,
    says: Callable = lambda owners, choices: (owners, choices),
) -> Callable:
    """The walk with every choice open; the defaults make it right."""

    def owners_and_choices(modes, query_LTD, key_LTD, k):
        T, owners, named_L, choices = query_LTD.shape[1], [], [], []
        nearest = of_owner = first = asker = None
        for layer, mode in enumerate(modes):
            if mode == "window":
                named_L.append(-1)
                choices.append(torch.full((T, k), -1))
                continue
            before = owner_of(owners) if owners else layer
            if mode == "full":
                owners.append(layer)
            owner = owner_of(owners)
            if asks(mode):
                at = keys(layer, mode, owner, before)
                score_TS = query_LTD[queries(layer, owner)] @ key_LTD[at].T
                nearest, asker = pick(score_TS, visible(T), k), layer
                of_owner = nearest if mode == "full" else of_owner
                first = nearest if first is None else first
            named_L.append(named(layer, owner, asker))
            taken = nearest if asks(mode) else takes(nearest, of_owner, first)
            choices.append(taken)
        return says(torch.tensor(named_L), torch.stack(choices))

    return owners_and_choices


def windows_read(modes, query_LTD, key_LTD, k):
    """Window layers borrow like the others, as soon as there is an owner."""
    seen, changed = False, []
    for mode in modes:
        seen = seen or mode == "full"
        changed.append("reuse" if mode == "window" and seen else mode)
    return answer()(tuple(changed), query_LTD, key_LTD, k)


MODES = (
    Misconception(
        "own_keys",
        "The reindex layers score keys of their own. Nobody keeps those: a reindex layer asks its "
        "own question about the owner's keys.",
        answer(keys=lambda layer, mode, owner, before: layer),
    ),
    Misconception(
        "owners_query",
        "The reindex layers ask with the owner's query, so they choose what it chose. The query is "
        "what they have of their own.",
        answer(queries=lambda layer, owner: owner),
    ),
    Misconception(
        "reuse_asks",
        "The reuse layers choose by a query of their own; that would be reindex. They take the "
        "nearest choice as it is.",
        answer(asks=lambda mode: True),
    ),
    Misconception(
        "reuse_of_owner",
        "The reuse layers take the owner's choice. If a reindex layer has chosen since, its choice "
        "is nearer.",
        answer(takes=lambda nearest, of_owner, first: of_owner),
    ),
    Misconception(
        "reuse_of_first",
        "The reuse layers take the first choice of all. They take the nearest one below them.",
        answer(takes=lambda nearest, of_owner, first: first),
    ),
    Misconception(
        "first_owner",
        "Every layer reads the first full layer. A new owner takes over from the one before it.",
        answer(owner_of=lambda owners: owners[0]),
    ),
    Misconception(
        "stale_keys",
        "A full layer scores the keys of the owner before it: its own were published too late. "
        "It chooses among its own keys.",
        answer(keys=lambda layer, mode, owner, before: before if mode == "full" else owner),
    ),
    Misconception(
        "no_mask",
        "Queries see later keys. Query t sees the keys 0 to t.",
        answer(visible=lambda T: torch.ones(T, T, dtype=torch.bool)),
    ),
    Misconception(
        "not_itself",
        "Query t sees the keys up to t - 1 only. With m = 1 its own entry is complete, too.",
        answer(visible=lambda T: torch.ones(T, T, dtype=torch.bool).tril(-1)),
    ),
    Misconception(
        "names_the_chooser",
        "The owners name the layer that chose. Whose entries they are was asked: a reindex layer "
        "owns none.",
        answer(named=lambda layer, owner, asker: asker),
    ),
    Misconception(
        "all_own",
        "Every layer is named as its own owner. Only full layers are.",
        answer(named=lambda layer, owner, asker: layer),
    ),
    Misconception(
        "windows_read",
        "Window layers borrow here. They have no far memory: owner -1, and a choice of -1 only.",
        windows_read,
    ),
    Misconception(
        "best_first",
        "The places stand in order of score. They are kept in order of position, as `top_k` gives "
        "them.",
        answer(pick=by_score),
    ),
    Misconception(
        "never_empty",
        "Where fewer than k keys are visible the choice is filled up with places that are not. "
        "These are -1.",
        answer(pick=never_empty),
    ),
    Misconception(
        "swapped",
        "The pair is the other way round: first the owners, then the choices.",
        answer(says=lambda owners, choices: (choices, owners)),
    ),
)
