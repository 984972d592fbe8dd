"""The index follows the working tree: what is read, what is written, and what is left alone."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from vault_lsp import indexer, prepare
from vault_lsp.core.model import NotePath
from vault_lsp.errors import Cancelled
from vault_lsp.indexer import Reconciled
from vault_lsp.search import Query
from vault_lsp.service import Vault

#: Long enough ago to be beyond doubt whether a file changed since.
LONG_AGO = time.time_ns() - 60 * 10**9


def put(root: Path, files: Mapping[str, str | bytes], *, at: int | None = LONG_AGO) -> None:
    """Write files, by default as if that was a minute ago."""
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if at is not None:
            os.utime(file, ns=(at, at))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the notes that are read."""
    seen: list[str] = []

    def read(file: Path) -> object:
        seen.append(file.name)
        return real(file)

    real = prepare.read
    monkeypatch.setattr(prepare, "read", read)
    return seen


def backlinks(vault: Vault, path: str) -> list[str]:
    with vault.view() as view:
        return [link.source for link in view.backlinks(NotePath(path))]


def hits(vault: Vault, query: str) -> list[str]:
    with vault.view() as view:
        return [hit.path for hit in view.search(Query(query)).hits]


def rows(vault: Vault, path: str) -> list[object]:
    """All that the index holds of one note, with the identities of its rows."""
    with vault.view() as view:
        connection = view.connection
        (document,) = connection.execute("SELECT id FROM documents WHERE path = ?", (path,)).fetchone() or (None,)
        tables = ("headings", "links", "tags", "aliases", "names", "chunks")
        found = [
            connection.execute(f"SELECT * FROM {table} WHERE document = ?", (document,)).fetchall() for table in tables
        ]
        return [document, *found]


def test_a_second_look_reads_nothing_and_writes_nothing(root: Path, vault: Vault, opened: list[str]) -> None:
    put(root, {"a.md": "# A\n[[b]]", "x/b.md": "b", "bin.md": b"\0", "pic.png": b"\0", "big.md": b"\xff" * 99})
    assert sorted(vault.reconcile().added) == ["a.md", "x/b.md"]
    assert sorted(opened) == ["a.md", "b.md", "big.md", "bin.md"]
    opened.clear()
    before = vault.data_version()
    assert vault.reconcile() == Reconciled()
    assert vault.reconcile([NotePath("a.md"), NotePath("x")]) == Reconciled()
    assert not vault.pending()
    assert opened == []
    assert vault.data_version() == before


def test_a_file_that_changed_just_before_the_look_is_compared_once_more(
    root: Path, vault: Vault, opened: list[str]
) -> None:
    put(root, {"a.md": "one"}, at=None)
    vault.reconcile()
    assert not vault.pending()
    opened.clear()
    vault.reconcile()
    assert opened == ["a.md"]
    future = time.time_ns() + 3600 * 10**9
    put(root, {"a.md": "two"}, at=future)
    assert vault.reconcile().changed == ["a.md"]
    opened.clear()
    vault.reconcile()
    assert opened == []


def test_an_edit_of_the_same_size_within_the_clocks_tick_is_seen_by_its_bytes(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, {"a.md": "one"}, at=None)
    vault.reconcile()
    status = (root / "a.md").stat()
    put(root, {"a.md": "two"}, at=status.st_mtime_ns)
    # As on a file system whose clock ticks so slowly that nothing of the stamp differs.
    real = indexer.walk
    monkeypatch.setattr(
        indexer,
        "walk",
        lambda rules: (
            entry._replace(stamp=entry.stamp and entry.stamp._replace(ctime_ns=status.st_ctime_ns))
            for entry in real(rules)
        ),
    )
    vault.reconcile()
    assert hits(vault, "two") == ["a.md"]
    assert hits(vault, "one") == []


def test_a_touched_file_keeps_its_rows(root: Path, vault: Vault, opened: list[str]) -> None:
    put(root, {"a.md": "# A", "bin.md": b"\0"})
    vault.reconcile()
    before, reasons = rows(vault, "a.md"), vault.status()["skipped"]
    put(root, {"a.md": "# A", "bin.md": b"\0"}, at=LONG_AGO + 1)
    opened.clear()
    assert vault.reconcile() == Reconciled()
    assert sorted(opened) == ["a.md", "bin.md"]
    assert rows(vault, "a.md") == before
    assert vault.status()["skipped"] == reasons == {"bin.md": "binary (NUL bytes)"}
    opened.clear()
    vault.reconcile()
    assert opened == []


