"""Exercise 01.3: a decode loop that runs each token once. The model counts what it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch01_decode import DECODE
from grading.references.counting_model import VOCABULARY, CountingModel, greedy

TEXT = "the right tokens"
ONCE = "each token runs once"


def decode_cases(draw: Draw) -> tuple[Case, ...]:
    """Ordinary lengths, then the edges: one token to write, one token to read."""
    long, short = draw.sizes(2)
    batch = draw.integer(2, 3)
    cases = []
    for prompt, count in ((long, short), (long, 1), (1, short)):
        inputs = {
            "prompt": draw.tokens(batch, prompt, vocabulary=VOCABULARY),
            "count": count,
        }
        says = f"B={batch}, a prompt of {prompt} tokens, {count} to write"
        cases.append(Case(TEXT, says, inputs))
    return tuple(cases)


def run_decode(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    model = CountingModel()
    return {
        "tokens": answer(model, inputs["prompt"], inputs["count"]),
        "tokens run": model.tokens_run,
        "calls of the model": model.calls,
        "entries beyond the cache's capacity": model.beyond_capacity,
    }


def expected_decode(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    prompt_BT, count = np.asarray(inputs["prompt"]), inputs["count"]

    def cost(most: int) -> Expected:
        return Expected(np.array(float(most)), kind="cost", part=ONCE)

    return {
        "tokens": Expected(greedy(prompt_BT, count).astype(np.float64), "BT", "integer"),
        # The last new token is written, not read: nobody asks what follows it.
        "tokens run": cost(prompt_BT.shape[1] + count - 1),
        "calls of the model": cost(count),
        "entries beyond the cache's capacity": cost(0),
    }


DECODE_LOOP = Exercise(
    id="01.3",
    title="A decode loop that runs each token once",
    notebook="01__attention",
    parts=(Part(TEXT, 2), Part(ONCE, 1)),
    cases=decode_cases,
    run=run_decode,
    expected=expected_decode,
    hints=(
        tied(
            "Make one cache, `model.new_cache(batch, capacity)`, before the loop. The first call "
            "takes the whole prompt, every later call one new token, always with the same cache.",
            "recomputes",
            "everything_into_the_cache",
            "new_cache_each_step",
            "prompt_not_run",
            "last_prompt_token_twice",
            "prompt_by_token",
            "capacity_too_small",
            ONCE,
        ),
        tied(
            "`logits_BTV[:, -1]` are the logits of the last position: they tell what comes next. "
            "`argmax(-1, keepdim=True)` gives the token with the shape [B, 1] that the model "
            "takes.",
            "first_position",
            "same_token_again",
            "first_text_for_all",
            "least_likely",
            "shape",
            "returns",
        ),
        tied(
            "The pass over the prompt already gives the first new token. So `count` tokens need "
            "count calls in all: one for the prompt, count - 1 for single tokens.",
            "runs_the_last",
            "one_too_many",
            "prompt_included",
        ),
        "logits = model(prompt_BT, cache); then count times: take the token from the logits, "
        "keep it, and, if it is not the last, logits = model(token_B1, cache). At the end "
        "torch.cat(tokens, 1).",
    ),
    misconceptions=DECODE,
)
