"""A store whose folder is full, shared, locked, damaged byte by byte, or not to be written."""

import os
import resource
import shutil
import signal
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tinymodels.serving import entries
from tinymodels.serving import store as module
from tinymodels.serving.store import NotStored, Refused, RowStore

from .test_store import BIG, bound_by_rights, files, rows, same


def labelled(values):
    label = {"format": module.FORMAT, "root": "m", "name": "a", "sha256": module.checksum(values)}
    return module.save(values, metadata=label)


# ------------------------------------------------------------------ every byte of a file


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_byte_of_a_file_is_watched(tmp_path, stride):
    store, right = RowStore(tmp_path, "m", BIG), rows(0, 3)
    store.put("a", right)
    path, whole = store.path("a"), store.path("a").read_bytes()
    taken = 0
    kinds = [at + 1 for at in range(len(whole)) if whole[at : at + 4] == b'"U8"']
    for at in [*kinds, *range(stride // 2, len(whole), stride)]:
        for byte in {whole[at] ^ 1, whole[at] ^ 128, ord("I"), 0} - {whole[at]}:
            path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            try:
                got = store._read("a")
            except Refused as why:
                assert "a.rows" in str(why)
            else:  # white space after the header may be of another kind
                assert same(got, right) and all(v.dtype == np.uint8 for v in got.values())
                taken += 1
    assert taken <= 1
    for wrong in (
        *(whole[:n] for n in range(0, len(whole), 9 * stride)),
        whole + b"\0",
        b"\0" + whole,
    ):
        path.write_bytes(wrong)
        with pytest.raises(Refused, match="a.rows"):
            store._read("a")


@pytest.mark.parametrize("kind", ["I8", "BOOL", "F8_E4M3"])
def test_bytes_that_pass_for_another_kind_of_number_are_refused(tmp_path, kind):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    whole = store.path("a").read_bytes()
    head = int.from_bytes(whole[:8], "little")
    text = whole[8 : 8 + head].replace(b'"U8"', f'"{kind}"'.encode())
    store.path("a").write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + head :])
    with pytest.raises(Refused, match=f"a.rows.*numbers: {kind}, not U8"):
        store.get("a")


