"""Named mistakes in exercise 10.3: what sharing is worth."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def answer(
    row: Callable = lambda entry, key: entry + key,
    kept: Callable = lambda ratio: 1 / ratio,
    owned: Callable = lambda ratios, owners: list(map(ratios.__getitem__, owners)),
    every: Callable = lambda ratios: list(filter(None, ratios)),
    says: Callable = lambda shared, unshared: (shared, unshared),
) -> Callable:
    """Both sums with every choice open; the defaults make them right."""

    def sharing(ratios, owners, entry_bytes, key_bytes):
        size = row(entry_bytes, key_bytes)
        return says(
            size * sum(kept(ratio) for ratio in owned(ratios, owners)),
            size * sum(kept(ratio) for ratio in every(ratios)),
        )

    return sharing


def keys_by_all(ratios, owners, entry_bytes, key_bytes):
    shared, unshared = answer()(ratios, owners, entry_bytes, key_bytes)
    borrowers = [r for layer, r in enumerate(ratios) if r and layer not in owners]
    return shared + key_bytes * sum(1 / r for r in borrowers), unshared


def entries_by_all(ratios, owners, entry_bytes, key_bytes):
    shared, unshared = answer()(ratios, owners, entry_bytes, key_bytes)
    borrowers = [r for layer, r in enumerate(ratios) if r and layer not in owners]
    return shared + entry_bytes * sum(1 / r for r in borrowers), unshared


def rounded(ratios, owners, entry_bytes, key_bytes):
    size = entry_bytes + key_bytes
    return (
        sum(size // ratios[layer] for layer in owners),
        sum(size // ratio for ratio in ratios if ratio),
    )


SHARING = (
    Misconception(
        "ratio_forgotten",
        "Every owner counts one entry a token. With the ratio m there is one for m tokens.",
        answer(kept=lambda ratio: 1),
    ),
    Misconception(
        "ratio_multiplied",
        "The rows are multiplied by the ratio. m tokens share one entry: divide.",
        answer(kept=lambda ratio: ratio),
    ),
    Misconception(
        "windows_keep",
        "Window layers are counted like layers of ratio 1. They keep nothing that grows.",
        answer(every=lambda ratios: [ratio or 1 for ratio in ratios]),
    ),
    Misconception(
        "no_keys",
        "The index keys are missing: an owner keeps one beside each entry.",
        answer(row=lambda entry, key: entry),
    ),
    Misconception(
        "keys_alone",
        "Only the index keys are counted; each stands beside an entry.",
        answer(row=lambda entry, key: key),
    ),
    Misconception(
        "entry_twice",
        "The entry is counted twice, as key and as value. It is one latent for both.",
        answer(row=lambda entry, key: 2 * entry + key),
    ),
    Misconception(
        "keys_by_all",
        "As shared, every layer still keeps index keys of its own. Borrowers read the owner's.",
        keys_by_all,
    ),
    Misconception(
        "entries_by_all",
        "As shared, every layer still keeps entries, and only keys are shared. Both are.",
        entries_by_all,
    ),
    Misconception(
        "owners_besides",
        "Unshared, the owners are left out. Every layer with a ratio keeps its own then.",
        lambda ratios, owners, entry, key: answer(
            every=lambda ratios: [r for i, r in enumerate(ratios) if r and i not in owners]
        )(ratios, owners, entry, key),
    ),
    Misconception(
        "one_owner",
        "As shared, only the first owner is counted.",
        answer(owned=lambda ratios, owners: [ratios[owners[0]]]),
    ),
    Misconception(
        "layer_numbers",
        "The owners' numbers are taken for ratios. `ratios[layer]` is the ratio of a layer.",
        answer(owned=lambda ratios, owners: owners),
    ),
    Misconception(
        "factor",
        "This is by how much sharing divides. Both numbers of bytes were asked for.",
        answer(says=lambda shared, unshared: unshared / shared),
    ),
    Misconception(
        "swapped",
        "The pair is the other way round: first as shared, then unshared.",
        answer(says=lambda shared, unshared: (unshared, shared)),
    ),
    Misconception(
        "rounded",
        "Bytes per token were rounded down in each layer. They are averages: leave the fractions.",
        rounded,
    ),
)
