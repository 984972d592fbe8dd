"""The index file: where it lives, how it is opened, its schema, and transactions.

An index is a cache. Its file is never unlinked or renamed while another process may hold it: a rebuild makes the next
generation beside it and moves a pointer. The schema version stands in the name, so there are no migrations.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from vault_lsp.errors import IndexBusy, IndexDamaged, IndexReadOnly

SCHEMA_VERSION = 1

#: How long a writer waits for another one, in milliseconds.
BUSY_MS = 10_000

_APPLICATION_ID = 0x564C5350  # "VLSP": tells an index from any other SQLite file

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- A note on disk. `hash` is NULL while only its name is known; `skipped` tells why it has no content.
CREATE TABLE documents(
  id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, area TEXT NOT NULL,
  title TEXT, title_place BLOB, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER,
  scanned_ns INTEGER NOT NULL, hash BLOB, skipped TEXT);
CREATE INDEX documents_by_time ON documents(mtime_ns);
CREATE INDEX documents_by_area ON documents(area);

-- Everything else that a link can lead to. `reason` tells why a folder or file could not be read.
CREATE TABLE files(path TEXT PRIMARY KEY, kind TEXT NOT NULL, reason TEXT) WITHOUT ROWID;

CREATE TABLE headings(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, level INTEGER NOT NULL, text TEXT NOT NULL, raw TEXT NOT NULL,
  slug TEXT NOT NULL, linkable INTEGER NOT NULL, place BLOB NOT NULL, PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE TABLE links(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL, path TEXT NOT NULL,
  subpath TEXT NOT NULL, display TEXT, embed INTEGER NOT NULL, comment INTEGER NOT NULL, key TEXT, places BLOB NOT NULL,
  PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE INDEX links_by_key ON links(key);
CREATE TABLE tags(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, place BLOB NOT NULL,
  PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE INDEX tags_by_key ON tags(key);
CREATE TABLE aliases(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL,
  PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE INDEX aliases_by_key ON aliases(key);
CREATE TABLE blocks(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, id TEXT NOT NULL, place BLOB NOT NULL,
  PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE TABLE anchors(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, name TEXT NOT NULL, place BLOB NOT NULL,
  PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE TABLE definitions(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, label TEXT NOT NULL, target TEXT NOT NULL, places BLOB NOT NULL,
  PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE TABLE label_uses(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, label TEXT NOT NULL, defined INTEGER NOT NULL,
  place BLOB NOT NULL, PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE TABLE problems(
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, rule TEXT NOT NULL, message TEXT NOT NULL, place BLOB NOT NULL,
  PRIMARY KEY(document, ordinal)) WITHOUT ROWID;
CREATE TABLE frontmatter(
  document INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(document, key)) WITHOUT ROWID;

CREATE TABLE names(
  id INTEGER PRIMARY KEY, document INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL);
CREATE INDEX names_by_document ON names(document);
CREATE INDEX names_by_key ON names(key);
CREATE TABLE chunks(
  id INTEGER PRIMARY KEY, document INTEGER NOT NULL, ordinal INTEGER NOT NULL, heading_path TEXT NOT NULL,
  line_start INTEGER NOT NULL, line_end INTEGER NOT NULL, page_start INTEGER, page_end INTEGER, sha BLOB NOT NULL);
CREATE INDEX chunks_by_document ON chunks(document);

CREATE VIRTUAL TABLE chunk_fts USING fts5(
  title, words, bigrams, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE name_fts USING fts5(
  words, bigrams, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
"""


class Seal(NamedTuple):
    """Size and time of the index file when its last writer left it: a file that differs was touched by others."""

    size: int
    mtime_ns: int


