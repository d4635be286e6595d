"""Named mistakes in exercise 08.6: V4-Flash at n tokens."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def answer(
    groups: Callable = lambda n, m: n // m,
    left: Callable = lambda m, entry, key: entry + (key if m == 4 else 0),
    near: Callable = lambda n, ratios, window: len(ratios) * min(n, window),
    says: Callable = lambda far, near: (far, near),
) -> Callable:
    """The count with every choice open; the defaults make it right."""

    def bytes_held(n, ratios, entry, key, window):
        far = sum(groups(n, m) * left(m, entry, key) for m in ratios if m)
        return says(far, near(n, ratios, window) * entry)

    return bytes_held


def one_layer_each(n, ratios, entry, key, window):
    return answer()(n, sorted(set(ratios)), entry, key, window)


def from_the_rate(n, ratios, entry, key, window):
    far = n * sum((entry + (key if m == 4 else 0)) / m for m in ratios if m)
    return int(far), answer()(n, ratios, entry, key, window)[1]


def window_with_keys(n, ratios, entry, key, window):
    far, near = answer()(n, ratios, entry, key, window)
    return far, near + ratios.count(4) * min(n, window) * key


BYTES = (
    Misconception(
        "from_the_rate",
        "This is the rate times n. Groups are there whole or not at all: count complete ones.",
        from_the_rate,
    ),
    Misconception(
        "rounded_up",
        "The open group is counted. It leaves no entry before it is complete.",
        answer(groups=lambda n, m: -(-n // m)),
    ),
    Misconception(
        "one_entry_a_token",
        "Every token leaves an entry here; only every complete group does.",
        answer(groups=lambda n, m: n),
    ),
    Misconception(
        "no_keys",
        "The index keys of the CSA layers are missing.",
        answer(left=lambda m, entry, key: entry),
    ),
    Misconception(
        "keys_in_hca",
        "HCA layers are counted with index keys. They read all entries and have no indexer.",
        answer(left=lambda m, entry, key: entry + key),
    ),
    Misconception(
        "key_for_every_token",
        "There is an index key for every token here; there is one for every group.",
        lambda n, ratios, entry, key, window: (
            answer(left=lambda m, entry, key: entry)(n, ratios, entry, key, window)[0]
            + n * ratios.count(4) * key,
            answer()(n, ratios, entry, key, window)[1],
        ),
    ),
    Misconception(
        "window_in_two_layers",
        "Only layers without groups were given a window. Every layer has one.",
        answer(near=lambda n, ratios, window: ratios.count(0) * min(n, window)),
    ),
    Misconception(
        "window_in_the_others",
        "Layers without groups were given no window. They have nothing else.",
        answer(near=lambda n, ratios, window: sum(m > 0 for m in ratios) * min(n, window)),
    ),
    Misconception(
        "window_full_at_once",
        "The windows are counted full from the first token on. With fewer tokens than `window` "
        "there are fewer rows.",
        answer(near=lambda n, ratios, window: len(ratios) * window),
    ),
    Misconception(
        "window_grows",
        "The windows grow for ever here. They keep the newest `window` tokens.",
        answer(near=lambda n, ratios, window: len(ratios) * n),
    ),
    Misconception(
        "one_window",
        "This is the window of one layer. Every layer has its own.",
        answer(near=lambda n, ratios, window: min(n, window)),
    ),
    Misconception(
        "window_with_keys",
        "Rows of a window have no index keys: nobody has to choose among them.",
        window_with_keys,
    ),
    Misconception(
        "one_sum",
        "A pair is asked for: bytes of groups, and bytes of windows. This is their sum.",
        answer(says=lambda far, near: far + near),
    ),
    Misconception(
        "swapped",
        "The pair is the other way round: first the groups, then the windows.",
        answer(says=lambda far, near: (near, far)),
    ),
    Misconception(
        "one_layer_each",
        "This is one layer of each kind; count them all.",
        one_layer_each,
    ),
)
