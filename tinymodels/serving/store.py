"""Far rows on a disk: one file a piece, in a folder with a small database beside them.

A write that is cut off must cost nothing that was there, and must never be read as if it were
whole. Hence the order:

    1. make room: forget older entries in the database, then delete their files
    2. write the new file under another name, and wait until it lies on the disk
    3. rename it into place: a rename happens at once or not at all
    4. enter it in the database; from here on it counts

What a crash leaves behind (a half file, a file that is not entered) is swept away at the next
start. Whatever is read is checked first: format, model, name, checksum.
"""

import hashlib
import os
import sqlite3
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .lru import Lru

FORMAT = "kv-rows-1"
PIECE = 4096  # bytes a write; small, so that a crash has places to fall between


class Refused(ValueError):
    """A file that is not what it should be; the message names it and says why."""


class RowStore:
    """Entries `name -> {field: bytes}` within a budget, in `folder`.

    root: what the rows belong to (see `chain.names`); entries of another one are refused.
    budget: of all rows' files together, their headers counted. refused: why the database of an
    earlier run could not be used, if there was one.
    """

    def __init__(self, folder: str | Path, root: str, budget: int):
        self.folder, self.root = Path(folder), root
        self.lru = Lru(budget)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.refused: str | None = None
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._base.close()
            base = self.folder / "entries.sqlite"
            self.refused = f"{base.name} cannot be read: {error}; the store begins empty"
            for path in self.folder.glob("entries.sqlite*"):
                path.unlink()
            self._open()
        self._sweep()

    def _open(self) -> None:
        self._base = sqlite3.connect(self.folder / "entries.sqlite", isolation_level=None)
        self._base.execute("PRAGMA synchronous=FULL")
        self._base.execute(
            "CREATE TABLE IF NOT EXISTS entries (name TEXT PRIMARY KEY, bytes INT, used INT)"
        )
        self._base.execute("SELECT name, bytes, used FROM entries").fetchall()

    def _sweep(self) -> None:
        """After a start: what is entered and there counts; all else is removed."""
        entered = self._base.execute("SELECT name, bytes FROM entries ORDER BY used").fetchall()
        there = {path.stem: path.stat().st_size for path in self.folder.glob("*.rows")}
        for name, size in entered:
            if there.get(name) != size:
                self.drop(name)
                continue
            for old in self.lru.room(size) or ():
                self.drop(old)
            if self.lru.room(size) is None:
                self.drop(name)
            else:
                self.lru.add(name, size)
        for path in [*self.folder.glob("*.rows"), *self.folder.glob("*.half")]:
            if path.suffix == ".half" or path.stem not in self.lru:
                path.unlink()
        self._clock = self._newest()

    def _newest(self) -> int:
        return self._base.execute("SELECT COALESCE(MAX(used), 0) FROM entries").fetchone()[0]

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.rows"

    def put(self, name: str, rows: dict[str, np.ndarray], after: tuple[str, ...] = ()) -> bool:
        """Store an entry; False if the budget has no room for it. After True it survives a crash.

        after: the pieces before it, which must not go to make room.
        """
        if name in self.lru:
            return True
        data = save(rows, metadata=self._label(name, rows))
        leaving = self.lru.room(len(data), keep=after)
        if leaving is None:
            return False
        for old in leaving:
            self.drop(old)
        half = self.folder / f"{name}.half"
        with open(half, "wb", buffering=0) as file:
            for at in range(0, len(data), PIECE):
                file.write(data[at : at + PIECE])
            os.fsync(file.fileno())
        os.replace(half, self.path(name))
        self._flush_folder()
        self._clock += 1
        self._base.execute("INSERT INTO entries VALUES (?, ?, ?)", (name, len(data), self._clock))
        self.lru.add(name, len(data))
        return True

    def get(self, name: str) -> dict[str, np.ndarray] | None:
        """An entry bit for bit as it was put; None if there is none.

        Errors: Refused, naming the file, if it is cut, changed, of another model or an older
        format. The entry is gone then, so that it can be made again.
        """
        if name not in self.lru:
            return None
        try:
            return self._read(name)
        except Refused:
            self.drop(name)
            raise

    def _read(self, name: str) -> dict[str, np.ndarray]:
        path = self.path(name)
        try:
            with safe_open(path, "numpy") as file:
                label = file.metadata() or {}
                # Copies: whatever happens to the file later, these stay.
                rows = {key: np.array(file.get_tensor(key)) for key in file.keys()}
        except (SafetensorError, OSError, ValueError) as error:
            raise Refused(f"{path.name} cannot be read: {error}") from None
        for what, said, want in (
            ("format", label.get("format"), FORMAT),
            ("model", label.get("root"), self.root),
            ("text", label.get("name"), name),
        ):
            if said != want:
                raise Refused(f"{path.name} is of another {what}: {said}, not {want}")
        if label.get("sha256") != checksum(rows):
            raise Refused(f"{path.name} does not fit its checksum: its bytes were changed")
        return rows

    def _label(self, name: str, rows: dict[str, np.ndarray]) -> dict[str, str]:
        return {"format": FORMAT, "root": self.root, "name": name, "sha256": checksum(rows)}

    def touch(self, chain: list[str]) -> None:
        """A chain was used (see `lru.py`)."""
        self.lru.touch(chain)
        count = len(chain)
        new = [(self._clock + count - i, name) for i, name in enumerate(chain)]
        self._clock += count
        self._base.execute("BEGIN")
        self._base.executemany("UPDATE entries SET used = ? WHERE name = ?", new)
        self._base.execute("COMMIT")

    def drop(self, name: str) -> None:
        """Forget an entry: first in the database, then the file."""
        self._base.execute("DELETE FROM entries WHERE name = ?", (name,))
        self.path(name).unlink(missing_ok=True)
        self.lru.drop(name)

    def _flush_folder(self) -> None:
        """Make a rename last through a power cut (where the system can flush a folder)."""
        if os.name == "posix":
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def close(self) -> None:
        self._base.close()


def checksum(rows: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes and bytes."""
    digest = hashlib.sha256()
    for key in sorted(rows):
        digest.update(f"{key}{rows[key].shape}".encode())
        digest.update(rows[key].tobytes())
    return digest.hexdigest()
