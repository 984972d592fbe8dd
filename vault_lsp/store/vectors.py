"""Vectors as a channel of search: what is embedded, what is missing, and the nearest documents, exactly.

All functions take a reader of the index. Where it has no vectors attached, nothing is embedded and nothing is near.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import apsw

from vault_lsp.core.model import NotePath
from vault_lsp.errors import IndexDamaged, VectorsUnavailable
from vault_lsp.store import db, vector_file
from vault_lsp.store.coverage import ChunkCounts, Coverage
from vault_lsp.store.lock import embedding_lock
from vault_lsp.store.matrix import Extent, Matrix, Part, scores
from vault_lsp.store.place import Generations
from vault_lsp.store.search import ALLOWED, NO_FILTERS, ChunkHit, Filters, bindings
from vault_lsp.store.vector_file import extension_problem, load_extension, vector_table
from vault_lsp.store.vector_store import Embedding, Model, VectorStore, models

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Embedding",
    "Missing",
    "Model",
    "VectorStore",
    "begin",
    "coverage",
    "embedding_lock",
    "extension_problem",
    "forget",
    "missing",
    "models",
    "nearest",
]


class Missing(NamedTuple):
    """A chunk whose text has no vector yet; of several chunks with the same text the one that comes first."""

    path: NotePath
    ordinal: int
    sha: bytes


#: Up to so many vectors, a process that answers once asks the database itself: that is faster than reading them all.
SMALL = 20_000

#: The most that the extension gives of one query.
_MOST = 4_096

#: More than what single precision can be wrong by. Rankings are made with double precision, of all that may belong in.
_ERROR = 1e-4

#: So many texts in one script say as much about what is usual there as those of all scripts together.
_FEW = 5

#: Vectors that are looked at more closely at once.
_BLOCK = 4_096

_MISSING = """
SELECT path, ordinal, sha FROM (
  SELECT documents.path, chunks.ordinal, chunks.sha, documents.mtime_ns,
         row_number() OVER (
           PARTITION BY chunks.sha ORDER BY chunks.ordinal > 0, documents.mtime_ns DESC, documents.path, chunks.ordinal
         ) AS place
  FROM main.chunks JOIN main.documents ON documents.id = chunks.document
  WHERE NOT EXISTS (SELECT 1 FROM vec.vectors WHERE vectors.model = :model AND vectors.sha = chunks.sha))
