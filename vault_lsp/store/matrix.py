"""All vectors of one model as a matrix: a file mapped into memory, and the rows that are newer than the file.

The file is derived from the database of vectors. It is built aside, never changed, and superseded by one with another
name, so that whoever has it mapped can go on reading. A row whose vector was removed since is harmless: ids are never
used twice, so that nothing is found under its id.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import apsw

from vault_lsp.store.vector_file import load_extension, vector_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Newer rows that are kept in memory before the file is built anew, and the share of its rows that they may be.
_TAIL = 2_000
_TAIL_SHARE = 0.1

#: The share of rows without a vector, beyond the same number, at which it is built anew.
_WASTE_SHARE = 0.25

#: Rows that are read and written at once.
_BLOCK = 4_096

#: Bytes of vectors that are multiplied at once: about a tenth of a second.
_PRODUCT = 1 << 30

_HEADER = 4_096
_FORMAT = "vault-lsp vectors 2"

_NAME = re.compile(r"(.+)\.m(\d+)\.(\d+)-(\d+)\.map")

# The plus keeps the ids in order: without it the index by model and sha is taken.
_NEWER = "SELECT id, script FROM vec.vectors WHERE +model = ? AND id > ? ORDER BY id"
_READ = (
    "SELECT vectors.id, vectors.script, stored.embedding FROM vec.vectors AS vectors"
    " CROSS JOIN vec.{} AS stored ON stored.rowid = vectors.id"
    " WHERE +vectors.model = ? AND vectors.id > ? ORDER BY vectors.id"
)


class Part(NamedTuple):
    """Some rows of the matrix: ids, ascending, and the script and the vector of each."""

    ids: NDArray[np.int64]
    scripts: NDArray[np.int8]
    vectors: NDArray[np.float32]

    def at(self, rows: slice) -> Part:
        """The same of some rows only, without a copy."""
        return Part(self.ids[rows], self.scripts[rows], self.vectors[rows])

    def put(self, rows: slice, part: Part) -> None:
        """Overwrite rows."""
        self.ids[rows], self.scripts[rows], self.vectors[rows] = part


class Extent(NamedTuple):
    """How many vectors of a model are stored, the highest id that one had, and how many were removed."""

    rows: int
    last: int
    pruned: int


class Matrix:
    """The vectors of one model in one database, shared by the threads of a process."""

    def __init__(self, database: Path, serial: str, model: int, dimensions: int) -> None:
        self._database = database
        self._stamp = {
            "format": _FORMAT,
            "order": sys.byteorder,
            "serial": serial,
            "model": model,
            "dimensions": dimensions,
        }
        self._model = model
        self._dimensions = dimensions
        self._lock = threading.Lock()
        self._mapped: Part | None = None
        self._tail: Part | None = None
        self._tail_rows = 0
        self._last = 0
        self._looked = False
        #: Rows of the last file that could not be written.
        self._refused = 0

    def parts(self, connection: apsw.Connection, extent: Extent) -> list[Part]:
        """All rows that the connection sees, and maybe some that it doesn't; built or brought up to date first."""
        with self._lock:
            if not self._looked:
                self._looked = True
                self._open()
            # A connection that sees an older state than others must not undo what they brought in.
            if extent.last >= self._last and self._is_behind(extent):
                self._open()
                if self._is_behind(extent) and extent.rows > 1.5 * self._refused:
                    self._build(connection)
            if extent.last > self._last:
                self._extend(connection)
            return self._now()

    def _now(self) -> list[Part]:
        parts = [] if self._mapped is None else [self._mapped]
        if self._tail is not None and self._tail_rows:
            parts.append(self._tail.at(slice(self._tail_rows)))
        return parts

    def _is_behind(self, extent: Extent) -> bool:
        """Whether too many rows are not in the file, or too many there have no vector any more."""
        mapped = 0 if self._mapped is None else len(self._mapped.ids)
        newer = extent.rows - mapped if extent.last > self._last else self._tail_rows
        waste = mapped + self._tail_rows - extent.rows
        return newer > max(_TAIL, _TAIL_SHARE * mapped) or waste > max(_TAIL, _WASTE_SHARE * extent.rows)

    def _open(self) -> None:
        """Map the newest file, if it is newer than what is here."""
        for file in sorted(_files(self._database, self._model), key=_age)[::-1]:
            if self._mapped is not None and _age(file) <= (self._mapped_last(), -len(self._mapped.ids)):
                return
            part = _map(file, self._stamp)
            if part is not None:
                self._take(part)
                return

    def _mapped_last(self) -> int:
        return int(self._mapped.ids[-1]) if self._mapped is not None and len(self._mapped.ids) else 0

    def _take(self, part: Part) -> None:
        """Put a file in the place of the former one, and of those newer rows that it has as well."""
        tail = self._now()[-1] if self._tail_rows else None
        self._mapped, self._tail, self._tail_rows = part, None, 0
        mapped = self._mapped_last()
        if tail is not None and int(tail.ids[-1]) > mapped:
            first = int(tail.ids.searchsorted(mapped, "right"))
            self._append(tail.at(slice(first, None)))
        self._last = max(mapped, int(tail.ids[-1]) if tail is not None and self._tail_rows else 0)

    def _extend(self, connection: apsw.Connection) -> None:
        load_extension(connection)
        for block in _blocks(connection, self._model, self._dimensions, self._last):
            self._append(block)
            self._last = int(block.ids[-1])

    def _append(self, part: Part) -> None:
        """Add newer rows. Those already handed out stay where they are: what grows is behind them, or a copy."""
        import numpy as np  # noqa: PLC0415 - only where vectors are touched

        needed = self._tail_rows + len(part.ids)
        if self._tail is None or needed > len(self._tail.ids):
            capacity = max(256, 2 * needed)
            grown = Part(
                np.empty(capacity, np.int64),
                np.empty(capacity, np.int8),
                np.empty((capacity, self._dimensions), np.float32),
            )
            if self._tail is not None:
                grown.put(slice(self._tail_rows), self._tail.at(slice(self._tail_rows)))
            self._tail = grown
        self._tail.put(slice(self._tail_rows, needed), part)
        self._tail_rows = needed

    def _build(self, connection: apsw.Connection) -> None:
        """Write a file of all rows that there are, and map it; without right or room to write, go on without."""
        import numpy as np  # noqa: PLC0415 - only where vectors are touched

        load_extension(connection)
        rows = np.array(connection.execute(_NEWER, (self._model, 0)).fetchall(), np.int64).reshape(-1, 2)
        if not len(rows):
            return
        live, scripts = np.ascontiguousarray(rows[:, 0]), rows[:, 1].astype(np.int8)
        file = _name(self._database, self._model, int(live[-1]), len(live))
        aside = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
        try:
            with aside.open("xb") as target:
                header = json.dumps({**self._stamp, "rows": len(live)}).encode()
                target.write(header.ljust(_HEADER))
                target.write(live.tobytes())
                target.write(scripts.tobytes())
                target.write(bytes(_padding(len(live))))
                for block in self._kept(connection, live):
                    target.write(block.vectors.data)
                target.flush()
                os.fsync(target.fileno())
            aside.replace(file)
        except OSError:
            self._refused = len(live)
            return
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
        part = _map(file, self._stamp)
        if part is not None:
            self._take(part)
            for older in _files(self._database, self._model):
                if _age(older) < _age(file):
                    # Where it is still mapped and can't be removed, `doctor --prune` does so later.
                    with suppress(OSError):
                        older.unlink()

    def _kept(self, connection: apsw.Connection, live: NDArray[np.int64]) -> Iterator[Part]:
        """The rows of `live` in their order: those that are here already, then the others from the database."""
        import numpy as np  # noqa: PLC0415 - only where vectors are touched

        for part in self._now():
            for start in range(0, len(part.ids), _BLOCK):
                ids = part.ids[start : start + _BLOCK]
                at = np.minimum(live.searchsorted(ids), len(live) - 1)
                kept = live[at] == ids
                block = part.at(slice(start, start + _BLOCK))
                yield Part(ids[kept], block.scripts[kept], np.ascontiguousarray(block.vectors[kept]))
        yield from _blocks(connection, self._model, self._dimensions, self._last)


