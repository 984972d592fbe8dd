"""The façade: one open vault. The only thing that a surface (CLI, language server) calls.

Reconciling takes the one writing connection; every question takes a reading connection of its own and one snapshot.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw

from vault_lsp import child, indexer
from vault_lsp.config import load_config
from vault_lsp.core.links import Anchors, Names
from vault_lsp.core.model import Note, NotePath
from vault_lsp.core.text import Text
from vault_lsp.embedding import Embedded
from vault_lsp.errors import Cancelled, IndexDamaged, NotInMemory
from vault_lsp.indexer import Progress, Reconciled
from vault_lsp.prepare import parse_decoded
from vault_lsp.semantic import Backlog, Meanings, Semantic
from vault_lsp.store import compare, db, notes, place
from vault_lsp.store.connections import Connections
from vault_lsp.store.moved import take_over
from vault_lsp.symbols import SymbolTable
from vault_lsp.vault import Decoded, Rules, decode, existing_folder, find_root, printable, read, safe_file
from vault_lsp.view import STEPS, View

_NO_NOTES: Mapping[NotePath, Note] = {}


class _Known(NamedTuple):
    """What is kept between questions, with the state of the index that it stems from."""

    state: notes.State
    names: Names
    anchors: dict[NotePath, Anchors | None]
    symbols: SymbolTable


class _Nothing:
    """In the place of a connection: whoever needs one is told that it isn't there."""

    def __getattr__(self, name: str) -> object:
        raise NotInMemory(name)


