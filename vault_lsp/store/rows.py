"""What a note leaves in the index: its rows, and the statements that put, replace and remove them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

import apsw

from vault_lsp.core.chunk import property_text
from vault_lsp.core.links import link_key, name_key
from vault_lsp.core.model import Chunk, Note, NotePath, Stamp
from vault_lsp.core.text import pack
from vault_lsp.core.tokens import index_terms
from vault_lsp.store.db import one
from vault_lsp.store.notes import area, file_stem, known_at

Values = tuple[object, ...]


class Version(NamedTuple):
    """What the rows of a note depend on beside its path: the SHA-256 of its bytes and the code that made them."""

    hash: bytes | None
    made_by: str | None


class Rows(NamedTuple):
    """All rows of one note but for their document id, ready to be written; made in a worker process."""

    title: str
    title_place: bytes
    has_frontmatter: bool
    headings: list[Values]
    links: list[Values]
    tags: list[Values]
    aliases: list[Values]
    blocks: list[Values]
    anchors: list[Values]
    definitions: list[Values]
    label_uses: list[Values]
    problems: list[Values]
    frontmatter: list[Values]
    names: list[tuple[Values, Values]]
    chunks: list[tuple[Values, Values]]


_ORDINAL_TABLES = {
    "headings": "INSERT INTO headings VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
    "links": "INSERT INTO links VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "tags": "INSERT INTO tags VALUES(?, ?, ?, ?, ?)",
    "aliases": "INSERT INTO aliases VALUES(?, ?, ?, ?, ?)",
    "blocks": "INSERT INTO blocks VALUES(?, ?, ?, ?)",
    "anchors": "INSERT INTO anchors VALUES(?, ?, ?, ?)",
    "definitions": "INSERT INTO definitions VALUES(?, ?, ?, ?, ?)",
    "label_uses": "INSERT INTO label_uses VALUES(?, ?, ?, ?, ?)",
    "problems": "INSERT INTO problems VALUES(?, ?, ?, ?, ?)",
}

_NAME = "INSERT INTO names(document, kind, name, key) VALUES(?, ?, ?, ?)"
_NAME_TERMS = "INSERT INTO name_fts(rowid, words, bigrams) VALUES(?, ?, ?)"
_CHUNK = (
    "INSERT INTO chunks(document, ordinal, heading_path, line_start, line_end, page_start, page_end, sha)"
    " VALUES(?, ?, ?, ?, ?, ?, ?, ?)"
)
_CHUNK_TERMS = "INSERT INTO chunk_fts(rowid, title, words, bigrams) VALUES(?, ?, ?, ?)"

_CLEAR = (
    "DELETE FROM headings WHERE document = ?",
    "DELETE FROM links WHERE document = ?",
    "DELETE FROM tags WHERE document = ?",
    "DELETE FROM aliases WHERE document = ?",
    "DELETE FROM blocks WHERE document = ?",
    "DELETE FROM anchors WHERE document = ?",
    "DELETE FROM definitions WHERE document = ?",
    "DELETE FROM label_uses WHERE document = ?",
    "DELETE FROM problems WHERE document = ?",
    "DELETE FROM frontmatter WHERE document = ?",
    "DELETE FROM name_fts WHERE rowid IN (SELECT id FROM names WHERE document = ?)",
    "DELETE FROM names WHERE document = ?",
    "DELETE FROM chunk_fts WHERE rowid IN (SELECT id FROM chunks WHERE document = ?)",
    "DELETE FROM chunks WHERE document = ?",
)


def rows(note: Note, chunks: Iterable[Chunk]) -> Rows:
    """The rows of a note; they depend on the note alone, never on another one."""
    written: list[tuple[Values, Values]] = []
    heads: dict[tuple[str, ...], str] = {}
    properties = property_text(note)
    for chunk in chunks:
        if chunk.heading_path not in heads:
            above = dict.fromkeys((note.title, *chunk.heading_path))
            heads[chunk.heading_path] = " ".join(term for name in above for term in index_terms(name))
        head = heads[chunk.heading_path]
        # Values of the front matter are searched with the first piece: they stand right above it.
        body = index_terms(f"{chunk.text}\n{properties}" if properties and chunk.ordinal == 0 else chunk.text)
        written.append(
            (
                (
                    chunk.ordinal,
                    json.dumps(chunk.heading_path, ensure_ascii=False),
                    chunk.line_start,
                    chunk.line_end,
                    chunk.page_start,
                    chunk.page_end,
                    bytes.fromhex(chunk.sha),
                ),
                (head, body.words, body.bigrams),
            )
        )
    stem = file_stem(note.path)
    names = [("title", note.title), *(("alias", alias.name) for alias in note.aliases)]
    if name_key(stem) != name_key(note.title):
        names.append(("file", stem))
    return Rows(
        title=note.title,
        title_place=pack((note.title_place,)),
        has_frontmatter=note.frontmatter is not None,
        headings=[(h.level, h.text, h.raw, h.slug, h.linkable, pack((h.place,))) for h in note.headings],
        links=[
            (
                *(link.kind, link.target, link.path, link.subpath, link.display, link.embed, link.comment),
                link_key(link.path, note.path),
                pack((link.place, link.target_place, link.subpath_place)),
            )
            for link in note.links
        ],
        tags=[(tag.name, name_key(tag.name), pack((tag.place,))) for tag in note.tags],
        aliases=[(alias.name, name_key(alias.name), pack((alias.place,))) for alias in note.aliases],
        blocks=[(block.id, pack((block.place,))) for block in note.blocks],
        anchors=[(anchor.name, pack((anchor.place,))) for anchor in note.anchors],
        definitions=[(d.label, d.target, pack((d.place, d.label_place))) for d in note.definitions],
        label_uses=[(use.label, use.defined, pack((use.place,))) for use in note.label_uses],
        problems=[(problem.rule, problem.message, pack((problem.place,))) for problem in note.problems],
        frontmatter=[(key, json.dumps(value, ensure_ascii=False)) for key, value in (note.frontmatter or {}).items()],
        names=[
            ((kind, name, name_key(name)), (terms.words, terms.bigrams))
            for kind, name in names
            for terms in (index_terms(name),)
        ],
        chunks=written,
    )


def add_name(connection: apsw.Connection, path: NotePath, scanned_ns: int) -> None:
    """Make a note known by name, before its content is read."""
    connection.execute(
        "INSERT OR IGNORE INTO documents(path, kind, area, scanned_ns) VALUES(?, 'note', ?, ?)",
        (path, area(path), scanned_ns),
    )


def put(connection: apsw.Connection, document: int, written: Rows) -> bool:
    """Replace the rows of a document. True when its aliases changed, and so what links to it can be."""
    before = connection.execute("SELECT name FROM aliases WHERE document = ?", (document,)).fetchall()
    if one(connection, "SELECT title IS NOT NULL FROM documents WHERE id = ?", (document,))[0]:
        clear(connection, document)
    connection.execute(
        "UPDATE documents SET title = ?, title_place = ?, has_frontmatter = ?, skipped = NULL WHERE id = ?",
        (written.title, written.title_place, written.has_frontmatter, document),
    )
    for table, statement in _ORDINAL_TABLES.items():
        values: list[Values] = getattr(written, table)
        if values:
            connection.executemany(statement, [(document, ordinal, *row) for ordinal, row in enumerate(values)])
    for key, value in written.frontmatter:
        connection.execute("INSERT OR REPLACE INTO frontmatter VALUES(?, ?, ?)", (document, key, value))
    _put_indexed(connection, _NAME, _NAME_TERMS, document, written.names)
    _put_indexed(connection, _CHUNK, _CHUNK_TERMS, document, written.chunks)
    return {alias for (alias,) in before} != {alias for alias, *_ in written.aliases}


def clear(connection: apsw.Connection, document: int) -> None:
    """Remove all that a document's content put into the index; its name stays known."""
    for statement in _CLEAR:
        connection.execute(statement, (document,))
    connection.execute(
        "UPDATE documents SET title = NULL, title_place = NULL, has_frontmatter = NULL WHERE id = ?", (document,)
    )