class Index:
    """The place of one vault's index and its current generation."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root

    @property
    def pointer(self) -> Path:
        """The small file that names the current generation."""
        return self.folder / f"current-v{SCHEMA_VERSION}"

    @property
    def file(self) -> Path:
        """The database file of the current generation; it may not exist yet."""
        return self.folder / f"index-v{SCHEMA_VERSION}.{self.generation()}.db"

    def generation(self) -> int:
        """Number of the current generation, 1 where nothing was built yet."""
        with suppress(OSError, ValueError):
            return max(1, int(self.pointer.read_text("ascii")))
        return 1

    def next_generation(self) -> Path:
        """The file name of a generation that nobody uses yet."""
        taken = [int(match[1]) for match in map(_GENERATION.fullmatch, _names(self.folder)) if match]
        return self.folder / f"index-v{SCHEMA_VERSION}.{max([self.generation(), *taken]) + 1}.db"

    def point_to(self, file: Path) -> None:
        """Make a finished generation the current one, for every process at its next look."""
        match = _GENERATION.fullmatch(file.name)
        assert match is not None
        aside = self.pointer.with_suffix(f".{os.getpid()}")
        aside.write_text(match[1], "ascii")
        aside.replace(self.pointer)

    def older_generations(self) -> list[Path]:
        """Database files that are no longer current, of this and of earlier schemas."""
        current = self.file.name
        return [
            self.folder / name
            for name in _names(self.folder)
            if name.startswith("index-v") and not name.startswith(current)
        ]

    def read_seal(self) -> Seal | None:
        """The seal of the current file, None where it was never sealed."""
        with suppress(OSError, ValueError, TypeError):
            return Seal(*json.loads(self._seal_file().read_text("ascii")))
        return None

    def write_seal(self) -> None:
        """Record the file's state after our own last write."""
        with suppress(OSError):
            aside = self._seal_file().with_suffix(f".{os.getpid()}")
            aside.write_text(json.dumps(list(file_seal(self.file))), "ascii")
            aside.replace(self._seal_file())

    def _seal_file(self) -> Path:
        return self.file.with_suffix(".seal")


_GENERATION = re.compile(rf"index-v{SCHEMA_VERSION}\.(\d+)\.db")


def locate(root: Path, configured: str | None) -> Index:
    """The index of a vault: `index.path` of its config, else below VAULT_LSP_INDEX_DIR, else below the user's cache."""
    if configured:
        return Index((root / Path(configured).expanduser()).resolve(), root)
    return Index(cache_folder() / _key(root), root)


def cache_folder() -> Path:
    """The folder that holds the indexes of all vaults."""
    if chosen := os.environ.get("VAULT_LSP_INDEX_DIR"):
        return Path(chosen).expanduser().resolve()
    import platformdirs  # noqa: PLC0415 - not needed where the place is given

    return Path(platformdirs.user_cache_dir("vault-lsp", appauthor=False)) / "vaults"


def create_folder(index: Index) -> None:
    """Make the index folder, private to its user and invisible to backups and to git."""
    try:
        if not index.folder.is_dir():
            index.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (index.folder / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n", "ascii")
            (index.folder / "vault.json").write_text(json.dumps({"root": str(index.root)}), "utf-8")
            if index.folder.is_relative_to(index.root):
                (index.folder / ".gitignore").write_text("*\n", "ascii")
    except OSError as error:
        raise IndexReadOnly(f"{index.folder}: {error.strerror or error}") from error


def file_seal(file: Path) -> Seal:
    """Size and time of a file now."""
    status = file.stat()
    return Seal(status.st_size, status.st_mtime_ns)


def create(file: Path, root: Path) -> None:
    """Build an empty index. Two processes may do so at once: the second finds the first one's work."""
    with translated(file):
        connection = apsw.Connection(str(file))
        try:
            connection.set_busy_timeout(BUSY_MS)
            _pragma(connection, "journal_mode=wal")
            with atomic(connection):
                if connection.pragma("application_id") == _APPLICATION_ID:
                    return
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement).fetchall()
                connection.execute("INSERT INTO meta VALUES('root', ?), ('names', 0), ('changes', 0)", (str(root),))
                connection.execute(f"PRAGMA application_id={_APPLICATION_ID}").fetchall()
        finally:
            connection.close()


def connect(file: Path, *, writable: bool) -> apsw.Connection:
    """Open an index that exists. IndexDamaged when it is none of ours, IndexReadOnly when it can't be written.

    A reader of a folder without write permission opens the file as immutable: SQLite can't make the files that
    sharing needs there, and nobody else can write either.
    """
    with translated(file):
        if writable:
            if not os.access(file, os.W_OK) or not os.access(file.parent, os.W_OK):
                raise IndexReadOnly(f"{file}: the index can't be written (read-only)")
            flags, name = apsw.SQLITE_OPEN_READWRITE, str(file)
        elif os.access(file.parent, os.W_OK) and os.access(file, os.W_OK):
            flags, name = apsw.SQLITE_OPEN_READWRITE, str(file)
        else:
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            name = file.resolve().as_uri() + "?immutable=1"
        connection = apsw.Connection(name, flags=flags)
        try:
            connection.set_busy_timeout(BUSY_MS)
            _check_identity(connection, file)
            _pragma(connection, "synchronous=normal")
            _pragma(connection, "temp_store=memory")
            _pragma(connection, "cache_size=-16000")
            if not writable:
                _pragma(connection, "query_only=on")
        except BaseException:
            connection.close()
            raise
        return connection


