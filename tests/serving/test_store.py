"""Rows on a disk: bit for bit, within the budget, refused by name, and whole after any crash."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from tinymodels.serving import store as module
from tinymodels.serving.store import Refused, RowStore

BIG = 10**9


def rows(seed, count=7):
    draw = np.random.default_rng(seed)
    return {
        "layer0.main.row": draw.integers(0, 256, (count, 33), dtype=np.uint8),
        "layer1.index.row": draw.integers(0, 256, (count, 5), dtype=np.uint8),
    }


def same(a, b):
    return set(a) == set(b) and all(np.array_equal(a[k], b[k]) for k in a)


@contextmanager
def bound_by_rights():
    """As a user whom a file's rights stop: root is somebody else meanwhile."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix in (".rows", ".half"))


def test_what_is_put_comes_back_also_after_a_restart(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    assert store.get("a") is None
    for i in range(5):
        assert store.put(f"n{i}", rows(i))
    store.close()
    again = RowStore(tmp_path, "m", BIG)
    assert all(same(again.get(f"n{i}"), rows(i)) for i in range(5))
    assert again.lru.used == sum(path.stat().st_size for path in tmp_path.glob("*.rows"))


def test_a_write_waits_for_the_disk_before_it_counts(tmp_path, monkeypatch):
    store, done = RowStore(tmp_path, "m", BIG), []

    def noted(where, name):
        right = getattr(where, name)

        def call(*args):
            done.append((name, store.path("a").exists()))
            return right(*args)

        monkeypatch.setattr(where, name, call)

    noted(module.os, "fsync")
    noted(module.os, "replace")
    noted(store.entries, "add")
    store.put("a", rows(0))
    folder = [("fsync", True)] * (module.os.name == "posix")
    assert done == [("fsync", False), ("replace", False), *folder, ("add", True)]
    assert store.entries._run("PRAGMA synchronous") == [(2,)]  # full


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40)), max_size=25), st.integers(0, 6000)
)
def test_files_never_exceed_the_budget(tmp_path_factory, puts, budget):
    folder = tmp_path_factory.mktemp("budget")
    store, right, most = RowStore(folder, "m", budget), module.os.replace, [0]

    def replace(*args):
        most[0] = max(most[0], sum(p.stat().st_size for p in folder.glob("*.[rh]*")))
        right(*args)

    module.os.replace = replace  # the moment at which most lies on the disk
    try:
        for number, count in puts:
            stored = store.put(f"n{number}", rows(number, count))
            assert stored == (f"n{number}" in store.lru)
    finally:
        module.os.replace = right
    assert most[0] <= budget
    assert sum(p.stat().st_size for p in folder.glob("*.rows")) == store.lru.used <= budget
    order = list(store.lru)
    store.close()
    again = RowStore(folder, "m", budget)
    assert list(again.lru) == order
    again.close()


def test_a_smaller_budget_after_a_restart_lets_the_oldest_go(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    for i in range(4):
        store.put(f"n{i}", rows(i))
    store.touch(["n0"])
    size = store.lru.used // 4
    store.close()
    again = RowStore(tmp_path, "m", 2 * size)
    assert list(again.lru) == ["n3", "n0"]
    assert files(tmp_path) == ["n0.rows", "n3.rows"]


# ------------------------------------------------------------------ refused by name


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def one_bit(path):
    data = bytearray(path.read_bytes())
    data[-20] ^= 4
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def gone(path):
    path.unlink()


def labelled(**changes):
    def write(path):
        r = rows(0)
        label = {"format": module.FORMAT, "root": "m", "name": path.stem}
        label |= {"sha256": module.checksum(r)} | changes
        path.write_bytes(save(r, metadata=label))

    return write


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut, "cannot be read"),
        (empty, "cannot be read"),
        (gone, "cannot be read"),
        (one_bit, "does not fit its checksum"),
        (labelled(root="other"), "of another model"),
        (labelled(format="kv-rows-0"), "of another format: kv-rows-0"),
        (labelled(name="b"), "of another text"),
        (labelled(sha256="0"), "does not fit its checksum"),
        (lambda path: path.write_bytes(save(rows(0))), "of another format: None"),
    ],
)
def test_a_file_that_is_not_right_is_refused_by_name(tmp_path, damage, why):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    damage(store.path("a"))
    with pytest.raises(Refused, match=f"a.rows.*{why}"):
        store.get("a")
    assert store.get("a") is None and files(tmp_path) == []
    assert store.put("a", rows(0)) and same(store.get("a"), rows(0))


