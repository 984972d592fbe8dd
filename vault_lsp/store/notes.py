"""Notes as rows and back: what the indexer writes and what every answer reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import apsw

from vault_lsp.core.links import Anchors, HeadingAnchor, Names, heading_key, link_key, name_key
from vault_lsp.core.model import (
    Anchor,
    Block,
    Chunk,
    Definition,
    Heading,
    LabelUse,
    Link,
    LinkKind,
    Note,
    NotePath,
    Problem,
    Stamp,
    Tag,
)
from vault_lsp.core.text import Place, pack, unpack
from vault_lsp.core.tokens import index_terms

Values = tuple[object, ...]


class Known(NamedTuple):
    """What the index knows of a note on disk: enough to see whether the note changed."""

    document: int
    size: int | None
    mtime_ns: int | None
    ctime_ns: int | None
    inode: int | None
    scanned_ns: int
    hash: bytes | None
    skipped: str | None


class Rows(NamedTuple):
    """All rows of one note but for their document id, ready to be written; made in a worker process."""

    title: str
    title_place: bytes
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


class Backlink(NamedTuple):
    """A link as stored, with the note it stands in."""

    source: NotePath
    link: Link


_ORDINAL_TABLES = {
    "headings": "INSERT INTO headings VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
    "links": "INSERT INTO links VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "tags": "INSERT INTO tags VALUES(?, ?, ?, ?, ?)",
    "aliases": "INSERT INTO aliases VALUES(?, ?, ?, ?)",
    "blocks": "INSERT INTO blocks VALUES(?, ?, ?, ?)",
    "anchors": "INSERT INTO anchors VALUES(?, ?, ?, ?)",
    "definitions": "INSERT INTO definitions VALUES(?, ?, ?, ?, ?)",
    "label_uses": "INSERT INTO label_uses VALUES(?, ?, ?, ?, ?)",
    "problems": "INSERT INTO problems VALUES(?, ?, ?, ?, ?)",
}

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

_LINK_COLUMNS = (
    "links.kind, links.target, links.path, links.subpath, links.display, links.embed, links.comment, links.places"
)


# Writing ------------------------------------------------------------------------------------------------------------


def rows(note: Note, chunks: Iterable[Chunk]) -> Rows:
    """The rows of a note; they depend on the note alone, never on another one."""
    title = index_terms(note.title)
    written: list[tuple[Values, Values]] = []
    heading_terms: dict[tuple[str, ...], str] = {}
    for chunk in chunks:
        head = heading_terms.get(chunk.heading_path)
        if head is None:
            terms = index_terms(" ".join(chunk.heading_path))
            head = heading_terms[chunk.heading_path] = f"{title.words} {title.bigrams} {terms.words} {terms.bigrams}"
        body = index_terms(chunk.text)
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
    named = [("title", note.title), *(("alias", alias) for alias in note.aliases)]
    if name_key(stem) != name_key(note.title):
        named.append(("file", stem))
    return Rows(
        title=note.title,
        title_place=pack((note.title_place,)),
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
        aliases=[(alias, name_key(alias)) for alias in note.aliases],
        blocks=[(block.id, pack((block.place,))) for block in note.blocks],
        anchors=[(anchor.name, pack((anchor.place,))) for anchor in note.anchors],
        definitions=[(d.label, d.target, pack((d.place, d.label_place))) for d in note.definitions],
        label_uses=[(use.label, use.defined, pack((use.place,))) for use in note.label_uses],
        problems=[(problem.rule, problem.message, pack((problem.place,))) for problem in note.problems],
        frontmatter=[(key, json.dumps(value, ensure_ascii=False)) for key, value in (note.frontmatter or {}).items()],
        names=[
            ((kind, name, name_key(name)), (terms.words, terms.bigrams))
            for kind, name in named
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
    if connection.execute("SELECT title IS NOT NULL FROM documents WHERE id = ?", (document,)).fetchone()[0]:
        clear(connection, document)
    connection.execute(
        "UPDATE documents SET title = ?, title_place = ? WHERE id = ?", (written.title, written.title_place, document)
    )
    for table, statement in _ORDINAL_TABLES.items():
        values: list[Values] = getattr(written, table)
        if values:
            connection.executemany(statement, [(document, ordinal, *row) for ordinal, row in enumerate(values)])
    for key, value in written.frontmatter:
        connection.execute("INSERT OR REPLACE INTO frontmatter VALUES(?, ?, ?)", (document, key, value))
    for row, terms in written.names:
        connection.execute("INSERT INTO names(document, kind, name, key) VALUES(?, ?, ?, ?)", (document, *row))
        connection.execute(
            "INSERT INTO name_fts(rowid, words, bigrams) VALUES(?, ?, ?)", (connection.last_insert_rowid(), *terms)
        )
    for row, terms in written.chunks:
        connection.execute(
            "INSERT INTO chunks(document, ordinal, heading_path, line_start, line_end, page_start, page_end, sha)"
            " VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
            (document, *row),
        )
        connection.execute(
            "INSERT INTO chunk_fts(rowid, title, words, bigrams) VALUES(?, ?, ?, ?)",
            (connection.last_insert_rowid(), *terms),
        )
    return {alias for (alias,) in before} != {alias for alias, _ in written.aliases}


def clear(connection: apsw.Connection, document: int) -> None:
    """Remove all that a document's content put into the index; its name stays known."""
    for statement in _CLEAR:
        connection.execute(statement, (document,))
    connection.execute("UPDATE documents SET title = NULL, title_place = NULL WHERE id = ?", (document,))


