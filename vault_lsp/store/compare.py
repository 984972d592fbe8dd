"""Two indexes of one vault, row by row: the proof that an index kept up to date equals one made afresh."""

from __future__ import annotations

import apsw

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
            "aliases": "ordinal, name, key",
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
