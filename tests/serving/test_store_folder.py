"""Whose folder it is: relative, read-only, somebody else's, closed, forked, or on a plain disk."""

import errno
import gc
import os
import resource
import shutil
import sqlite3
import stat
import tempfile
import warnings
from pathlib import Path

import pytest

from tinymodels.presets import tiny_v1
from tinymodels.serving import store as module
from tinymodels.serving.store import Refused, RowStore

from .test_engine import engine_of, text_of
from .test_store import BIG, bound_by_rights, files, rows, same

pytestmark = pytest.mark.usefixtures("no_waiting")


def filled(folder, *names):
    store = RowStore(folder, "m", BIG)
    for i, name in enumerate(names):
        store.put(name, rows(i))
    return store


def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = filled("cache", "a")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert same(store.get("a"), rows(0)) and store.put("b", rows(1))
    assert files(tmp_path / "cache") == ["a.rows", "b.rows"]


# ------------------------------------------------------------------ closed and forked


def test_a_closed_store_touches_nothing(tmp_path):
    old = RowStore(tmp_path, "m", 1400)  # two entries
    old.put("a", rows(0))
    old.close()
    old.close()
    new = RowStore(tmp_path, "m", BIG)
    new.put("b", rows(1))
    for use in (
        lambda: old.put("b", rows(1)),
        lambda: old.put("c", rows(2, 9)),
        lambda: old.get("a"),
        lambda: old.touch(["a"]),
        lambda: old.drop("a"),
    ):
        with pytest.raises(ValueError, match=f"{tmp_path.name} was closed"):
            use()
    assert files(tmp_path) == ["a.rows", "b.rows"]
    assert same(new.get("a"), rows(0)) and same(new.get("b"), rows(1))


def test_a_store_that_nobody_holds_lets_go_of_its_folder(tmp_path):
    """At once: a notebook's cell that is run again cannot wait for the garbage collector."""
    gc.disable()
    try:
        filled(tmp_path, "a")
        assert list(RowStore(tmp_path, "m", BIG).lru) == ["a"]
    finally:
        gc.enable()


def test_a_closed_engine_says_so(tmp_path):
    engine = engine_of(tiny_v1, tmp_path)
    engine.close()
    for length in (1, 40):
        with pytest.raises(ValueError, match="was closed; make a new one"):
            engine.serve(text_of(length), 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_leaves_the_store_to_its_owner(tmp_path):
    store = filled(tmp_path, "a")
    before = sorted(path.name for path in tmp_path.iterdir())  # the owner's journal, too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        said = ""
        try:
            store.put("b", rows(1))
        except ValueError as why:
            said = str(why)
        store.close()
        os._exit(0 if "by the process that opened it" in said else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert store.put("b", rows(1))


# ------------------------------------------------------------------ rights and kinds of disk


@pytest.mark.skipif(os.name != "posix", reason="rights of a file")
def test_a_database_that_may_not_be_written_is_refused_and_all_is_kept():
    folder = Path(tempfile.mkdtemp())
    try:
        filled(folder, "a").close()
        folder.chmod(0o777)
        (folder / "entries.sqlite").chmod(0o444)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with bound_by_rights(), pytest.raises(ValueError, match="entries.sqlite cannot be written"):
            RowStore(folder, "m", BIG)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    finally:
        shutil.rmtree(folder)


class NoHandles:
    """No more files can be opened."""

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_now = max(map(int, os.listdir("/dev/fd"))) + 5
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now, self.before[1]))
        self.taken = []
        with pytest.raises(OSError, match="Too many"):
            while True:
                self.taken.append(open(os.devnull))

    def __exit__(self, *_):
        for file in self.taken:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, self.before)


def test_a_file_that_cannot_be_opened_for_want_of_handles_is_kept(tmp_path):
    store = filled(tmp_path, "a", "b")
    with NoHandles():
        for _ in range(2):
            with pytest.raises(Refused, match="a.rows cannot be read: .*Too many open files"):
                store.get("a")
    assert same(store.get("a"), rows(0)) and files(tmp_path) == ["a.rows", "b.rows"]


def only_files(code):
    """fsync, where folders cannot be flushed."""

    def fsync(number):
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(code, os.strerror(code))

    return fsync


