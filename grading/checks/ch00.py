"""Chapter 00: one practice exercise, so that a check, a hint and a named mistake are met."""

from __future__ import annotations

import numpy as np

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part
from grading.hints import tied
from grading.misconceptions.ch00 import NEXT_TOKEN

ALL = "probabilities and token"


def next_token_cases(draw: Draw) -> tuple[Case, ...]:
    cases = []
    for temperature in (0.5, 1.0, 2.0):
        batch, vocabulary = draw.sizes(2)
        inputs = {
            "logits": draw.normal(batch, vocabulary, scale=2.0),
            "temperature": temperature,
        }
        says = f"B={batch}, V={vocabulary}, temperature {temperature:g}"
        cases.append(Case(ALL, says, inputs))
    return tuple(cases)


def run_next_token(answer, inputs):
    given = answer(inputs["logits"], inputs["temperature"])
    if not isinstance(given, tuple) or len(given) != 2:
        return {"the answer (two tensors: probabilities, token)": given}
    return {"probabilities": given[0], "token": given[1]}


def expected_next_token(inputs) -> dict[str, Expected]:
    logits_BV = np.asarray(inputs["logits"], np.float64)
    odds_BV = np.exp(logits_BV / inputs["temperature"])
    return {
        "probabilities": Expected(odds_BV / odds_BV.sum(1, keepdims=True), "BV"),
        "token": Expected(np.argmax(logits_BV, 1).astype(np.float64), "B", "integer"),
    }


EXERCISES = (
    Exercise(
        id="00.1",
        title="From logits to the next token",
        notebook="00__start_here",
        parts=(Part(ALL, 0),),
        cases=next_token_cases,
        run=run_next_token,
        expected=expected_next_token,
        hints=(
            tied(
                "Two lines. The first divides the logits by the temperature and turns the result "
                "into probabilities; the second finds where the largest one stands.",
                "temperature_forgotten",
                "temperature_multiplied",
                "temperature_after",
                "no_exponential",
                "log_probabilities",
                "probability_not_token",
                "returns",
            ),
            tied(
                "Both work along the vocabulary, the last axis: -1.",
                "softmax_over_batch",
                "argmax_over_batch",
                "argmin",
                "shape",
            ),
            "(logits_BV / temperature).softmax(-1), and probabilities_BV.argmax(-1).",
        ),
        misconceptions=NEXT_TOKEN,
    ),
)
