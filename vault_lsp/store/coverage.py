"""How many chunks have a vector: counted once, and then brought up to date from what changed.

Counting compares every chunk with every vector, which takes a tenth of a second where there are many; a search asks
each time. Ids of chunks and of vectors are never used twice, so that what is new has a higher id than what was counted.
What has been removed is not listed anywhere, but needn't be: as long as it is known which chunks have no vector, all
others have one, however many they are now.
"""

from __future__ import annotations

import json
import threading
from typing import NamedTuple

import apsw

from vault_lsp.store.db import one
from vault_lsp.store.matrix import Extent

#: Up to so many chunks without a vector are remembered one by one.
_LISTED = 2_000

#: Indexes whose counts are kept.
_INDEXES = 16

_COUNT = """
SELECT count(*), count(vectors.id), coalesce(max(chunks.id), 0) FROM main.chunks
LEFT JOIN vec.vectors AS vectors ON vectors.model = ? AND vectors.sha = chunks.sha
"""

_BARE = """
SELECT chunks.id FROM main.chunks
WHERE NOT EXISTS (SELECT 1 FROM vec.vectors WHERE vectors.model = ? AND vectors.sha = chunks.sha)
"""

_STILL_BARE = f"""
{_BARE} AND (chunks.id > ? OR chunks.id IN (SELECT value FROM json_each(?)))
"""

_COVERED_SINCE = """
SELECT count(*) FROM vec.vectors AS vectors CROSS JOIN main.chunks ON chunks.sha = vectors.sha
WHERE vectors.id > ? AND +vectors.model = ?
"""

# Two statements in one: each has a short way of its own.
_CHUNKS = "SELECT (SELECT count(*) FROM main.chunks), (SELECT coalesce(max(id), 0) FROM main.chunks)"

_STATE = (
    "SELECT (SELECT value FROM main.meta WHERE key = 'serial'), (SELECT value FROM main.meta WHERE key = 'changes')"
)


class _State(NamedTuple):
    """Which index was counted, and how far it had come."""

    serial: str
    changes: int


class _Counted(NamedTuple):
    """A count, the highest chunk id that it knew, and the chunks without a vector if they are few."""

    state: _State
    extent: Extent
    chunks: int
    embedded: int
    last: int
    bare: frozenset[int] | None


class Coverage:
    """The coverage of an index by the vectors of one model, shared by the threads of a process."""

    def __init__(self, model: int) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._known: _Counted | None = None

    def counted(self, connection: apsw.Connection, extent: Extent) -> tuple[int, int]:
        """How many chunks there are, and how many have a vector. `extent` is of the same snapshot."""
        state = _State(*one(connection, _STATE))
        with self._lock:
            known = self._known
        if known is None or (known.state, known.extent) != (state, extent):
            known = self._follow(connection, known, state, extent)
            with self._lock:
                self._known = known
        return known.chunks, known.embedded

    def _follow(self, connection: apsw.Connection, known: _Counted | None, state: _State, extent: Extent) -> _Counted:
        if (
            known is None
            or known.state.serial != state.serial
            or known.state.changes > state.changes
            or known.extent.last > extent.last
            or known.extent.pruned != extent.pruned
        ):
            return self._count(connection, state, extent)
        if known.bare is not None:
            asked = connection.execute(_STILL_BARE, (self._model, known.last, json.dumps(sorted(known.bare))))
            bare = frozenset(chunk for (chunk,) in asked)
            if len(bare) > _LISTED:
                return self._count(connection, state, extent)
            chunks, last = known.chunks, known.last
            if known.state != state:
                chunks, last = one(connection, _CHUNKS)
            return _Counted(state, extent, chunks, chunks - len(bare), max(last, known.last), bare)
        if known.state == state:
            (added,) = one(connection, _COVERED_SINCE, (known.extent.last, self._model))
            if known.chunks - known.embedded - added > _LISTED:
                return known._replace(extent=extent, embedded=known.embedded + added)
        return self._count(connection, state, extent)

    def _count(self, connection: apsw.Connection, state: _State, extent: Extent) -> _Counted:
        chunks, embedded, last = one(connection, _COUNT, (self._model,))
        bare: frozenset[int] | None = None
        if chunks - embedded <= _LISTED:
            asked = connection.execute(_BARE, (self._model,)) if chunks > embedded else ()
            bare = frozenset(chunk for (chunk,) in asked)
        return _Counted(state, extent, chunks, embedded, last, bare)


class ChunkCounts:
    """How many chunks the indexes have that this process has asked last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, int]] = {}

    def counted(self, connection: apsw.Connection) -> int:
        """The number of chunks."""
        state = _State(*one(connection, _STATE))
        with self._lock:
            changes, chunks = self._known.get(state.serial, (-1, 0))
        if changes != state.changes:
            (chunks,) = one(connection, "SELECT count(*) FROM main.chunks")
            with self._lock:
                if len(self._known) > _INDEXES:
                    self._known.clear()
                self._known[state.serial] = state.changes, chunks
        return chunks