class Vault:
    """One open vault: its root, its config and its index. Safe to use from several threads."""

    def __init__(self, root: Path, *, resident: bool = False) -> None:
        self.root = root
        self.config, self.config_problems = load_config(root)
        self.index = place.locate(root, self.config.index.path)
        self.rules = Rules(root, self.config, (self.index.folder, place.OWN_NAMES))
        self._connections = Connections(self.index, lambda file: take_over(root, file))
        self._meanings = Meanings(root, self.config, self._connections, resident=resident)
        self._guard = threading.Lock()
        self._known = _Known(notes.State("", -1, -1), Names.of((), (), ()), {}, SymbolTable())

    @classmethod
    def open(cls, root: Path, *, resident: bool = False) -> Vault:
        """Open the vault at `root`, making an empty index where there is none. Reads no note.

        A `resident` process answers many questions, and keeps what answers them sooner.
        """
        vault = cls(existing_folder(root), resident=resident)
        vault._connections.open()
        return vault

    @classmethod
    def find(cls, start: Path) -> Vault:
        """Open the vault that holds `start`."""
        return cls.open(find_root(start))

    def close(self) -> None:
        """Release the index; the last process to do so leaves no side files behind."""
        self._connections.close()

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
        try:
            return self._reconcile(paths, report, stop, workers)
        except IndexDamaged as damage:
            self._connections.start_over(str(damage))
            return self._reconcile(None, report, stop, workers)

    def rebuild(self, *, progress: Callable[[Progress], None] | None = None) -> Reconciled:
        """Build a new index beside the old one, then switch to it; other processes follow at their next question."""
        report = progress or (lambda _: None)
        with self._connections.next_generation() as connection:
            return indexer.reconcile(connection, self.rules, indexer.scan_all(connection, self.rules), progress=report)

    def pending(self) -> indexer.Difference:
        """What a reconcile would change now. Writes nothing, reads no note."""
        with self._connections.reader() as connection:
            return indexer.difference(indexer.scan_all(connection, self.rules))

    def needs_first_index(self) -> bool:
        """Whether nothing of this vault was ever indexed."""
        with self._connections.reader() as connection:
            return not connection.execute("SELECT 1 FROM documents WHERE hash IS NOT NULL LIMIT 1").fetchall()

    def reconcile_in_child(
        self,
        *,
        progress: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Reconciled:
        """Reconcile the whole vault in a child process of low priority, so that this one stays quick to answer."""
        return child.reconcile(self.root, progress or (lambda _: None), cancelled or (lambda: False))

    def embed(
        self,
        *,
        progress: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        threads: int | None = None,
    ) -> Embedded:
        """Embed every passage that has no vector of the configured model. Blocks; may be cut short at any time."""
        return self._meanings.embed(progress or (lambda _: None), cancelled or (lambda: False), threads)

    def catch_up(self) -> int:
        """Embed what a few edits have left, for a process that answers one question; how many passages."""
        return self._meanings.catch_up()

    def embed_in_child(
        self,
        *,
        progress: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Embedded:
        """The same in a child process of low priority that leaves a core to others."""
        return child.embed(self.root, progress or (lambda _: None), cancelled or (lambda: False))

    def backlog(self) -> Backlog:
        """What is left to embed, by which model, or why nothing can be."""
        return self._meanings.backlog()

    def prepare_questions(self) -> bool:
        """Bring into memory what a search by meaning needs, if there are vectors; False if there are none. Blocks.

        ModelUnavailable where the model can't be loaded.
        """
        return self._meanings.prepare()

    # Reading --------------------------------------------------------------------------------------------------------

    @contextmanager
    def view(
        self, overlay: Mapping[NotePath, Note] = _NO_NOTES, cancelled: Callable[[], bool] | None = None
    ) -> Iterator[View]:
        """One consistent look: a read transaction, the names of that moment, and the open buffers on top."""

        def check() -> None:
            if cancelled is not None and cancelled():
                raise Cancelled("the request was cancelled")

        with self._connections.reader() as connection:
            if cancelled is not None:
                connection.set_progress_handler(cancelled, STEPS)
            try:
                with db.snapshot(connection):
                    known = self._known_in(connection)
                    kept = (known.names, known.anchors, known.symbols)
                    yield View(connection, *kept, self.text, dict(overlay), self.config, check, self._meanings)
            except apsw.InterruptError as error:
                raise Cancelled("the request was cancelled") from error
            finally:
                connection.set_progress_handler(None)

    def memory(self, overlay: Mapping[NotePath, Note]) -> View:
        """A look at what earlier views have brought into memory, and open buffers; NotInMemory for all else."""
        known = self._known

        def read(path: NotePath) -> Text | None:
            raise NotInMemory(path)

        nothing = cast(apsw.Connection, _Nothing())
        kept = (known.names, known.anchors, known.symbols)
        return View(nothing, *kept, read, overlay, self.config, lambda: None, None)

    def data_version(self) -> tuple[str, int]:
        """Changes whenever any process changed the index, or put another one in its place."""
        with self._connections.reader() as connection:
            state = notes.state(connection)
            return state.serial, state.changes

    def counts(self) -> tuple[int, int]:
        """How many notes are indexed, and how many files could not be."""
        with self._connections.reader() as connection:
            return notes.counts(connection).notes, len(notes.skipped(connection))

    @property
    def embedding_model(self) -> str:
        """What decides about the model: the variable VAULT_LSP_EMBEDDING, else the config."""
        return self._meanings.model

    def semantic(self) -> Semantic:
        """Whether the vault can be searched by meaning, and what is in the way."""
        with self._connections.reader() as connection:
            return self._meanings.status(connection)

    def status(self) -> dict[str, Any]:
        """What is indexed, what is not and why, and where the index is: JSON values."""
        with self._connections.reader() as connection:
            counts = notes.counts(connection)
            pending = indexer.difference(indexer.scan_all(connection, self.rules))
            semantic = self._meanings.status(connection)
            return {
                "vault": str(self.root),
                "notes": counts.notes,
                "links": counts.links,
                "chunks": counts.chunks,
                "files": counts.files,
                "folders": counts.folders,
                "skipped": {printable(path): reason for path, reason in notes.skipped(connection).items()},
                "pending": len(pending.new) + len(pending.stale) + len(pending.gone),
                "semantic": semantic.state,
                "embedded": semantic.embedded,
                "model": semantic.model,
                "model_note": semantic.why,
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

        with self._connections.reader() as connection:
            db.check(self.index.file)
            with tempfile.TemporaryDirectory(prefix="vault-lsp-") as folder:
                file = Path(folder) / self.index.file.name
                db.create(file, self.root)
                with closing(db.connect(file, writable=True)) as fresh:
                    fresh.pragma("synchronous", "off")
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
        with self._connections.writer() as connection:
            progress(Progress("scanning", 0, 0))
            scan = (
                indexer.scan_all(connection, self.rules)
                if paths is None
                else indexer.scan_paths(connection, self.rules, paths)
            )
            return indexer.reconcile(
                connection, self.rules, scan, progress=progress, cancelled=cancelled, workers=workers
            )

    def _known_in(self, connection: apsw.Connection) -> _Known:
        """What this snapshot makes known, kept until it changes; the symbols of another index are forgotten."""
        state = notes.state(connection)
        known = self._known
        if known.state == state:
            return known
        same = known.state.serial == state.serial
        known = _Known(
            state,
            known.names if same and known.state.names == state.names else notes.names(connection),
            {},
            known.symbols if same else SymbolTable(),
        )
        with self._guard:
            # A slower thread may bring an older snapshot than the one that is kept.
            if not same or self._known.state.changes < state.changes:
                self._known = known
        return known