def remove(connection: apsw.Connection, document: int) -> None:
    """Remove a document altogether."""
    clear(connection, document)
    connection.execute("DELETE FROM documents WHERE id = ?", (document,))


def put_skipped(
    connection: apsw.Connection,
    path: NotePath,
    reason: str,
    stamp: Stamp | None,
    digest: bytes | None,
    scanned_ns: int,
) -> None:
    """Record a note that can't be indexed. It stays a target for links; what was indexed of it before goes.

    Without a digest nobody has read it, and it is tried again at the next look.
    """
    add_name(connection, path, scanned_ns)
    known = known_at(connection, path)
    assert known is not None
    clear(connection, known.document)
    put_stamp(connection, known.document, stamp or Stamp(0, 0, 0, 0), digest, scanned_ns)
    connection.execute("UPDATE documents SET skipped = ? WHERE id = ?", (reason, known.document))


def put_stamp(
    connection: apsw.Connection, document: int, stamp: Stamp, digest: bytes | None, scanned_ns: int
) -> None:
    """Record the state of the file that the rows of a document were made from."""
    connection.execute(
        "UPDATE documents SET size = ?, mtime_ns = ?, ctime_ns = ?, inode = ?, scanned_ns = ?, hash = ?, skipped = NULL"
        " WHERE id = ?",
        (*stamp, scanned_ns, digest, document),
    )


def put_file(connection: apsw.Connection, path: NotePath, kind: str, reason: str | None) -> None:
    """Make a folder, or a file that is no note, known as a target for links."""
    connection.execute("INSERT OR REPLACE INTO files VALUES(?, ?, ?)", (path, kind, reason))


def remove_file(connection: apsw.Connection, path: NotePath) -> None:
    """Forget a folder or a file that is no note."""
    connection.execute("DELETE FROM files WHERE path = ?", (path,))


def bump_names(connection: apsw.Connection) -> None:
    """Tell every process that the set of names changed."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'names'")


def count_change(connection: apsw.Connection) -> None:
    """Tell every process that this transaction changed the index."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'changes'")


# Reading ------------------------------------------------------------------------------------------------------------


def known(connection: apsw.Connection) -> dict[NotePath, Known]:
    """All notes with what tells whether they changed."""
    return {
        row[0]: Known(*row[1:])
        for row in connection.execute(
            "SELECT path, id, size, mtime_ns, ctime_ns, inode, scanned_ns, hash, skipped FROM documents"
        )
    }


