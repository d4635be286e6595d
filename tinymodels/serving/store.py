"""Far rows on a disk: one file a piece, in a folder with a small database beside them.

A write that is cut off must cost nothing that was there, and must never be read as if it were
whole. Hence the order:

    1. make room: delete files of older entries, then forget them in the database
    2. write the new file under another name, and wait until it lies on the disk
    3. rename it into place: a rename happens at once or not at all
    4. enter it in the database; from here on it counts

What a crash leaves behind (a half file, a file that is not entered) is swept away at the next
start. Whatever is read is checked first: format, model, name, checksum. A disk with no room costs
the entry that did not fit, and no other.
"""

import errno
import hashlib
import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .entries import DATABASE, Entries
from .lru import Lru

FORMAT = "kv-rows-1"
PIECE = 4096  # bytes a write; small, so that a crash has places to fall between
NO_HANDLES = errno.EMFILE, errno.ENFILE, errno.ENOMEM  # a want of ours, no fault of a file
NO_FLUSH = errno.EINVAL, errno.ENOTSUP  # what some kinds of disk say to fsync of a folder


class Refused(ValueError):
    """A file that is not what it should be; the message names it and says why. errno: the
    system's reason, if it was that which could not read it."""

    errno: int | None = None


class NotStored(ValueError):
    """The disk took no more; the message names what, and says why. All else is as it was."""


