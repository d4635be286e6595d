"""Named mistakes in exercise 04.2: a router that chooses with a bias and weighs without it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from grading.exercise import Misconception


def root_of_softplus(logits: torch.Tensor) -> torch.Tensor:
    return F.softplus(logits).sqrt()


def best_first(chance: torch.Tensor, k: int) -> torch.Tensor:
    return chance.argsort(dim=-1, descending=True, stable=True)[..., :k]


def share_of_chosen(weight: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return weight / weight.sum(-1, keepdim=True)


def answer(
    score: Callable = root_of_softplus,
    attract: Callable = lambda scores, bias, logits: scores + bias,
    choose: Callable = best_first,
    weigh: Callable = lambda scores, bias: scores,
    share: Callable = share_of_chosen,
    scaled: bool = True,
) -> Callable:
    """The router with every choice open; the defaults make it right."""

    def route(x_BTX, gate_EX, bias_E, top_k, scale):
        logits = x_BTX @ gate_EX.T
        scores = score(logits)
        experts = choose(attract(scores, bias_E, logits), top_k)
        weight = weigh(scores, bias_E).gather(-1, experts)
        return experts, share(weight, scores) * (scale if scaled else 1.0)

    return route


def swapped(x_BTX, gate_EX, bias_E, top_k, scale):
    experts, weight = answer()(x_BTX, gate_EX, bias_E, top_k, scale)
    return weight, experts


def alone(place: int) -> Callable:
    return lambda *given: answer()(*given)[place]


ROUTER = (
    Misconception(
        "experts_alone",
        "These are the experts. A pair is asked for: the experts, and the weights of what they "
        "say.",
        alone(0),
    ),
    Misconception(
        "weights_alone",
        "These are the weights. A pair is asked for: the experts, and their weights.",
        alone(1),
    ),
    Misconception(
        "bias_weighs",
        "The right experts, but the bias takes part in their weights too. It is there to choose; "
        "what an expert says is weighed by its score alone, or balancing would change the answer.",
        answer(weigh=lambda scores, bias: scores + bias),
    ),
    Misconception(
        "no_bias",
        "This is the answer without the bias: it is added to the scores before the best k are "
        "chosen.",
        answer(attract=lambda scores, bias, logits: scores),
    ),
    Misconception(
        "bias_subtracted",
        "This is the answer with the bias subtracted. It is added: a higher bias makes an expert "
        "more attractive.",
        answer(attract=lambda scores, bias, logits: scores - bias),
    ),
    Misconception(
        "bias_on_logits",
        "This is the answer with the bias added to the logits. It is added to the scores, after "
        "the softplus and the root.",
        answer(attract=lambda scores, bias, logits: root_of_softplus(logits + bias)),
    ),
    Misconception(
        "no_root",
        "This is the answer without the square root: the score is the root of the softplus.",
        answer(score=F.softplus),
    ),
    Misconception(
        "softmax",
        "This is the answer with a softmax over the experts (V2's score). Here every expert is "
        "scored on its own: sqrt(softplus).",
        answer(score=lambda logits: logits.softmax(-1)),
    ),
    Misconception(
        "sigmoid",
        "This is the answer with a sigmoid (V3's score). V4's is sqrt(softplus).",
        answer(score=torch.sigmoid),
    ),
    Misconception(
        "raw_logits",
        "This is the answer with the logits as scores: they go through sqrt(softplus) first.",
        answer(score=lambda logits: logits),
    ),
    Misconception(
        "plain_logarithm",
        "log(1 + e^z) written out loses all there is for very negative z: 1 + e^-30 is 1 in "
        "float32 and its logarithm 0. F.softplus keeps it.",
        answer(score=lambda logits: (1 + logits.exp()).log().sqrt()),
    ),
    Misconception(
        "share_of_all",
        "The weights are divided by the sum over all experts. Divide by the sum over the chosen "
        "ones: together they should weigh `scale`.",
        answer(share=lambda weight, scores: weight / scores.sum(-1, keepdim=True)),
    ),
    Misconception(
        "not_shared_out",
        "The weights are not divided by their sum.",
        answer(share=lambda weight, scores: weight),
    ),
    Misconception(
        "softmax_of_chosen",
        "The weights are a softmax of the chosen scores; here they are the scores divided by "
        "their sum.",
        answer(share=lambda weight, scores: weight.softmax(-1)),
    ),
    Misconception(
        "not_scaled",
        "The weights sum to 1; they are multiplied by `scale` at the end.",
        answer(scaled=False),
    ),
    Misconception(
        "worst",
        "These are the experts with the lowest sum of score and bias; the highest are asked for.",
        answer(choose=lambda chance, k: best_first(-chance, k)),
    ),
    Misconception(
        "by_index",
        "The right experts, sorted by their index. The best comes first.",
        answer(choose=lambda chance, k: best_first(chance, k).sort(-1).values),
    ),
    Misconception(
        "worst_first",
        "The right experts, the worst of them first. The best comes first.",
        answer(choose=lambda chance, k: best_first(chance, k).flip(-1)),
    ),
    Misconception(
        "ties_to_the_last",
        "Where experts are equal, this takes the highest index. The lowest wins: sort with "
        "stable=True, or two machines may choose differently.",
        answer(choose=lambda chance, k: chance.shape[-1] - 1 - best_first(chance.flip(-1), k)),
    ),
    Misconception(
        "topk",
        "torch.topk leaves it open which of equal experts it takes. The lowest index wins: sort "
        "with stable=True and keep the first k.",
        answer(choose=lambda chance, k: chance.topk(k, dim=-1).indices),
    ),
    Misconception(
        "weights_first",
        "The pair is the other way round: first the experts, then their weights.",
        swapped,
    ),
)