def known_at(connection: apsw.Connection, path: NotePath) -> Known | None:
    """What is known of one note."""
    row = connection.execute(
        "SELECT id, size, mtime_ns, ctime_ns, inode, scanned_ns, hash, skipped FROM documents WHERE path = ?", (path,)
    ).fetchone()
    return Known(*row) if row else None


def known_below(connection: apsw.Connection, path: NotePath) -> dict[NotePath, Known]:
    """What is known of a note, and of all notes below it if it is, or was, a folder."""
    return {
        row[0]: Known(*row[1:])
        for row in connection.execute(
            "SELECT path, id, size, mtime_ns, ctime_ns, inode, scanned_ns, hash, skipped FROM documents"
            " WHERE path = ?1 OR (path > ?1 || '/' AND path < ?1 || '0')",  # '0' follows '/'
            (path,),
        )
    }


def known_files(connection: apsw.Connection) -> dict[NotePath, tuple[str, str | None]]:
    """All folders and files that are no notes: kind, and the reason where one can't be read."""
    return {path: (kind, reason) for path, kind, reason in connection.execute("SELECT path, kind, reason FROM files")}


def known_file(connection: apsw.Connection, path: NotePath) -> dict[NotePath, tuple[str, str | None]]:
    """The same for one path: empty where it isn't known."""
    asked = connection.execute("SELECT path, kind, reason FROM files WHERE path = ?", (path,))
    return {path: (kind, reason) for path, kind, reason in asked}


def known_files_below(connection: apsw.Connection, path: NotePath) -> dict[NotePath, tuple[str, str | None]]:
    """The same for a path and all below it."""
    asked = connection.execute(
        "SELECT path, kind, reason FROM files WHERE path = ?1 OR (path > ?1 || '/' AND path < ?1 || '0')", (path,)
    )
    return {path: (kind, reason) for path, kind, reason in asked}


def names_version(connection: apsw.Connection) -> int:
    """A number that changes with the set of names."""
    return cast(int, connection.execute("SELECT value FROM meta WHERE key = 'names'").fetchone()[0])


def names(connection: apsw.Connection) -> Names:
    """The catalogue of everything that a link can lead to."""
    notes = [path for (path,) in connection.execute("SELECT path FROM documents")]
    files: list[NotePath] = []
    folders: list[NotePath] = []
    for path, kind in connection.execute("SELECT path, kind FROM files"):
        (folders if kind == "folder" else files).append(path)
    aliases = connection.execute(
        "SELECT aliases.name, documents.path FROM aliases JOIN documents ON documents.id = aliases.document"
    ).fetchall()
    return Names.of([*notes, *files], folders, aliases)


def document_id(connection: apsw.Connection, path: NotePath) -> int | None:
    """Row id of a note whose content is indexed."""
    row = connection.execute("SELECT id FROM documents WHERE path = ? AND title IS NOT NULL", (path,)).fetchone()
    return row[0] if row else None


def note(connection: apsw.Connection, path: NotePath) -> Note | None:
    """A note as it was indexed, equal to what the parser returned; None where it has no content in the index."""
    row = connection.execute(
        "SELECT id, title, title_place FROM documents WHERE path = ? AND title IS NOT NULL", (path,)
    ).fetchone()
    if row is None:
        return None
    document, title, title_place = row
    ask = (document,)
    run = connection.execute
    return Note(
        path=path,
        title=title,
        title_place=_place(title_place),
        aliases=tuple(name for (name,) in run("SELECT name FROM aliases WHERE document = ?", ask)),
        tags=tuple(Tag(name, _place(p)) for name, p in run("SELECT name, place FROM tags WHERE document = ?", ask)),
        headings=headings(connection, document),
        links=tuple(_link(row) for row in run(f"SELECT {_LINK_COLUMNS} FROM links WHERE document = ?", ask)),
        blocks=tuple(Block(i, _place(p)) for i, p in run("SELECT id, place FROM blocks WHERE document = ?", ask)),
        anchors=tuple(Anchor(n, _place(p)) for n, p in run("SELECT name, place FROM anchors WHERE document = ?", ask)),
        definitions=tuple(
            Definition(label, target, *unpack(places))
            for label, target, places in run("SELECT label, target, places FROM definitions WHERE document = ?", ask)
        ),
        label_uses=tuple(
            LabelUse(label, _place(place), bool(defined))
            for label, defined, place in run("SELECT label, defined, place FROM label_uses WHERE document = ?", ask)
        ),
        frontmatter={
            key: json.loads(value)
            for key, value in run("SELECT key, value FROM frontmatter WHERE document = ?", ask)
        }
        or None,
        problems=tuple(
            Problem(rule, message, _place(place))
            for rule, message, place in run("SELECT rule, message, place FROM problems WHERE document = ?", ask)
        ),
    )