def leftovers(database: Path) -> list[Path]:
    """Files of matrices that nobody needs: of other databases, superseded ones, and builds cut short."""
    files = sorted(database.parent.glob("vectors-v*.map*"))
    named = [(file, match) for file in files if (match := _NAME.fullmatch(file.name)) and match[1] == database.stem]
    newest: dict[str, Path] = {}
    for file, match in named:
        newest[match[2]] = max(file, newest.get(match[2], file), key=_age)
    return [file for file in files if file not in newest.values()]


def discard(database: Path, model: int) -> None:
    """Remove the files of a model that is no more; what can't be removed is left to `leftovers`."""
    for file in _files(database, model):
        with suppress(OSError):
            file.unlink()


def scores(
    parts: list[Part], query: NDArray[np.float32], check: Callable[[], None] | None = None
) -> NDArray[np.float32]:
    """The product of every row with the query; `check` is called from time to time and may raise."""
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    found = np.empty(sum(len(part.ids) for part in parts), np.float32)
    done = 0
    # Every product wakes the threads of the linear algebra, which takes milliseconds where the cores are busy.
    step = max(1, _PRODUCT // (4 * len(query)))
    for part in parts:
        for start in range(0, len(part.ids), step):
            rows = part.vectors[start : start + step]
            np.dot(rows, query, out=found[done : done + len(rows)])
            done += len(rows)
            if check is not None:
                check()
    return found


def _blocks(connection: apsw.Connection, model: int, dimensions: int, after: int) -> Iterator[Part]:
    """Rows of the database with an id above `after`, in order."""
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    cursor = connection.execute(_READ.format(vector_table(model)), (model, after))
    while rows := list(islice(cursor, _BLOCK)):
        ids = np.array([row for row, _, _ in rows], np.int64)
        scripts = np.array([script for _, script, _ in rows], np.int8)
        vectors = b"".join(cast(bytes, vector) for _, _, vector in rows)
        yield Part(ids, scripts, np.frombuffer(vectors, np.float32).reshape(-1, dimensions))


def _map(file: Path, stamp: dict[str, object]) -> Part | None:
    """Map a file; None where it is none of this database and model, or not whole."""
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    try:
        with file.open("rb") as source:
            header = json.loads(source.read(_HEADER))
            rows, dimensions = header.pop("rows"), header["dimensions"]
            begin = _HEADER + 9 * rows + _padding(rows)
            if header != stamp or rows < 1 or os.fstat(source.fileno()).st_size != begin + 4 * rows * dimensions:
                return None
            whole = np.memmap(source, np.uint8, "r")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    data = np.asarray(whole)
    ids = data[_HEADER : _HEADER + 8 * rows].view(np.int64)
    scripts = data[_HEADER + 8 * rows : _HEADER + 9 * rows].view(np.int8)
    return Part(ids, scripts, data[begin:].view(np.float32).reshape(rows, dimensions))


def _padding(rows: int) -> int:
    """Bytes before the vectors, which begin where the processor likes it."""
    return -(9 * rows) % 64


def _name(database: Path, model: int, last: int, rows: int) -> Path:
    return database.with_name(f"{database.stem}.m{model}.{last}-{rows}.map")


def _files(database: Path, model: int) -> list[Path]:
    return [file for file in database.parent.glob(f"{database.stem}.m{model}.*.map") if _NAME.fullmatch(file.name)]


def _age(file: Path) -> tuple[int, int]:
    """A higher one is newer: of two files that go equally far, the one with fewer rows knows what was removed."""
    match = _NAME.fullmatch(file.name)
    assert match is not None
    return int(match[3]), -int(match[4])
