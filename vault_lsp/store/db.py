"""The index file: its schema, how it is opened, transactions, and what can be wrong with it.

The schema version stands in the file's name, so there are no migrations.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from vault_lsp.errors import IndexBusy, IndexDamaged, IndexReadOnly

SCHEMA_VERSION = 3

#: Version of the database of vectors beside the index: it outlives changes of the index.
VECTORS_VERSION = 1

#: How long a writer waits for another one, in milliseconds.
BUSY_MS = 10_000

#: With fewer bytes free, SQLite can't even map the files that its processes share.
_LEAST_SPACE = 1 << 16

_TABLES = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"

#: The write-ahead log is emptied when it has grown past this many bytes.
_LARGEST_WAL = 8 << 20

#: Tells an index from any other SQLite file.
INDEX_ID = 0x564C5350

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- A note on disk. `hash` is NULL while only its name is known; `made_by` tells the versions of the code that made its
-- rows; `skipped` tells why it has no content.
CREATE TABLE documents(
  id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, area TEXT NOT NULL,
  title TEXT, title_place BLOB, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER,
  scanned_ns INTEGER NOT NULL, hash BLOB, made_by TEXT, skipped TEXT,
  has_frontmatter INTEGER);
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
  document INTEGER NOT NULL, ordinal INTEGER NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, place BLOB NOT NULL,
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
-- Ids are never used twice: what was counted of the chunks is brought up to date from those with higher ids.
CREATE TABLE chunks(
  id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, ordinal INTEGER NOT NULL, heading_path TEXT NOT NULL,
  line_start INTEGER NOT NULL, line_end INTEGER NOT NULL, page_start INTEGER, page_end INTEGER, sha BLOB NOT NULL);
CREATE INDEX chunks_by_document ON chunks(document);
CREATE INDEX chunks_by_sha ON chunks(sha);

CREATE VIRTUAL TABLE chunk_fts USING fts5(
  title, words, bigrams, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE name_fts USING fts5(
  words, bigrams, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
"""


def create(file: Path, root: Path) -> None:
    """Build an empty index. It appears whole: two processes may do so at once, and the second finds the first's."""

    def fill(connection: apsw.Connection) -> None:
        _make_tables(connection)
        connection.execute(
            "INSERT INTO meta VALUES('root', ?), ('serial', ?), ('names', 0), ('changes', 0), ('walked', 0)",
            (str(root), secrets.token_hex(8)),
        )

    build(file, fill, INDEX_ID)


def build(file: Path, fill: Callable[[apsw.Connection], None], application_id: int) -> None:
    """Make a database aside, give it its first rows, and then its name, unless another process was faster."""
    aside = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    with translated(file):
        try:
            connection = apsw.Connection(str(aside))
            try:
                _pragma(connection, "journal_mode=wal")
                # Nothing is lost with an empty database, and the first checkpoint brings all of it to the disk.
                _pragma(connection, "synchronous=off")
                with atomic(connection):
                    fill(connection)
                    connection.execute(f"PRAGMA application_id={application_id}").fetchall()
            finally:
                connection.close()
            place(aside, file)
        finally:
            with suppress(OSError):
                aside.unlink()


def place(built: Path, file: Path) -> None:
    """Give a finished database its name, unless another process was faster. The first name goes."""
    try:
        os.link(built, file)
    except FileExistsError:
        pass
    except OSError as error:
        # A file system without hard links; one that is full or read-only fails here as well.
        if not file.exists():
            try:
                built.rename(file)
            except OSError:
                raise IndexReadOnly(f"{file}: {error.strerror or error}") from error
    with suppress(OSError):
        built.unlink()