def test_a_change_of_one_note_leaves_the_rows_of_the_others(root: Path, vault: Vault) -> None:
    put(
        root,
        {"a.md": "# A\n[[b]] [[c#h]] ![[p.png]]", "b.md": "---\naliases: [bee]\n---\n[[a]]", "x/c.md": "# h\n[[bee]]"},
    )
    vault.reconcile()
    before = rows(vault, "a.md")
    put(root, {"b.md": "---\naliases: [wasp]\n---\n# New", "p.png": b""})
    (root / "x/c.md").rename(root / "c.md")
    (root / "d.md").write_text("[[a]]")
    vault.reconcile()
    (root / "d.md").unlink()
    vault.reconcile()
    assert rows(vault, "a.md") == before


@pytest.mark.parametrize("hinted", [None, "both", "new", "folder"])
def test_a_moved_note_keeps_its_backlinks(root: Path, vault: Vault, hinted: str | None) -> None:
    put(root, {"a/note.md": "# Here", "one.md": "[[note]]", "b/two.md": "[[Note|x]] [y](note.md)"})
    vault.reconcile()
    assert backlinks(vault, "a/note.md") == ["b/two.md", "b/two.md", "one.md"]
    (root / "a/note.md").rename(root / "b/note.md")
    hints = {"both": ["a/note.md", "b/note.md"], "new": ["b/note.md", "a"], "folder": ["a", "b"]}
    vault.reconcile(None if hinted is None else [NotePath(path) for path in hints[hinted]])
    assert backlinks(vault, "b/note.md") == ["b/two.md", "b/two.md", "one.md"]
    assert backlinks(vault, "a/note.md") == []
    assert vault.verify() == []


def test_a_case_only_rename_is_a_rename(root: Path, vault: Vault) -> None:
    put(root, {"note.md": "word", "a.md": "[[note]]"})
    vault.reconcile()
    (root / "note.md").rename(root / "Note.md")
    vault.reconcile([NotePath("note.md"), NotePath("Note.md")])
    assert hits(vault, "word") == ["Note.md"]
    assert backlinks(vault, "Note.md") == ["a.md"]
    assert vault.verify() == []


def test_a_deleted_note_is_gone_everywhere(root: Path, vault: Vault) -> None:
    put(root, {"one.md": "ghost [[two]]", "two.md": "# Two"})
    vault.reconcile()
    (root / "one.md").unlink()
    done = vault.reconcile()
    assert done.removed == ["one.md"]
    assert hits(vault, "ghost") == backlinks(vault, "two.md") == []
    (root / "two.md").unlink()
    vault.reconcile()
    assert vault.counts() == (0, 0)
    assert vault.status()["pending"] == 0
    assert vault.verify() == []


def test_a_deleted_folder_takes_its_notes_along_whatever_is_hinted(root: Path, vault: Vault) -> None:
    put(root, {"a/b/one.md": "x", "a/b/c/two.md": "y", "a/three.md": "z", "n.md": "n"})
    vault.reconcile()
    for file in ("a/b/c/two.md", "a/b/one.md"):
        (root / file).unlink()
    (root / "a/b/c").rmdir()
    (root / "a/b").rmdir()
    vault.reconcile([NotePath("a/b/one.md")])
    assert vault.verify() == []


def test_a_note_becomes_a_folder_and_a_note_again(root: Path, vault: Vault) -> None:
    put(root, {"a.md": "text"})
    vault.reconcile()
    (root / "a.md").unlink()
    put(root, {"a.md/b.md": "inner"})
    vault.reconcile([NotePath("a.md/b.md")])
    assert vault.verify() == []
    (root / "a.md/b.md").unlink()
    (root / "a.md").rmdir()
    put(root, {"a.md": "text"})
    vault.reconcile([NotePath("a.md/b.md")])
    assert hits(vault, "text") == ["a.md"]
    assert vault.verify() == []


def test_a_single_hint_on_an_empty_index_brings_the_whole_vault(root: Path, vault: Vault) -> None:
    put(root, {"a.md": "one", "b.md": "two"})
    vault.reconcile([NotePath("a.md")])
    assert vault.verify() == []
    assert vault.counts() == (2, 0)


def test_names_are_known_before_the_first_note_is_read(root: Path, vault: Vault) -> None:
    put(root, {"a.md": "[[b]]", "b.md": "b", "x/p.png": b""})
    seen: list[int] = []

    def progress(step: indexer.Progress) -> None:
        if step.phase == "indexing" and step.done == 0:
            with vault.view() as view:
                seen.append(len(view.paths()))

    vault.reconcile(progress=progress)
    assert seen == [2]


