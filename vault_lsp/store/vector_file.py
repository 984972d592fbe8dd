"""The database of vectors beside the index: its schema, the sqlite-vec extension, how it is attached, and damage.

It outlives the index: a rebuild, a new schema or damage of the index loses no vector, and whoever embeds never waits
for whoever indexes. Everything but the vectors themselves lies in plain tables, readable without the extension.

It is not mapped into memory (`mmap_size`). That saves 3 of 9 ms at the 20,000 vectors up to which the database itself
is searched, and a file that is cut off by others would then end a server by a signal and not by an error.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import closing, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import apsw

from vault_lsp.errors import IndexDamaged, IndexReadOnly, VaultLspError, VectorsUnavailable
from vault_lsp.store import db
from vault_lsp.store.place import Generations, Index, create_folder

_log = logging.getLogger(__name__)

#: "VLSV": tells a database of vectors from any other SQLite file.
VECTORS_ID = 0x564C5356

#: Kind and pointer of its generations.
NAMES = (f"vectors-v{db.VECTORS_VERSION}", f"current-vectors-v{db.VECTORS_VERSION}")

#: The name under which readers of the index see it.
SCHEMA = "vec"

# `last` is the highest id that a model's vectors had, `rows` their number, `pruned` how many were ever removed: with
# these, what is kept in memory sees at once what changed. Ids are never used twice. `total` is the sum, as float64, of
# the vectors of texts in one script: it tells what is usual among them.
_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE models(
  id INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
  dimensions INTEGER NOT NULL, rows INTEGER NOT NULL DEFAULT 0, last INTEGER NOT NULL DEFAULT 0,
  pruned INTEGER NOT NULL DEFAULT 0);
CREATE TABLE vectors(
  id INTEGER PRIMARY KEY AUTOINCREMENT, model INTEGER NOT NULL, sha BLOB NOT NULL, script INTEGER NOT NULL,
  UNIQUE(model, sha));
CREATE TABLE scripts(
  model INTEGER NOT NULL, script INTEGER NOT NULL, rows INTEGER NOT NULL, total BLOB NOT NULL,
  PRIMARY KEY(model, script)) WITHOUT ROWID;
"""

_PLAIN = ("meta", "models", "scripts", "sqlite_sequence", "vectors")


class Identity(NamedTuple):
    """Which file a connection has open: one that was deleted and made anew is another under the same name."""

    file: Path
    inode: int


def identity(file: Path) -> Identity | None:
    """The file as it is there now, None where there is none."""
    try:
        return Identity(file, file.stat().st_ino)
    except OSError:
        return None


def create(file: Path) -> None:
    """Build an empty database of vectors."""

    def fill(connection: apsw.Connection) -> None:
        for statement in _TABLES.strip().split(";\n"):
            connection.execute(statement).fetchall()
        connection.execute("INSERT INTO meta VALUES('serial', ?)", (secrets.token_hex(8),))

    db.build(file, fill, VECTORS_ID)


def connect(file: Path, *, writable: bool) -> apsw.Connection:
    """Open a database of vectors; IndexDamaged when it is none."""
    return db.connect(file, writable=writable, application_id=VECTORS_ID)


def check(file: Path) -> None:
    """Read the whole file and raise IndexDamaged unless every page is sound and every table there."""
    with db.translated(file), closing(connect(file, writable=False)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        expected = set(_PLAIN)
        if tables.issuperset(expected):
            expected |= {f"vec_{model}" for (model,) in connection.execute("SELECT id FROM models")}
        if not tables.issuperset(expected):
            raise IndexDamaged(f"{file}: its tables are not those of this version")
        answer = connection.execute("PRAGMA quick_check(1)").fetchall()
        if answer != [("ok",)]:
            raise IndexDamaged(f"{file}: {answer[0][0] if answer else 'damaged'}")


def vector_table(model: int) -> str:
    """Name of the table that holds the vectors of a model, under the ids of `vectors`."""
    return f"vec_{model:d}"


def find(index: Index) -> Identity | None:
    """The current database of vectors, made where there is none; None where that can't be."""
    generations = index.vectors
    found = identity(generations.file)
    if found is None:
        try:
            create_folder(index)
            file = generations.vacant()
            create(file)
            if file != generations.file:
                generations.point_to(file)
            generations.write_seal()
        except (IndexReadOnly, OSError):
            return None
        except VaultLspError as error:
            _log.warning("vectors can't be stored (%s)", error)
            return None
        found = identity(generations.file)
    return found


def start_over(generations: Generations, damaged: Path, reason: str) -> None:
    """Leave a damaged file where it is and begin the next generation, unless another process was faster."""
    if generations.file != damaged:
        return
    _log.warning("the database of vectors is damaged and is begun anew (%s)", reason)
    try:
        file = generations.next_generation()
        create(file)
        generations.point_to(file)
    except VaultLspError as error:
        _log.warning("a new database of vectors can't be made (%s)", error)
        return
    generations.write_seal()


def attach(connection: apsw.Connection, file: Path) -> None:
    """Make the vectors readable to a reader of the index; IndexDamaged and IndexReadOnly as when opening a database."""
    with db.translated(file):
        connection.execute(f"ATTACH ? AS {SCHEMA}", (db.uri(file),)).fetchall()
        try:
            db.check_identity(connection, file, VECTORS_ID, SCHEMA)
        except BaseException:
            with suppress(apsw.Error):
                connection.execute(f"DETACH {SCHEMA}").fetchall()
            raise


def attached(connection: apsw.Connection) -> Path | None:
    """The database of vectors that a reader has attached, None where it has none."""
    name = connection.db_filename(SCHEMA)
    return Path(name) if name else None


@cache
def extension_problem() -> str | None:
    """Why sqlite-vec can't be used in this installation; None where it can."""
    try:
        with closing(apsw.Connection(":memory:")) as connection:
            _load(connection)
            connection.execute("SELECT vec_version()").fetchall()
    except ImportError:
        return "the package sqlite-vec is not installed"
    except (apsw.Error, AttributeError, OSError) as error:
        return f"the extension sqlite-vec can't be loaded ({error})"
    return None


def load_extension(connection: apsw.Connection) -> None:
    """Make sqlite-vec's tables usable on a connection; VectorsUnavailable where that can't be."""
    if (problem := extension_problem()) is not None:
        raise VectorsUnavailable(problem)
    try:
        # Its functions can't be registered a second time while a statement runs.
        connection.execute("SELECT vec_version()").fetchall()
    except apsw.SQLError:
        try:
            _load(connection)
        except (apsw.Error, ImportError, OSError) as error:
            raise VectorsUnavailable(f"the extension sqlite-vec can't be loaded ({error})") from error


def extension_version() -> str:
    """Version of sqlite-vec; VectorsUnavailable where it can't be loaded."""
    with closing(apsw.Connection(":memory:")) as connection:
        load_extension(connection)
        return str(db.one(connection, "SELECT vec_version()")[0])


def _load(connection: apsw.Connection) -> None:
    # By name: the package has no types.
    path = import_module("sqlite_vec").loadable_path()
    connection.enable_load_extension(True)
    try:
        connection.load_extension(path)
    finally:
        connection.enable_load_extension(False)
