"""Reconcile: compare the working tree with the index and write what differs.

Every event is only a hint; all end here. What is left to do is derived from the comparison, never queued, so that a
crash at any point heals itself at the next call.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import apsw

from vault_lsp.core.model import NotePath
from vault_lsp.errors import Cancelled
from vault_lsp.prepare import MADE_BY, Prepared, Task, prepare_all
from vault_lsp.store import notes, rows
from vault_lsp.store.db import atomic, now_ns
from vault_lsp.store.notes import Known
from vault_lsp.store.rows import Version
from vault_lsp.vault import Entry, Rules, entry_at, is_vault_path, walk

#: A file whose time lies this close to the last look at it may have changed again within the same tick of its clock.
_RACY_NS = 2_000_000_000

#: With more bytes than this to parse, worker processes pay for their start.
_WORKER_BYTES = 3 << 20

#: A write transaction ends after the note that passes this time: other writers may wait.
_TRANSACTION_SECONDS = 0.05

#: How often notes that other processes wrote at the same time are looked at again before the next event has to do.
_ROUNDS = 4


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


FileState = tuple[str, str | None]


class Difference(NamedTuple):
    """What the working tree has that the index has not, and the other way round.

    `files` are the folders and the files that are no notes: kind, and the reason where one can't be read. `racy` are
    notes that may differ without showing it: they changed so shortly before the last look that their bytes must be
    compared.
    """

    new: list[Entry]
    stale: list[tuple[Entry, Known]]
    gone: list[tuple[NotePath, Known]]
    skipped: list[Entry]
    files: dict[NotePath, FileState]
    files_gone: list[NotePath]
    racy: list[tuple[Entry, Known]]

    def __bool__(self) -> bool:
        return any(self[:-1])


class Scan(NamedTuple):
    """One look at the working tree: its entries, and what the index knows of the same part."""

    entries: Iterable[Entry]
    known: Mapping[NotePath, Known]
    files: Mapping[NotePath, FileState]
    whole: bool = False


def scan_all(connection: apsw.Connection, rules: Rules) -> Scan:
    """The whole vault."""
    rules.refresh()
    return Scan(walk(rules), notes.known(connection), notes.known_files(connection), whole=True)


def scan_paths(connection: apsw.Connection, rules: Rules, paths: Iterable[NotePath]) -> Scan:
    """The given paths alone, with all that lies below those that are, or were, folders.

    The whole vault where the paths can't tell what is concerned, or where it was never walked.
    """
    wanted = list(dict.fromkeys(path for path in paths if is_vault_path(path)))
    if not notes.walked(connection) or any(_concerns_all(rules, path) for path in wanted):
        return scan_all(connection, rules)
    rules.refresh()
    entries: dict[NotePath, Entry] = {}
    known: dict[NotePath, Known] = {}
    files: dict[NotePath, FileState] = {}

    def look(path: NotePath, *, below: bool) -> None:
        entry = entry_at(rules, path)
        if entry is not None:
            entries[path] = entry
            if below and entry.kind == "folder":
                entries.update((found.path, found) for found in walk(rules, path))
        if below or entry is None or entry.kind != "folder":
            # What was a folder takes along all that it held.
            known.update(notes.known_below(connection, path))
            files.update(notes.known_files_below(connection, path))
        elif (note := notes.known_at(connection, path)) is not None:
            known[path] = note
        files.update(notes.known_file(connection, path))

    looked: set[str] = set()
    for path in wanted:
        look(path, below=True)
        looked.add(path)
    for path in wanted:
        folder = path.rpartition("/")[0]
        while folder and folder not in looked:
            # A note that comes or goes may bring its folder, or take it along.
            look(NotePath(folder), below=False)
            looked.add(folder)
            folder = folder.rpartition("/")[0]
    return Scan(entries.values(), known, files)


def difference(scan: Scan) -> Difference:
    """Compare stamps; nothing is read."""
    started_ns = now_ns()
    new: list[Entry] = []
    stale: list[tuple[Entry, Known]] = []
    skipped: list[Entry] = []
    racy: list[tuple[Entry, Known]] = []
    present: dict[NotePath, FileState] = {}
    left = dict(scan.known)
    for entry in scan.entries:
        if entry.kind == "note":
            known = left.pop(entry.path, None)
            if entry.skipped is not None:
                if known is None or known.skipped != entry.skipped:
                    skipped.append(entry)
            elif known is None:
                new.append(entry)
            elif known.hash is None or known.made_by != MADE_BY or entry.stamp != known[1:5]:
                stale.append((entry, known))
            elif _is_racy(known, started_ns):
                racy.append((entry, known))
        else:
            present[entry.path] = (entry.kind, entry.skipped)
    files = {path: state for path, state in present.items() if scan.files.get(path) != state}
    files_gone = [path for path in scan.files if path not in present]
    return Difference(new, stale, list(left.items()), skipped, files, files_gone, racy)


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
    done = Reconciled()
    for _ in range(_ROUNDS):
        contested = _Round(connection, rules, done, cancelled).run(scan, progress, workers)
        if not contested:
            break
        scan = scan_paths(connection, rules, contested)
    return done


def worker_count() -> int:
    """Processes that prepare notes: one a core, up to four, for the writer is the limit then; on one core none."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(cores, 4) if cores > 1 else 0


