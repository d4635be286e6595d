"""Named mistakes in exercise 03.2: one sublayer's addition, taken from another run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def run(sublayers, x):
    """The stream before each sublayer, and at the end."""
    streams = [x]
    for sublayer in sublayers:
        streams.append(streams[-1] + sublayer(streams[-1]))
    return streams


def patched(put: Callable | None = None, number: int = 0, place: int = 0) -> Callable:
    """A patched run: how the piece is put in is open, and which one, and where.

    put(found, taken, position) -> what the sublayer adds, found and taken being what it found in
    this run and in the other; `number` and `place` are added to `which` and `position`.
    """

    def exchanged(found, taken, position):
        found = found.clone()
        found[:, position] = taken[:, position]
        return found

    put = put or exchanged

    def patched_run(sublayers, x_BTX, other_BTX, which, position):
        which = (which + number) % len(sublayers)
        position = (position + place) % x_BTX.shape[1]
        for sublayer in sublayers[:which]:
            other_BTX = other_BTX + sublayer(other_BTX)
        taken = sublayers[which](other_BTX)
        for i, sublayer in enumerate(sublayers):
            found = sublayer(x_BTX)
            x_BTX = x_BTX + (put(found, taken, position) if i == which else found)
        return x_BTX

    return patched_run


def _at(found, position, value):
    found = found.clone()
    found[:, position] = value
    return found


def stream_exchanged(sublayers, x, other, which, position):
    """The whole stream after the sublayer is taken from the other run."""
    for i, sublayer in enumerate(sublayers):
        x = x + sublayer(x)
        if i <= which:
            other = other + sublayer(other)
        if i == which:
            x = _at(x, position, other[:, position])
    return x


def input_exchanged(sublayers, x, other, which, position):
    """The sublayer reads, at this token, the other run's stream."""
    for sublayer in sublayers[:which]:
        other = other + sublayer(other)
    for i, sublayer in enumerate(sublayers):
        read = _at(x, position, other[:, position]) if i == which else x
        x = x + sublayer(read)
    return x


def later_ones_frozen(sublayers, x, other, which, position):
    """The piece is exchanged at the end; nothing after it runs again."""
    taken = sublayers[which](run(sublayers[:which], other)[-1])
    streams = run(sublayers, x)
    own = streams[which + 1] - streams[which]
    return _at(streams[-1], position, (streams[-1] - own + taken)[:, position])


def from_the_start(sublayers, x, other, which, position):
    """The other text's piece is made from its embedding, not from its stream at that depth."""
    taken = sublayers[which](other)
    for i, sublayer in enumerate(sublayers):
        found = sublayer(x)
        x = x + (_at(found, position, taken[:, position]) if i == which else found)
    return x


def from_this_run(sublayers, x, other, which, position):
    """The sublayer runs on this stream with the other's token put in."""
    return run(sublayers, _at(x, position, other[:, position]))[-1]


def all_later_ones_too(sublayers, x, other, which, position):
    for i, sublayer in enumerate(sublayers):
        found, elsewhere = sublayer(x), sublayer(other)
        if i >= which:
            found = _at(found, position, elsewhere[:, position])
        x, other = x + found, other + elsewhere
    return x


def all_up_to_it(sublayers, x, other, which, position):
    for i, sublayer in enumerate(sublayers):
        found, elsewhere = sublayer(x), sublayer(other)
        if i <= which:
            found = _at(found, position, elsewhere[:, position])
        x, other = x + found, other + elsewhere
    return x


def roles_swapped(sublayers, x, other, which, position):
    return patched()(sublayers, other, x, which, position)


def nothing_added(sublayers, x, other, which, position):
    """Each sublayer's answer takes the place of the stream."""
    for sublayer in sublayers[:which]:
        other = sublayer(other)
    taken = sublayers[which](other)
    for i, sublayer in enumerate(sublayers):
        x = sublayer(x)
        if i == which:
            x = _at(x, position, taken[:, position])
    return x


def replaces_the_stream(sublayers, x, other, which, position):
    """At the token, the stream becomes the piece alone."""
    for sublayer in sublayers[:which]:
        other = other + sublayer(other)
    taken = sublayers[which](other)
    for i, sublayer in enumerate(sublayers):
        x = x + sublayer(x)
        if i == which:
            x = _at(x, position, taken[:, position])
    return x


def first_text_for_all(sublayers, x, other, which, position):
    put = lambda found, taken, at: _at(found, at, taken[:1, at])  # noqa: E731
    return patched(put)(sublayers, x, other, which, position)


