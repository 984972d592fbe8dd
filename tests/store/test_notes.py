"""What is read from the index is what the parser said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.chunk import chunks
from vault_lsp.core.links import link_key
from vault_lsp.core.model import Note, NotePath, Stamp
from vault_lsp.core.parse import parse
from vault_lsp.core.text import Text
from vault_lsp.store import compare, db, notes, rows

LINES = (
    *("# One", "## Two ^b", "text #tag #a/b", "[[a|x]] ![[b#h]] [y](c.md#z 't')", "> # quoted", "- [ ] item ^id", ""),
    *(
        "[ref]: d.md",
        "[use][ref] [ref] [no][such]",
        "[^1] x",
        "[^1]: note",
        "<a name='x'></a> 😀 é 知识",
        "%% [[c]] %%",
    ),
    *("```", "$$", "| a | b |", "|---|---|", "\t code", "&amp; \\[[x]]", "\u2028\x0b[[u]]"),
)
HEADS = ("", "---\ntitle: T\ntags: [x, y/z]\naliases: [A, b]\nn: {k: [1, 2.5, null]}\n---\n", "---\na: [\n---\n")

texts = st.builds(
    lambda head, lines, end: head + end.join(lines),
    st.sampled_from(HEADS),
    st.lists(st.sampled_from(LINES), max_size=12),
    st.sampled_from(("\n", "\r\n", "\r")),
) | st.text(max_size=40)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    file = tmp_path_factory.mktemp("index") / "index-v3.1.db"
    db.create(file, Path("/"))
    with closing(db.connect(file, writable=True)) as opened:
        yield opened


def put(connection: apsw.Connection, path: str, source: str) -> Note:
    """Index a text; what the parser said of it."""
    text = Text(source)
    note = parse(NotePath(path), text)
    with db.atomic(connection):
        rows.add_name(connection, note.path, 0)
        known = notes.known_at(connection, note.path)
        assert known is not None
        rows.put(connection, known.document, rows.rows(note, chunks(note, text)))
        rows.put_stamp(connection, known.document, Stamp(1, 2, 3, 4), rows.Version(b"h", "v"), 5)
    return note


@given(texts, texts)
def test_a_note_comes_back_as_it_was_parsed_whatever_stood_there_before(
    connection: apsw.Connection, before: str, after: str
) -> None:
    put(connection, "x/n.md", before)
    note = put(connection, "x/n.md", after)
    assert notes.note(connection, note.path) == note
    keys = [key for link in note.links if (key := link_key(link.path, note.path)) is not None]
    found = list(notes.links_with_keys(connection, list(dict.fromkeys(keys))))
    assert sorted(found) == sorted(
        notes.Backlink(note.path, link) for link in note.links if link_key(link.path, note.path)
    )
    assert [tuple(row) for row in connection.execute("SELECT count(*) FROM documents")] == [(1,)]


@given(texts)
def test_a_removed_note_leaves_no_row(connection: apsw.Connection, source: str) -> None:
    put(connection, "x/n.md", source)
    known = notes.known_at(connection, NotePath("x/n.md"))
    assert known is not None
    with db.atomic(connection):
        rows.remove(connection, known.document)
    for table in ("documents", "headings", "links", "tags", "aliases", "blocks", "anchors", "names", "chunks"):
        assert db.one(connection, f"SELECT count(*) FROM {table}") == (0,)
    for table in ("definitions", "label_uses", "problems", "frontmatter", "chunk_fts_docsize", "name_fts_docsize"):
        assert db.one(connection, f"SELECT count(*) FROM {table}") == (0,)
    assert connection.execute("SELECT rowid FROM chunk_fts WHERE chunk_fts MATCH 'text'").fetchall() == []


def test_a_skipped_note_has_no_content_and_says_why(connection: apsw.Connection) -> None:
    put(connection, "s.md", "# T\n#tag [[a]]")
    with db.atomic(connection):
        rows.put_skipped(connection, NotePath("s.md"), "binary", Stamp(1, 2, 3, 4), rows.Version(b"h", "v"), 6)
    assert notes.note(connection, NotePath("s.md")) is None
    assert notes.skipped(connection) == {"s.md": "binary"}
    assert "s.md" in notes.known(connection)
    put(connection, "s.md", "fine")
    assert notes.skipped(connection) == {}
    with db.atomic(connection):
        rows.remove(connection, notes.known(connection)[NotePath("s.md")].document)


def test_paths_below_a_folder_are_told_from_those_that_begin_alike(connection: apsw.Connection) -> None:
    paths = ["a", "a/b.md", "a/b/c.md", "a-b.md", "a.md", "a0.md", "ab/c.md", "A/b.md"]
    with db.atomic(connection):
        for path in paths:
            rows.add_name(connection, NotePath(path), 0)
            rows.put_file(connection, NotePath(path), "file", None)
    expected = {"a", "a/b.md", "a/b/c.md"}
    assert notes.known_below(connection, NotePath("a")).keys() == expected
    assert notes.known_files_below(connection, NotePath("a")).keys() == expected
    with db.atomic(connection):
        for path in paths:
            rows.remove_file(connection, NotePath(path))
            rows.remove(connection, notes.known(connection)[NotePath(path)].document)


def test_front_matter_is_json_and_areas_are_first_folders(connection: apsw.Connection) -> None:
    put(connection, "Area/x.md", HEADS[1])
    stored = dict(connection.execute("SELECT key, value FROM frontmatter").fetchall())
    assert {key: json.loads(value) for key, value in stored.items()} == {
        "title": "T",
        "tags": ["x", "y/z"],
        "aliases": ["A", "b"],
        "n": {"k": [1, 2.5, None]},
    }
    assert db.one(connection, "SELECT area FROM documents") == ("Area",)
    assert notes.area(NotePath("x.md")) == "root"


def test_two_indexes_of_the_same_notes_are_equal_whatever_way_they_came_there(tmp_path: Path) -> None:
    files = [tmp_path / "one.db", tmp_path / "two.db"]
    for file in files:
        db.create(file, tmp_path)
    with closing(db.connect(files[0], writable=True)) as one, closing(db.connect(files[1], writable=True)) as two:
        put(one, "a.md", "# A\n[[b]]")
        put(one, "b.md", "old text that goes\n\n# X")
        put(one, "b.md", "new")
        put(two, "b.md", "new")
        assert compare.differences(one, two) != []
        put(two, "a.md", "# A\n[[b]]")
        assert compare.differences(one, two) == []
