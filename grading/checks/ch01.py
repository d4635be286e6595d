"""Chapter 01: attention and its cache. What each exercise draws, expects and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grading.checks.ch01_decode import DECODE_LOOP
from grading.checks.ch01_optional import DECODE_KERNEL, ONLINE_SOFTMAX
from grading.draw import Draw
from grading.exercise import Case, Exercise, Expected, Part, call
from grading.hints import tied
from grading.misconceptions.ch01_attention import ATTENTION
from grading.misconceptions.ch01_cache import APPEND, BYTES
from grading.references import ch01 as reference

NOTEBOOK = "01__attention"

WHOLE = "a whole sequence (T = S)"
CHUNK = "new tokens after cached ones (T < S)"


def attention_cases(draw: Draw) -> tuple[Case, ...]:
    """T = S, then k, 1 and 2 new tokens at the end of a longer S."""
    heads, dim, *lengths = draw.sizes(4)
    few, many = sorted(lengths)
    batch = draw.integer(2, 3)
    cases = []
    for part, T, S in ((WHOLE, few, few), *((CHUNK, T, many) for T in (few, 1, 2))):
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
        tied(
            "Work on one head at a time in your mind: scores are query times key, one number for "
            "each pair of a new token and a cached token. Move the heads in front of the tokens "
            "with transpose(1, 2), then `@` does all heads at once.",
            "heads_by_reshape",
            "joined_by_reshape",
            "heads_left_first",
            "softmax_over_heads",
            "softmax_over_queries",
            "value_from_key",
            "key_and_value_swapped",
            "shape",
        ),
        tied(
            "Divide the scores by the square root of the head dim. Then set to -inf every score of "
            "a token that comes later: softmax gives it the weight 0.",
            "no_scale",
            "scale_by_d",
            "scale_times_sqrt_d",
            "no_mask",
            "masked_with_zero",
            "mask_after_softmax",
            "finite",
        ),
        tied(
            "New token t stands at position S - T + t. It may read positions 0 up to its own. "
            "torch.arange(S) <= position, with position as a column, is the whole mask.",
            "mask_top_left",
            "mask_sees_next",
            "mask_hides_itself",
            "mask_reversed",
            CHUNK,
        ),
        "The four steps: score = q @ k.transpose(-2, -1) / D**0.5; mask with masked_fill; "
        "weight = score.softmax(-1); (weight @ v).transpose(1, 2).",
    ),
    misconceptions=ATTENTION,
)


STEPS = "one token at a time"
CHUNKS = "chunks of any size"


def append_cases(draw: Draw) -> tuple[Case, ...]:
    heads, dim, *lengths = draw.sizes(4)
    few, many = sorted(lengths)
    batch = draw.integer(2, 3)
    cases = []
    uneven = tuple(size for size in (few, 1, many - few - 1) if size)
    for part, sizes in ((STEPS, (1,) * few), (CHUNKS, uneven), (CHUNKS, (2, many - 2))):
        inputs: dict[str, Any] = {
            name: draw.normal(batch, sum(sizes), heads, dim) for name in ("query", "key", "value")
        }
        says = f"B={batch}, H={heads}, D={dim}, chunks of {', '.join(map(str, sizes))} tokens"
        cases.append(Case(part, says, inputs | {"sizes": sizes}))
    return tuple(cases)


def run_append(answer: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Feed chunk after chunk, with the cache that the answer gave back the time before."""
    cache, start, seen = None, 0, {}
    for step, size in enumerate(inputs["sizes"], 1):
        chunk = [inputs[name][:, start : start + size] for name in ("query", "key", "value")]
        given = answer(cache, *chunk)
        if not isinstance(given, tuple | list) or len(given) != 2:
            return {"the answer (a pair: output, cache)": given}
        seen[f"output of chunk {step}"], cache = given
        if not isinstance(cache, tuple | list) or len(cache) != 2:
            return {"the new cache (a pair: keys, values)": cache}
        start += size
        if step == 1:  # another text begins in between; its cache is not this one's
            answer(None, *(x.flip(0) for x in chunk))
    return seen | {"keys kept": cache[0], "values kept": cache[1]}


