"""Two indexes of one vault, row by row: the proof that an index kept up to date equals one made afresh.

Vectors can't be compared with others without making them again. What must hold between their tables is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, cast

import apsw

from vault_lsp.store import db, vector_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Every table whose rows follow from a note alone, as rows that two indexes of one vault must share.
_COMPARED = {
    "documents": "SELECT path, kind, area, title, title_place, hash, skipped, has_frontmatter FROM documents",
    "files": "SELECT path, kind, reason FROM files",
    **{
        table: f"SELECT d.path, {columns} FROM {table} AS t JOIN documents AS d ON d.id = t.document"
        for table, columns in {
            "headings": "ordinal, level, text, raw, slug, linkable, place",
            "links": "ordinal, t.kind, target, t.path, subpath, display, embed, comment, key, places",
            "tags": "ordinal, name, key, place",
            "aliases": "ordinal, name, key, place",
            "blocks": "ordinal, t.id, place",
            "anchors": "ordinal, name, place",
            "definitions": "ordinal, label, target, places",
            "label_uses": "ordinal, label, defined, place",
            "problems": "ordinal, rule, message, place",
            "frontmatter": "key, value",
        }.items()
    },
    "names": "SELECT d.path, t.kind, t.name, t.key, z.sz FROM names AS t JOIN documents AS d ON d.id = t.document"
    " LEFT JOIN name_fts_docsize AS z ON z.id = t.id",
    "chunks": "SELECT d.path, t.ordinal, t.heading_path, t.line_start, t.line_end, t.page_start, t.page_end, t.sha,"
    " z.sz FROM chunks AS t JOIN documents AS d ON d.id = t.document LEFT JOIN chunk_fts_docsize AS z ON z.id = t.id",
    "full text": "SELECT (SELECT count(*) FROM chunk_fts_docsize) - (SELECT count(*) FROM chunks),"
    " (SELECT count(*) FROM name_fts_docsize) - (SELECT count(*) FROM names)",
}


def differences(one: apsw.Connection, other: apsw.Connection) -> list[str]:
    """What two indexes of the same vault don't share, a line for each row; empty when they are equal."""
    found = []
    for table, statement in _COMPARED.items():
        left = set(one.execute(statement))
        right = set(other.execute(statement))
        found += [f"{table}: only here: {row[:3]}" for row in sorted(left - right, key=repr)]
        found += [f"{table}: missing: {row[:3]}" for row in sorted(right - left, key=repr)]
    return found


_WITHOUT_MODEL = "SELECT count(*) FROM vectors WHERE model NOT IN (SELECT id FROM models)"

_VECTORS = """
SELECT vectors.id, vectors.script, stored.rowid, stored.script, stored.embedding
FROM vectors LEFT JOIN {table} AS stored ON stored.rowid = vectors.id WHERE +vectors.model = ? ORDER BY vectors.id
"""

#: How far the length of a vector may be from 1, and a stored sum from the sum.
_ERROR = 1e-3


def vector_problems(file: Path) -> list[str]:
    """What is wrong inside a database of vectors, a line for each kind; empty when it is consistent.

    IndexDamaged where it can't be read, VectorsUnavailable without the extension.
    """
    with closing(vector_file.connect(file, writable=False)) as connection, db.translated(file):
        vector_file.load_extension(connection)
        connection.execute("BEGIN")
        found = []
        if strays := db.one(connection, _WITHOUT_MODEL)[0]:
            found.append(f"vectors: {strays} of no model")
        models = connection.execute("SELECT name, id, dimensions, rows, last FROM models").fetchall()
        for name, *numbers in cast("list[tuple[str, int, int, int, int]]", models):
            found += [f"vectors of {name}: {problem}" for problem in _problems(connection, *numbers)]
        return found


def _problems(connection: apsw.Connection, model: int, dimensions: int, rows: int, last: int) -> Iterator[str]:
    import numpy as np  # noqa: PLC0415 - only where vectors are touched

    table = vector_file.vector_table(model)
    wrong = dict.fromkeys(
        ("without numbers", "of another script than recorded", "of a wrong size", "not of length 1"), 0
    )
    highest = listed = 0
    sums: dict[int, tuple[int, NDArray[np.float64]]] = {}
    for row, script, stored, stored_script, blob in connection.execute(_VECTORS.format(table=table), (model,)):
        listed, highest = listed + 1, row
        if stored is None:
            wrong["without numbers"] += 1
            continue
        wrong["of another script than recorded"] += script != stored_script
        if len(blob) != 4 * dimensions:
            wrong["of a wrong size"] += 1
            continue
        vector = np.frombuffer(blob, np.float32)
        wrong["not of length 1"] += not abs(float(np.linalg.norm(vector)) - 1) <= _ERROR
        count, total = sums.get(script, (0, np.zeros(dimensions)))
        sums[script] = count + 1, total + vector
    yield from (f"{count} {what}" for what, count in wrong.items() if count)
    (numbers,) = db.one(connection, f"SELECT count(*) FROM {table}")
    if numbers != listed - wrong["without numbers"]:
        yield f"{numbers - listed + wrong['without numbers']} numbers of no vector"
    if rows != listed or last < highest:
        yield f"{listed} of them up to {highest}, and not {rows} up to {last}"
    for script, recorded, total in connection.execute(
        "SELECT script, rows, total FROM scripts WHERE model = ?", (model,)
    ):
        count, expected = sums.pop(script, (0, np.zeros(dimensions)))
        if count != recorded or len(total) != 8 * dimensions or not _agree(np.frombuffer(total), expected):
            yield f"the sum of those of script {script} is wrong"
    if sums:
        yield f"no sum of those of script {min(sums)}"


def _agree(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return bool((abs(one - other) < _ERROR).all())
