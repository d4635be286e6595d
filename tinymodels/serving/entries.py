"""Which entries count, their sizes, and the order in which they were used: a small database.

One process at a time: two would each keep to the budget, and together exceed it. The database
holds the lock, and the system lets go of it when the process ends, however it ends.
"""

import os
import sqlite3
from pathlib import Path

# What SQLite says of a disk, not of the bytes in the file (https://sqlite.org/rescode.html).
BUSY, LOCKED, NO_RIGHT, READ_ONLY, IO_ERROR, FULL, CANNOT_OPEN = 5, 6, 3, 8, 10, 13, 14
DATABASE = "entries.sqlite"
SYNCHRONOUS = "FULL"  # a commit waits until it lies on the disk
UNSOUND = (  # how many entries are no entries, or there twice
    "SELECT COUNT(*) - COUNT(DISTINCT CASE WHEN typeof(name) = 'text' "
    "AND typeof(bytes) = 'integer' AND typeof(used) = 'integer' "
    "AND used BETWEEN 0 AND 1 << 62 THEN name END) FROM entries"
)


class Entries:
    """`entries.sqlite` in a folder. refused: why an earlier one could not be used, if so.

    Any thread may use it, one at a time. Errors: ValueError if another process (or this one) has
    it open, or it cannot be written.
    """

    _base: sqlite3.Connection | None = None

    def __init__(self, folder: Path):
        self.path = folder / DATABASE
        self.refused: str | None = None
        self._process = os.getpid()
        try:
            self._open_or_begin_anew()
            self._clock = self._run("SELECT COALESCE(MAX(used), 0) FROM entries")[0][0]
        except BaseException:  # an interrupt, too: whoever starts again needs the lock
            self.close()
            raise

    def _open_or_begin_anew(self) -> None:
        try:
            self._open()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            self.close()
            self._judge(error)
            self._begin_anew(error)

    def _open(self) -> None:
        self._base = sqlite3.connect(
            self.path, timeout=0, isolation_level=None, check_same_thread=False
        )
        self._run("PRAGMA locking_mode=EXCLUSIVE")
        self._run(f"PRAGMA synchronous={SYNCHRONOUS}")
        self._run("BEGIN EXCLUSIVE")
        self._run("CREATE TABLE IF NOT EXISTS entries (name TEXT PRIMARY KEY, bytes INT, used INT)")
        self._run("UPDATE entries SET used = used WHERE 0")  # may it be written at all?
        self._run("COMMIT")
        said = self._run("PRAGMA integrity_check")[0][0]
        if said != "ok" or self._run(UNSOUND)[0][0]:
            raise sqlite3.DatabaseError(said if said != "ok" else "an entry makes no sense")
        self.all()  # names have to be text

    def _judge(self, error: Exception) -> None:
        """Raise what is no fault of the file: it must not be thrown away then."""
        code = getattr(error, "sqlite_errorcode", 0) & 255
        if code in (BUSY, LOCKED):
            raise ValueError(
                f"{self.path.parent} is used by another engine; close that one, or give each a "
                "folder of its own"
            ) from None
        # A damaged file may call itself read-only, too: ask the system who is right.
        if code in (NO_RIGHT, IO_ERROR, FULL, CANNOT_OPEN) or (
            code == READ_ONLY and not _writable(self.path)
        ):
            raise ValueError(f"{self.path} cannot be written: {error}") from None

    def _begin_anew(self, why: Exception) -> None:
        self.refused = f"{self.path.name} cannot be read: {why}; the store begins empty"
        try:
            for path in self.path.parent.glob(f"{self.path.name}*"):
                path.unlink()
            self._open()
        except (OSError, sqlite3.Error) as error:
            raise ValueError(f"{self.path} cannot be written: {error}") from None

    def _run(self, statement: str, values: tuple = ()) -> list[tuple]:
        return self._base.execute(statement, values).fetchall()

    def check(self) -> None:
        """Errors: ValueError after close(), when the folder may belong to another, and in a process
        that was forked off since, when it does."""
        folder = self.path.parent
        if self._base is None:
            raise ValueError(f"{folder} was closed; make a new one on it")
        if self._process != os.getpid():
            raise ValueError(
                f"{folder} can be used only by the process that opened it; "
                "give each process a folder of its own"
            )

    def all(self) -> list[tuple[str, int]]:
        """Names and sizes, the least recently used first."""
        return self._run("SELECT name, bytes FROM entries ORDER BY used")

    def add(self, name: str, size: int) -> None:
        """From here on it counts, as the most recent. Errors: sqlite3.Error."""
        self._run("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (name, size, self._clock + 1))
        self._clock += 1

    def use(self, chain: list[str]) -> None:
        """A chain was used (see `lru.py`). Errors: sqlite3.Error, and nothing is changed, as after
        an interrupt: what is added later must not wait in this transaction."""
        count = len(chain)
        new = [(self._clock + count - i, name) for i, name in enumerate(chain)]
        try:
            self._run("BEGIN")
            self._base.executemany("UPDATE entries SET used = ? WHERE name = ?", new)
            self._run("COMMIT")
        except BaseException:
            if self._base.in_transaction:
                self._run("ROLLBACK")
            raise
        self._clock += count

    def forget(self, name: str) -> None:
        """Errors: sqlite3.Error."""
        self._run("DELETE FROM entries WHERE name = ?", (name,))

    def close(self) -> None:
        """Nothing in a process that was forked off: its owner may be in the middle of a commit, and
        SQLite would remove the journal of it."""
        if self._base is not None and self._process == os.getpid():
            self._base.close()
            self._base = None

    def __del__(self):  # a connection alone waits for the garbage collector, and so does its lock
        self.close()


def _writable(path: Path) -> bool:
    try:
        with open(path, "r+b"):
            return True
    except OSError:
        return False
