"""Named mistakes in exercise 02.3: a linear probe fitted by least squares."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def behind(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


def in_front(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.ones(len(x), 1), x], dim=1)


def zero_behind(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, torch.zeros(len(x), 1)], dim=1)


def one_hot(label: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.eye(classes)[label]


def held_back(ridge: float, size: int, count: int) -> torch.Tensor:
    return ridge * torch.eye(size)


def _spares_the_one(ridge: float, size: int, count: int) -> torch.Tensor:
    held = torch.eye(size)
    held[-1, -1] = 0
    return ridge * held


def answer(
    old: Callable = behind,
    new: Callable = behind,
    target: Callable = one_hot,
    held: Callable = held_back,
    finish: Callable = lambda scores: scores,
) -> Callable:
    """The probe with every choice open; the defaults make it right."""

    def probe(train_NX, label_N, new_MX, classes, ridge):
        a, y = old(train_NX), target(label_N, classes)
        weight = torch.linalg.solve(a.T @ a + held(ridge, a.shape[1], len(a)), a.T @ y)
        return finish(new(new_MX) @ weight)

    return probe


def _scores_of_training(train_NX, label_N, new_MX, classes, ridge):
    return answer()(train_NX, label_N, train_NX, classes, ridge)


def _class_means(train_NX, label_N, new_MX, classes, ridge):
    y = one_hot(label_N, classes)
    return new_MX @ (train_NX.T @ y / y.sum(0).clamp_min(1))


def _no_inverse(train_NX, label_N, new_MX, classes, ridge):
    a, y = behind(train_NX), one_hot(label_N, classes)
    return behind(new_MX) @ (a.T @ y)


PROBE = (
    Misconception(
        "no_one",
        "This is the probe without the appended 1: a class has no constant, so every boundary "
        "runs through the origin.",
        answer(old=lambda x: x, new=lambda x: x),
    ),
    Misconception(
        "one_in_front",
        "The 1 stands behind the training vectors and in front of the new ones: the weights "
        "meet the wrong numbers.",
        answer(new=in_front),
    ),
    Misconception(
        "zero_for_new",
        "The new vectors get a 0 where the training vectors have a 1, so the constants are lost.",
        answer(new=zero_behind),
    ),
    Misconception(
        "no_ridge",
        "This is the answer without the ridge: add ridge times the identity to A.T @ A.",
        answer(held=lambda ridge, size, count: 0 * torch.eye(size)),
    ),
    Misconception(
        "ridge_everywhere",
        "The ridge is added to every number of A.T @ A; it belongs on the diagonal only: ridge "
        "times torch.eye.",
        answer(held=lambda ridge, size, count: ridge * torch.ones(size, size)),
    ),
    Misconception(
        "ridge_times_count",
        "The ridge is multiplied by the number of examples; it is added as it is.",
        answer(held=lambda ridge, size, count: ridge * count * torch.eye(size)),
    ),
    Misconception(
        "ridge_spares_the_one",
        "The ridge leaves out the row of the 1. That is a good idea in general, but here every "
        "row is held back alike.",
        answer(held=_spares_the_one),
    ),
    Misconception(
        "plus_and_minus",
        "The targets are +1 and -1; they are 1 for the right class and 0 for the others.",
        answer(target=lambda label, classes: 2 * one_hot(label, classes) - 1),
    ),
    Misconception(
        "numbers_as_targets",
        "The number of the class is the target, as if class 2 were twice class 1. Give each "
        "class a column of its own, with 1 and 0.",
        answer(target=lambda label, classes: label[:, None].float()),
    ),
    Misconception(
        "scores_of_training",
        "These are the scores of the training vectors. A probe is asked about vectors that it "
        "has not seen.",
        _scores_of_training,
    ),
    Misconception(
        "guesses",
        "These are the guessed classes; the scores are asked for, one for each class.",
        answer(finish=lambda scores: scores.argmax(-1)),
    ),
    Misconception(
        "softmax",
        "The scores went through a softmax; least squares gives scores that need none.",
        answer(finish=lambda scores: scores.softmax(-1)),
    ),
    Misconception(
        "transposed",
        "Scores and vectors have changed places: one row for each new vector, one column for "
        "each class.",
        answer(finish=lambda scores: scores.T),
    ),
    Misconception(
        "class_means",
        "This compares with the mean vector of each class. Least squares also takes into "
        "account how the numbers of a vector go together: solve with A.T @ A.",
        _class_means,
    ),
    Misconception(
        "no_inverse",
        "This is A.T @ Y without solving for A.T @ A + ridge I: numbers that often go together "
        "are counted twice.",
        _no_inverse,
    ),
)
