"""Named mistakes in exercises 04.3 (balancing update) and 04.4 (active parameters)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def choices(experts: torch.Tensor, count: int) -> torch.Tensor:
    return torch.bincount(experts.flatten(), minlength=count).float()


def towards_the_mean(load: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    return (load.mean() - load).sign()


def answer(
    count: Callable = choices,
    move: Callable = towards_the_mean,
    join: Callable = lambda bias, step: bias + step,
) -> Callable:
    """The balancing update with every choice open; the defaults make it right."""

    def update_bias(bias_E, experts_BTk, gamma):
        load = count(experts_BTk, len(bias_E))
        return join(bias_E, gamma * move(load, experts_BTk))

    return update_bias


def in_place(bias_E, experts_BTk, gamma):
    bias_E += gamma * towards_the_mean(choices(experts_BTk, len(bias_E)), experts_BTk)
    return bias_E


def up_or_down(load: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    return torch.where(load < load.mean(), 1.0, -1.0)


def busiest_only(load: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    return -(load == load.max()).float()


def chosen_only(load: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    chosen = load > 0
    return torch.where(chosen, (load[chosen].mean() - load).sign(), 0.0)


def against(middle: Callable) -> Callable:
    return lambda load, experts: (middle(load, experts) - load).sign()


BALANCE = (
    Misconception(
        "reversed",
        "This is the answer with the signs exchanged: the busy experts become busier still.",
        answer(move=lambda load, experts: -towards_the_mean(load, experts)),
    ),
    Misconception(
        "proportional",
        "This is the answer with steps as large as the gap: gamma times (mean - load). The step "
        "is gamma for everyone, only its sign depends on the load.",
        answer(move=lambda load, experts: load.mean() - load),
    ),
    Misconception(
        "relative",
        "This is the answer with steps of gamma times (mean - load) / mean. The step is gamma for "
        "everyone, only its sign depends on the load.",
        answer(move=lambda load, experts: (load.mean() - load) / load.mean()),
    ),
    Misconception(
        "tokens_not_choices",
        "The mean is taken as if every token had one expert. Each has k of them: all choices, "
        "divided by the number of experts.",
        answer(move=against(lambda load, experts: load.sum() / experts.shape[-1] / len(load))),
    ),
    Misconception(
        "best_only",
        "Only the first expert of each token is counted. All k do work.",
        answer(count=lambda experts, count: choices(experts[..., 0], count)),
    ),
    Misconception(
        "median",
        "This compares with the median load. It is the mean that every expert should carry.",
        answer(move=against(lambda load, experts: load.median())),
    ),
    Misconception(
        "rounded_mean",
        "This compares with the mean rounded down to a whole number. An expert just below the "
        "mean is below it.",
        answer(move=against(lambda load, experts: load.mean().floor())),
    ),
    Misconception(
        "mean_moves",
        "An expert with exactly the mean load is moved down. It is where it should be: its bias "
        "stays.",
        answer(move=up_or_down),
    ),
    Misconception(
        "busiest_only",
        "Only the busiest expert is moved. Everyone is, each towards the mean.",
        answer(move=busiest_only),
    ),
    Misconception(
        "chosen_only",
        "Experts that nobody chose are left out, of the mean and of the update. They need the "
        "help most: their load is 0.",
        answer(move=chosen_only),
    ),
    Misconception(
        "no_minlength",
        "torch.bincount stops at the highest expert that was chosen, so the last ones are "
        "missing: minlength=len(bias_E) counts them as 0.",
        answer(count=lambda experts, count: torch.bincount(experts.flatten()).float()),
    ),
    Misconception(
        "old_bias_lost",
        "This is the step alone. It is added to the bias there is, which grows over many steps.",
        answer(join=lambda bias, step: step),
    ),
    Misconception(
        "multiplied",
        "This multiplies the bias by 1 + gamma or 1 - gamma. Steps are added: a bias of 0 would "
        "stay 0 for ever.",
        answer(join=lambda bias, step: bias * (1 + step)),
    ),
    Misconception(
        "in_place",
        "The values are right, but the old bias was changed: += writes into the tensor that was "
        "passed in. Return a new one.",
        in_place,
    ),
)


def _count(network: Callable, router: Callable, met: Callable, order: Callable = tuple) -> Callable:
    """Parameters, all and active, with every term open."""

    def feed_forward_parameters(L, X, F, E, shared, k):
        def layers(experts: int) -> int:
            return L * (experts * network(X, F) + router(E, X, k))

        return order((layers(E + shared), layers(met(E, shared, k))))

    return feed_forward_parameters


def _three(X, F):
    return 3 * X * F


def _rows(E, X, k):
    return E * (X + 1)


def _chosen(E, shared, k):
    return k + shared


def _one_layer(L, X, F, E, shared, k):
    return _count(_three, _rows, _chosen)(1, X, F, E, shared, k)


def _no_shared(L, X, F, E, shared, k):
    return _count(_three, _rows, _chosen)(L, X, F, E, 0, k)


def _shared_in_k(L, X, F, E, shared, k):
    return _count(_three, _rows, lambda E, shared, k: k)(L, X, F, E, shared, k)


def _shared_in_experts(L, X, F, E, shared, k):
    total, _ = _count(_three, _rows, _chosen)(L, X, F, E, 0, k)
    return total, _count(_three, _rows, _chosen)(L, X, F, E, shared, k)[1]


def _router_once(L, X, F, E, shared, k):
    total, active = _count(_three, lambda E, X, k: 0, _chosen)(L, X, F, E, shared, k)
    return total + _rows(E, X, k), active + _rows(E, X, k)


def _router_of_chosen(L, X, F, E, shared, k):
    total, _ = _count(_three, _rows, _chosen)(L, X, F, E, shared, k)
    return total, L * ((k + shared) * _three(X, F) + _rows(k, X, k))


def _router_not_met(L, X, F, E, shared, k):
    total, _ = _count(_three, _rows, _chosen)(L, X, F, E, shared, k)
    return total, L * (k + shared) * _three(X, F)


def _only(place: int) -> Callable:
    return lambda *model: _count(_three, _rows, _chosen)(*model)[place]


PARAMETERS = (
    Misconception(
        "all_alone",
        "This is all there is, one number. A pair is asked for: that, and what a token meets.",
        _only(0),
    ),
    Misconception(
        "active_alone",
        "This is what a token meets, one number. A pair is asked for: all there is, and that.",
        _only(1),
    ),
    Misconception(
        "all_met",
        "The second number should be smaller: of the routed experts a token meets only top_k.",
        _count(_three, _rows, lambda E, shared, k: E + shared),
    ),
    Misconception(
        "two_matrices",
        "This counts two matrices an expert. There are three: gate, up and down.",
        _count(lambda X, F: 2 * X * F, _rows, _chosen),
    ),
    Misconception(
        "square",
        "This counts width x width. An expert's matrices stand between width and expert_width.",
        _count(lambda X, F: 3 * X * X, _rows, _chosen),
    ),
    Misconception(
        "no_router",
        "The router is missing: a row of width numbers and a bias for each routed expert.",
        _count(_three, lambda E, X, k: 0, _chosen),
    ),
    Misconception(
        "no_selection_bias",
        "The router's bias is missing: one number for each routed expert.",
        _count(_three, lambda E, X, k: E * X, _chosen),
    ),
    Misconception(
        "router_of_chosen",
        "The token meets the whole router: before the scores are there, nobody knows which "
        "experts will be chosen.",
        _router_of_chosen,
    ),
    Misconception(
        "router_not_met",
        "The second number lacks the router. A token meets all of it, or it could not choose.",
        _router_not_met,
    ),
    Misconception(
        "router_once",
        "The router is counted once. Every layer has its own.",
        _router_once,
    ),
    Misconception(
        "no_shared",
        "The shared experts are missing, in both numbers: they are there, and every token meets "
        "them.",
        _no_shared,
    ),
    Misconception(
        "shared_in_top_k",
        "The shared experts are missing from the second number. They come on top of the top_k "
        "chosen ones.",
        _shared_in_k,
    ),
    Misconception(
        "shared_in_experts",
        "The shared experts are missing from the first number. They come on top of the routed "
        "ones.",
        _shared_in_experts,
    ),
    Misconception(
        "one_layer",
        "These are the parameters of one layer; there are `layers` of them.",
        _one_layer,
    ),
    Misconception(
        "active_first",
        "The pair is the other way round: first all parameters, then those a token meets.",
        _count(_three, _rows, _chosen, lambda pair: pair[::-1]),
    ),
)