def test_a_broken_database_starts_over_and_says_so(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    store.close()
    (tmp_path / "entries.sqlite").write_bytes(b"no database, " * 500)
    again = RowStore(tmp_path, "m", BIG)
    assert "entries.sqlite cannot be read" in again.refused
    assert again.get("a") is None and files(tmp_path) == []
    assert again.put("a", rows(0)) and same(again.get("a"), rows(0))


# ------------------------------------------------------------------ killed anywhere

CHILD = """
import os, signal, sys
sys.path.insert(0, {here!r})
from tests.serving.test_store import rows
from tinymodels.serving import entries, store as module
left = int(sys.argv[2])

def count(frame, event, arg):
    global left
    if frame.f_code.co_filename not in (module.__file__, entries.__file__):
        return None
    if event == "line":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return count

module.PIECE = 100
store = module.RowStore(sys.argv[1], "m", {budget})
sys.settrace(count)
for i in range(100):
    if store.put(f"n{{i}}", rows(i)):
        print(i, flush=True)
    if i % 3 == 2:
        store.touch([f"n{{i}}", f"n{{i - 2}}"])
sys.settrace(None)
print("end", left, flush=True)
"""


def killed(folder, after, budget):
    """Run a writer that is killed at its n-th line: the numbers whose put() had returned."""
    here = str(module.Path(__file__).parents[2])
    code = CHILD.format(here=here, budget=budget)
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(after)], capture_output=True, text=True
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    return [int(line) for line in run.stdout.split()]


def may_be_held(done, budget):
    """Every list of names, the next to go first, that the writer may leave after these puts."""

    def size(i):
        label = {"format": module.FORMAT, "root": "m", "name": f"n{i}"}
        return len(save(rows(i), metadata=label | {"sha256": module.checksum(rows(i))}))

    def put(i):
        while held and sum(map(size, held)) + size(i) > budget:
            held.pop(0)
            yield list(held)
        held.append(i)
        yield list(held)

    held = []
    states = [[]]
    for i in done:
        *_, now = put(i)
        states = [now]
        if i % 3 == 2:
            for used in (i - 2, i):
                held.append(held.pop(held.index(used)))
            states.append(list(held))
    states += put(len(done))
    return [[f"n{i}" for i in state] for state in states]


def check_after_a_kill(folder, after, budget):
    done = killed(folder, after, budget)
    assert done == list(range(len(done)))
    store = RowStore(folder, "m", budget)
    held = list(store.lru)
    for name in held:
        assert same(store.get(name), rows(int(name[1:]))), (after, name)
    assert held in may_be_held(done, budget), (after, held)
    assert store.lru.used == sum(p.stat().st_size for p in folder.glob("*.rows")) <= budget
    assert files(folder) == sorted(f"{name}.rows" for name in held)
    assert store.put("next", rows(999)) and same(store.get("next"), rows(999))
    store.close()
    return len(done)


@pytest.mark.parametrize("budget", [BIG, 3000])
def test_killed_at_a_few_points(tmp_path, budget):
    counts = [
        check_after_a_kill(tmp_path / str(after), after, budget) for after in (9, 33, 151, 407)
    ]
    assert counts[0] == 0 and counts[-1] > 3


@pytest.mark.slow
def test_killed_at_a_hundred_points(tmp_path):
    draw = random.Random(0)
    for at in range(100):
        budget = (BIG, 3000)[at % 2]
        check_after_a_kill(tmp_path / str(at), draw.randint(1, 2500), budget)


def test_the_kill_test_sees_a_store_that_writes_in_place(tmp_path):
    """Entered first and written without a rename: a torn file would count. It is refused."""
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    whole = store.path("a").read_bytes()
    store.close()
    base = sqlite3.connect(tmp_path / "entries.sqlite")
    base.execute("INSERT INTO entries VALUES ('b', ?, 9)", (len(whole),))
    base.commit()
    base.close()
    (tmp_path / "b.rows").write_bytes(whole[:100] + bytes(len(whole) - 100))
    again = RowStore(tmp_path, "m", BIG)
    with pytest.raises(Refused, match="b.rows"):
        again.get("b")
    assert same(again.get("a"), rows(0))