def test_a_file_that_vanishes_between_walk_and_read_is_silently_left(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, {"a.md": "a", "gone.md": "g", "turned.md": "t"})

    def read(file: Path) -> object:
        if file.name == "gone.md":
            file.unlink()
        if file.name == "turned.md":
            file.unlink()
            file.mkdir()
        return real(file)

    real = prepare.read
    monkeypatch.setattr(prepare, "read", read)
    done = vault.reconcile()
    assert done.added == ["a.md"]
    assert done.removed == []
    vault.reconcile()
    assert vault.counts() == (1, 0)
    assert vault.verify() == []


@pytest.mark.parametrize("newer", [True, False])
def test_what_another_process_wrote_meanwhile_is_looked_at_again(
    newer: object, root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, {"a.md": "one"})
    vault.reconcile()
    put(root, {"a.md": "two"})
    other = Vault.open(root)
    turns: list[None] = []

    def read(file: Path) -> object:
        if turns:
            return real(file)
        turns.append(None)
        if newer:
            # The file changes again after it was read, and another process is faster to index that.
            answer = real(file)
            put(root, {"a.md": "three"})
            other.reconcile()
            return answer
        # Another process is faster, but the file changes again before we read it.
        other.reconcile()
        put(root, {"a.md": "three"})
        return real(file)

    real = prepare.read
    monkeypatch.setattr(prepare, "read", read)
    vault.reconcile()
    other.close()
    assert hits(vault, "three") == ["a.md"]
    assert hits(vault, "two") == []


def test_a_clock_that_was_wrong_does_not_freeze_the_index(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, {"a.md": "one"})
    with monkeypatch.context() as patch:
        patch.setattr(indexer, "now_ns", lambda: time.time_ns() + 10**18)
        vault.reconcile()
    put(root, {"a.md": "other"})
    vault.reconcile()
    assert hits(vault, "other") == ["a.md"]