def headings(connection: apsw.Connection, document: int) -> tuple[Heading, ...]:
    """The outline of a document."""
    return tuple(
        Heading(level, text, raw, slug, _place(place), bool(linkable))
        for level, text, raw, slug, linkable, place in connection.execute(
            "SELECT level, text, raw, slug, linkable, place FROM headings WHERE document = ?", (document,)
        )
    )


def anchors(connection: apsw.Connection, path: NotePath) -> Anchors | None:
    """What can be linked inside a note; None for a file that is no note or has no content in the index."""
    document = document_id(connection, path)
    if document is None:
        return None
    blocks: dict[str, Place] = {}
    for name, place in connection.execute("SELECT id, place FROM blocks WHERE document = ?", (document,)):
        blocks.setdefault(name.lower(), _place(place))
    named: dict[str, Place] = {}
    for name, place in connection.execute("SELECT name, place FROM anchors WHERE document = ?", (document,)):
        named.setdefault(name, _place(place))
    return Anchors(
        tuple(
            HeadingAnchor(level, heading_key(raw), slug, _place(place))
            for level, raw, slug, place in connection.execute(
                "SELECT level, raw, slug, place FROM headings WHERE document = ? AND linkable", (document,)
            )
        ),
        blocks,
        named,
    )


def links_with_keys(connection: apsw.Connection, keys: Sequence[str]) -> Iterator[Backlink]:
    """Every stored link whose key is one of `keys`: the candidates for the backlinks of a file."""
    for path, *row in connection.execute(
        f"SELECT documents.path, {_LINK_COLUMNS} FROM json_each(?) AS wanted"
        " CROSS JOIN links ON links.key = wanted.value JOIN documents ON documents.id = links.document",
        (json.dumps(keys, ensure_ascii=False),),
    ):
        yield Backlink(path, _link(row))


def aliases(connection: apsw.Connection, path: NotePath) -> tuple[str, ...]:
    """The aliases of a note."""
    return tuple(
        name
        for (name,) in connection.execute(
            "SELECT aliases.name FROM aliases JOIN documents ON documents.id = aliases.document WHERE path = ?", (path,)
        )
    )


def tag_places(connection: apsw.Connection, key: str) -> Iterator[tuple[NotePath, Place]]:
    """Where a tag stands; `key` is its normalised name."""
    for path, place in connection.execute(
        "SELECT documents.path, tags.place FROM tags JOIN documents ON documents.id = tags.document WHERE key = ?",
        (key,),
    ):
        yield path, _place(place)


class StoredName(NamedTuple):
    """A title, alias, file name or heading as the index has it; the place stays packed until it is shown."""

    document: int
    path: NotePath
    name: str
    kind: str
    place: bytes | None


def changes(connection: apsw.Connection) -> int:
    """A number that grows with every transaction that changed the index."""
    return cast(int, connection.execute("SELECT value FROM meta WHERE key = 'changes'").fetchone()[0])


def versions(connection: apsw.Connection) -> dict[int, bytes]:
    """The content hash of every indexed note, by document."""
    return dict(connection.execute("SELECT id, hash FROM documents WHERE title IS NOT NULL").fetchall())


