"""Chapter 13: the frontier hunt. The bytes are weighed, the recall is measured on the weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch13_frontier import FRONTIERS

SMALL, KNOWS = "at most a twentieth of the bytes", "recall no lower than tiny_v1's"
BYTES, WINDOW, PARAMETERS = "bytes a token", "tokens in the widest window", "parameters"
WRONG = "wrong answers of three seeds, without three times those of tiny_v1's weakest"
OURS, MISSING = "models taken from the lesson", "seeds without weights"
NEAR = 0.9  # cosine; `_is_copied` says what others come to


def frontier_cases(draw: Draw) -> tuple[Case, ...]:
    texts = draw.integer(1, 10**9)
    return (
        Case(SMALL, "by the rules, before any training", {"texts": texts, "measure": False}),
        Case(KNOWS, "texts that no training has seen", {"texts": texts, "measure": True}),
    )


def run_frontier(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Rules first; weights are loaded only for a configuration that keeps them."""
    from tinymodels import frontier

    config = answer()
    against = frontier.refusals(config)
    if frontier.same_weights(config, frontier.EXAMPLE):
        return {OURS: 1}
    if not inputs["measure"]:
        return {
            BYTES: frontier.bytes_per_token(config),
            WINDOW: frontier.widest_window(config),
            PARAMETERS: frontier.parameters(config),
        }
    if against:
        raise ValueError("; ".join(against))
    missing = sum(not _is_there(config, seed) for seed in frontier.SEEDS)
    if missing:
        return {MISSING: missing}
    models = [frontier.load(config, seed) for seed in frontier.SEEDS]
    if any(map(_is_copied, models)):
        return {OURS: 1}
    wrong = sum(frontier.wrong(model, inputs["texts"]) for model in models)
    return {WRONG: wrong - len(models) * weakest(inputs["texts"])}


def _is_there(config: Any, seed: int) -> bool:
    from tinymodels import frontier

    folders = (Path("."), frontier.FOLDER)
    return any(frontier.path(config, seed, folder).is_file() for folder in folders)


def _is_copied(model: Any) -> bool:
    """Are these the weights of the lesson, under whatever name and a little changed?

    Embeddings tell nothing: training hardly moves them, so two models of one seed share them.
    What a model would say if its layers added nothing tells more, and scaled weights or another
    order of the stream's numbers leave it as it was. The lesson's model with a first window of 3
    or 5, trained anew, comes to 0.75 and 0.71; the lesson's weights with all the noise they bear
    to 0.98. The median of the words, so that a few words changed do not count.
    """
    from tinymodels import frontier

    said = _said_by_itself(model)
    shipped = (frontier.load(frontier.EXAMPLE, s, frontier.FOLDER) for s in frontier.SEEDS)
    return any((said * _said_by_itself(one)).sum(-1).median() > NEAR for one in shipped)


@torch.no_grad()
def _said_by_itself(model: Any) -> torch.Tensor:
    """-> [V, V], rows of length 1: how loudly each word calls for this one, without layers."""
    words = normalize(model.embed.weight, dim=-1)
    return normalize((model.head.weight * model.norm.weight) @ words.T, dim=-1)


@lru_cache
def weakest(texts: int) -> int:
    from tinymodels import frontier

    return frontier.weakest_of_v1(texts)


def expected_frontier(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    from tinymodels import frontier
    from tinymodels.presets import tiny_v1

    def at_most(value: float, why: str) -> Expected:
        return Expected(np.array(float(value)), kind="cost", too_much=why)

    ours = "This is the model of the lesson, trained already. Find another, or a better one"
    told = "It is not trained yet: frontier.train(frontier_config()) writes the weights"
    if inputs["measure"]:
        return {
            OURS: at_most(0, ours),
            MISSING: at_most(0, told),
            WRONG: at_most(len(frontier.SEEDS) * frontier.MARGIN, "It forgets more than tiny_v1"),
        }
    return {
        OURS: at_most(0, ours),
        BYTES: at_most(frontier.MOST_BYTES, "A token adds too many bytes"),
        WINDOW: at_most(frontier.WINDOW, "A window is too wide"),
        PARAMETERS: at_most(frontier.parameters(tiny_v1()), "The model is too large"),
    }


FRONTIER = Exercise(
    id="13.8",
    title="The frontier",
    notebook="13__capstone",
    parts=(Part(SMALL, 1), Part(KNOWS, 3)),
    cases=frontier_cases,
    run=run_frontier,
    expected=expected_frontier,
    hints=(
        tied(
            "Which layers need a memory that grows? To find a word again, a model looks at its "
            "neighbour once, and far back once.",
            "tiny_v1", "the_lessons", "one_kv_head", "both_layers_far", "tiny_v4_1",
            "everything_in_the_window",
        ),
        tied(
            "Two layers: GQA with a window of a few tokens, then one far layer. 25.6 bytes are 12 "
            "numbers in bf16: one key and one value of at most 6 (kv_heads=1), or a latent of 10 "
            "with a rope key of 2. Or 25 in FP8 or FP4 rows.",
            "eight_numbers", "latent_of_16", "bits_on_paper", "counted_not_run",
            "another_vocabulary", "too_many_parameters", SMALL,
        ),
        tied(
            "frontier.train(frontier_config()) trains three seeds and writes a file for each "
            "beside the notebook. If one seed fails, look at its curve: a far key needs no "
            "position (rope=None) to find a word.",
            KNOWS, "returns",
        ),
    ),
    misconceptions=FRONTIERS,
    seconds=120.0,
)  # fmt: skip
