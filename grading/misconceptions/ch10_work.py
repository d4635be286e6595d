"""Named mistakes in exercise 10.4: the work of a written token."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def looked_at(mode: str, entries: int, pool: int) -> int:
    return {"full": entries, "reindex": min(entries, pool)}.get(mode, 0)


def answer(
    near: Callable = min,
    far: Callable = lambda entries, top_k, mode: min(entries, top_k),
    scored: Callable = looked_at,
    groups: Callable = lambda n, ratio: n // ratio,
    core: Callable = lambda heads, dim: 4 * heads * dim,
    score: Callable = lambda heads, dim: 2 * heads * dim,
    layers: Callable = lambda modes: range(len(modes)),
    says: Callable = lambda attention, scores: (attention, scores),
) -> Callable:
    """The count with every choice open; the defaults make it right."""

    def work_at(n, modes, ratios, window, top_k, pool, heads, dim, index_heads, index_dim):
        read = looked = 0
        for layer in layers(modes):
            mode, ratio = modes[layer], ratios[layer]
            read += near(n, window)
            if ratio:
                entries = groups(n, ratio)
                read += far(entries, top_k, mode)
                looked += scored(mode, entries, pool)
        return says(read * core(heads, dim), looked * score(index_heads, index_dim))

    return work_at


def windows_read_far(n, modes, ratios, *sizes):
    """Ratio 0 taken for 1."""
    return answer()(n, modes, tuple(ratio or 1 for ratio in ratios), *sizes)


WORK = (
    Misconception(
        "reuse_scores",
        "The reuse layers score as well. They take a choice that is made already.",
        answer(
            scored=lambda mode, entries, pool: looked_at(mode, entries, pool) or min(entries, pool)
        ),
    ),
    Misconception(
        "reindex_scores_all",
        "The reindex layers score every entry. They look inside the candidates only.",
        answer(scored=lambda mode, entries, pool: looked_at(mode, entries, 10**18)),
    ),
    Misconception(
        "reindex_scores_pool",
        "A reindex layer scores the whole pool even where fewer entries exist.",
        answer(scored=lambda mode, entries, pool: {"full": entries, "reindex": pool}.get(mode, 0)),
    ),
    Misconception(
        "full_scores_pool",
        "The full layers are held to the candidates, too. They score all their entries.",
        answer(scored=lambda mode, entries, pool: min(looked_at(mode, entries, pool), pool)),
    ),
    Misconception(
        "only_full_scores",
        "The scores of the reindex layers are missing: they ask anew.",
        answer(scored=lambda mode, entries, pool: entries if mode == "full" else 0),
    ),
    Misconception(
        "reads_everything",
        "Attention reads all far entries. It reads the `top_k` chosen ones.",
        answer(far=lambda entries, top_k, mode: entries),
    ),
    Misconception(
        "always_top_k",
        "Attention reads `top_k` entries even where fewer exist.",
        answer(far=lambda entries, top_k, mode: top_k),
    ),
    Misconception(
        "owners_read",
        "Only full layers read far entries here. Borrowing layers read them just the same: what "
        "they save is memory and scores.",
        answer(far=lambda entries, top_k, mode: min(entries, top_k) if mode == "full" else 0),
    ),
    Misconception(
        "no_window",
        "The window is missing: every layer reads it, too.",
        answer(near=lambda n, window: 0),
    ),
    Misconception(
        "full_window",
        "The window counts `window` tokens even where there are fewer.",
        answer(near=lambda n, window: window),
    ),
    Misconception(
        "ratio_forgotten",
        "There are n far entries in every layer. With the ratio m there are n // m.",
        answer(groups=lambda n, ratio: n),
    ),
    Misconception(
        "groups_rounded_up",
        "A group that is not complete is counted as an entry. Round down.",
        answer(groups=lambda n, ratio: -(-n // ratio)),
    ),
    Misconception(
        "windows_read_far",
        "Layers of ratio 0 read far entries here. They have none.",
        windows_read_far,
    ),
    Misconception(
        "keys_only",
        "Each entry meets a head twice, as key and as value. Here it does so once.",
        answer(core=lambda heads, dim: 2 * heads * dim),
    ),
    Misconception(
        "no_heads",
        "One head of attention was counted; every head reads the entries.",
        answer(core=lambda heads, dim: 4 * dim),
    ),
    Misconception(
        "one_index_head",
        "One index head was counted; all of them score.",
        answer(score=lambda heads, dim: 2 * dim),
    ),
    Misconception(
        "multiplications",
        "Multiplications were counted. With its addition each is 2 FLOPs.",
        answer(core=lambda heads, dim: 2 * heads * dim, score=lambda heads, dim: heads * dim),
    ),
    Misconception(
        "scores_twice",
        "A score is one product of query and key, so 2 FLOPs a number; an index key is no value.",
        answer(score=lambda heads, dim: 4 * heads * dim),
    ),
    Misconception(
        "last_layer_missing",
        "The last layer is missing.",
        answer(layers=lambda modes: range(len(modes) - 1)),
    ),
    Misconception(
        "swapped",
        "The pair is the other way round: first attention, then scores.",
        answer(says=lambda attention, scores: (scores, attention)),
    ),
    Misconception(
        "together",
        "A pair is asked for: attention, and scores. This is their sum.",
        answer(says=lambda attention, scores: attention + scores),
    ),
)