def test_notes_made_by_another_version_are_made_anew_and_answer_meanwhile(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    put(root, {"a.md": "one", "b.md": "two", "bin.md": b"\0"})
    with monkeypatch.context() as patch:
        patch.setattr(indexer, "MADE_BY", "0.0.0")
        vault.reconcile()
    assert len(vault.pending().stale) == 3
    opened.clear()
    seen: list[list[str]] = []
    done = vault.reconcile(progress=lambda _: seen.append(hits(vault, "one")))
    assert sorted(done.changed) == ["a.md", "b.md"]
    assert seen
    assert all(found == ["a.md"] for found in seen)
    assert len(opened) == 3
    assert not vault.pending()


def test_a_cancelled_reconcile_keeps_what_is_done_and_goes_on_later(root: Path, vault: Vault) -> None:
    put(root, {f"{number}.md": f"word{number} " * 9000 for number in range(40)})
    steps: list[int] = []

    def progress(step: indexer.Progress) -> None:
        steps.append(step.done)

    with pytest.raises(Cancelled):
        vault.reconcile(progress=progress, cancelled=lambda: max(steps) > 0, workers=1)
    assert 0 < vault.counts()[0] < 40
    vault.reconcile()
    assert vault.counts() == (40, 0)


def test_excluded_notes_leave_the_index_and_stay_targets(root: Path) -> None:
    put(root, {"a.md": "[[old]] word", "archive/old.md": "word"})
    first = Vault.open(root)
    first.reconcile()
    first.close()
    put(root, {".vault-lsp/config.yaml": "exclude: [archive/]\n"})
    second = Vault.open(root)
    second.reconcile()
    assert hits(second, "word") == ["a.md"]
    assert backlinks(second, "archive/old.md") == ["a.md"]
    assert second.verify() == []
    second.close()


def test_an_edited_gitignore_counts_at_once(root: Path) -> None:
    put(root, {".vault-lsp/config.yaml": "gitignore: true\n", "a/x.md": "word", "b/x.md": "word"})
    vault = Vault.open(root)
    vault.reconcile()
    put(root, {".gitignore": "b/\n"})
    vault.reconcile([NotePath(".gitignore")])
    assert hits(vault, "word") == ["a/x.md"]
    put(root, {"a/.gitignore": "*\n", ".gitignore": ""})
    vault.reconcile()
    assert hits(vault, "word") == ["b/x.md"]
    vault.close()


def test_a_wrong_config_is_told_and_the_rest_of_it_counts(root: Path) -> None:
    put(root, {".vault-lsp/config.yaml": "excludes: [x]\nexclude: [y.md]\ngitignore: 7\n", "x.md": "x", "y.md": "y"})
    vault = Vault.open(root)
    vault.reconcile()
    assert [problem.line for problem in vault.config_problems] == [1, 3]
    assert vault.counts() == (1, 0)
    vault.close()


MALFORMED = {
    "scanner": "title: a\n\ttags: b",
    "colon": "title: Part 1: start",
    "placeholder": "created: {{date}}",
    "at": "owner: @someone",
    "composer": "x: *star",
    "constructor": "x: !custom y",
    "escape": 'p: "C:\\Users\\a"',
    "quote": 'title: "He said „yes" and left"',
    "reader": "title: a\x07b",
    "parser": "prev: [[[2022-05]],[[x]]",
    "surrogate": 'title: "\\ud800"\naliases: ["\\udfff"]\ntags: ["\\ud800"]\nx: "\\ud800"',
    "nul": 'title: "a\\0b"\naliases: ["\\0"]',
    "deep": "x: " + "[" * 3000,
    "bomb": "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]",
    "recursive": "a: &a [*a]",
    "nan": "a: .nan\nb: -.inf\n? [x]\n: y\n? {}\n: z",
    "number": "a: " + "9" * 5000,
    "date": "a: 2024-13-45\nb: 12:61:00",
}


def test_no_front_matter_hides_its_note_nor_stops_the_others(root: Path, vault: Vault) -> None:
    put(root, {f"{name}.md": f"---\n{header}\n---\nbody{name} [[ok]]\n" for name, header in MALFORMED.items()})
    put(root, {"ok.md": "fine"})
    done = vault.reconcile()
    assert len(done.added) == len(MALFORMED) + 1
    assert done.skipped == {}
    for name in MALFORMED:
        assert hits(vault, f"body{name}") == [f"{name}.md"]
    assert len(backlinks(vault, "ok.md")) == len(MALFORMED)
    assert vault.verify() == []


def test_links_and_names_that_no_utf8_can_hold_stop_nothing(root: Path, vault: Vault) -> None:
    put(
        root,
        {"a.md": "[x](%ED%A0%80.md) [y](%FF.md) [[%ED%A0%80]] &#xD800; [z](a%00b.md) # &#0;\n\n# \ufffe&#xDFFF;\n"},
    )
    assert vault.reconcile().added == ["a.md"]
    with vault.view() as view:
        view.findings(NotePath("a.md"))


def test_bytes_that_are_no_text_are_reasons_and_a_few_bad_ones_a_problem(root: Path, vault: Vault) -> None:
    put(
        root,
        {
            "ok.md": "[[nul]] [[utf16]]",
            "nul.md": b"# nul\n\0",
            "gbk.md": "# 你好\nbody".encode("gbk"),
            "few.md": b"bodyfour " * 30 + b"\xff\n",
            "utf16.md": "# Wide\nbodywide".encode("utf-16"),
            "empty.md": b"",
            "blank.md": b" \n\t\n",
        },
    )
    done = vault.reconcile()
    assert set(done.skipped) == {"nul.md", "gbk.md"}
    assert hits(vault, "bodyfour") == ["few.md"]
    assert hits(vault, "bodywide") == ["utf16.md"]
    assert backlinks(vault, "nul.md") == ["ok.md"]
    with vault.view() as view:
        assert [problem.rule for problem in view.require(NotePath("few.md")).problems] == ["invalid-encoding"]
    put(root, {"nul.md": "# fine now"})
    assert vault.reconcile().changed == ["nul.md"]
    assert set(vault.status()["skipped"]) == {"gbk.md"}


def test_a_note_with_a_name_of_control_characters_is_found(root: Path, vault: Vault) -> None:
    put(root, {"new\nline.md": "wordone", "tab\t.md": "wordtwo", "-dash.md": "wordthree"})
    (root / os.fsdecode(b"bad\xff.md")).write_text("wordfour")
    done = vault.reconcile()
    assert done.skipped == {"bad\\xff.md": "the name is not valid UTF-8"}
    assert [hits(vault, word) for word in ("wordone", "wordtwo", "wordthree")] == [
        ["new\nline.md"],
        ["tab\t.md"],
        ["-dash.md"],
    ]
    assert not vault.pending()
    assert vault.reconcile() == Reconciled()