def runs_everything(sublayers, x, other, which, position):
    """Right, but the other run goes to its end, and this one twice."""
    streams = run(sublayers, other)
    run(sublayers, x)
    taken = streams[which + 1] - streams[which]
    for i, sublayer in enumerate(sublayers):
        found = sublayer(x)
        x = x + (_at(found, position, taken[:, position]) if i == which else found)
    return x


def other_run_to_its_end(sublayers, x, other, which, position):
    streams = run(sublayers, other)
    taken = streams[which + 1] - streams[which]
    for i, sublayer in enumerate(sublayers):
        found = sublayer(x)
        x = x + (_at(found, position, taken[:, position]) if i == which else found)
    return x


PATCHING = (
    Misconception(
        "whole_stream",
        "This is the answer when the whole stream at that token is taken from the other run, "
        "with all that earlier sublayers added there. Only what this one added is exchanged.",
        stream_exchanged,
    ),
    Misconception(
        "input_exchanged",
        "This is the answer when the sublayer reads the other run's token and then runs here. "
        "Take what it added *there*: it had the other run's earlier tokens to look back at.",
        input_exchanged,
    ),
    Misconception(
        "every_position",
        "This is the answer with the addition exchanged at every token; only the one at "
        "`position` comes from the other run.",
        patched(lambda found, taken, position: taken),
    ),
    Misconception(
        "added_on_top",
        "This is the answer with the other run's addition on top of the sublayer's own. It "
        "takes its place.",
        patched(lambda found, taken, at: _at(found, at, (found + taken)[:, at])),
    ),
    Misconception(
        "taken_out",
        "This is the answer when the sublayer adds nothing at that token. That is ablation; "
        "patching puts the other run's addition there.",
        patched(lambda found, taken, at: _at(found, at, torch.zeros_like(taken[:, at]))),
    ),
    Misconception(
        "difference_added",
        "This is the answer when the difference of the two additions is what the sublayer "
        "adds; it adds what it added in the other run.",
        patched(lambda found, taken, at: _at(found, at, (taken - found)[:, at])),
    ),
    Misconception(
        "not_patched",
        "This is the plain run: nothing came from the other one.",
        patched(lambda found, taken, at: found),
    ),
    Misconception(
        "later_ones_frozen",
        "This is the answer when the piece is exchanged in the finished sum. Later sublayers "
        "read the stream: they must run again, on what you have changed.",
        later_ones_frozen,
    ),
    Misconception(
        "from_the_start",
        "The other run's addition was made from the stream as it came in. Run its earlier "
        "sublayers first: sublayer `which` reads what they added.",
        from_the_start,
    ),
    Misconception(
        "token_exchanged",
        "This is the answer when the token itself is exchanged, before the first sublayer. "
        "Only one sublayer's addition is.",
        from_this_run,
    ),
    Misconception(
        "all_later_ones_too",
        "From `which` on, every sublayer adds what it added in the other run. Only one does.",
        all_later_ones_too,
    ),
    Misconception(
        "all_up_to_it",
        "Every sublayer up to `which` adds what it added in the other run. Only one does.",
        all_up_to_it,
    ),
    Misconception(
        "roles_swapped",
        "The two runs have changed places: this is other_BTX with a piece from x_BTX.",
        roles_swapped,
    ),
    Misconception(
        "nothing_added",
        "This is the answer when a sublayer's output takes the place of the stream; it is "
        "added to it.",
        nothing_added,
    ),
    Misconception(
        "replaces_the_stream",
        "At that token the stream became the piece alone. The piece takes the place of what "
        "the sublayer adds; what stood in the stream before stays.",
        replaces_the_stream,
    ),
    Misconception(
        "next_sublayer",
        "This is the answer for the sublayer after `which`: they are counted from 0.",
        patched(number=1),
    ),
    Misconception(
        "sublayer_before",
        "This is the answer for the sublayer before `which`: it has to run in the other text, "
        "too, for its addition is the one that is taken.",
        patched(number=-1),
    ),
    Misconception(
        "next_position",
        "This is the answer for the token after `position`: they are counted from 0.",
        patched(place=1),
    ),
    Misconception(
        "first_text_for_all",
        "Every text of the batch got the piece of text 0; each has its own: [:, position].",
        first_text_for_all,
    ),
    Misconception(
        "other_run_to_its_end",
        "The stream is right. But the other run goes on after sublayer `which`, where nothing "
        "of it is needed any more.",
        other_run_to_its_end,
    ),
    Misconception(
        "runs_twice",
        "The stream is right. But this text runs twice, and the other one to its end: once, "
        "and up to sublayer `which`, would do.",
        runs_everything,
    ),
)