class RowStore:
    """Entries `name -> {field: bytes}` within a budget, in `folder`; one store to a folder.

    root: what the rows belong to (see `chain.names`); entries of another one are refused.
    budget: of all rows' files together, their headers counted. refused: why the database of an
    earlier run could not be used, if there was one. Errors: ValueError for a folder that another
    store uses, that cannot be written, or whose files are not a store's; from all methods after
    close(), and in a forked process.
    """

    def __init__(self, folder: str | Path, root: str, budget: int):
        self.folder, self.root = Path(folder).absolute(), root  # the working folder may change
        self.lru = Lru(budget)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            names = [path.name for path in self._files()]
        except OSError as error:
            raise ValueError(f"{folder} cannot be used as a folder: {error}") from None
        if names and not (self.folder / DATABASE).exists():
            raise ValueError(
                f"{folder} holds {names[0]} and no {DATABASE}, so its files are no store's, and "
                "would be swept away; use an empty folder"
            )
        self._writing: str | None = None
        self.entries = Entries(self.folder)
        try:
            self.refused = self.entries.refused
            self._sweep()
        except BaseException as error:
            self.entries.close()
            if isinstance(error, OSError):
                raise ValueError(f"{folder} cannot be swept: {error}") from None
            raise

    def _files(self) -> list[Path]:
        return [p for p in self.folder.iterdir() if p.suffix in (".rows", ".half")]

    def _sweep(self) -> None:
        """After a start: what is entered and there counts; all else is removed."""
        there = {path.name: path.lstat().st_size for path in self._files()}
        for name, size in self.entries.all():
            if f"{name}.rows" not in there:  # nor is it a path then, whatever it says
                with suppress(sqlite3.Error):
                    self.entries.forget(name)
            elif there[f"{name}.rows"] != size or (leaving := self.lru.room(size)) is None:
                self.drop(name)
            else:
                for old in leaving:
                    self.drop(old)
                self.lru.add(name, size)
        for path in self._files():
            if path.suffix == ".half" or path.stem not in self.lru:
                _remove(path)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.rows"

    def put(self, name: str, rows: dict[str, np.ndarray], after: tuple[str, ...] = ()) -> bool:
        """Store an entry; False if the budget has no room for it. After True it survives a crash.

        after: the pieces before it, which must not go to make room. What an interrupt leaves of a
        write goes before the next one. Errors: NotStored.
        """
        self.entries.check()
        if name in self.lru:
            return True
        data = save(rows, metadata=self._label(name, rows))
        leaving = self.lru.room(len(data), keep=after)
        if leaving is None:
            return False
        try:
            self._undo()
            for old in leaving:
                self.drop(old)
            self._writing = name
            self._commit(name, data)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                self._undo()
            raise NotStored(f"{name}.rows cannot be stored: {error}") from None
        return True

    def _undo(self) -> None:
        """Take away what a write has left that did not come to its end. Errors: OSError."""
        name = self._writing
        if name is not None and name not in self.lru:
            _remove(self.folder / f"{name}.half")
            self.drop(name)
        self._writing = None

    def _commit(self, name: str, data: bytes) -> None:
        """Write, wait for the disk, rename, enter."""
        half = self.folder / f"{name}.half"
        with open(half, "wb") as file:
            for at in range(0, len(data), PIECE):
                file.write(data[at : at + PIECE])
                file.flush()
            os.fsync(file.fileno())
        os.replace(half, self.path(name))
        self._flush_folder()
        self.entries.add(name, len(data))
        self.lru.add(name, len(data))

    def get(self, name: str) -> dict[str, np.ndarray] | None:
        """An entry bit for bit as it was put; None if there is none.

        Errors: Refused, naming the file, if it is cut, changed, of another model or an older
        format. The entry is gone then, so that it can be made again (and stays where there are
        no handles left to open it with).
        """
        self.entries.check()
        if name not in self.lru:
            return None
        try:
            return self._read(name)
        except Refused as why:
            if why.errno not in NO_HANDLES:
                with suppress(OSError):
                    self.drop(name)
            raise

    def _read(self, name: str) -> dict[str, np.ndarray]:
        path = self.path(name)
        try:
            open(path, "rb").close()  # says what is wrong; safe_open says "no such file" of all
            with safe_open(path, "numpy") as file:
                label, keys = file.metadata() or {}, list(file.keys())
                kinds = {file.get_slice(key).get_dtype() for key in keys} - {"U8"}
                # Copies: whatever happens to the file later, these stay.
                rows = {} if kinds else {key: np.array(file.get_tensor(key)) for key in keys}
        except (SafetensorError, OSError, ValueError) as error:
            refused = Refused(f"{path.name} cannot be read: {error}")
            refused.errno = getattr(error, "errno", None)
            raise refused from None
        for what, said, want in (
            ("format", label.get("format"), FORMAT),
            ("model", label.get("root"), self.root),
            ("text", label.get("name"), name),
            ("kind of numbers", ", ".join(sorted(kinds)) or "U8", "U8"),
        ):
            if said != want:
                raise Refused(f"{path.name} is of another {what}: {said}, not {want}")
        if label.get("sha256") != checksum(rows):
            raise Refused(f"{path.name} does not fit its checksum: its bytes were changed")
        return rows

    def _label(self, name: str, rows: dict[str, np.ndarray]) -> dict[str, str]:
        return {"format": FORMAT, "root": self.root, "name": name, "sha256": checksum(rows)}

    def touch(self, chain: list[str]) -> None:
        """A chain was used (see `lru.py`). Errors: NotStored, if that is lost at the next start."""
        self.entries.check()
        self.lru.touch(chain)
        try:
            self.entries.use(chain)
        except sqlite3.Error as error:
            raise NotStored(f"{self.entries.path.name} cannot be written: {error}") from None

    def drop(self, name: str) -> None:
        """Delete an entry. Errors: OSError if its file cannot be removed, and it stays."""
        self.entries.check()
        _remove(self.path(name))
        with suppress(sqlite3.Error):  # an entry without a file does not count after a start
            self.entries.forget(name)
        self.lru.drop(name)

    def _flush_folder(self) -> None:
        """Make a rename last through a power cut (where the system can flush a folder)."""
        if os.name == "posix":
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            except OSError as error:
                if error.errno not in NO_FLUSH:
                    raise
            finally:
                os.close(folder)

    def close(self) -> None:
        self.entries.close()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def checksum(rows: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes and bytes."""
    digest = hashlib.sha256()
    for key in sorted(rows):
        digest.update(f"{key}{rows[key].shape}".encode())
        digest.update(rows[key].tobytes())
    return digest.hexdigest()