def expected_append(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    query, key, value = (inputs[name] for name in ("query", "key", "value"))
    output = reference.causal_attention(query, key, value)
    wanted, start = {}, 0
    for step, size in enumerate(inputs["sizes"], 1):
        wanted[f"output of chunk {step}"] = Expected(output[:, start : start + size], "BTHD")
        start += size
    kept = {"keys kept": key, "values kept": value}
    return wanted | {name: Expected(np.asarray(x, np.float64), "BSHD") for name, x in kept.items()}


APPEND_AND_ATTEND = Exercise(
    id="01.2",
    title="Append and attend",
    notebook=NOTEBOOK,
    parts=(Part(STEPS, 2), Part(CHUNKS, 1)),
    cases=append_cases,
    run=run_append,
    expected=expected_append,
    hints=(
        tied(
            "While nothing is stored the cache is None, and the new keys and values are all there "
            "is. Otherwise they go behind those in the cache.",
            "overwrites",
            "forgets_to_store",
            "prepends",
            "appends_twice",
            "stores_query",
            "kept_outside",
            "returns",
        ),
        tied(
            "torch.cat([old, new], dim=1) puts tokens behind tokens: axis 1 of [B, S, H, D].",
            "joined_along_batch",
            "joined_along_heads",
            "shape",
        ),
        tied(
            "Attend to all the keys and values, with the function of 01.1: the new tokens are the "
            "last T of them. Return the output and the pair (all keys, all values).",
            "attends_old_only",
            "attends_new_only",
            "mask_by_row",
            "no_mask",
            "swapped_in_cache",
            CHUNKS,
        ),
    ),
    misconceptions=APPEND,
)

BYTES_TEXT = "the bytes"
ARGUMENTS = ("layers", "hidden_size", "query_heads", "kv_heads", "head_dim", "bits_per_number")


def bytes_cases(draw: Draw) -> tuple[Case, ...]:
    """Made-up models with all numbers different, and one real one: DeepSeek-V1 67B."""
    models = [(95, 8192, 64, 8, 128, 16)]
    for bits in (16, 4, 8):
        layers, kv_heads, dim, more = draw.sizes(4)
        # hidden size is not query heads x head dim: in real models it often is not, either
        models.append((layers, 100 * dim + 36, kv_heads * more, kv_heads, 8 * dim, bits))
    cases = []
    for model in models:
        inputs = dict(zip(ARGUMENTS, model, strict=True))
        says = ", ".join(f"{name} {value:,}" for name, value in inputs.items())
        cases.append(Case(BYTES_TEXT, says, inputs))
    return tuple(cases)


def expected_bytes(inputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Counted by laying the entries out: a key and a value for each kv head and layer."""
    key = value = inputs["head_dim"] * inputs["bits_per_number"]
    rows = [[key + value] * inputs["kv_heads"] for _ in range(inputs["layers"])]
    bits = sum(map(sum, rows))
    return {"bytes": Expected(np.array(bits / 8), kind="integer")}


BYTES_PER_TOKEN = Exercise(
    id="01.4",
    title="Bytes per token",
    notebook=NOTEBOOK,
    parts=(Part(BYTES_TEXT, 2),),
    cases=bytes_cases,
    run=call(*ARGUMENTS, output="bytes"),
    expected=expected_bytes,
    hints=(
        tied(
            "What does one token leave behind in one layer, for one kv head? A key and a value of "
            "head_dim numbers each.",
            "forgets_two",
            "one_head",
            "hidden_size",
        ),
        tied(
            "Multiply by the kv heads (not the query heads) and by the layers. Eight bits are one "
            "byte; divide at the end, with //.",
            "forgets_layers",
            "query_heads",
            "bits",
            "numbers",
            "rounds_bits_first",
            "kibibytes",
        ),
        tied(
            "Two of the arguments play no part: the hidden size and the number of query heads.",
            "all_heads",
        ),
    ),
    misconceptions=BYTES,
)

EXERCISES = (
    CAUSAL_ATTENTION, APPEND_AND_ATTEND, DECODE_LOOP, BYTES_PER_TOKEN, ONLINE_SOFTMAX,
    DECODE_KERNEL,
)  # fmt: skip
