"""Whoever writes vectors: models, batches, and what is dropped because nobody needs it any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import apsw

from vault_lsp.errors import IndexDamaged, IndexReadOnly, VaultLspError, VectorsUnavailable
from vault_lsp.store import db, matrix, vector_file
from vault_lsp.store.place import Index
from vault_lsp.store.vector_file import Identity, vector_table


class Model(NamedTuple):
    """A model whose vectors are stored."""

    id: int
    fingerprint: str
    name: str
    dimensions: int


#: Vectors of no live chunk that are kept in any case, and the share of all that they may be beyond that: an undone
#: edit and a change of branches shall cost no inference.
_KEPT = 2_000
_SHARE = 0.5

#: Vectors that one transaction removes.
_REMOVED_AT_ONCE = 500

_ORPHANS = """
SELECT vectors.id FROM vec.vectors AS vectors
WHERE +vectors.model = ? AND NOT EXISTS (SELECT 1 FROM main.chunks WHERE chunks.sha = vectors.sha)
ORDER BY vectors.id
"""

_UNREAD = (
    "SELECT NOT (SELECT value FROM main.meta WHERE key = 'walked')"
    " OR EXISTS (SELECT 1 FROM main.documents WHERE hash IS NULL AND skipped IS NULL)"
)


class Embedding(NamedTuple):
    """The vector of a text: float32 numbers of length 1, under the SHA-256 of the text, with the text's script."""

    sha: bytes
    vector: bytes
    script: int = 0


class VectorStore:
    """The vectors of one index: the file that readers attach, and the one connection that writes it."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._lock = threading.RLock()
        self._writer: tuple[Identity, apsw.Connection] | None = None
        self._sealed = False

    def open(self) -> None:
        """Find, make or heal the file. Never raises: without vectors everything else works."""
        generations = self.index.vectors
        found = vector_file.find(self.index)
        if found is None or generations.sealed():
            return
        try:
            # Someone else than us touched the file since our last write, or a writer was killed.
            vector_file.check(found.file)
            generations.write_seal()
        except IndexDamaged as damage:
            vector_file.start_over(generations, found.file, str(damage))
        except VaultLspError:
            # Busy or unreadable now: whoever asks for vectors is told.
            return

    def current(self) -> Identity | None:
        """The file that readers are to attach now; None where there is none and none can be made."""
        return vector_file.find(self.index)

    def attach(self, connection: apsw.Connection, file: Identity | None) -> None:
        """Make the vectors readable to a reader of the index, if they are."""
        for _ in range(2):
            if file is None:
                return
            try:
                vector_file.attach(connection, file.file)
            except IndexDamaged as damage:
                vector_file.start_over(self.index.vectors, file.file, str(damage))
                file = self.current()
            except VaultLspError:
                return
            else:
                return

    @contextmanager
    def writer(self) -> Iterator[apsw.Connection]:
        """The connection that writes vectors; other threads of this process wait. VectorsUnavailable tells why not."""
        with self._lock:
            current = self.current()
            if current is None:
                raise IndexReadOnly(f"{self.index.vectors.file}: vectors can't be written here")
            if self._writer is not None and self._writer[0] != current:
                self._close_writer()
            try:
                if self._writer is None:
                    self._writer = (current, self._connect(current))
                connection = self._writer[1]
                # A file that was not ours before must not become so by our writing to it.
                self._sealed = self.index.vectors.sealed()
                with db.translated(current.file):
                    yield connection
            except IndexDamaged as damage:
                self._close_writer()
                self._heal(current, damage)
                raise VectorsUnavailable(f"the vectors were damaged and are made anew ({damage})") from damage
            finally:
                if self._writer is not None:
                    db.shrink(self._writer[1])
                    self._seal()

    def add_model(self, connection: apsw.Connection, fingerprint: str, name: str, dimensions: int) -> Model:
        """The model with this fingerprint, made known if it isn't."""
        with db.atomic(connection):
            connection.execute(
                "INSERT OR IGNORE INTO models(fingerprint, name, dimensions) VALUES(?, ?, ?)",
                (fingerprint, name, dimensions),
            )
            row = db.one(
                connection,
                "SELECT id, fingerprint, name, dimensions FROM models WHERE fingerprint = ?",
                (fingerprint,),
            )
            model = Model._make(row)
            if model.dimensions != dimensions:
                raise ValueError(f"{name} has vectors of {model.dimensions} numbers, not of {dimensions}")
            connection.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {vector_table(model.id)}"
                f" USING vec0(embedding float[{dimensions:d}] distance_metric=L2, script INTEGER)"
            ).fetchall()
        return model

    def put(self, connection: apsw.Connection, model: Model, batch: Sequence[Embedding]) -> int:
        """Store vectors in one transaction, and give how many were new; ValueError for one that isn't of length 1.

        What is stored already stays as it is.
        """
        _check_vectors(model, [item.vector for item in batch])
        added: list[Embedding] = []
        last = 0
        insert = f"INSERT INTO {vector_table(model.id)}(rowid, embedding, script) VALUES(?, ?, ?)"
        with db.atomic(connection):
            for item in batch:
                connection.execute(
                    "INSERT OR IGNORE INTO vectors(model, sha, script) VALUES(?, ?, ?)",
                    (model.id, item.sha, item.script),
                )
                if connection.changes():
                    last = connection.last_insert_rowid()
                    connection.execute(insert, (last, item.vector, item.script))
                    added.append(item)
            if added:
                connection.execute(
                    "UPDATE models SET rows = rows + ?, last = ? WHERE id = ?", (len(added), last, model.id)
                )
                _count(connection, model, [(item.script, item.vector) for item in added], 1)
        self._seal()
        return len(added)

    def prune(self, reader: apsw.Connection, serving: Model) -> int:
        """Drop vectors that nobody needs, in small transactions; how many.

        These are, once `serving` has a vector of every chunk, those of all other models; and those of no live chunk
        where they are more than can be kept. `reader` is a reader of an index that is up to date: of one that has
        notes still to read, nothing is dropped.
        """
        with self.writer() as connection:
            path = vector_file.attached(reader)
            if path is None or path.resolve() != self.index.vectors.file.resolve() or _is_unread(reader):
                return 0
            removed = 0
            for model in models(reader):
                orphans = [row for (row,) in reader.execute(_ORPHANS, (model.id,))]
                if model.id != serving.id:
                    if _is_complete(reader, serving):
                        removed += _drop(connection, model)
                        matrix.discard(self.index.vectors.file, model.id)
                elif len(orphans) > max(_KEPT, _SHARE * _rows(reader, model)):
                    removed += self._remove(connection, model, orphans)
            return removed

    def close(self) -> None:
        """Close the writing connection."""
        with self._lock:
            if self._writer is not None:
                sealed = self.index.vectors.sealed()
                self._close_writer()
                if sealed:
                    # The last one to close moved the log into the file.
                    self.index.vectors.write_seal()

    def _connect(self, current: Identity) -> apsw.Connection:
        connection = vector_file.connect(current.file, writable=True)
        try:
            vector_file.load_extension(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self, connection: apsw.Connection, model: Model, orphans: Sequence[int]) -> int:
        removed = 0
        for start in range(0, len(orphans), _REMOVED_AT_ONCE):
            ids = [(row,) for row in orphans[start : start + _REMOVED_AT_ONCE]]
            with db.atomic(connection):
                gone = [
                    connection.execute(
                        f"SELECT script, embedding FROM {vector_table(model.id)} WHERE rowid = ?", each
                    ).fetchone()
                    for each in ids
                ]
                _count(connection, model, [(script, vector) for script, vector in filter(None, gone)], -1)
                connection.executemany("DELETE FROM vectors WHERE id = ?", ids)
                connection.executemany(f"DELETE FROM {vector_table(model.id)} WHERE rowid = ?", ids)
                connection.execute(
                    "UPDATE models SET rows = rows - ?1, pruned = pruned + ?1 WHERE id = ?2", (len(ids), model.id)
                )
            removed += len(ids)
            self._seal()
        return removed

    def _heal(self, current: Identity, damage: IndexDamaged) -> None:
        try:
            vector_file.check(current.file)
        except IndexDamaged as found:
            damage = found
        except VaultLspError:
            return
        vector_file.start_over(self.index.vectors, current.file, str(damage))

    def _seal(self) -> None:
        if self._sealed:
            self.index.vectors.write_seal()

    def _close_writer(self) -> None:
        if self._writer is not None:
            with suppress(apsw.Error):
                self._writer[1].close()
            self._writer = None