class _Round:
    """One comparison and its write. Holds what was known when it began, to see what others wrote meanwhile."""

    def __init__(
        self, connection: apsw.Connection, rules: Rules, done: Reconciled, cancelled: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._rules = rules
        self._done = done
        self._cancelled = cancelled
        self._started = now_ns()
        self._before: dict[NotePath, Known | None] = {}
        self._contested: list[NotePath] = []

    def run(self, scan: Scan, progress: Callable[[Progress], None], workers: int | None) -> list[NotePath]:
        """Write what differs; the notes that another process wrote at the same time are left, and returned."""
        found = difference(scan)
        if found or scan.whole:
            self._write_names(found, whole=scan.whole)
        looked_at = [*found.stale, *found.racy]
        self._before = {
            **{entry.path: None for entry in found.new},
            **{entry.path: known for entry, known in looked_at},
        }
        tasks = [Task(entry.path, entry.stamp.size, None) for entry in found.new if entry.stamp is not None]
        tasks += [
            Task(entry.path, entry.stamp.size, known.hash if known.made_by == MADE_BY else None)
            for entry, known in looked_at
            if entry.stamp is not None
        ]
        if not tasks:
            return []
        if workers is None:
            workers = worker_count() if sum(task.size for task in tasks) > _WORKER_BYTES else 0
        written = 0
        progress(Progress("indexing", 0, len(tasks)))
        # Closed at once also when this is cancelled: it holds processes.
        with closing(prepare_all(self._rules.root, tasks, workers)) as prepared:
            for count in self._write_all(prepared):
                written += count
                progress(Progress("indexing", written, len(tasks)))
        return self._contested

    def _write_names(self, found: Difference, *, whole: bool) -> None:
        connection, done = self._connection, self._done
        if not found and notes.walked(connection):
            return
        changed = bool(found.gone or found.new or found.files_gone or found.files or found.skipped)
        if not changed and not whole:
            return
        with atomic(connection):
            for path, known in found.gone:
                if notes.known_at(connection, path) == known:
                    rows.remove(connection, known.document)
                    done.removed.append(path)
            for entry in found.new:
                rows.add_name(connection, entry.path, self._started)
            for entry in found.skipped:
                reason = entry.skipped or ""
                rows.put_skipped(connection, entry.path, reason, None, Version(None, None), self._started)
                done.skipped[entry.path] = reason
            for path in found.files_gone:
                rows.remove_file(connection, path)
            for path, (kind, skipped) in found.files.items():
                rows.put_file(connection, path, kind, skipped)
                if skipped is not None:
                    done.skipped[path] = skipped
            if changed:
                rows.bump_names(connection)
                rows.count_change(connection)
                done.names = True
            if whole:
                rows.set_walked(connection)

    def _write_all(self, prepared: Iterator[list[Prepared]]) -> Iterator[int]:
        """Write in short transactions, in none of which a file is read; how many notes each has written."""
        for batch in prepared:
            waiting = deque(batch)
            while waiting:
                if self._cancelled():
                    raise Cancelled("indexing was cancelled")
                count = len(waiting)
                with atomic(self._connection):
                    until = time.monotonic() + _TRANSACTION_SECONDS
                    changed = False
                    while waiting and time.monotonic() < until:
                        changed |= self._write(waiting.popleft())
                    if changed:
                        rows.count_change(self._connection)
                time.sleep(0)  # a gap in which another writer may take its turn
                yield count - len(waiting)

    def _write(self, prepared: Prepared) -> bool:
        """Write one note; whether anything but its stamp changed."""
        connection, done, path = self._connection, self._done, prepared.path
        known, before = notes.known_at(connection, path), self._before[path]
        if known is None or (known != before if before is not None else known.hash is not None):
            self._contested.append(path)
            return False
        if prepared.stamp is None:
            rows.remove(connection, known.document)
            rows.bump_names(connection)
            done.names = True
            if before is not None:
                done.removed.append(path)
            return True
        version = Version(prepared.hash, MADE_BY)
        if prepared.skipped is not None:
            done.skipped[path] = prepared.skipped
            if prepared.hash is None and prepared.skipped == known.skipped:
                return False
            rows.put_skipped(connection, path, prepared.skipped, prepared.stamp, version, self._started)
            return True
        if prepared.rows is not None:
            if rows.put(connection, known.document, prepared.rows):
                rows.bump_names(connection)
                done.names = True
            (done.added if before is None else done.changed).append(path)
        rows.put_stamp(connection, known.document, prepared.stamp, version, self._started)
        return prepared.rows is not None


def _concerns_all(rules: Rules, path: str) -> bool:
    if rules.gitignore and path.rpartition("/")[2] == ".gitignore":
        return True
    return rules.follow_symlinks and (rules.passes_link(path) or (rules.root / path).is_symlink())


def _is_racy(known: Known, started_ns: int) -> bool:
    # A time in the future is a clock that was set back; it is no reason to read the file again for ever.
    return known.mtime_ns is not None and known.scanned_ns - _RACY_NS <= known.mtime_ns <= started_ns