@pytest.mark.skipif(os.name != "posix", reason="folders are not flushed here")
def test_where_a_folder_cannot_be_flushed_rows_are_stored_all_the_same(tmp_path, monkeypatch):
    store = RowStore(tmp_path, "m", BIG)
    for name, code in (("a", errno.EINVAL), ("b", errno.ENOTSUP)):
        monkeypatch.setattr(module.os, "fsync", only_files(code))
        assert store.put(name, rows(0))
    monkeypatch.setattr(module.os, "fsync", only_files(errno.EIO))  # this is another matter
    with pytest.raises(module.NotStored, match="c.rows"):
        store.put("c", rows(0))
    assert files(tmp_path) == ["a.rows", "b.rows"]


def test_a_folder_that_cannot_be_swept_is_refused_and_free(tmp_path, monkeypatch):
    filled(tmp_path, "a").close()

    def no_right(path):
        raise PermissionError(errno.EACCES, "no right", str(path))

    for where, name in ((module, "_remove"), (Path, "iterdir")):
        (tmp_path / "b.half").touch()
        with monkeypatch.context() as patch, pytest.raises(ValueError, match="no right") as kept:
            patch.setattr(where, name, no_right)
            RowStore(tmp_path, "m", BIG)
        assert tmp_path.name in str(kept.value) and (tmp_path / "a.rows").exists()
    assert same(RowStore(tmp_path, "m", BIG).get("a"), rows(0))


@pytest.mark.parametrize("how", ["drop", "get", "put"])
def test_a_file_that_cannot_be_removed_still_counts_after_a_start(tmp_path, monkeypatch, how):
    """The folder may be locked for a while; nobody must take the entry for gone, or for stored."""
    store = RowStore(tmp_path, "m", 1400)  # two entries
    for i, name in enumerate("ab"):
        store.put(name, rows(i))

    def no_right(*_):
        raise PermissionError(errno.EACCES, "no right")

    with monkeypatch.context() as patch, pytest.raises((OSError, ValueError), match="no right"):
        patch.setattr(module, "_remove", no_right)
        patch.setattr(module, "safe_open", no_right)
        {"drop": store.drop, "get": store.get, "put": lambda _: store.put("c", rows(2))}[how]("a")
    assert store.put("a", rows(0)) and list(store.lru) == ["a", "b"]
    store.close()
    again = RowStore(tmp_path, "m", 1400)
    assert list(again.lru) == ["a", "b"] and same(again.get("a"), rows(0))


# ------------------------------------------------------------------ what is not ours


def test_files_in_a_folder_that_was_never_a_stores_are_left_alone(tmp_path):
    (tmp_path / "data.rows").mkdir()
    (tmp_path / "data.rows" / "thesis.txt").write_text("three years")
    with pytest.raises(ValueError, match="holds data.rows and no entries.sqlite"):
        RowStore(tmp_path, "m", BIG)
    assert [path.name for path in tmp_path.iterdir()] == ["data.rows"]
    assert (tmp_path / "data.rows" / "thesis.txt").read_text() == "three years"


def test_a_name_in_the_database_never_leads_out_of_the_folder(tmp_path):
    store = filled(tmp_path / "s", "a")
    outside = tmp_path / "out.rows"
    outside.write_text("precious")
    for name in ("../out", str(outside)[:-5], "no\0name"):
        store.entries.add(name, 8)
    store.close()
    again = RowStore(tmp_path / "s", "m", BIG)
    assert list(again.lru) == ["a"] and [name for name, _ in again.entries.all()] == ["a"]
    assert outside.read_text() == "precious"


def test_a_link_that_leads_nowhere_is_swept_away(tmp_path):
    filled(tmp_path, "a", "b").close()
    (tmp_path / "a.rows").unlink()
    for name in ("a.rows", "c.rows", "d.half"):
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
    assert list(RowStore(tmp_path, "m", BIG).lru) == ["b"]
    assert files(tmp_path) == ["b.rows"]


@pytest.mark.parametrize(
    "rows_of_it",
    [
        "('a', 5, 1), ('a', 5, 2)",  # twice the same
        f"('a', 5, {2**63 - 1})",  # no next one
        "('a', 5, -1)",
        "(CAST(x'ff61' AS TEXT), 5, 1)",  # no letters
    ],
)
def test_a_database_that_no_store_wrote_is_begun_anew(tmp_path, rows_of_it):
    base = sqlite3.connect(tmp_path / "entries.sqlite")
    base.execute("CREATE TABLE entries (name TEXT, bytes INT, used INT)")
    base.execute(f"INSERT INTO entries VALUES {rows_of_it}")
    base.commit()
    base.close()
    store = RowStore(tmp_path, "m", BIG)
    assert "begins empty" in store.refused
    assert store.put("b", rows(1)) and same(store.get("b"), rows(1))
