"""Named mistakes in exercise 12.3: LRU with a TTL."""

from __future__ import annotations

from grading.exercise import Misconception


class Memory:
    """Every choice is a method or a flag of its own; as it stands, it is right."""

    renew_order = renew_time = put_order = put_time = True
    expire_in_get = expire_in_put = counts = True
    refuse_first = True
    newest_goes = largest_goes = drop_all = False

    def __init__(self, budget, ttl):
        self.budget, self.ttl, self.used, self.held = budget, ttl, 0, {}

    def late(self, since, now):
        return now - since >= self.ttl

    def full(self, size):
        return self.used + size > self.budget

    def expire(self, now):
        for name in [n for n, (_, since) in self.held.items() if self.late(since, now)]:
            size, _ = self.held.pop(name)
            self.used -= size if self.counts else 0

    def get(self, name, now):
        if self.expire_in_get:
            self.expire(now)
        if name not in self.held:
            return False
        size, since = self.held[name]
        if self.renew_order:
            del self.held[name]
        self.held[name] = (size, now if self.renew_time else since)
        return True

    def put(self, name, size, now):
        if self.expire_in_put:
            self.expire(now)
        if self.refuse_first and size > self.budget:
            return False
        if name in self.held:
            self.replace(name, now)
        while self.held and self.full(size):
            self.used -= self.held.pop(self.victim())[0]
            if self.drop_all:
                self.held.clear()
                self.used = 0
        if size > self.budget:
            return False
        self.held[name] = (size, now)
        self.used += size
        return True

    def replace(self, name, now):
        self.used -= self.held.pop(name)[0]

    def victim(self):
        if self.newest_goes:
            return list(self.held)[-1]
        if self.largest_goes:
            return max(self.held, key=lambda name: self.held[name][0])
        return next(iter(self.held))


def changed(**flags):
    return type("Memory", (Memory,), flags)


def replaced_twice(self, name, now):
    self.held.pop(name)


def never_full(self, size):
    return False


def strict_late(self, since, now):
    return now - since > self.ttl


def never_late(self, since, now):
    return False


def full_when_equal(self, size):
    return self.used + size >= self.budget


class KeepsOld(Memory):
    def put(self, name, size, now):
        return True if self.get(name, now) else super().put(name, size, now)


class AnswersNothing(Memory):
    def put(self, name, size, now):
        super().put(name, size, now)
        return True


MEMORY = (
    Misconception(
        "first_in_first_out",
        "Who came first goes first here, even if it was used a moment ago. A get makes an entry "
        "the most recent.",
        changed(renew_order=False),
    ),
    Misconception(
        "get_does_not_renew",
        "A get does not renew the time of an entry here, so it expires though it is in use.",
        changed(renew_time=False),
    ),
    Misconception(
        "never_expires",
        "Nothing ever expires here.",
        changed(late=never_late),
    ),
    Misconception(
        "expires_too_late",
        "An entry lives one moment too long: after exactly ttl seconds it is gone.",
        changed(late=strict_late),
    ),
    Misconception(
        "put_does_not_expire",
        "A put counts entries that have expired, and may drop living ones in their place.",
        changed(expire_in_put=False),
    ),
    Misconception(
        "get_does_not_expire",
        "A get finds entries that have expired.",
        changed(expire_in_get=False),
    ),
    Misconception(
        "expired_bytes_counted",
        "Entries that expire leave, and their bytes stay in `used`.",
        changed(counts=False),
    ),
    Misconception(
        "replaced_bytes_counted",
        "Where a name is put again, the bytes of the old entry stay in `used`.",
        changed(replace=replaced_twice),
    ),
    Misconception(
        "old_entry_kept",
        "Where a name is put again, the old entry and its size stay. The new one replaces it.",
        KeepsOld,
    ),
    Misconception(
        "newest_goes",
        "The entry that was used last goes first. It should be the one not used for the longest.",
        changed(newest_goes=True),
    ),
    Misconception(
        "largest_goes",
        "The largest entry goes first. It should be the one not used for the longest.",
        changed(largest_goes=True),
    ),
    Misconception(
        "no_budget",
        "The budget is exceeded: nobody goes when the memory is full.",
        changed(full=never_full),
    ),
    Misconception(
        "not_filled",
        "An entry that fits exactly makes somebody go. The budget may be used to its last byte.",
        changed(full=full_when_equal),
    ),
    Misconception(
        "too_large_empties",
        "What is larger than the budget drives others out and is then refused. Nobody should go.",
        changed(refuse_first=False),
    ),
    Misconception(
        "all_go",
        "Everything goes when something does not fit. Only as many as needed should.",
        changed(drop_all=True),
    ),
    Misconception(
        "always_true",
        "put says True even where it keeps nothing.",
        AnswersNothing,
    ),
)
