"""A request that is interrupted (Ctrl-C, a notebook's stop button), anywhere: all stays sound."""

import sys

import pytest

from tinymodels.presets import tiny_v1
from tinymodels.serving import entries, windows
from tinymodels.serving import store as module
from tinymodels.serving.store import RowStore
from tinymodels.serving.windows import Near, Windows

from .test_engine import engine_of, text_of
from .test_store import files, rows, same
from .test_store_faults import FullDisk

pytestmark = pytest.mark.usefixtures("no_waiting")
BUDGET = 3000  # four entries


class Interrupt:
    """Interrupts at the n-th line that is run in one of `modules`."""

    def __init__(self, number, *modules):
        self.left, self.files = number, {m.__file__ for m in modules}

    def __enter__(self):
        sys.settrace(self)

    def __exit__(self, kind, *_):
        sys.settrace(None)
        return kind is KeyboardInterrupt

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename not in self.files:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def on_disk(folder):
    return sum(path.stat().st_size for path in folder.glob("*.[rh]*"))


def put_and_touch(store, numbers):
    for i in numbers:
        store.put(f"n{i}", rows(i))
        store.touch([name for name in (f"n{i - 1}", f"n{i}") if name in store.lru])


def every_line(of, *modules, stride=1):
    """How many lines `of()` runs, and the numbers of those to interrupt at."""
    counted = Interrupt(10**9, *modules)
    with counted:
        of()
    return range(1, 10**9 - counted.left + 1, stride)


@pytest.mark.parametrize("stride", [19, pytest.param(1, marks=pytest.mark.slow)])
def test_after_an_interrupt_the_store_keeps_to_its_budget_and_its_word(
    tmp_path, monkeypatch, stride
):
    monkeypatch.setattr(module, "PIECE", 300)
    probe = RowStore(tmp_path / "probe", "m", BUDGET)
    put_and_touch(probe, range(3))
    lines = every_line(lambda: put_and_touch(probe, range(3, 6)), module, entries, stride=stride)
    right, most = module.os.replace, [0]
    for at in lines:
        folder = tmp_path / str(at)
        store = RowStore(folder, "m", BUDGET)
        put_and_touch(store, range(3))
        with Interrupt(at, module, entries):
            put_and_touch(store, range(3, 6))
        assert on_disk(folder) <= BUDGET, at

        def replace(*names, folder=folder):
            most[0] = max(most[0], on_disk(folder))
            right(*names)

        monkeypatch.setattr(module.os, "replace", replace)
        put_and_touch(store, range(20, 25))  # raises nothing
        monkeypatch.setattr(module.os, "replace", right)
        assert most[0] <= BUDGET and on_disk(folder) == store.lru.used, at
        held = list(store.lru)
        assert files(folder) == sorted(f"{name}.rows" for name in held), at
        store.close()
        again = RowStore(folder, "m", BUDGET)
        assert list(again.lru) == held, at
        assert all(same(again.get(name), rows(int(name[1:]))) for name in held)
        again.close()


def test_an_interrupted_start_leaves_the_folder_to_the_next(tmp_path):
    store = RowStore(tmp_path, "m", BUDGET)
    put_and_touch(store, range(3))
    store.close()
    (tmp_path / "n9.half").touch()
    opened, kept = [], []  # a notebook keeps the last traceback, and all that hangs on it
    lines = every_line(lambda: opened.append(RowStore(tmp_path, "m", BUDGET)), entries)
    opened.pop().close()
    for at in lines:
        (tmp_path / "n9.half").touch()
        try:
            sys.settrace(Interrupt(at, entries))
            opened.append(RowStore(tmp_path, "m", BUDGET))
        except KeyboardInterrupt as stop:
            kept.append(stop)
        finally:
            sys.settrace(None)
    assert len(kept) == len(lines) and not opened
    assert len(RowStore(tmp_path, "m", BUDGET).lru) == 3


def test_after_an_interrupt_windows_can_be_asked_for_and_keep_to_their_budget():
    def use(held, first):
        for i in range(first, first + 4):
            held.put(f"n{i}", Near(i, (), (), None, 10 + i))
            held.get(f"n{i - 1}")
            held.get("nobody")

    now = [0.0]

    def four():
        held = Windows(60, 8, lambda: now[0])
        use(held, 0)
        now[0] += 5
        use(held, 3)
        now[0] += 5
        return held

    probe = four()
    for at in every_line(lambda: use(probe, 5), windows):
        held = four()
        with Interrupt(at, windows):
            use(held, 5)
        for _ in range(2):
            alive = sum(near.nbytes for near, _ in held._held.values())
            assert alive <= held.lru.used <= 60, at
            for i in range(9):
                near = held.get(f"n{i}")  # raises nothing
                assert near is None or near.length == i
            use(held, 2)
        assert set(held._held) <= set(held.lru), at


def test_what_a_full_disk_cut_short_still_counts_as_used(tmp_path):
    """Else the pieces that all requests share would be the next to go."""
    engine = engine_of(tiny_v1, tmp_path, storage="packed")
    shared = text_of(18)
    engine.serve(shared, 1)
    engine.serve(text_of(18, 1), 1)
    with FullDisk(300):
        assert engine.serve(shared + text_of(9, 2), 1).hit == 18
    assert list(engine.store.lru)[3:] == engine.names(shared)[::-1]