WHERE place = 1 ORDER BY ordinal > 0, mtime_ns DESC, path, ordinal LIMIT :limit
"""

# The order of the joins is given: from ids to rows each step is one look-up.
_CHUNKS_OF = f"""
SELECT wanted.value, vectors.script, documents.id, chunks.id, chunks.ordinal, documents.path
FROM json_each(:ids) AS wanted
CROSS JOIN vec.vectors AS vectors ON vectors.id = wanted.value
CROSS JOIN main.chunks ON chunks.sha = vectors.sha
CROSS JOIN main.documents ON documents.id = chunks.document
WHERE :unfiltered OR documents.id IN ({ALLOWED})
"""

_ALLOWED_IDS = f"""
SELECT vectors.id FROM main.chunks
CROSS JOIN vec.vectors AS vectors ON vectors.model = :model AND vectors.sha = chunks.sha
WHERE chunks.document IN ({ALLOWED})
"""

_KNN = "SELECT rowid, distance, embedding FROM vec.{} WHERE embedding MATCH :query AND k = :count AND script = :script"
_AMONG = " AND rowid IN (SELECT value FROM json_each(:among))"


class Products(NamedTuple):
    """Vectors of a model, and the product of each with a query."""

    parts: list[Part]
    scores: NDArray[np.float32]


class _Candidates(NamedTuple):
    """Vectors, and the score that none of the others reaches by more than the error; None if there are no others."""

    ids: NDArray[np.int64]
    vectors: Callable[[int, int], NDArray[np.float32]]
    floor: float | None


def coverage(connection: apsw.Connection, model: Model | None) -> tuple[int, int]:
    """How many chunks the index has, and how many of them have a vector of the model."""
    if model is None or vector_file.attached(connection) is None:
        return _chunks.counted(connection), 0
    with _reading(connection):
        return _held(connection, model).coverage.counted(connection, _extent(connection, model))


def missing(connection: apsw.Connection, model: Model, limit: int | None = None) -> list[Missing]:
    """Chunks without a vector, each text once, in the order in which they are to be embedded.

    The first chunk of every note comes before all others, and recently modified notes before older ones.
    """
    if vector_file.attached(connection) is None:
        return []
    with _reading(connection):
        rows = connection.execute(_MISSING, {"model": model.id, "limit": -1 if limit is None else limit})
        return [Missing(NotePath(path), ordinal, sha) for path, ordinal, sha in rows]


def nearest(
    connection: apsw.Connection,
    model: Model,
    query: NDArray[np.float32],
    filters: Filters,
    pool: int,
    *,
    resident: bool,
    check: Callable[[], None] | None = None,
    products: Products | None = None,
) -> list[ChunkHit]:
    """The documents nearest to the query, each with its best chunk, best first.

    A score is the cosine of query and chunk, less what is usual between the query and texts of the chunk's script: a
    multilingual model puts texts of one language close together, and so a question would find what is written in its
    own language before all that answers it in another.

    There are `pool` of them, or all that fulfil the filters. `resident` says that this process will be asked again and
    may keep vectors in memory; `check` is called now and then and may raise. `products` are what `begin` has computed.
    """
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    if pool <= 0 or vector_file.attached(connection) is None:
        return []
    unit = np.asarray(query, np.float64)
    if unit.shape != (model.dimensions,):
        raise ValueError(f"a query of {model.name} has {model.dimensions} numbers, not {unit.shape}")
    length = float(np.linalg.norm(unit))
    if not 0 < length < float("inf"):
        return []
    unit = unit / length
    with _reading(connection):
        extent = _extent(connection, model)
        if extent.rows == 0:
            return []
        search = _Search(connection, model, unit, filters, pool)
        if products is None and not resident and extent.rows <= SMALL:
            found = search.by_database()
            if found is not None:
                return found
        if products is None:
            parts = _held(connection, model).matrix.parts(connection, extent)
            products = Products(parts, scores(parts, unit.astype(np.float32), check))
        return search.by_matrix(products, check)


def begin(
    connection: apsw.Connection,
    model: Model,
    question: Callable[[], NDArray[np.float32]],
    *,
    resident: bool,
    check: Callable[[], None] | None = None,
) -> Callable[[Filters, int], list[ChunkHit]]:
    """Begin to look for what is nearest, beside what the caller does until it wants the answer.

    `question` gives the query's vector, and is called on another thread; the answer is wanted on this one, within the
    same transaction. What is computed meanwhile, a model's run and one large product, leaves the interpreter alone.
    """
    parts: list[Part] | None = None
    if vector_file.attached(connection) is not None:
        with _reading(connection):
            extent = _extent(connection, model)
            if extent.rows and (resident or extent.rows > SMALL):
                parts = _held(connection, model).matrix.parts(connection, extent)

    def compute() -> tuple[NDArray[np.float32], Products | None]:
        if check is not None:
            check()  # it may have waited for others
        query = question()
        return query, None if parts is None else Products(parts, scores(parts, query, check))

    computed = _beside.submit(compute)

    def found(filters: Filters, pool: int) -> list[ChunkHit]:
        query, products = computed.result()
        return nearest(connection, model, query, filters, pool, resident=resident, check=check, products=products)

    return found


class _Search:
    """One question: its query as a unit vector, and what is asked for."""

    def __init__(
        self, connection: apsw.Connection, model: Model, query: NDArray[np.float64], filters: Filters, pool: int
    ) -> None:
        self._connection = connection
        self._model = model
        self._query = query
        self._filters = filters
        self._pool = pool
        self._usual = _usual(connection, model, query)

    def by_database(self) -> list[ChunkHit] | None:
        """Ask the extension; None where it would have to give more than it can."""
        load_extension(self._connection)
        count = self._first()
        while count <= _MOST:
            found = self._settled(self._neighbours(count, None))
            if found is not None:
                return found
            if self._filters != NO_FILTERS:
                break
            count *= 4
        if self._filters == NO_FILTERS:
            return None
        among = json.dumps(self._allowed_ids())
        count = self._first()
        while count <= _MOST:
            found = self._settled(self._neighbours(count, among))
            if found is not None:
                return found
            count *= 4
        return None

    def by_matrix(self, products: Products, check: Callable[[], None] | None) -> list[ChunkHit]:
        """Choose among the products of the query with everything."""
        import numpy as np  # noqa: PLC0415 - only where vectors are touched

        parts, all_scores = products
        if not parts:
            return []
        if len(self._usual) > 1:
            # Rows that are newer than this snapshot may be of a script that it doesn't know.
            usual = np.zeros(1 << 7, np.float32)
            usual[list(self._usual)] = list(self._usual.values())
            all_scores -= usual[np.concatenate([part.scripts for part in parts])]
        else:
            all_scores -= np.float32(sum(self._usual.values()))
        among = None
        if self._filters != NO_FILTERS:
            # What most documents fulfil is soon found among the best; the ids of all that do take longer.
            for count in (self._first(), 8 * self._first()):
                found = self._settled(_best(parts, all_scores, None, count))
                if found is not None:
                    return found
            among = _positions(parts, np.array(self._allowed_ids(), np.int64))
        count = self._first()
        while True:
            if check is not None:
                check()
            found = self._settled(_best(parts, all_scores, among, count))
            if found is not None:
                return found
            count *= 4

    def _first(self) -> int:
        """Vectors that are looked at first: some belong to one document, or to none any more."""
        return max(64, 2 * self._pool)

    def _neighbours(self, count: int, among: str | None) -> _Candidates:
        import numpy as np  # noqa: PLC0415 - only where vectors are touched

        statement = _KNN.format(vector_table(self._model.id)) + (_AMONG if among is not None else "")
        query = self._query.astype(np.float32).tobytes()
        found: list[tuple[int, float, bytes]] = []
        floors = []
        for script, usual in self._usual.items():
            values = {"query": query, "count": count, "among": among, "script": script}
            rows = cast("list[tuple[int, float, bytes]]", self._connection.execute(statement, values).fetchall())
            found += rows
            if len(rows) == count:
                # Of unit vectors the distance and the cosine tell the same.
                floors.append(1 - max(distance for _, distance, _ in rows) ** 2 / 2 - usual)
        ids = np.array([row for row, _, _ in found], np.int64)
        vectors = np.frombuffer(b"".join(blob for _, _, blob in found), np.float32).reshape(-1, self._model.dimensions)
        return _Candidates(ids, lambda start, end: vectors[start:end], max(floors, default=None))

    def _settled(self, candidates: _Candidates) -> list[ChunkHit] | None:
        """The answer, if it is certain that no other vector belongs in."""
        documents: dict[int, tuple[float, NotePath, int, int]] = {}
        for start in range(0, len(candidates.ids), _BLOCK):
            ids = candidates.ids[start : start + _BLOCK]
            rows = candidates.vectors(start, start + _BLOCK)
            # Summed row by row: the same vector has the same score wherever it stands.
            exact = (rows * self._query).sum(axis=1)
            score_of = dict(zip(ids.tolist(), exact.tolist(), strict=True))
            values = {"ids": json.dumps(ids.tolist()), **bindings(self._filters)}
            for vector, script, document, chunk, ordinal, path in self._connection.execute(_CHUNKS_OF, values):
                candidate = (self._usual[script] - score_of[vector], path, ordinal, chunk)
                if document not in documents or candidate < documents[document]:
                    documents[document] = candidate
        ranked = sorted((candidate, document) for document, candidate in documents.items())
        if candidates.floor is not None:
            last = ranked[self._pool - 1] if len(ranked) >= self._pool else None
            if last is None or -last[0][0] < candidates.floor + _ERROR:
                return None
        return [
            ChunkHit(document, chunk, NotePath(path), -score)
            for (score, path, _, chunk), document in ranked[: self._pool]
        ]

    def _allowed_ids(self) -> list[int]:
        values = {"model": self._model.id, **bindings(self._filters)}
        return sorted({cast(int, row) for (row,) in self._connection.execute(_ALLOWED_IDS, values)})


def _usual(connection: apsw.Connection, model: Model, query: NDArray[np.float64]) -> dict[int, float]:
    """For each script the cosine that the query has with its texts on average.

    Of a script with few texts little is known: its average is mixed with that of all.
    """
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    asked = connection.execute("SELECT script, rows, total FROM vec.scripts WHERE model = ?", (model.id,))
    sums = {script: (rows, float(np.frombuffer(total, np.float64) @ query)) for script, rows, total in asked}
    overall = sum(total for _, total in sums.values()) / max(1, sum(rows for rows, _ in sums.values()))
    return {script: (total + _FEW * overall) / (rows + _FEW) for script, (rows, total) in sums.items()}


def _best(
    parts: list[Part], all_scores: NDArray[np.float32], among: NDArray[np.int64] | None, count: int
) -> _Candidates:
    """The `count` rows with the highest scores and all that are as good within the error, of `among` or of all."""
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    looked_at = all_scores if among is None else all_scores[among]
    if count >= len(looked_at):
        at, floor = np.arange(len(looked_at)), None
    else:
        floor = float(np.partition(looked_at, len(looked_at) - count)[len(looked_at) - count]) - 2 * _ERROR
        at = np.flatnonzero(looked_at >= floor)
    if among is not None:
        at = among[at]
    ids = np.empty(len(at), np.int64)
    begins = np.cumsum([0, *(len(part.ids) for part in parts)])
    cuts = np.searchsorted(at, begins)
    for number, part in enumerate(parts):
        here = slice(cuts[number], cuts[number + 1])
        ids[here] = part.ids[at[here] - begins[number]]

    def vectors(start: int, end: int) -> NDArray[np.float32]:
        rows = at[start:end]
        ends = np.searchsorted(rows, begins)
        pieces = [
            part.vectors[rows[ends[number] : ends[number + 1]] - begins[number]] for number, part in enumerate(parts)
        ]
        return np.concatenate(pieces)

    return _Candidates(ids, vectors, floor)


def _positions(parts: list[Part], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the rows with these ids stand, all parts counted through; ascending, like the ids."""
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    found = []
    before = 0
    for part in parts:
        at = np.minimum(part.ids.searchsorted(wanted), len(part.ids) - 1)
        found.append(at[part.ids[at] == wanted] + before)
        before += len(part.ids)
    return np.concatenate(found)


