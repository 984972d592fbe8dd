"""The open connections of one process to one index: one writer, a pool of readers, and what becomes of damage.

Readers follow the pointer at every question, the writer at every write. Neither ever waits for the other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from vault_lsp.errors import IndexDamaged, IndexReadOnly, VaultLspError
from vault_lsp.store import db
from vault_lsp.store.place import Index, create_folder, refused, remove
from vault_lsp.store.vector_file import Identity
from vault_lsp.store.vector_store import VectorStore
from vault_lsp.store.vectors import forget

_log = logging.getLogger(__name__)


class Connections:
    """Connections to the current generation of an index. Safe to use from several threads."""

    def __init__(self, index: Index, found: Callable[[Path], bool] = lambda _: False) -> None:
        """`found` may put an index of earlier days at the path it is given, and says whether it did."""
        self.index = index
        self.vectors = VectorStore(index)
        self._found = found
        self._write_lock = threading.RLock()
        self._guard = threading.Lock()
        self._readers: list[apsw.Connection] = []
        self._reading: tuple[Identity, Identity | None] | None = None
        self._writer: tuple[Identity, apsw.Connection] | None = None
        self._suspect: Identity | None = None
        self._closed = False

    def open(self) -> None:
        """Find, make or heal the index file."""
        self._current()
        try:
            with self.reader():
                if not self.index.sealed():
                    # Someone else than us touched the file since our last write, or a writer was killed.
                    db.check(self.index.file)
                    self.index.write_seal()
        except IndexDamaged as damage:
            self.start_over(str(damage))
        self.vectors.open()

    def close(self) -> None:
        """Close all; connections in use are closed as soon as they are given back."""
        self.vectors.close()
        forget(self.index.folder)
        with self._write_lock:
            sealed = self.index.sealed()
            with self._guard:
                self._closed = True
            self._retire()
            if sealed:
                # The last one to close moved the log into the file.
                self.index.write_seal()

    @contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """A connection that only reads, with the vectors attached if there are any; for one thread at a time."""
        identity = self._current()
        files = (identity, self.vectors.current())
        with self._guard:
            stale = self._readers if files != self._reading else []
            if files != self._reading:
                self._readers, self._reading = [], files
            connection = self._readers.pop() if self._readers else None
        for reader in stale:
            reader.close()
        if connection is None:
            connection = db.connect(identity.file, writable=False)
            self.vectors.attach(connection, files[1])
        try:
            with db.translated(identity.file):
                yield connection
        except IndexDamaged:
            self._suspect = identity
            self._give_back(connection, None)
            raise
        except VaultLspError:
            self._give_back(connection, files)
            raise
        except BaseException:
            self._give_back(connection, None)
            raise
        self._give_back(connection, files)

    @contextmanager
    def writer(self) -> Iterator[apsw.Connection]:
        """The writing connection; other threads of this process wait."""
        with self._write_lock:
            identity = self._current()
            if self._writer is not None and self._writer[0] != identity:
                self._close_writer()
            if self._writer is None:
                self._writer = (identity, db.connect(identity.file, writable=True))
            connection = self._writer[1]
            # A file that was not ours before must not become so by our writing to it.
            sealed = self.index.sealed()
            try:
                with db.translated(identity.file):
                    if self._suspect == identity:
                        # A reader met damage that a writer may never touch.
                        db.check(identity.file)
                        self._suspect = None
                    yield connection
            finally:
                db.shrink(connection)
                if sealed:
                    self.index.write_seal()

    @contextmanager
    def next_generation(self) -> Iterator[apsw.Connection]:
        """A connection to a new empty generation, which becomes the current one if all goes well."""
        with self._write_lock:
            create_folder(self.index)
            file = self.index.next_generation()
            db.create(file, self.index.root)
            try:
                with closing(db.connect(file, writable=True)) as connection, db.translated(file):
                    yield connection
            except BaseException:
                remove(file)
                raise
            self.index.point_to(file)
            self.index.write_seal()
            self._retire()

    def start_over(self, reason: str) -> None:
        """Leave a damaged file where it is and begin the next generation; the next reconcile fills it."""
        with self._write_lock:
            _log.warning("the index is damaged and is built anew (%s)", reason)
            try:
                file = self.index.next_generation()
                db.create(file, self.index.root)
                self.index.point_to(file)
            except IndexReadOnly as error:
                raise IndexDamaged(f"{reason}; a new one can't be made: {error}") from error
            self.index.write_seal()
            self._retire()

    def _current(self) -> Identity:
        """The current file, made where there is none."""
        file = self.index.file
        try:
            return Identity(file, file.stat().st_ino)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise IndexReadOnly(f"{file}: {error.strerror or error}") from error
        create_folder(self.index)
        file = self.index.vacant()
        if not self._found(file):
            db.create(file, self.index.root)
        if file != self.index.file:
            self.index.point_to(file)
        self.index.write_seal()
        with refused(file):
            return Identity(file, file.stat().st_ino)

    def _retire(self) -> None:
        """Let go of the generation before."""
        with self._guard:
            readers, self._readers = self._readers, []
        for reader in readers:
            reader.close()
        if self._writer is not None:
            self._close_writer()

    def _give_back(self, connection: apsw.Connection, files: tuple[Identity, Identity | None] | None) -> None:
        with self._guard:
            if files is not None and files == self._reading and not self._closed:
                self._readers.append(connection)
                return
        connection.close()

    def _close_writer(self) -> None:
        assert self._writer is not None
        self._writer[1].close()
        self._writer = None
