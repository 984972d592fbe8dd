"""Which files belong to a vault, where it begins, and how bytes become text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vault_lsp.vault
from vault_lsp.config import Config
from vault_lsp.core.model import NotePath
from vault_lsp.errors import NotFound, VaultNotFound
from vault_lsp.vault import (
    Entry,
    Rules,
    decode,
    entry_at,
    existing_folder,
    find_root,
    printable,
    read,
    safe_file,
    walk,
)


def make(root: Path, *paths: str) -> Path:
    """Files with their path as text; a path that ends in a slash is a folder, `a -> b` a symbolic link."""
    for path in paths:
        name, arrow, target = path.partition(" -> ")
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if arrow:
            file.symlink_to(target)
        elif path.endswith("/"):
            file.mkdir(exist_ok=True)
        else:
            file.write_text(path, "utf-8")
    return root


def found(root: Path, config: Config | None = None) -> dict[str, str]:
    """Path → kind, or the reason for which it is skipped."""
    rules = Rules(root, config or Config())
    entries = {entry.path: entry for entry in walk(rules)}
    # What one path is told to be never depends on who asks.
    for path, entry in entries.items():
        if "\\" not in path:
            assert entry_at(rules, path) == entry, path
    return {path: entry.skipped or entry.kind for path, entry in entries.items()}


# Root -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markers", "start", "expected"),
    [
        ((".vault-lsp/", "a/.obsidian/", ".git/"), "a/b", "."),
        (("a/.vault-lsp/", ".vault-lsp/"), "a/b", "a"),
        ((".obsidian/", "a/.git/"), "a/b", "."),
        ((".git/",), "a/b", "."),
        ((".git",), "a/b", "."),
        (("a/b/.vault-lsp",), "a/b", "a/b"),
        ((), "a/b", "a/b"),
    ],
)
def test_the_root_is_the_nearest_marked_folder(
    markers: tuple[str, ...], start: str, expected: str, tmp_path: Path
) -> None:
    make(tmp_path, "a/b/", *markers)
    assert find_root(tmp_path / start) == (tmp_path / expected).resolve()


def test_a_mistyped_vault_is_named_in_the_message(tmp_path: Path) -> None:
    make(tmp_path, "note.md", "loop -> loop")
    for name in ("missing", "note.md", "loop", "note.md/x", "a\0b"):
        with pytest.raises(VaultNotFound, match=r"no such folder|not a folder"):
            existing_folder(tmp_path / name)
    with pytest.raises(VaultNotFound, match="missing"):
        existing_folder(tmp_path / "missing")


def test_a_vault_that_vanished_is_an_error_and_not_an_empty_vault(tmp_path: Path) -> None:
    rules = Rules(tmp_path / "gone", Config())
    with pytest.raises(VaultNotFound, match="gone"):
        list(walk(rules))


# Walk -----------------------------------------------------------------------------------------------------------------


def test_hidden_and_tool_folders_are_left_out_at_any_depth(tmp_path: Path) -> None:
    make(
        tmp_path,
        *("a.md", "b/c.MD", "b/pic.png", "tmpx/t.md", "tmp.md", "b/tmp"),
        *(".h.md", ".obsidian/x.md", "b/.secret/y.md", "node_modules/m/r.md", "b/node_modules/r.md", "tmp/t.md"),
    )
    assert found(tmp_path) == {
        "a.md": "note",
        "b": "folder",
        "b/c.MD": "note",
        "b/pic.png": "file",
        "b/tmp": "file",
        "tmpx": "folder",
        "tmpx/t.md": "note",
        "tmp.md": "note",
    }
    rules = Rules(tmp_path, Config())
    for path in (".h.md", ".obsidian", "b/.secret/y.md", "node_modules/m/r.md", "tmp/t.md", "tmp", "node_modules"):
        assert entry_at(rules, NotePath(path)) is None


@pytest.mark.parametrize(
    "path", ["", ".", "..", "/", "a/", "a//n.md", "./a", "../x.md", "a/../n.md", "\0", "\ud800", "x" * 400]
)
def test_a_hint_that_is_no_path_finds_nothing(path: str, tmp_path: Path) -> None:
    make(tmp_path, "a/n.md", "n.md")
    entry = entry_at(Rules(tmp_path, Config()), NotePath(path))
    assert entry is None or entry.skipped


def test_links_inside_the_vault_count_and_links_out_of_it_are_told(tmp_path: Path) -> None:
    root = tmp_path / "vault"
    make(tmp_path, "vault/a/n.md", "out/far.md", "out/far.png")
    make(root, "in.md -> a/n.md", "out.md -> ../out/far.md", "out.png -> ../out/far.png", "out -> ../out")
    make(root, "dead.md -> nowhere.md", "dead.png -> nowhere", "loop.md -> loop.md", "self -> .", "again -> a")
    assert found(root) == {
        "a": "folder",
        "a/n.md": "note",
        "in.md": "note",
        "out.md": "symbolic link out of the vault",
        "dead.md": "dangling symbolic link",
        "loop.md": "too many levels of symbolic links",
    }
    rules = Rules(root, Config())
    assert entry_at(rules, NotePath("again/n.md")) is None
    assert entry_at(rules, NotePath("out/far.md")) is None


def test_with_follow_symlinks_what_lies_outside_counts_once(tmp_path: Path) -> None:
    root = tmp_path / "vault"
    make(tmp_path, "vault/n.md", "out/far.md", "out/deep/x.md", "out/deep/back -> ..", "out/up -> ../vault")
    make(root, "b -> ../out", "a -> ../out", "one.md -> ../out/far.md", "self -> .")
    assert found(root, Config(follow_symlinks=True)) == {
        "n.md": "note",
        "one.md": "note",
        "a": "folder",
        "a/far.md": "note",
        "a/deep": "folder",
        "a/deep/x.md": "note",
    }


def test_a_folder_or_a_pipe_with_the_name_of_a_note(tmp_path: Path) -> None:
    make(tmp_path, "folder.md/inner.md")
    os.mkfifo(tmp_path / "pipe.md")
    assert found(tmp_path) == {"folder.md": "folder", "folder.md/inner.md": "note", "pipe.md": "not a regular file"}
    with pytest.raises(OSError, match="not a regular file"):
        read(tmp_path / "pipe.md")
    with pytest.raises(OSError, match="not a regular file"):
        read(tmp_path / "folder.md")


def test_names_of_every_kind(tmp_path: Path) -> None:
    names = ("tab\tname.md", "new\nline.md", "quote\"and'.md", " lead.md", "-dash.md", "e\u0301.md", "é.md", "🚀.md")
    make(tmp_path, *names)
    (tmp_path / os.fsdecode(b"bad\xff.md")).write_text("x")
    (tmp_path / os.fsdecode(b"dir\xff")).mkdir()
    entries = found(tmp_path)
    assert {name: entries[name] for name in names} == dict.fromkeys(names, "note")
    assert entries["bad\\xff.md"] == entries["dir\\xff"] == "the name is not valid UTF-8"


def test_a_huge_note_is_skipped_with_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault_lsp.vault, "LARGEST_NOTE", 1 << 20)
    with (tmp_path / "huge.md").open("wb") as stream:
        stream.truncate((1 << 20) + 1)
    make(tmp_path, "small.md")
    assert found(tmp_path) == {"huge.md": "larger than 1 MiB", "small.md": "note"}


def test_excluded_notes_are_targets_only(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "archive/b.md", "x/draft-1.md", "x/draft-2.md")
    assert found(tmp_path, Config(exclude=("archive/", "draft-*", "!draft-2.md"))) == {
        "a.md": "note",
        "archive": "folder",
        "archive/b.md": "file",
        "x": "folder",
        "x/draft-1.md": "file",
        "x/draft-2.md": "note",
    }


def test_gitignore_is_read_as_git_reads_it_and_only_where_the_config_asks(tmp_path: Path) -> None:
    make(tmp_path, "build/gen.md", "build/keep.md", "a/x.md", "a/y.md", "a/b/x.md", "a/b/deep/x.md")
    (tmp_path / ".gitignore").write_text("build/\nx.md\n")
    (tmp_path / "build/.gitignore").write_text("!keep.md\n")
    (tmp_path / "a/.gitignore").write_text("/y.md\n")
    (tmp_path / "a/b/.gitignore").write_text("!x.md\n")
    notes = {path for path, kind in found(tmp_path, Config(gitignore=True)).items() if kind == "note"}
    assert notes == {"a/b/x.md", "a/b/deep/x.md"}
    assert sum(kind == "note" for kind in found(tmp_path).values()) == 6


def test_names_spelt_otherwise_than_on_disk_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault_lsp.vault, "SPELLINGS", True)
    make(tmp_path, "a/n.md")
    monkeypatch.setattr(Path, "lstat", lambda file: os.lstat(str(file).replace("N.md", "n.md").replace("/A/", "/a/")))
    rules = Rules(tmp_path, Config())
    assert entry_at(rules, NotePath("a/n.md")) is not None
    assert entry_at(rules, NotePath("a/N.md")) is None
    assert entry_at(rules, NotePath("A/n.md")) is None


def test_the_files_of_an_index_inside_the_vault_do_not_count(tmp_path: Path) -> None:
    make(tmp_path, "idx/index-v1.1.db", "idx/vault.json", "idx/note.md", "index-v1.md")
    rules = Rules(tmp_path, Config(), (tmp_path / "idx", ("index-v", "vault.json")))
    assert {entry.path for entry in walk(rules)} == {"idx", "idx/note.md", "index-v1.md"}
    assert entry_at(rules, NotePath("idx/index-v1.1.db")) is None
    assert entry_at(rules, NotePath("index-v1.md")) is not None


def test_files_that_vanish_during_the_walk_are_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a/x.md", "n.md", "z/y.md")
    rules = Rules(tmp_path, Config())
    entries: list[Entry] = []
    for entry in walk(rules):
        entries.append(entry)
        if entry.kind == "folder":
            (tmp_path / entry.path).rename(tmp_path / f".{entry.path}")
    assert {entry.path for entry in entries} == {"a", "n.md", "z"}


# Bytes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "source", "replaced", "skipped"),
    [
        (b"", "", 0, None),
        (b" \n\t\n", " \n\t\n", 0, None),
        (b"\xef\xbb\xbfa", "a", 0, None),
        ("é知".encode(), "é知", 0, None),
        (b"\xff\xfea\0\n\0", "a\n", 0, None),
        (b"\xfe\xff\0a", "a", 0, None),
        (b"\xff\xfea", "", 0, "not UTF-16"),
        (b"\xff\xfe\0\xd8a\0", "", 0, "not UTF-16"),
        (b"\xff\xfe\0\0", "", 0, "binary"),
        (b"# a\n\0b", "", 0, "binary (NUL"),
        (b"\x89PNG\r\n\x1a\n\0", "", 0, "binary"),
        (b"x" * 199 + b"\xff", "x" * 199 + "\ufffd", 1, None),
        (b"x" * 98 + b"\xff\xff", "", 0, "not UTF-8 (2 of 100 bytes)"),
        ("中文".encode("gbk"), "", 0, "not UTF-8"),
    ],
)
def test_bytes_become_text_or_a_reason(data: bytes, source: str, replaced: int, skipped: str | None) -> None:
    decoded = decode(data)
    assert (decoded.source, decoded.replaced) == (source, replaced)
    assert (decoded.skipped or "").startswith(skipped or "")
    assert bool(decoded.skipped) == bool(skipped)


@given(st.binary(max_size=300))
def test_any_bytes_decode_to_text_that_utf8_can_hold(data: bytes) -> None:
    decoded = decode(data)
    decoded.source.encode("utf-8")
    assert "\0" not in decoded.source


@given(st.text() | st.binary().map(os.fsdecode) | st.sampled_from(("\ud800", "a\udfffb")))
def test_a_printable_path_is_one_line_of_utf8(path: str) -> None:
    shown = printable(path)
    assert shown.isprintable()
    shown.encode("utf-8")


# Paths that people type -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "typed",
    [
        *("", "/", "..", "../out.md", "a/../../out.md", "/etc/passwd", "n.md/", "n.md/.."),
        *("missing.md", "a", ".h.md", "a/.x/y.md", "leak.md", "leak/out.md", "tmp/t.md", "\0", "\ud800", "N.md"),
    ],
)
def test_a_typed_path_never_leaves_the_vault(typed: str, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    make(tmp_path, "out.md", "vault/n.md", "vault/a/x.md", "vault/.h.md", "vault/a/.x/y.md", "vault/tmp/t.md")
    make(root, "leak.md -> ../out.md", "leak -> ..")
    with pytest.raises(NotFound):
        safe_file(Rules(root, Config()), typed)


def test_a_typed_path_may_be_absolute_or_take_detours(tmp_path: Path) -> None:
    make(tmp_path, "a/x.md", "-dash.md")
    rules = Rules(tmp_path, Config())
    for typed in ("a/x.md", "./a/x.md", "a/../a/x.md", str(tmp_path / "a/x.md")):
        assert safe_file(rules, typed) == ("a/x.md", tmp_path / "a/x.md")
    assert safe_file(rules, "-dash.md")[0] == "-dash.md"
