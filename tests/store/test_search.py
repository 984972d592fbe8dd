"""Keyword search over small vaults, with the real full-text index."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import PurePosixPath

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_lsp.core.tokens import index_terms, query_terms
from vault_lsp.store.search import NO_FILTERS, Filters, hydrate, keyword, recent, titles

SCHEMA = """
CREATE TABLE documents(id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, area TEXT NOT NULL,
    title TEXT, mtime_ns INTEGER, ctime_ns INTEGER, size INTEGER, hash BLOB);
CREATE TABLE tags(document INTEGER, name TEXT, key TEXT, place BLOB);
CREATE TABLE chunks(id INTEGER PRIMARY KEY, document INTEGER, ordinal INTEGER, heading_path TEXT, line_start INTEGER,
    line_end INTEGER, page_start INTEGER, page_end INTEGER, sha BLOB);
CREATE TABLE names(id INTEGER PRIMARY KEY, document INTEGER, kind TEXT, name TEXT, key TEXT);
CREATE VIRTUAL TABLE chunk_fts USING fts5(title, words, bigrams, content='', contentless_delete=1,
    tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE name_fts USING fts5(words, bigrams, content='', contentless_delete=1,
    tokenize='unicode61 remove_diacritics 2');
"""


class Vault:
    """An index in memory; each note is one chunk a paragraph."""

    def __init__(self, notes: dict[str, str] | None = None) -> None:
        self.connection = apsw.Connection(":memory:")
        for statement in SCHEMA.split(";\n"):
            self.connection.execute(statement).fetchall()
        for number, (path, text) in enumerate((notes or {}).items()):
            self.add(path, text, mtime_ns=number)

    def run(self, sql: str, *values: object) -> int:
        self.connection.execute(sql, values).fetchall()
        return self.connection.last_insert_rowid()

    def add(
        self,
        path: str,
        text: str,
        *,
        aliases: Sequence[str] = (),
        tags: Sequence[str] = (),
        mtime_ns: int = 0,
        kind: str = "note",
    ) -> int:
        stem = PurePosixPath(path).name.removesuffix(".md")
        title = text.partition("\n")[0].removeprefix("# ") if text.startswith("# ") else stem
        document = self.run(
            "INSERT INTO documents(path, kind, area, title, mtime_ns) VALUES (?, ?, ?, ?, ?)",
            path, kind, path.partition("/")[0] if "/" in path else "root", title, mtime_ns,
        )  # fmt: skip
        for name_kind, name in [("title", title), *(("alias", alias) for alias in aliases), ("file", stem)]:
            key = unicodedata.normalize("NFC", name).lower()
            row = self.run(
                "INSERT INTO names(document, kind, name, key) VALUES (?, ?, ?, ?)", document, name_kind, name, key
            )
            self.run("INSERT INTO name_fts(rowid, words, bigrams) VALUES (?, ?, ?)", row, *index_terms(name))
        for tag in tags:
            self.run("INSERT INTO tags(document, name, key) VALUES (?, ?, ?)", document, tag, tag.lower())
        for ordinal, paragraph in enumerate(filter(None, text.split("\n\n"))):
            row = self.run(
                "INSERT INTO chunks(document, ordinal, heading_path, line_start, line_end) VALUES (?, ?, ?, ?, ?)",
                document, ordinal, json.dumps([title]), 2 * ordinal, 2 * ordinal,
            )  # fmt: skip
            self.run(
                "INSERT INTO chunk_fts(rowid, title, words, bigrams) VALUES (?, ?, ?, ?)",
                row, " ".join(index_terms(title)), *index_terms(paragraph),
            )  # fmt: skip
        return document

    def find(self, query: str, limit: int = 10, **filters: object) -> list[str]:
        hits = keyword(self.connection, query_terms(query), Filters(**filters), limit)  # type: ignore[arg-type]
        return [hit.path for hit in hits]

    def named(self, query: str, limit: int = 10, **filters: object) -> list[str]:
        return [hit.path for hit in titles(self.connection, query, Filters(**filters), limit)]  # type: ignore[arg-type]


LANGUAGES = {
    "a.md": "# 园圃\n\n且说春种秋收，秋收之后正是修剪果树的时候。备好修枝剪。",
    "b.md": "第3步 重写fix-audit后12条失效链接清零，改动已核对",
    "c.md": "请核实我 typo，访客名单与许可",
    "d.md": "今天下雨",
    "gate.md": "ゲートの前",
    "ketto.md": "ケートの前",
    "kr.md": "아침에 줄넘기를 하고 학교에 갔다",
    "accent.md": "Façade and crème brûlée",
    "wide.md": "ＸＹＺ７８９ の部品",
    "narrow.md": "XYZ789 part",
    "emo.md": "# 🚲 ride\n\nbring 🍉",
    "code.md": 'pre-commit AND C++ C# "cited" key:value isn\'t 18.10 50% --warn-unused [[Goal]] #label',
}


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ("春种秋收", {"a.md"}),
        ("秋收", {"a.md"}),
        ("修枝剪", {"a.md"}),
        ("园圃", {"a.md"}),
        ("失效链接", {"b.md"}),
        ("失效", {"b.md"}),
        ("fix-audit", {"b.md"}),
        ("audit", {"b.md"}),
        ("12", {"b.md"}),
        ("访客名单", {"c.md"}),
        ("typo", {"c.md"}),
        ("ゲート", {"gate.md"}),
        ("ケート", {"ketto.md"}),
        ("줄넘기", {"kr.md"}),
        ("학교", {"kr.md"}),
        ("facade", {"accent.md"}),
        ("BRÛLÉE", {"accent.md"}),
        ("xyz789", {"wide.md", "narrow.md"}),
        ("ｘｙｚ７８９", {"wide.md", "narrow.md"}),
        ("🚲", {"emo.md"}),
        ("🍉", {"emo.md"}),
        ("pre-commit", {"code.md"}),
        ("C++", {"code.md"}),
        ("C#", {"code.md"}),
        ("key:value", {"code.md"}),
        ("isn't", {"code.md"}),
        ("18.10", {"code.md"}),
        ("--warn-unused", {"code.md"}),
        ('"cited', {"code.md"}),
        ("%", set()),
        ("*", set()),
        ("nothing of the kind", set()),
        ("", set()),
    ],
)
def test_a_query_finds_the_notes_that_hold_it(query: str, paths: set[str]) -> None:
    assert set(Vault(LANGUAGES).find(query)) == paths


def test_a_document_is_listed_once_with_its_best_chunk() -> None:
    vault = Vault(
        {"a.md": "fig here\n\nfig fig fig\n\nplum", "b.md": "one fig among many other words of a long sentence"}
    )
    hits = keyword(vault.connection, query_terms("fig"), NO_FILTERS, 10)
    assert [(hit.path, hit.chunk) for hit in hits] == [("a.md", 2), ("b.md", 4)]
    assert hits[0].score > hits[1].score > 0


def test_a_chunk_with_all_terms_outranks_one_with_more_of_some() -> None:
    vault = Vault(
        {"some.md": "fig fig fig fig", "all.md": "the plum stands beside the old fig", "x.md": "plum", "y.md": "pear"}
    )
    assert vault.find("fig plum")[0] == "all.md"


def test_a_title_counts_more_than_the_text() -> None:
    vault = Vault({"text.md": "grafting grafting knife", "title.md": "# Grafting\n\nknife and tape", "x.md": "pear"})
    assert vault.find("grafting")[0] == "title.md"


def test_words_that_begin_like_the_query_follow_the_exact_ones() -> None:
    vault = Vault({"long.md": "prunella and a pruner", "exact.md": "to prune", "other.md": "apricot"})
    assert vault.find("prune") == ["exact.md", "long.md"]
    assert vault.find("prun") == ["long.md", "exact.md"] or vault.find("prun") == ["exact.md", "long.md"]
    assert vault.find("prune", limit=1) == ["exact.md"]


STEMS = {
    "study.md": "the university of the south",
    "all.md": "a universal remedy",
    "run.md": "she runs",
    "cafés.md": "two cafés",
    "building.md": "the architecture of bridges",
    "C.md": "a C++ program",
}


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ("running", {"run.md"}),
        ("runnin", {"run.md"}),
        ("ru", set()),
        ("café", {"cafés.md"}),
        ("cafes", {"cafés.md"}),
        ("universit", {"study.md", "all.md"}),
        ("universi", {"study.md", "all.md"}),
        ("univ", {"study.md", "all.md"}),
        ("archite", {"building.md"}),
        ("architectures", {"building.md"}),
        ("bridge", {"building.md"}),
        ("programs", {"C.md"}),
        ("remedies", {"all.md"}),
        ("runic", set()),
        ("universe7", set()),
        ("absent", set()),
    ],
)
def test_a_word_is_found_in_all_its_forms_and_while_it_is_typed(query: str, paths: set[str]) -> None:
    assert set(Vault(STEMS).find(query)) == paths


def test_a_word_that_is_there_brings_none_that_only_begin_like_its_stem() -> None:
    vault = Vault({"date.md": "bodydate", "deep.md": "bodydeep"})
    assert vault.find("bodydate") == ["date.md"]
    assert vault.find("bodydeep") == ["deep.md"]
    assert set(vault.find("bodyd")) == {"date.md", "deep.md"}


def test_many_chunks_of_one_document_do_not_hide_the_others() -> None:
    vault = Vault({"many.md": "\n\n".join(["fig"] * 500), "one.md": "a fig among other words, late in the list"})
    assert vault.find("fig", limit=2) == ["many.md", "one.md"]


def filtered() -> Vault:
    vault = Vault()
    vault.add("wiki/tools/a.md", "fig", tags=["Garden/Tree", "done"], mtime_ns=10)
    vault.add("wiki/b.md", "fig", tags=["garden"], mtime_ns=20)
    vault.add("wiki2/c.md", "fig", tags=["gardener", "garden_x"], mtime_ns=30)
    vault.add("d.md", "fig", mtime_ns=40)
    vault.add(unicodedata.normalize("NFD", "Café/é.md"), "fig", mtime_ns=50)
    vault.add("wiki/scan.txt", "fig", kind="text", mtime_ns=60)
    return vault


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"tags": ("garden",)}, "ab"),
        ({"tags": ("#Garden/",)}, "ab"),
        ({"tags": ("garden/tree", "done")}, "a"),
        ({"tags": ("garden", "GARDEN")}, "ab"),
        ({"tags": ("garden", "missing")}, ""),
        ({"tags": ("garden%",)}, ""),
        ({"tags": ("garden_",)}, ""),
        ({"area": "wiki"}, "abs"),
        ({"area": "root"}, "d"),
        ({"area": "Café"}, "é"),
        ({"folder": "wiki"}, "abs"),
        ({"folder": "/wiki/tools/"}, "a"),
        ({"folder": "./wiki"}, "abs"),
        ({"folder": "."}, "abcdsé"),
        ({"folder": "Café"}, "é"),
        ({"folder": "wik"}, ""),
        ({"path_prefix": "wiki"}, "abcs"),
        ({"path_prefix": "wiki/t"}, "a"),
        ({"path_prefix": "%"}, ""),
        ({"modified_after_ns": 20}, "bcdsé"),
        ({"modified_before_ns": 20}, "a"),
        ({"modified_after_ns": 20, "modified_before_ns": 30}, "b"),
        ({"kind": "text"}, "s"),
        ({"kind": "note", "area": "wiki"}, "ab"),
        ({"area": "' OR 1=1 --"}, ""),
        ({"tags": ("\ud800",), "folder": "\ud800"}, ""),
        ({}, "abcdsé"),
    ],
)
def test_filters_act_in_every_channel(filters: dict[str, object], names: str) -> None:
    vault = filtered()

    def initials(paths: Sequence[str]) -> str:
        return "".join(sorted(unicodedata.normalize("NFC", path.rsplit("/", 1)[-1])[0] for path in paths))

    assert initials(vault.find("fig", **filters)) == names
    assert initials([path for _, path in recent(vault.connection, Filters(**filters), 10)]) == names  # type: ignore[arg-type]
    for name in "abcdsé":
        query = {"é": "e", "s": "scan"}.get(name, name)
        assert (name in initials(vault.named(query, **filters))) == (name in names)


def test_a_filter_costs_no_hit_whatever_the_limit() -> None:
    vault = Vault({f"a/{number}.md": "fig fig fig" for number in range(300)})
    vault.add("b/last.md", "a fig in a long and winding sentence of many words")
    assert vault.find("fig", limit=1, area="b") == ["b/last.md"]


def test_names_are_found_exact_first_then_beginnings_then_words() -> None:
    vault = Vault(
        {
            "x/Fig.md": "# Fig",
            "y/figs.md": "# Figs and plums",
            "z/tree.md": "# The old fig tree",
            "w/ficus.md": "# Ficus",
        }
    )
    vault.add("v/carica.md", "# Carica", aliases=["fig"])
    assert vault.named("FIG") == ["x/Fig.md", "v/carica.md", "y/figs.md", "z/tree.md"]
    hits = titles(vault.connection, "fig", NO_FILTERS, 10)
    assert [hit.match for hit in hits] == ["exact", "exact", "prefix", "words"]
    assert [hit.kind for hit in hits][:2] == ["title", "alias"]


def test_a_name_within_the_query_is_found_and_a_shared_word_is_not_enough() -> None:
    vault = Vault(
        {"1.md": "# Fig Tree", "2.md": "# Plum Tree", "3.md": "# 果树修剪", "4.md": "# a", "5.md": "# C++ primer"}
    )
    assert vault.named("when do I cut the fig tree") == ["1.md"]
    assert vault.named("果树修剪是什么时候") == ["3.md"]
    assert vault.named("C++") == ["5.md"]
    assert vault.named("is this a name") == []


def test_names_are_compared_in_one_normal_form() -> None:
    vault = Vault({unicodedata.normalize("NFD", "バカ.md"): "x", unicodedata.normalize("NFD", "Café.md"): "y"})
    assert [unicodedata.normalize("NFC", path) for path in vault.named("バカ")] == ["バカ.md"]
    assert [unicodedata.normalize("NFC", path) for path in vault.named("cafe")] == ["Café.md"]


def test_recent_lists_the_latest_first() -> None:
    vault = Vault({"old.md": "x", "new.md": "y"})
    assert [path for _, path in recent(vault.connection, NO_FILTERS, 1)] == ["new.md"]


def test_hydrate_keeps_the_order_and_drops_what_is_gone() -> None:
    vault = filtered()
    rows = hydrate(vault.connection, [(2, 2), (999, 1), (1, None)])
    assert [(row.path, row.chunk, row.tags, row.heading_path) for row in rows] == [
        ("wiki/b.md", 2, ("garden",), ("b",)),
        ("wiki/tools/a.md", None, ("done", "Garden/Tree"), ()),
    ]
    assert rows[0][3:11] == ("b", "note", "wiki", 20, 0, 0, None, None)
    assert hydrate(vault.connection, []) == []


WORDS = st.sampled_from(
    ["fig", "plum", "the", "C++", '"', "AND", "*", "果树", "修", "NEAR(", "\ud800", "\x00", "🎉", "don't", "-x"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, max_size=5).map(" ".join) | st.text(max_size=20))
def test_no_query_raises(query: str) -> None:
    assert set(SMALL.find(query)) <= {"a.md", "b.md"}
    SMALL.named(query)


SMALL = Vault({"a.md": "# Fig\n\nfig 果树 don't", "b.md": "plum C++ 🎉 the"})
