"""Reconcile: compare the working tree with the index and write what differs.

Every event is only a hint; all end here. What is left to do is derived from the comparison, never queued, so that a
crash at any point heals itself at the next call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import apsw

from vault_lsp.core.model import NotePath, Stamp
from vault_lsp.errors import Cancelled
from vault_lsp.prepare import Prepared, Task, prepare_all
from vault_lsp.store import notes, rows
from vault_lsp.store.db import atomic, now_ns
from vault_lsp.store.notes import Known
from vault_lsp.vault import Entry, Rules, entry_at, walk

#: A file whose time lies this close to the last look at it may have changed again within the same tick of its clock.
_RACY_NS = 2_000_000_000

#: With more bytes than this to parse, worker processes pay for their start.
_WORKER_BYTES = 3 << 20

#: Bytes of notes written in one transaction while other writers may wait.
_TRANSACTION_SECONDS = 0.05


class Progress(NamedTuple):
    """How far a reconcile has come: notes seen while "scanning", notes written while "indexing"."""

    phase: str
    done: int
    total: int


@dataclass
class Reconciled:
    """What a reconcile changed. `skipped` maps what could not be indexed to the reason, for the scanned part."""

    added: list[NotePath] = field(default_factory=list)
    changed: list[NotePath] = field(default_factory=list)
    removed: list[NotePath] = field(default_factory=list)
    skipped: dict[NotePath, str] = field(default_factory=dict)
    #: Whether the set of files and folders that links can lead to is another one.
    names: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.names)


class Difference(NamedTuple):
    """What the working tree has that the index has not, and the other way round."""

    new: list[Entry]
    stale: list[tuple[Entry, Known]]
    gone: list[tuple[NotePath, Known]]
    skipped: list[Entry]
    files: dict[NotePath, Entry]
    files_gone: list[NotePath]

    def __bool__(self) -> bool:
        return any(self)


class Scan(NamedTuple):
    """One look at the working tree: its entries, and what the index knows of the same part."""

    entries: Iterable[Entry]
    known: Mapping[NotePath, Known]
    files: Mapping[NotePath, tuple[str, str | None]]


def scan_all(connection: apsw.Connection, rules: Rules) -> Scan:
    """The whole vault."""
    return Scan(walk(rules), notes.known(connection), notes.known_files(connection))


def scan_paths(connection: apsw.Connection, rules: Rules, paths: Iterable[NotePath]) -> Scan:
    """The given paths alone, with all that lies below those that are, or were, folders."""
    entries: dict[NotePath, Entry] = {}
    known: dict[NotePath, Known] = {}
    files: dict[NotePath, tuple[str, str | None]] = {}
    looked: set[str] = set()
    for path in dict.fromkeys(paths):
        entry = entry_at(rules, path)
        if entry is not None:
            entries[path] = entry
            if entry.kind == "folder":
                entries.update((found.path, found) for found in walk(rules, path))
        known.update(notes.known_below(connection, path))
        files.update(notes.known_files_below(connection, path))
        folder = path.rpartition("/")[0]
        while folder and folder not in looked:
            # A note that comes or goes may bring its folder, or take it along.
            looked.add(folder)
            above = entry_at(rules, NotePath(folder))
            if above is not None and above.kind == "folder":
                entries.setdefault(above.path, above)
            files.update(notes.known_file(connection, NotePath(folder)))
            folder = folder.rpartition("/")[0]
    return Scan(entries.values(), known, files)


def difference(scan: Scan, *, started_ns: int) -> Difference:
    """Compare stamps; nothing is read."""
    new: list[Entry] = []
    stale: list[tuple[Entry, Known]] = []
    skipped: list[Entry] = []
    files: dict[NotePath, Entry] = {}
    left = dict(scan.known)
    files_left = dict(scan.files)
    for entry in scan.entries:
        if entry.kind == "note":
            known = left.pop(entry.path, None)
            if entry.skipped is not None:
                if known is None or known.skipped != entry.skipped:
                    skipped.append(entry)
            elif known is None:
                new.append(entry)
            elif _differs(entry.stamp, known, started_ns):
                stale.append((entry, known))
        elif files_left.pop(entry.path, None) != (entry.kind, entry.skipped):
            files[entry.path] = entry
    return Difference(new, stale, list(left.items()), skipped, files, list(files_left))


def reconcile(
    connection: apsw.Connection,
    rules: Rules,
    scan: Scan,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    workers: int | None = None,
) -> Reconciled:
    """Make the index mirror the scanned part of the working tree. Names are written before any note is read."""
    started = now_ns()
    found = difference(scan, started_ns=started)
    done = Reconciled()
    if not found:
        return done
    _write_names(connection, found, done, started)
    tasks = [Task(entry.path, entry.stamp.size, None) for entry in found.new if entry.stamp is not None]
    tasks += [Task(entry.path, entry.stamp.size, known.hash) for entry, known in found.stale if entry.stamp is not None]
    if not tasks:
        return done
    if workers is None:
        workers = worker_count() if sum(task.size for task in tasks) > _WORKER_BYTES else 0
    new = {entry.path for entry in found.new}
    written = 0
    progress(Progress("indexing", 0, len(tasks)))
    for batch in _transactions(connection, prepare_all(rules.root, tasks, workers), cancelled):
        for prepared in batch:
            _write(connection, prepared, new, done, started)
        written += len(batch)
        progress(Progress("indexing", written, len(tasks)))
    return done


def worker_count() -> int:
    """Processes that prepare notes: one a core, four at the most, for the writer is the limit then."""
    return min(os.cpu_count() or 1, 4)


def _differs(stamp: Stamp | None, known: Known, started_ns: int) -> bool:
    if stamp is None or known.hash is None:
        return True
    if stamp != (known.size, known.mtime_ns, known.ctime_ns, known.inode):
        return True
    # Same size, same time: an edit within the clock's tick is seen by its hash alone. A time in the future is a
    # clock that was set back; it is no reason to read the file again for ever.
    return known.mtime_ns is not None and known.scanned_ns - _RACY_NS <= known.mtime_ns <= started_ns


def _write_names(connection: apsw.Connection, found: Difference, done: Reconciled, started: int) -> None:
    with atomic(connection):
        for path, known in found.gone:
            rows.remove(connection, known.document)
            done.removed.append(path)
        for entry in found.new:
            rows.add_name(connection, entry.path, started)
        for entry in found.skipped:
            rows.put_skipped(connection, entry.path, entry.skipped or "", None, None, started)
            done.skipped[entry.path] = entry.skipped or ""
        for path in found.files_gone:
            rows.remove_file(connection, path)
        for path, entry in found.files.items():
            rows.put_file(connection, path, entry.kind, entry.skipped)
            if entry.skipped is not None:
                done.skipped[path] = entry.skipped
        if found.gone or found.new or found.files_gone or found.files or found.skipped:
            rows.bump_names(connection)
            rows.count_change(connection)
            done.names = True


def _write(connection: apsw.Connection, prepared: Prepared, new: set[NotePath], done: Reconciled, started: int) -> None:
    known = notes.known_at(connection, prepared.path)
    if known is None or known.scanned_ns > started:
        return  # another process removed the note, or has looked at it since
    if prepared.stamp is None:
        rows.remove(connection, known.document)
        rows.bump_names(connection)
        done.removed.append(prepared.path)
        done.names = True
        return
    if prepared.skipped is not None:
        done.skipped[prepared.path] = prepared.skipped
        if prepared.hash is not None or prepared.skipped != known.skipped:
            rows.put_skipped(connection, prepared.path, prepared.skipped, prepared.stamp, prepared.hash, started)
        return
    if prepared.rows is not None:
        if rows.put(connection, known.document, prepared.rows):
            rows.bump_names(connection)
            done.names = True
        (done.added if prepared.path in new else done.changed).append(prepared.path)
    assert prepared.hash is not None
    rows.put_stamp(connection, known.document, prepared.stamp, prepared.hash, started)


def _transactions(
    connection: apsw.Connection, prepared: Iterator[list[Prepared]], cancelled: Callable[[], bool]
) -> Iterator[list[Prepared]]:
    """Each batch inside one short write transaction; no file is read while it is open."""
    for batch in prepared:
        if cancelled():
            raise Cancelled("indexing was cancelled")
        with atomic(connection):
            yield batch
            if any(item.stamp is None or item.rows is not None or item.skipped is not None for item in batch):
                rows.count_change(connection)
        time.sleep(0)  # a gap in which another writer may take its turn


@contextmanager
def bulk(connection: apsw.Connection) -> Iterator[None]:
    """Settings for a first index: merging full-text segments as they come costs more than once at the end."""
    connection.execute("INSERT INTO chunk_fts(chunk_fts, rank) VALUES('automerge', 8)")
    try:
        yield
    finally:
        connection.execute("INSERT INTO chunk_fts(chunk_fts, rank) VALUES('automerge', 4)")


def paths_in(root: Path, files: Iterable[Path]) -> list[NotePath]:
    """Vault paths of files on disk; those outside are left out."""
    return [NotePath(file.relative_to(root).as_posix()) for file in files if file.is_relative_to(root)]
