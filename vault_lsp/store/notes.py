"""What the index knows: notes as they were parsed, names, anchors and backlinks, read from rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import apsw

from vault_lsp.core.links import Anchors, Names
from vault_lsp.core.model import (
    Alias,
    Anchor,
    Block,
    Definition,
    Heading,
    LabelUse,
    Link,
    Note,
    NotePath,
    Problem,
    Tag,
)
from vault_lsp.core.text import Place, unpack
from vault_lsp.store.db import one


class Known(NamedTuple):
    """What the index knows of a note on disk: enough to see whether the note changed."""

    document: int
    size: int | None
    mtime_ns: int | None
    ctime_ns: int | None
    inode: int | None
    scanned_ns: int
    hash: bytes | None
    made_by: str | None
    skipped: str | None


_Part = TypeVar("_Part")


class Backlink(NamedTuple):
    """A link as stored, with the note it stands in."""

    source: NotePath
    link: Link


_LINK_COLUMNS = (
    "links.kind, links.target, links.path, links.subpath, links.display, links.embed, links.comment, links.places"
)


def known(connection: apsw.Connection) -> dict[NotePath, Known]:
    """All notes with what tells whether they changed."""
    return {
        row[0]: Known(*row[1:])
        for row in connection.execute(
            "SELECT path, id, size, mtime_ns, ctime_ns, inode, scanned_ns, hash, made_by, skipped FROM documents"
        )
    }


def known_at(connection: apsw.Connection, path: NotePath) -> Known | None:
    """What is known of one note."""
    row = connection.execute(
        "SELECT id, size, mtime_ns, ctime_ns, inode, scanned_ns, hash, made_by, skipped FROM documents WHERE path = ?",
        (path,),
    ).fetchone()
    return Known(*row) if row else None


def known_below(connection: apsw.Connection, path: NotePath) -> dict[NotePath, Known]:
    """What is known of a note, and of all notes below it if it is, or was, a folder."""
    return {
        row[0]: Known(*row[1:])
        for row in connection.execute(
            "SELECT path, id, size, mtime_ns, ctime_ns, inode, scanned_ns, hash, made_by, skipped FROM documents"
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


def walked(connection: apsw.Connection) -> bool:
    """Whether the names of the whole vault were ever written."""
    return bool(one(connection, "SELECT value FROM meta WHERE key = 'walked'")[0])


class State(NamedTuple):
    """Which index a snapshot is of, and how far it has come.

    `serial` is shared by no other index, `names` rises with every change of the names, `changes` with every change.
    """

    serial: str
    names: int
    changes: int


def state(connection: apsw.Connection) -> State:
    """What is kept between two questions is good for one state."""
    found = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('serial', 'names', 'changes')"))
    return State(cast(str, found["serial"]), cast(int, found["names"]), cast(int, found["changes"]))


def names(connection: apsw.Connection) -> Names:
    """The catalogue of everything that a link can lead to."""
    notes = [path for (path,) in connection.execute("SELECT path FROM documents")]
    files: list[NotePath] = []
    folders: list[NotePath] = []
    for path, kind in connection.execute("SELECT path, kind FROM files"):
        (folders if kind == "folder" else files).append(path)
    named = (
        (name, NotePath(path))
        for name, path in connection.execute(
            "SELECT aliases.name, documents.path FROM aliases JOIN documents ON documents.id = aliases.document"
        )
    )
    return Names.of([*notes, *files], folders, named)


def document_id(connection: apsw.Connection, path: NotePath) -> int | None:
    """Row id of a note whose content is indexed."""
    row = connection.execute("SELECT id FROM documents WHERE path = ? AND title IS NOT NULL", (path,)).fetchone()
    return row[0] if row else None


def note(connection: apsw.Connection, path: NotePath) -> Note | None:
    """A note as it was indexed, equal to what the parser returned; None where it has no content in the index."""
    row = connection.execute(
        "SELECT id, title, title_place, has_frontmatter FROM documents WHERE path = ? AND title IS NOT NULL", (path,)
    ).fetchone()
    if row is None:
        return None
    document, title, title_place, has_frontmatter = row
    ask = (document,)
    run = connection.execute
    return Note(
        path=path,
        title=title,
        title_place=_place(title_place),
        aliases=tuple(
            Alias(name, _place(p)) for name, p in run("SELECT name, place FROM aliases WHERE document = ?", ask)
        ),
        tags=tuple(Tag(name, _place(p)) for name, p in run("SELECT name, place FROM tags WHERE document = ?", ask)),
        headings=headings(connection, document),
        links=tuple(_link(row) for row in run(f"SELECT {_LINK_COLUMNS} FROM links WHERE document = ?", ask)),
        blocks=blocks(connection, document),
        anchors=named_places(connection, document),
        definitions=tuple(
            Definition(label, target, *unpack(places))
            for label, target, places in run("SELECT label, target, places FROM definitions WHERE document = ?", ask)
        ),
        label_uses=tuple(
            LabelUse(label, _place(place), bool(defined))
            for label, defined, place in run("SELECT label, defined, place FROM label_uses WHERE document = ?", ask)
        ),
        frontmatter={
            key: json.loads(value) for key, value in run("SELECT key, value FROM frontmatter WHERE document = ?", ask)
        }
        if has_frontmatter
        else None,
        problems=tuple(
            Problem(rule, message, _place(place))
            for rule, message, place in run("SELECT rule, message, place FROM problems WHERE document = ?", ask)
        ),
    )


def for_rules(connection: apsw.Connection) -> Iterator[Note]:
    """Every indexed note with what the rules look at, so without headings and anchors; reads each table once."""
    run = connection.execute

    def parts(statement: str, make: Callable[[Sequence[Any]], _Part]) -> dict[int, list[_Part]]:
        found: dict[int, list[_Part]] = {}
        for document, *row in run(statement):
            found.setdefault(document, []).append(make(row))
        return found

    aliases = parts("SELECT document, name, place FROM aliases", lambda row: Alias(row[0], _place(row[1])))
    tags = parts("SELECT document, name, place FROM tags", lambda row: Tag(row[0], _place(row[1])))
    links = parts(f"SELECT document, {_LINK_COLUMNS} FROM links", _link)
    blocks = parts("SELECT document, id, place FROM blocks", lambda row: Block(row[0], _place(row[1])))
    definitions = parts(
        "SELECT document, label, target, places FROM definitions", lambda row: Definition(*row[:2], *unpack(row[2]))
    )
    uses = parts(
        "SELECT document, label, defined, place FROM label_uses",
        lambda row: LabelUse(row[0], _place(row[2]), bool(row[1])),
    )
    problems = parts(
        "SELECT document, rule, message, place FROM problems", lambda row: Problem(row[0], row[1], _place(row[2]))
    )
    properties = parts("SELECT document, key, value FROM frontmatter", lambda row: (row[0], json.loads(row[1])))
    for document, path, title, title_place, has_frontmatter in run(
        "SELECT id, path, title, title_place, has_frontmatter FROM documents WHERE title IS NOT NULL"
    ):
        yield Note(
            path,
            title,
            _place(title_place),
            aliases=tuple(aliases.get(document, ())),
            tags=tuple(tags.get(document, ())),
            links=tuple(links.get(document, ())),
            blocks=tuple(blocks.get(document, ())),
            definitions=tuple(definitions.get(document, ())),
            label_uses=tuple(uses.get(document, ())),
            frontmatter=dict(properties.get(document, ())) if has_frontmatter else None,
            problems=tuple(problems.get(document, ())),
        )


def headings(connection: apsw.Connection, document: int) -> tuple[Heading, ...]:
    """The outline of a document."""
    return tuple(
        Heading(level, text, raw, slug, _place(place), bool(linkable))
        for level, text, raw, slug, linkable, place in connection.execute(
            "SELECT level, text, raw, slug, linkable, place FROM headings WHERE document = ?", (document,)
        )
    )


def blocks(connection: apsw.Connection, document: int) -> tuple[Block, ...]:
    """The block ids of a document, repeated ones too."""
    found = connection.execute("SELECT id, place FROM blocks WHERE document = ?", (document,))
    return tuple(Block(name, _place(place)) for name, place in found)


def named_places(connection: apsw.Connection, document: int) -> tuple[Anchor, ...]:
    """The HTML anchors of a document."""
    found = connection.execute("SELECT name, place FROM anchors WHERE document = ?", (document,))
    return tuple(Anchor(name, _place(place)) for name, place in found)


def anchors(connection: apsw.Connection, path: NotePath) -> Anchors | None:
    """What can be linked inside a note; None for a file that is no note or has no content in the index."""
    document = document_id(connection, path)
    if document is None:
        return None
    return Anchors.build(
        (heading for heading in headings(connection, document) if heading.linkable),
        blocks(connection, document),
        named_places(connection, document),
    )


def links_with_keys(connection: apsw.Connection, keys: Sequence[str]) -> Iterator[Backlink]:
    """Every stored link whose key is one of `keys`: the candidates for the backlinks of a file."""
    for path, *row in connection.execute(
        f"SELECT documents.path, {_LINK_COLUMNS} FROM json_each(?) AS wanted"
        " CROSS JOIN links ON links.key = wanted.value JOIN documents ON documents.id = links.document",
        (json.dumps(keys, ensure_ascii=False),),
    ):
        yield Backlink(path, _link(row))


def sources_by_keys(connection: apsw.Connection, keys: Sequence[Sequence[str]], paths: Sequence[NotePath]) -> list[int]:
    """For each list of keys, how many notes other than that at its path have a link with one of them."""
    triples = json.dumps(
        [(place, key, paths[place]) for place, each in enumerate(keys) for key in each], ensure_ascii=False
    )
    counts = dict(
        connection.execute(
            "SELECT wanted.value ->> 0, count(DISTINCT links.document) FROM json_each(?) AS wanted"
            " CROSS JOIN links ON links.key = wanted.value ->> 1 JOIN documents ON documents.id = links.document"
            " WHERE documents.path <> wanted.value ->> 2 GROUP BY 1",
            (triples,),
        )
    )
    return [counts.get(place, 0) for place in range(len(keys))]


def with_aliases(connection: apsw.Connection, paths: Sequence[NotePath]) -> set[NotePath]:
    """Those of the notes that have an alias."""
    asked = connection.execute(
        "SELECT path FROM documents WHERE path IN (SELECT value FROM json_each(?))"
        " AND EXISTS (SELECT 1 FROM aliases WHERE aliases.document = documents.id)",
        (json.dumps(paths, ensure_ascii=False),),
    )
    return {NotePath(path) for (path,) in asked}


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


_VERSIONS = "SELECT id, CAST(hash || made_by || path AS BLOB) FROM documents WHERE title IS NOT NULL"


def versions(connection: apsw.Connection) -> dict[int, bytes]:
    """What the rows of every indexed note depend on, by document: its bytes, our code, and its path."""
    return dict(cast("Iterable[tuple[int, bytes]]", connection.execute(_VERSIONS)))


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
    found, place = one(connection, "SELECT title, title_place FROM documents WHERE id = ?", (document,))
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
        *one(
            connection,
            "SELECT (SELECT count(*) FROM documents WHERE title IS NOT NULL), (SELECT count(*) FROM links),"
            " (SELECT count(*) FROM chunks), (SELECT count(*) FROM files WHERE kind = 'file'),"
            " (SELECT count(*) FROM files WHERE kind = 'folder')",
        )
    )


def misread(connection: apsw.Connection) -> dict[NotePath, str]:
    """Notes with bytes that had to be replaced, with what was said of it."""
    asked = connection.execute(
        "SELECT d.path, p.message FROM problems AS p JOIN documents AS d ON d.id = p.document"
        " WHERE p.rule = 'invalid-encoding' ORDER BY 1"
    )
    return dict(cast("Iterable[tuple[NotePath, str]]", asked))


def skipped(connection: apsw.Connection) -> dict[NotePath, str]:
    """What could not be indexed, with the reason."""
    return dict(
        cast(
            "Iterable[tuple[NotePath, str]]",
            connection.execute(
                "SELECT path, skipped FROM documents WHERE skipped IS NOT NULL"
                " UNION ALL SELECT path, reason FROM files WHERE reason IS NOT NULL ORDER BY 1"
            ),
        )
    )


def file_stem(path: NotePath) -> str:
    """A note's file name without `.md`."""
    name = path.rpartition("/")[2]
    return name[:-3] if name[-3:].lower() == ".md" else name


def area(path: NotePath) -> str:
    """The first folder of a path, `root` for a note at the root."""
    return path.split("/", 1)[0] if "/" in path else "root"


def _place(packed: bytes) -> Place:
    return unpack(packed)[0]


def _link(row: Sequence[Any]) -> Link:
    kind, target, path, subpath, display, embed, comment, places = row
    place, target_place, subpath_place = unpack(places)
    return Link(
        *(kind, target, path, subpath, display, bool(embed)), *(place, target_place, subpath_place), bool(comment)
    )