def remove(connection: apsw.Connection, document: int) -> None:
    """Remove a document altogether."""
    clear(connection, document)
    connection.execute("DELETE FROM documents WHERE id = ?", (document,))


def put_skipped(
    connection: apsw.Connection, path: NotePath, reason: str, stamp: Stamp | None, version: Version, scanned_ns: int
) -> None:
    """Record a note that can't be indexed. It stays a target for links; what was indexed of it before goes.

    Without a hash nobody has read it, and it is tried again at the next look.
    """
    add_name(connection, path, scanned_ns)
    known = known_at(connection, path)
    assert known is not None
    clear(connection, known.document)
    put_stamp(connection, known.document, stamp or Stamp(0, 0, 0, 0), version, scanned_ns)
    connection.execute("UPDATE documents SET skipped = ? WHERE id = ?", (reason, known.document))


def put_stamp(connection: apsw.Connection, document: int, stamp: Stamp, version: Version, scanned_ns: int) -> None:
    """Record the state of the file that the rows of a document were made from, or its absence from the index."""
    connection.execute(
        "UPDATE documents SET size = ?, mtime_ns = ?, ctime_ns = ?, inode = ?, scanned_ns = ?, hash = ?, made_by = ?"
        " WHERE id = ?",
        (*stamp, scanned_ns, *version, document),
    )


def put_file(connection: apsw.Connection, path: NotePath, kind: str, reason: str | None) -> None:
    """Make a folder, or a file that is no note, known as a target for links."""
    connection.execute("INSERT OR REPLACE INTO files VALUES(?, ?, ?)", (path, kind, reason))


def remove_file(connection: apsw.Connection, path: NotePath) -> None:
    """Forget a folder or a file that is no note."""
    connection.execute("DELETE FROM files WHERE path = ?", (path,))


def set_walked(connection: apsw.Connection) -> None:
    """Record that the names of the whole vault are written."""
    connection.execute("UPDATE meta SET value = 1 WHERE key = 'walked' AND value = 0")


def bump_names(connection: apsw.Connection) -> None:
    """Tell every process that the set of names changed."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'names'")


def count_change(connection: apsw.Connection) -> None:
    """Tell every process that this transaction changed the index."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'changes'")


def _put_indexed(
    connection: apsw.Connection, row: str, terms: str, document: int, written: list[tuple[Values, Values]]
) -> None:
    """Insert rows and, under the same ids, their search terms."""
    if written:
        connection.executemany(row, [(document, *values) for values, _ in written])
        # Inside one transaction SQLite numbers them one after the other.
        first = connection.last_insert_rowid() - len(written) + 1
        connection.executemany(terms, [(first + at, *values) for at, (_, values) in enumerate(written)])