def test_a_folder_in_the_place_of_a_file_is_refused_and_goes(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    store.path("a").unlink()
    store.path("a").mkdir()
    with pytest.raises(Refused, match="a.rows cannot be read"):
        store.get("a")
    assert store.put("a", rows(0)) and same(store.get("a"), rows(0))
    store.path("a").unlink()
    store.path("a").mkdir()
    store.close()
    again = RowStore(tmp_path, "m", BIG)
    assert list(again.lru) == [] == files(tmp_path)


# ------------------------------------------------------------------ the database


def test_a_database_that_is_damaged_anywhere_is_used_or_begun_anew(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    store.close()
    base = (tmp_path / "entries.sqlite").read_bytes()
    row = (tmp_path / "a.rows").read_bytes()
    used = [at for at in range(len(base)) if base[at]]
    counts = {"used": 0, "anew": 0}
    for at in [18, 20, 4104, *used[::25]]:
        folder = tmp_path / "damaged"
        folder.mkdir()
        (folder / "a.rows").write_bytes(row)
        (folder / "entries.sqlite").write_bytes(base[:at] + b"\xff" + base[at + 1 :])
        again = RowStore(folder, "m", BIG)
        counts["anew" if again.refused else "used"] += 1
        got = again.get("a")
        assert got is None or same(got, rows(0))
        assert again.put("b", rows(1)) and same(again.get("b"), rows(1))
        again.touch(["b"])
        again.close()
        shutil.rmtree(folder)
    assert min(counts.values()) > 0


def test_a_database_of_another_version_is_begun_anew(tmp_path):
    base = sqlite3.connect(tmp_path / "entries.sqlite")
    base.execute("CREATE TABLE entries (name TEXT, size INT)")
    base.commit()
    base.close()
    store = RowStore(tmp_path, "m", BIG)
    assert "no such column" in store.refused
    assert store.put("a", rows(0))


def test_an_entry_with_senseless_numbers_is_not_believed(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    store.close()
    base = sqlite3.connect(tmp_path / "entries.sqlite")
    base.execute("INSERT INTO entries VALUES ('b', 'many', 'long ago')")
    base.commit()
    base.close()
    again = RowStore(tmp_path, "m", BIG)
    assert "begins empty" in again.refused and again.put("c", rows(1))


# ------------------------------------------------------------------ one folder, two stores


def test_a_folder_belongs_to_one_store_at_a_time(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    with pytest.raises(ValueError, match="is used by another"):
        RowStore(tmp_path, "m", BIG)
    assert same(store.get("a"), rows(0)) and store.put("b", rows(1))
    store.close()
    assert set(RowStore(tmp_path, "m", BIG).lru) == {"a", "b"}


def test_a_locked_database_is_not_thrown_away(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    store.close()
    other = sqlite3.connect(tmp_path / "entries.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ValueError, match="is used by another"):
        RowStore(tmp_path, "m", BIG)
    other.close()
    assert same(RowStore(tmp_path, "m", BIG).get("a"), rows(0))


# ------------------------------------------------------------------ no room, no right


class FullDisk:
    """No file may grow beyond `limit` bytes, as on a disk with no more room."""

    def __init__(self, limit):
        self.limit = limit

    def __enter__(self):
        self.handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
        signal.signal(signal.SIGXFSZ, self.handler)


@pytest.mark.parametrize("limit", [0, 200, 600])
def test_a_full_disk_tears_nothing(tmp_path, limit):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    with FullDisk(limit), pytest.raises(NotStored, match="b.rows"):
        store.put("b", rows(1))
    assert files(tmp_path) == ["a.rows"] and list(store.lru) == ["a"]
    assert store.lru.used == store.path("a").stat().st_size
    assert same(store.get("a"), rows(0))
    assert store.put("b", rows(1)) and same(store.get("b"), rows(1))
    store.close()
    again = RowStore(tmp_path, "m", BIG)
    assert set(again.lru) == {"a", "b"} and again.refused is None


def test_the_last_bytes_of_a_file_may_be_those_that_do_not_fit(tmp_path):
    """A write may then take less than it is given, and raise nothing."""
    RowStore(tmp_path / "probe", "m", BIG).put("a", rows(0, 2000))
    size = (tmp_path / "probe" / "a.rows").stat().st_size
    store = RowStore(tmp_path / "e", "m", BIG)
    with FullDisk(size - 9), pytest.raises(NotStored, match="a.rows"):
        store.put("a", rows(0, 2000))
    assert files(tmp_path / "e") == [] == list(store.lru)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, 14, 3])
def test_a_fault_of_the_disk_is_no_fault_of_the_file(tmp_path, monkeypatch, code):
    store = RowStore(tmp_path, "m", BIG)
    store.put("a", rows(0))
    store.close()
    with FullDisk(0):  # nothing is written at a start that sweeps nothing
        again = RowStore(tmp_path, "m", BIG)
        assert same(again.get("a"), rows(0))
        again.close()
    error = sqlite3.OperationalError("the disk does not answer")
    error.sqlite_errorcode = code
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="cannot be written: the"):
        patch.setattr(entries.Entries, "_open", lambda self: (_ for _ in ()).throw(error))
        RowStore(tmp_path, "m", BIG)
    assert same(RowStore(tmp_path, "m", BIG).get("a"), rows(0))


def test_on_a_full_disk_uses_are_not_noted_and_nothing_else_happens(tmp_path):
    store = RowStore(tmp_path, "m", BIG)
    for name in "abc":
        store.put(name, rows(0))
    with FullDisk(0):
        with pytest.raises(NotStored, match="entries.sqlite"):
            store.touch(["a"])
        store.drop("b")
    store.touch(["a"])
    assert list(store.lru) == ["c", "a"]
    store.close()
    assert list(RowStore(tmp_path, "m", BIG).lru) == ["c", "a"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "f").write_text("x")
    for path in (tmp_path / "f", tmp_path / "f" / "g"):
        with pytest.raises(ValueError, match="f.* cannot be used as a folder"):
            RowStore(path, "m", BIG)


@pytest.mark.skipif(os.name != "posix", reason="rights of a folder")
@pytest.mark.parametrize("entered", [False, True])
def test_a_folder_that_may_not_be_written_is_refused_and_kept(entered):
    folder = Path(tempfile.mkdtemp())
    try:
        if entered:
            store = RowStore(folder, "m", BIG)
            store.put("a", rows(0))
            store.close()
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        folder.chmod(0o555)
        with bound_by_rights(), pytest.raises(ValueError, match="cannot be written"):
            RowStore(folder, "m", BIG)
        folder.chmod(0o755)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    finally:
        shutil.rmtree(folder)