def check(connection: apsw.Connection, file: Path) -> None:
    """Read the whole file and raise IndexDamaged unless every page is sound."""
    with translated(file):
        answer = connection.execute("PRAGMA quick_check(1)").fetchall()
        if answer != [("ok",)]:
            raise IndexDamaged(f"{file}: {answer[0][0] if answer else 'damaged'}")
    if not connection.readonly("main"):
        check_search(connection, file)


def check_search(connection: apsw.Connection, file: Path) -> None:
    """Raise IndexDamaged unless the full-text tables are consistent in themselves."""
    with translated(file):
        query_only = connection.pragma("query_only")
        connection.pragma("query_only", False)
        try:
            connection.execute("INSERT INTO chunk_fts(chunk_fts) VALUES('integrity-check')").fetchall()
            connection.execute("INSERT INTO name_fts(name_fts) VALUES('integrity-check')").fetchall()
        finally:
            connection.pragma("query_only", bool(query_only))


@contextmanager
def atomic(connection: apsw.Connection) -> Iterator[None]:
    """A write transaction, taken at once: one that reads first and writes later fails with BUSY_SNAPSHOT."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(apsw.Error):
            connection.execute("ROLLBACK")
        raise
    try:
        connection.execute("COMMIT")
    except BaseException:
        with suppress(apsw.Error):
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """A read transaction: everything inside sees one state of the index."""
    connection.execute("BEGIN")
    try:
        # The snapshot is taken by the first read, not by BEGIN.
        connection.execute("SELECT 1 FROM meta LIMIT 1").fetchall()
        yield
    finally:
        if connection.in_transaction:
            with suppress(apsw.Error):
                connection.execute("ROLLBACK")


def one(connection: apsw.Connection, statement: str, bindings: tuple[object, ...] = ()) -> tuple[Any, ...]:
    """The first row of an answer that has one by nature; LookupError where it has none."""
    row: tuple[Any, ...] | None = connection.execute(statement, bindings).fetchone()
    if row is None:
        raise LookupError(statement)
    return row


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Turn the driver's errors into the project's, each with the file's path."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        raise IndexBusy(f"{file}: another process is writing to the index") from error
    except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError) as error:
        raise IndexDamaged(f"{file}: {error}") from error
    except apsw.ReadOnlyError as error:
        raise IndexReadOnly(f"{file}: the index can't be written (read-only)") from error
    except apsw.FullError as error:
        raise IndexReadOnly(f"{file}: no space left on the disk") from error
    except apsw.CantOpenError as error:
        if file.is_dir():
            raise IndexDamaged(f"{file}: a folder stands where the index belongs") from error
        raise IndexReadOnly(f"{file}: {error}") from error
    except apsw.IOError as error:
        raise IndexReadOnly(f"{file}: the disk refused a read or a write ({error})") from error
    except apsw.SQLError as error:
        # A table is missing or altered: not the schema that the file's name promises.
        raise IndexDamaged(f"{file}: {error}") from error


def _check_identity(connection: apsw.Connection, file: Path) -> None:
    if connection.pragma("application_id") != _APPLICATION_ID or connection.pragma("user_version") != 0:
        raise IndexDamaged(f"{file}: not an index of this version")


def _pragma(connection: apsw.Connection, assignment: str) -> None:
    # apsw runs lazily: a pragma takes effect only when its answer is fetched.
    connection.execute(f"PRAGMA {assignment}").fetchall()


def _key(root: Path) -> str:
    """Folder name for a vault: readable, and different for every real path."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", root.name)[:40].strip("-.") or "vault"
    return f"{readable}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}"


def _names(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.iterdir()]
    except OSError:
        return []


def now_ns() -> int:
    """The clock that stamps of files are compared with, in nanoseconds."""
    return time.time_ns()
