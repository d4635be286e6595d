"""Chapter 01: attention and its cache. What each exercise draws, expects and counts."""

from __future__ import annotations

from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.misconceptions.ch01_attention import ATTENTION
from grading.references import ch01 as reference

NOTEBOOK = "01__attention"

WHOLE = "a whole sequence (T = S)"
CHUNK = "new tokens after cached ones (T < S)"


def attention_cases(draw: Draw) -> tuple[Case, ...]:
    """T = S, then T = 1, 2 and k new tokens at the end of a longer S."""
    heads, dim, new, more = draw.sizes(4)
    batch = draw.integer(2, 3)
    cases = []
    for part, T, S in ((WHOLE, new, new), (CHUNK, new, new + more), (CHUNK, 1, more), (CHUNK, 2, more)):
        inputs = {
            "query": draw.normal(batch, T, heads, dim),
            "key": draw.normal(batch, S, heads, dim),
            "value": draw.normal(batch, S, heads, dim),
        }
        says = f"B={batch}, T={T} new tokens, S={S} in all, H={heads}, D={dim}"
        cases.append(Case(part, says, inputs))
    return tuple(cases)


CAUSAL_ATTENTION = Exercise(
    id="01.1",
    title="Causal attention that works on a chunk",
    notebook=NOTEBOOK,
    parts=(Part(WHOLE, 2), Part(CHUNK, 1)),
    cases=attention_cases,
    run=call("query", "key", "value"),
    expected=lambda inputs: {
        "output": Expected(
            reference.causal_attention(inputs["query"], inputs["key"], inputs["value"]), "BTHD"
        )
    },
    hints=(
        "Work on one head at a time in your mind: scores are query times key, one number for "
        "each pair of a new token and a cached token. Move the heads in front of the tokens "
        "with transpose(1, 2), then `@` does all heads at once.",
        "Divide the scores by the square root of the head dim. Then set to -inf every score of "
        "a token that comes later: softmax gives it the weight 0.",
        "New token t stands at position S - T + t. It may read positions 0 up to its own. "
        "torch.arange(S) <= position, with position as a column, is the whole mask.",
        "The four steps: score = q @ k.transpose(-2, -1) / D**0.5; mask with masked_fill; "
        "weight = score.softmax(-1); (weight @ v).transpose(1, 2).",
    ),
    misconceptions=ATTENTION,
)

EXERCISES = (CAUSAL_ATTENTION,)