def connect(file: Path, *, writable: bool, application_id: int = INDEX_ID) -> apsw.Connection:
    """Open a database that exists. IndexDamaged when it is none of ours, IndexReadOnly when it can't be written."""
    with translated(file):
        if writable and not can_write(file):
            raise IndexReadOnly(f"{file}: the index can't be written (read-only)")
        flags = apsw.SQLITE_OPEN_READWRITE if can_write(file) else apsw.SQLITE_OPEN_READONLY
        connection = apsw.Connection(uri(file), flags=flags | apsw.SQLITE_OPEN_URI)
        try:
            connection.set_busy_timeout(BUSY_MS)
            check_identity(connection, file, application_id)
            _pragma(connection, "synchronous=normal")
            _pragma(connection, "temp_store=memory")
            _pragma(connection, "cache_size=-16000")
            _pragma(connection, f"journal_size_limit={_LARGEST_WAL}")
            if writable:
                _pragma(connection, "journal_mode=wal")
            else:
                _pragma(connection, "query_only=on")
        except BaseException:
            connection.close()
            raise
        return connection


def can_write(file: Path) -> bool:
    """Whether SQLite can write a database and make the files that its processes share."""
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


def uri(file: Path) -> str:
    """How a database is named when it is opened or attached.

    A reader of a folder without write permission can't make the files that SQLite shares between processes. Where no
    writer has left them there, it opens the file as immutable.
    """
    name = file.absolute().as_uri()
    return name if can_write(file) or file.with_name(file.name + "-shm").exists() else f"{name}?immutable=1"


def check(file: Path) -> None:
    """Read the whole file and raise IndexDamaged unless every page is sound, every table there, and the full text too.

    On a connection of its own: FTS5 keeps the structure of the last query, and its check takes what others wrote since
    for damage.
    """
    with (
        translated(file),
        closing(connect(file, writable=False)) as connection,
        closing(apsw.Connection(":memory:")) as pristine,
    ):
        _make_tables(pristine)
        if connection.execute(_TABLES).fetchall() != pristine.execute(_TABLES).fetchall():
            raise IndexDamaged(f"{file}: its tables are not those of this version")
        answer = connection.execute("PRAGMA quick_check(1)").fetchall()
        if answer != [("ok",)]:
            raise IndexDamaged(f"{file}: {answer[0][0] if answer else 'damaged'}")


def shrink(connection: apsw.Connection, *, least: int = _LARGEST_WAL) -> None:
    """Empty the write-ahead log if it is longer than `least` bytes and nobody reads an older state; waits for none."""
    with suppress(OSError, apsw.Error):
        if os.stat(connection.filename + "-wal").st_size <= least:  # noqa: PTH116 - SQLite gives a string
            return
        connection.set_busy_timeout(0)
        try:
            _pragma(connection, "wal_checkpoint(truncate)")
        finally:
            connection.set_busy_timeout(BUSY_MS)


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
    except apsw.CantOpenError as error:
        if file.is_dir():
            raise IndexDamaged(f"{file}: a folder stands where the index belongs") from error
        raise IndexReadOnly(f"{file}: {error}") from error
    except (apsw.FullError, apsw.IOError) as error:
        # The files that processes share fail with an error of their own on a full disk.
        if isinstance(error, apsw.FullError) or _is_full(file):
            raise IndexReadOnly(f"{file}: no space left on the disk") from error
        raise IndexReadOnly(f"{file}: the disk refused a read or a write ({error})") from error
    except apsw.SQLError as error:
        # A table is missing or altered: not the schema that the file's name promises.
        raise IndexDamaged(f"{file}: {error}") from error


def check_identity(connection: apsw.Connection, file: Path, application_id: int, schema: str = "main") -> None:
    """Raise IndexDamaged unless the database is of the kind that its name promises."""
    for name, expected in (("application_id", application_id), ("user_version", 0)):
        if one(connection, f"PRAGMA {schema}.{name}")[0] != expected:
            raise IndexDamaged(f"{file}: not an index of this version")


def _is_full(file: Path) -> bool:
    with suppress(OSError):
        return shutil.disk_usage(file.parent).free < _LEAST_SPACE
    return False


def _make_tables(connection: apsw.Connection) -> None:
    for statement in _SCHEMA.split(";\n"):
        connection.execute(statement).fetchall()


def _pragma(connection: apsw.Connection, assignment: str) -> None:
    # apsw runs lazily: a pragma takes effect only when its answer is fetched.
    connection.execute(f"PRAGMA {assignment}").fetchall()


def now_ns() -> int:
    """The clock that stamps of files are compared with, in nanoseconds."""
    return time.time_ns()
