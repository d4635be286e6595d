"""Named mistakes in exercise 07.3: what a choice saves, and what it does not."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def answer(
    kept: Callable = lambda C, R, I, k, n: C + R + I,
    read: Callable = lambda C, R, I, k, n: n * I + min(k, n) * (C + R),
    says: Callable = lambda kept, read: (kept, read),
    width: int = 2,
) -> Callable:
    """The two sums with every choice open; the defaults make them right."""

    def reads(layers, latent, rope, index, k, context):
        numbers = latent, rope, index, k, context
        return says(layers * width * kept(*numbers), layers * width * read(*numbers))

    return reads


READS = (
    Misconception(
        "kept_alone",
        "A pair is asked for: the bytes kept a token, and the bytes read for a new one.",
        answer(says=lambda kept, read: kept),
    ),
    Misconception(
        "swapped",
        "The pair is the other way round: first what is kept, then what is read.",
        answer(says=lambda kept, read: (read, kept)),
    ),
    Misconception(
        "no_index_kept",
        "The index key is missing from what is kept. It lies beside the row of every token.",
        answer(kept=lambda C, R, I, k, n: C + R),
    ),
    Misconception(
        "index_instead",
        "Only index keys are kept here. A row may be chosen later, so it must stay.",
        answer(kept=lambda C, R, I, k, n: I),
    ),
    Misconception(
        "kept_by_choice",
        "What is kept was cut to the chosen rows. Each query chooses others, so all rows stay.",
        answer(kept=lambda C, R, I, k, n: I + (C + R) * min(k, n) / n),
    ),
    Misconception(
        "no_index_read",
        "The index keys are missing from what is read. To choose, a query reads all of them.",
        answer(read=lambda C, R, I, k, n: min(k, n) * (C + R)),
    ),
    Misconception(
        "index_of_chosen",
        "Index keys of the chosen rows only were counted. Before the choice all are read.",
        answer(read=lambda C, R, I, k, n: min(k, n) * (C + R + I)),
    ),
    Misconception(
        "all_rows_read",
        "All rows are read here; only the chosen ones are.",
        answer(read=lambda C, R, I, k, n: n * (C + R + I)),
    ),
    Misconception(
        "always_k",
        "k rows are read even where the context has fewer.",
        answer(read=lambda C, R, I, k, n: n * I + k * (C + R)),
    ),
    Misconception(
        "no_rope",
        "The rope key is missing: it is a part of the row.",
        answer(kept=lambda C, R, I, k, n: C + I, read=lambda C, R, I, k, n: n * I + min(k, n) * C),
    ),
    Misconception(
        "one_layer",
        "This is one layer; all of them keep and read.",
        lambda layers, *rest: answer()(1, *rest),
    ),
    Misconception(
        "numbers",
        "These are numbers; each takes 2 bytes.",
        answer(width=1),
    ),
)