def models(connection: apsw.Connection) -> list[Model]:
    """Models whose vectors a reader of the index sees, in the order in which they came."""
    if vector_file.attached(connection) is None:
        return []
    asked = connection.execute("SELECT id, fingerprint, name, dimensions FROM vec.models ORDER BY id")
    return [Model._make(row) for row in asked]


def _count(connection: apsw.Connection, model: Model, items: Sequence[tuple[int, bytes]], sign: int) -> None:
    """Add vectors to the sums of their scripts, or take them out."""
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    for script in {script for script, _ in items}:
        mine = [vector for held, vector in items if held == script]
        total = np.frombuffer(b"".join(mine), np.float32).reshape(len(mine), -1).sum(axis=0, dtype=np.float64)
        known = connection.execute(
            "SELECT total FROM scripts WHERE model = ? AND script = ?", (model.id, script)
        ).fetchone()
        before = np.frombuffer(known[0], np.float64) if known else np.zeros_like(total)
        connection.execute(
            "INSERT INTO scripts VALUES(?1, ?2, ?3, ?4)"
            " ON CONFLICT DO UPDATE SET rows = rows + excluded.rows, total = excluded.total",
            (model.id, script, sign * len(mine), (before + sign * total).tobytes()),
        )


def _drop(connection: apsw.Connection, model: Model) -> int:
    with db.atomic(connection):
        connection.execute("DELETE FROM vectors WHERE model = ?", (model.id,))
        removed = connection.changes()
        connection.execute("DELETE FROM models WHERE id = ?", (model.id,))
        connection.execute("DELETE FROM scripts WHERE model = ?", (model.id,))
        connection.execute(f"DROP TABLE {vector_table(model.id)}").fetchall()
    return removed


def _rows(reader: apsw.Connection, model: Model) -> int:
    return int(db.one(reader, "SELECT rows FROM vec.models WHERE id = ?", (model.id,))[0])


def _is_unread(reader: apsw.Connection) -> bool:
    return bool(db.one(reader, _UNREAD)[0])


def _is_complete(reader: apsw.Connection, model: Model) -> bool:
    missing = (
        "SELECT EXISTS (SELECT 1 FROM main.chunks WHERE NOT EXISTS"
        " (SELECT 1 FROM vec.vectors WHERE vectors.model = ? AND vectors.sha = chunks.sha))"
    )
    return not db.one(reader, missing, (model.id,))[0]


def _check_vectors(model: Model, vectors: Sequence[bytes]) -> None:
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    if any(len(vector) != 4 * model.dimensions for vector in vectors):
        raise ValueError(f"a vector of {model.name} has {model.dimensions} numbers of 4 bytes")
    if vectors:
        rows = np.frombuffer(b"".join(vectors), np.float32).reshape(len(vectors), -1)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        # Not a number compares as false.
        if not bool((np.abs(lengths - 1) < 1e-3).all()):
            raise ValueError(f"a vector of {model.name} is not of length 1")
