"""The façade: one open vault. The only thing that a surface (CLI, language server) calls.

Reconciling takes the one writing connection; every question takes a reading connection of its own and one snapshot.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from vault_lsp import indexer
from vault_lsp.config import load_config
from vault_lsp.core.links import Names
from vault_lsp.core.model import Note, NotePath
from vault_lsp.core.text import Text
from vault_lsp.errors import Cancelled, IndexDamaged, IndexReadOnly, VaultLspError
from vault_lsp.indexer import Progress, Reconciled
from vault_lsp.prepare import parse_decoded
from vault_lsp.store import compare, db, notes
from vault_lsp.symbols import SymbolTable
from vault_lsp.vault import Decoded, Rules, decode, existing_folder, find_root, printable, read, safe_file
from vault_lsp.view import View

_log = logging.getLogger(__name__)

#: Statements of SQLite between two looks at whether the caller still wants the answer.
_STEPS = 20_000

_NO_NOTES: Mapping[NotePath, Note] = {}


class Vault:
    """One open vault: its root, its config and its index. Safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config, self.config_problems = load_config(root)
        self.rules = Rules(root, self.config)
        self.index = db.locate(root, self.config.index.path)
        self.read_only: str | None = None
        self._writing = threading.RLock()
        self._guard = threading.Lock()
        self._readers: list[apsw.Connection] = []
        self._file: Path | None = None
        self._inode = 0
        self._names: tuple[int, Names] | None = None
        self.symbols = SymbolTable()
        self._writer: apsw.Connection | None = None

    @classmethod
    def open(cls, root: Path) -> Vault:
        """Open the vault at `root`, making an empty index where there is none. Reads no note."""
        vault = cls(existing_folder(root))
        vault._open_index()
        return vault

    @classmethod
    def find(cls, start: Path) -> Vault:
        """Open the vault that holds `start`."""
        return cls.open(find_root(start))

    def close(self) -> None:
        """Release the index; the last process to do so leaves no side files behind."""
        with self._writing, self._guard:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            for reader in self._readers:
                reader.close()
            self._readers.clear()

    # Paths and texts ------------------------------------------------------------------------------------------------

    def path_of(self, file: Path) -> NotePath | None:
        """Vault path of a file on disk, there or not; None outside the vault and for what is hidden or left out."""
        normal = Path(os.path.normpath(file))
        if not normal.is_relative_to(self.root):
            with suppress(OSError, RuntimeError):
                normal = normal.parent.resolve() / normal.name
            if not normal.is_relative_to(self.root):
                return None
        path = normal.relative_to(self.root).as_posix()
        return None if path == "." or self.rules.hides(path) else NotePath(path)

    def file_of(self, path: NotePath) -> Path:
        """The file on disk of a vault path."""
        return self.root / path

    def locate_file(self, typed: str) -> NotePath:
        """Vault path of an existing file as a person typed it; NotFound for all else."""
        return safe_file(self.rules, typed)[0]

    def text(self, path: NotePath) -> Text | None:
        """Text of a file as it is on disk now; None where it can't be read as text."""
        decoded = self._decoded(path)
        return None if decoded is None or decoded.skipped is not None else Text(decoded.source)

    def parse(self, path: NotePath, source: str) -> Note:
        """What a text says as the note at `path`: for open buffers."""
        return parse_decoded(path, Text(source), Decoded(source))

    def parse_file(self, path: NotePath) -> Note | None:
        """What the file on disk says now, indexed or not."""
        decoded = self._decoded(path)
        if decoded is None or decoded.skipped is not None:
            return None
        return parse_decoded(path, Text(decoded.source), decoded)

    # Writing --------------------------------------------------------------------------------------------------------

    def reconcile(
        self,
        paths: Iterable[NotePath] | None = None,
        *,
        progress: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        workers: int | None = None,
    ) -> Reconciled:
        """Make the index mirror the working tree, or the given paths of it. Blocks; safe to repeat at any time."""
        report = progress or (lambda _: None)
        stop = cancelled or (lambda: False)
        with self._writing:
            try:
                return self._reconcile(paths, report, stop, workers)
            except IndexDamaged as damage:
                self._start_over(str(damage))
                return self._reconcile(None, report, stop, workers)

    def rebuild(self, *, progress: Callable[[Progress], None] | None = None) -> Reconciled:
        """Build a new index beside the old one, then switch to it; other processes follow at their next question."""
        with self._writing:
            db.create_folder(self.index)
            file = self.index.next_generation()
            db.create(file, self.root)
            with closing(db.connect(file, writable=True)) as connection, db.translated(file):
                scan = indexer.scan_all(connection, self.rules)
                done = indexer.reconcile(connection, self.rules, scan, progress=progress or (lambda _: None))
            self.index.point_to(file)
            self._adopt(file)
            return done

    def pending(self) -> indexer.Difference:
        """What a reconcile would change now. Writes nothing, reads no note."""
        with self._reader() as connection:
            scan = indexer.scan_all(connection, self.rules)
            return indexer.difference(scan, started_ns=db.now_ns())

    def needs_first_index(self) -> bool:
        """Whether nothing of this vault was ever indexed."""
        with self._reader() as connection:
            return not connection.execute("SELECT 1 FROM documents WHERE hash IS NOT NULL LIMIT 1").fetchall()

    def reconcile_in_child(
        self,
        *,
        progress: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Reconciled:
        """Reconcile the whole vault in a child process of low priority, so that this one stays quick to answer."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "vault_lsp.service", os.fspath(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        done: Reconciled | None = None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if cancelled is not None and cancelled():
                    raise Cancelled("indexing was cancelled")
                message = json.loads(line)
                if "progress" in message and progress is not None:
                    progress(Progress(*message["progress"]))
                elif "done" in message:
                    done = Reconciled(**message["done"])
                elif "error" in message:
                    raise VaultLspError(message["error"])
        finally:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
            process.stdout.close()
        if done is None:
            raise VaultLspError("the indexing process ended early")
        return done

    # Reading --------------------------------------------------------------------------------------------------------

    @contextmanager
    def view(
        self, overlay: Mapping[NotePath, Note] = _NO_NOTES, cancelled: Callable[[], bool] | None = None
    ) -> Iterator[View]:
        """One consistent look: a read transaction, the names of that moment, and the open buffers on top."""

        def check() -> None:
            if cancelled is not None and cancelled():
                raise Cancelled("the request was cancelled")

        with self._reader() as connection:
            if cancelled is not None:
                connection.set_progress_handler(cancelled, _STEPS)
            try:
                with db.snapshot(connection):
                    names = self._names_in(connection)
                    yield View(connection, names, self.symbols, self.text, dict(overlay), self.config, check)
            except apsw.InterruptError as error:
                raise Cancelled("the request was cancelled") from error
            finally:
                connection.set_progress_handler(None)

    def data_version(self) -> tuple[str, int, int]:
        """Changes whenever any process changed the index: file, its identity, and SQLite's count of changes."""
        with self._reader() as connection:
            return (str(self._file), self._inode, notes.changes(connection))

    def counts(self) -> tuple[int, int]:
        """How many notes are indexed, and how many files could not be."""
        with self._reader() as connection:
            return notes.counts(connection).notes, len(notes.skipped(connection))

    def status(self) -> dict[str, Any]:
        """What is indexed, what is not and why, and where the index is: JSON values."""
        with self._reader() as connection:
            counts = notes.counts(connection)
            scan = indexer.scan_all(connection, self.rules)
            pending = indexer.difference(scan, started_ns=db.now_ns())
            return {
                "vault": str(self.root),
                "notes": counts.notes,
                "links": counts.links,
                "chunks": counts.chunks,
                "files": counts.files,
                "folders": counts.folders,
                "skipped": {printable(path): reason for path, reason in notes.skipped(connection).items()},
                "pending": len(pending.new) + len(pending.stale) + len(pending.gone),
                "semantic": "off",
                "model": None,
                "index": {
                    "path": str(self.index.file),
                    "bytes": self.index.file.stat().st_size,
                    "generation": self.index.generation(),
                    "schema": db.SCHEMA_VERSION,
                },
                "config_problems": [str(problem) for problem in self.config_problems],
            }

    def verify(self) -> list[str]:
        """Compare the index with one made afresh, row by row; the differences, each as a line."""
        import tempfile  # noqa: PLC0415 - only here

        with self._reader() as connection:
            db.check(connection, self.index.file)
            with tempfile.TemporaryDirectory(prefix="vault-lsp-") as folder:
                file = Path(folder) / self.index.file.name
                db.create(file, self.root)
                with closing(db.connect(file, writable=True)) as fresh:
                    indexer.reconcile(fresh, self.rules, indexer.scan_all(fresh, self.rules))
                    return compare.differences(connection, fresh)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _decoded(self, path: NotePath) -> Decoded | None:
        try:
            return decode(read(self.file_of(path))[0])
        except OSError:
            return None

    def _reconcile(
        self,
        paths: Iterable[NotePath] | None,
        progress: Callable[[Progress], None],
        cancelled: Callable[[], bool],
        workers: int | None,
    ) -> Reconciled:
        connection = self._writing_connection()
        file = self.index.file
        with db.translated(file):
            progress(Progress("scanning", 0, 0))
            scan = (
                indexer.scan_all(connection, self.rules)
                if paths is None
                else indexer.scan_paths(connection, self.rules, paths)
            )
            before = db.file_seal(file)
            done = indexer.reconcile(
                connection, self.rules, scan, progress=progress, cancelled=cancelled, workers=workers
            )
            if db.file_seal(file) != before:
                self.index.write_seal()
        return done

    def _writing_connection(self) -> apsw.Connection:
        self._follow()
        if self._writer is None:
            self._writer = db.connect(self.index.file, writable=True)
        return self._writer

    @contextmanager
    def _reader(self) -> Iterator[apsw.Connection]:
        self._follow()
        with self._guard:
            file = self._file
            connection = self._readers.pop() if self._readers else None
        if connection is None:
            connection = db.connect(self.index.file, writable=False)
        try:
            with db.translated(self.index.file):
                yield connection
        except BaseException:
            connection.close()
            raise
        with self._guard:
            if file == self._file:
                self._readers.append(connection)
            else:
                connection.close()

    def _names_in(self, connection: apsw.Connection) -> Names:
        version = notes.names_version(connection)
        cached = self._names
        if cached is None or cached[0] != version:
            cached = self._names = (version, notes.names(connection))
        return cached[1]

    def _open_index(self) -> None:
        """Find, make or heal the index file."""
        file = self.index.file
        if not file.exists():
            db.create_folder(self.index)
            db.create(file, self.root)
        try:
            with closing(db.connect(file, writable=False)) as connection:
                seal = self.index.read_seal()
                if seal is not None and seal != db.file_seal(file):
                    # Someone else than us touched the file since our last write, or a writer was killed.
                    db.check(connection, file)
                    self.index.write_seal()
            self._adopt(file)
        except IndexDamaged as damage:
            self._start_over(str(damage))

    def _start_over(self, reason: str) -> None:
        """Leave a damaged file where it is and begin the next generation; the next reconcile fills it."""
        _log.warning("the index is damaged and is built anew (%s)", reason)
        file = self.index.next_generation()
        db.create(file, self.root)
        self.index.point_to(file)
        self._adopt(file)

    def _follow(self) -> None:
        """Go over to another generation when a process made one; make a new file when ours was deleted."""
        file = self.index.file
        try:
            inode = file.stat().st_ino
        except FileNotFoundError:
            db.create_folder(self.index)
            db.create(file, self.root)
            inode = 0
        except OSError as error:
            raise IndexReadOnly(f"{file}: {error.strerror or error}") from error
        if (file, inode) != (self._file, self._inode):
            self._adopt(file)

    def _adopt(self, file: Path) -> None:
        with self._guard:
            for reader in self._readers:
                reader.close()
            self._readers.clear()
            self._names = None
            self.symbols = SymbolTable()
            self._file, self._inode = file, file.stat().st_ino
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _child() -> None:
    """Reconcile a vault and report as lines of JSON; ends when the parent closes our standard input."""
    with suppress(OSError, AttributeError):
        os.nice(10)

    def watch_parent() -> None:
        # Not through `sys.stdin`: a thread that waits inside a buffered stream aborts the interpreter at its exit.
        while os.read(0, 4096):
            continue
        os._exit(1)

    threading.Thread(target=watch_parent, daemon=True).start()

    def say(**message: object) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    try:
        vault = Vault.open(Path(sys.argv[1]))
        done = vault.reconcile(progress=lambda progress: say(progress=progress))
        vault.close()
        say(done={"added": done.added, "changed": done.changed, "removed": done.removed, "skipped": done.skipped})
    except VaultLspError as error:
        say(error=str(error))


if __name__ == "__main__":
    _child()