class _Held(NamedTuple):
    """What a process keeps of the vectors of one model, for all its threads."""

    matrix: Matrix
    coverage: Coverage


_beside = ThreadPoolExecutor(2, "vectors")
_guard = threading.Lock()
_chunks = ChunkCounts()
_kept: dict[tuple[Path, str, int], _Held] = {}


def _held(connection: apsw.Connection, model: Model) -> _Held:
    """What is kept of the vectors that the connection sees; one that was begun anew has another serial."""
    file = vector_file.attached(connection)
    assert file is not None
    serial = str(db.one(connection, "SELECT value FROM vec.meta WHERE key = 'serial'")[0])
    with _guard:
        key = (file, serial, model.id)
        if key not in _kept:
            for other in [other for other in _kept if other[0].parent == file.parent and other[:2] != key[:2]]:
                del _kept[other]
            _kept[key] = _Held(Matrix(file, serial, model.id, model.dimensions), Coverage(model.id))
        return _kept[key]


def forget(folder: Path) -> None:
    """Let go of what is kept of the vectors of an index that is closed; who still needs it gets it anew."""
    with _guard:
        # SQLite names files without symbolic links.
        for key in [key for key in _kept if key[0].parent in (folder, folder.resolve())]:
            del _kept[key]


def _extent(connection: apsw.Connection, model: Model) -> Extent:
    row = connection.execute(
        "SELECT rows, last, pruned FROM vec.models WHERE id = ? AND fingerprint = ?", (model.id, model.fingerprint)
    ).fetchone()
    return Extent(*row) if row else Extent(0, 0, 0)


@contextmanager
def _reading(connection: apsw.Connection) -> Iterator[None]:
    """One state of index and vectors; damage of the vectors is told from damage of the index."""
    file = vector_file.attached(connection)
    assert file is not None
    own = not connection.in_transaction
    if own:
        connection.execute("BEGIN")
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, apsw.IOError, apsw.SQLError) as error:
        try:
            vector_file.check(file)
        except IndexDamaged as damage:
            generations = Generations(file.parent, *vector_file.NAMES)
            vector_file.start_over(generations, file, str(damage))
            raise VectorsUnavailable(f"the vectors are damaged and are made anew ({damage})") from error
        raise
    finally:
        if own and connection.in_transaction:
            connection.execute("ROLLBACK")
