"""Named mistakes in exercises 12.4 and 12.5: the bill, and the disk."""

from __future__ import annotations

from collections.abc import Callable

from grading.exercise import Misconception


def total(prompt, found, written, hit, miss, output):
    return found * hit + (prompt - found) * miss + written * output


def bare(prompt, written, miss, output):
    return prompt * miss + written * output


def answer(
    paid: Callable = total,
    without: Callable = bare,
    per: float = 1e6,
    turns_of: Callable = lambda turns: turns,
) -> Callable:
    def bill(turns, hit, miss, output):
        used = turns_of(turns)
        one = sum(paid(p, f, w, hit, miss, output) for p, f, w in used)
        other = sum(without(p, w, miss, output) for p, f, w in used)
        return one / per, other / per

    return bill


def exchanged(turns, hit, miss, output):
    return answer()(turns, hit, miss, output)[::-1]


BILL = (
    Misconception(
        "single_tokens",
        "This takes the prices for single tokens. They are for a million.",
        answer(per=1),
    ),
    Misconception(
        "single_tokens_twice",
        "This takes the prices for single tokens, and they are for a million. Found tokens are "
        "also paid twice: as hits, and as a part of the prompt.",
        answer(paid=lambda p, f, w, h, m, o: f * h + p * m + w * o, per=1),
    ),
    Misconception(
        "thousands",
        "This takes the prices for a thousand tokens. They are for a million.",
        answer(per=1e3),
    ),
    Misconception(
        "found_paid_twice",
        "Found tokens are paid twice: as hits, and as a part of the prompt.",
        answer(paid=lambda p, f, w, h, m, o: f * h + p * m + w * o),
    ),
    Misconception(
        "hits_for_free",
        "Hits are free here. They are cheap, and they have a price.",
        answer(paid=lambda p, f, w, h, m, o: (p - f) * m + w * o),
    ),
    Misconception(
        "all_at_the_hit_price",
        "The whole prompt is charged as found.",
        answer(paid=lambda p, f, w, h, m, o: p * h + w * o),
    ),
    Misconception(
        "prices_exchanged",
        "The prices of hit and miss are exchanged.",
        answer(paid=lambda p, f, w, h, m, o: f * m + (p - f) * h + w * o),
    ),
    Misconception(
        "answers_forgotten",
        "The answers are not charged.",
        answer(
            paid=lambda p, f, w, h, m, o: f * h + (p - f) * m,
            without=lambda p, w, m, o: p * m,
        ),
    ),
    Misconception(
        "answers_forgotten_without",
        "Without the prefix cache the answers cost as much as with it; they are missing there.",
        answer(without=lambda p, w, m, o: p * m),
    ),
    Misconception(
        "last_turn",
        "This is the last turn alone. All turns are paid.",
        answer(turns_of=lambda turns: turns[-1:]),
    ),
    Misconception(
        "first_turn",
        "This is the first turn alone. All turns are paid.",
        answer(turns_of=lambda turns: turns[:1]),
    ),
    Misconception(
        "exchanged",
        "The pair is turned around: first with the prefix cache, then without.",
        exchanged,
    ),
    Misconception(
        "only_with",
        "One number came back, the bill with the prefix cache. Two are asked for, as a pair: that "
        "one, and what the same turns would cost if nothing were ever found.",
        lambda *given: answer()(*given)[0],
    ),
    Misconception(
        "only_without",
        "One number came back, the bill without any hit. Two are asked for, as a pair: first the "
        "bill with the prefix cache, then this one.",
        lambda *given: answer()(*given)[1],
    ),
)


def disk(
    ratio: Callable = lambda far, win, other, p: (far + win / p) / other,
    interval: Callable = lambda far, win, other, r: win / (r * other - far),
) -> Callable:
    def disk_ratio(far, window, other, p, wanted):
        return ratio(far, window, other, p), interval(far, window, other, wanted)

    return disk_ratio


DISK = (
    Misconception(
        "no_windows",
        "The ratio leaves the windows out: that is memory, not the disk.",
        disk(ratio=lambda far, win, other, p: far / other),
    ),
    Misconception(
        "window_for_every_token",
        "The ratio has a whole set of windows for every token. There is one for each interval.",
        disk(ratio=lambda far, win, other, p: (far + win) / other),
    ),
    Misconception(
        "far_divided_too",
        "The ratio divides the far rows by the interval as well. Every token has those.",
        disk(ratio=lambda far, win, other, p: (far + win) / p / other),
    ),
    Misconception(
        "windows_multiplied",
        "The ratio multiplies windows and interval. The longer the interval, the fewer windows.",
        disk(ratio=lambda far, win, other, p: (far + win * p) / other),
    ),
    Misconception(
        "only_windows",
        "The ratio counts the windows alone; the far rows are missing.",
        disk(ratio=lambda far, win, other, p: win / p / other),
    ),
    Misconception(
        "upside_down",
        "The ratio is upside down: how many times as much does the *first* one keep?",
        disk(ratio=lambda far, win, other, p: other / (far + win / p)),
    ),
    Misconception(
        "far_not_subtracted",
        "The interval forgets that the far rows are kept anyway: subtract them first.",
        disk(interval=lambda far, win, other, r: win / (r * other)),
    ),
    Misconception(
        "other_forgotten",
        "The interval compares `wanted` with bytes. It is `wanted` times what the other model "
        "keeps.",
        disk(interval=lambda far, win, other, r: win / (r - far)),
    ),
    Misconception(
        "signs_exchanged",
        "The interval is below 0: the subtraction stands the wrong way round.",
        disk(interval=lambda far, win, other, r: win / (far - r * other)),
    ),
    Misconception(
        "interval_upside_down",
        "The interval is upside down: that is windows per token, not tokens per window.",
        disk(interval=lambda far, win, other, r: (r * other - far) / win),
    ),
    Misconception(
        "whole_interval",
        "The interval is cut to a whole number. It may have a fraction.",
        disk(interval=lambda far, win, other, r: win // (r * other - far)),
    ),
    Misconception(
        "rounded_interval",
        "The interval is rounded to a whole number. It may have a fraction.",
        disk(interval=lambda far, win, other, r: round(win / (r * other - far))),
    ),
    Misconception(
        "only_the_ratio",
        "One number came back, the ratio. Two are asked for, as a pair: the ratio, and the "
        "interval at which it would be `wanted`.",
        lambda *given: disk()(*given)[0],
    ),
)