def stored_names(connection: apsw.Connection, documents: Sequence[int]) -> Iterator[StoredName]:
    """The names and headings of documents, each document's in order; a title that is a heading once."""
    wanted = json.dumps(list(documents))
    for row in connection.execute(
        "SELECT d.id, d.path, h.text, 'heading', h.place FROM json_each(?1) AS w"
        " JOIN documents AS d ON d.id = w.value JOIN headings AS h ON h.document = d.id"
        " WHERE h.text <> '' AND h.place IS NOT d.title_place"
        " UNION ALL SELECT d.id, d.path, n.name, n.kind, iif(n.kind = 'title', d.title_place, NULL)"
        " FROM json_each(?1) AS w JOIN documents AS d ON d.id = w.value JOIN names AS n ON n.document = d.id",
        (wanted,),
    ):
        yield StoredName(*row)


def title(connection: apsw.Connection, document: int) -> tuple[str | None, Place | None]:
    """Title of a document with its place."""
    found, place = connection.execute("SELECT title, title_place FROM documents WHERE id = ?", (document,)).fetchone()
    return found, _place(place) if place is not None else None


def tags_like(connection: apsw.Connection, prefix: str, limit: int) -> Iterator[tuple[str, NotePath, Place]]:
    """Tags that begin so, each with the first place it stands at."""
    for name, path, place in connection.execute(
        "SELECT tags.name, documents.path, tags.place FROM tags JOIN documents ON documents.id = tags.document"
        " WHERE key >= ?1 AND key < ?1 || char(1114111) GROUP BY key ORDER BY key LIMIT ?2",
        (prefix, limit),
    ):
        yield name, path, _place(place)


class Counts(NamedTuple):
    """How much of a vault the index holds."""

    notes: int
    links: int
    chunks: int
    files: int
    folders: int


def counts(connection: apsw.Connection) -> Counts:
    """Sizes of the index."""
    return Counts(
        *connection.execute(
            "SELECT (SELECT count(*) FROM documents WHERE title IS NOT NULL), (SELECT count(*) FROM links),"
            " (SELECT count(*) FROM chunks), (SELECT count(*) FROM files WHERE kind = 'file'),"
            " (SELECT count(*) FROM files WHERE kind = 'folder')"
        ).fetchone()
    )


def skipped(connection: apsw.Connection) -> dict[NotePath, str]:
    """What could not be indexed, with the reason."""
    return dict(
        connection.execute(
            "SELECT path, skipped FROM documents WHERE skipped IS NOT NULL"
            " UNION ALL SELECT path, reason FROM files WHERE reason IS NOT NULL ORDER BY 1"
        ).fetchall()
    )


#: Every table whose rows follow from a note alone, as rows that two indexes of one vault must share.
_COMPARED = {
    "documents": "SELECT path, kind, area, title, title_place, hash, skipped FROM documents",
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
    "chunks": "SELECT d.path, t.ordinal, t.heading_path, t.line_start, t.line_end, t.page_start, t.page_end, t.sha, z.sz"
    " FROM chunks AS t JOIN documents AS d ON d.id = t.document LEFT JOIN chunk_fts_docsize AS z ON z.id = t.id",
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


def file_stem(path: NotePath) -> str:
    """A note's file name without `.md`."""
    name = path.rpartition("/")[2]
    return name[:-3] if name[-3:].lower() == ".md" else name


def area(path: NotePath) -> str:
    """The first folder of a path, `root` for a note at the root."""
    return path.split("/", 1)[0] if "/" in path else "root"


def _place(packed: bytes) -> Place:
    return unpack(packed)[0]


def _link(row: Sequence[object]) -> Link:
    kind, target, path, subpath, display, embed, comment, places = row
    return Link(
        cast(LinkKind, kind),
        cast(str, target),
        cast(str, path),
        cast(str, subpath),
        cast("str | None", display),
        bool(embed),
        *unpack(cast(bytes, places)),
        bool(comment),
    )


def frontmatter_of(connection: apsw.Connection, document: int) -> Mapping[str, object]:
    """The front matter of a document."""
    return {
        key: json.loads(value)
        for key, value in connection.execute("SELECT key, value FROM frontmatter WHERE document = ?", (document,))
    }
