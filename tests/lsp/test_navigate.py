"""Definition, references and document links over the protocol; what a link means is tested with the core."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lsp.conftest import Opened
from tests.support import serving, write

Make = Callable[..., Opened]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("=== a.md\nx [[no$0te]]\n=== sub/note.md\n# Note\n", "sub/note.md:0"),
        ("=== a.md\n[[note#Se$0c]]\n=== note.md\n# Note\n\n## Sec\n", "note.md:2"),
        ("=== a.md\n[[note#^b$0-1]]\n=== note.md\n# Note\n\ntext ^b-1\n", "note.md:2"),
        ("=== a.md\n[[ot$0her name]]\n=== note.md\n---\naliases: [other name]\n---\n", "note.md:0"),
        ("=== a.md\n![[pic$0.png]]\n=== img/pic.png\nbytes\n", "img/pic.png:0"),
        ("=== a.md\n[x](no$0te.md#sec-two)\n=== note.md\n# Note\n## Sec two\n", "note.md:1"),
        ("=== a.md\n[x][la$0b]\n\n[lab]: note.md\n=== note.md\n# Note\n", "note.md:0"),
        ('=== a.md\n---\nup: "[[no$0te]]"\n---\n=== note.md\n# Note\n', "note.md:0"),
        ("=== a.md\n# A\n\n[[#$0A]]\n", "a.md:0"),
    ],
)
def test_definition_reaches_what_a_link_names(opened: Make, text: str, target: str) -> None:
    here = opened(text)
    here.open("a.md")
    assert [here.spot(each) for each in here.ask_at_cursor("definition")] == [target]


@pytest.mark.parametrize(
    "text", ["[[go$0ne]]", "pl$0ain", "[x](https://exa$0mple.org)", "`[[a$0]]`", "[x](mailto:$0a@b.c)"]
)
def test_definition_of_anything_else_is_null(opened: Make, text: str) -> None:
    here = opened(f"=== a.md\n{text}\n")
    here.open("a.md")
    assert here.ask_at_cursor("definition") is None


def test_definition_works_in_a_note_that_is_not_open(opened: Make) -> None:
    here = opened("=== a.md\n[[b]]\n=== b.md\n# B\n")
    assert here.targets("a.md", 0, 2) == ["b.md:0"]


def test_a_location_link_tells_what_was_under_the_cursor(opened: Make) -> None:
    here = opened("=== a.md\nx [[b#S|the $0b]] y\n=== b.md\n# B\n## S\n")
    (link,) = here.ask_at_cursor("definition")
    assert link["originSelectionRange"] == {
        "start": {"line": 0, "character": 2},
        "end": {"line": 0, "character": 15},
    }
    assert link["targetSelectionRange"]["end"] == {"line": 1, "character": 4}


def test_a_client_without_location_links_gets_locations(tmp_path: Path) -> None:
    root = write(tmp_path / "vault", {"a.md": "[[b]]\n", "b.md": "# B\n"})
    with serving(tmp_path / "cache") as client:
        client.initialize(rootUri=root.as_uri())
        (found,) = client.at("definition", (root / "a.md").as_uri(), 0, 2)
        assert found["uri"] == (root / "b.md").as_uri()
        assert set(found) == {"uri", "range"}


def test_references_count_links_of_every_kind_and_of_buffers(opened: Make) -> None:
    here = opened("=== fig.md\n# F$0ig\n=== a.md\n[[fig]] [[Fig#Fig]]\n=== b/c.md\n[x](../fig.md) [y](/fig.md#fig)\n")
    here.open("new.md", "[[fig]]\n")
    found = here.ask_at_cursor("references", context={"includeDeclaration": False})
    assert [here.spot(each) for each in found] == ["a.md:0", "a.md:0", "b/c.md:0", "b/c.md:0", "new.md:0"]
    declared = here.ask_at_cursor("references", context={"includeDeclaration": True})
    assert here.spot(declared[0]) == "fig.md:0"
    assert len(declared) == 6


def test_links_to_a_note_that_is_missing_have_references(opened: Make) -> None:
    here = opened("=== a.md\n[[not ye$0t]]\n=== b.md\n[[Not Yet|soon]]\n")
    found = here.ask_at_cursor("references", context={"includeDeclaration": False})
    assert [here.spot(each) for each in found] == ["a.md:0", "b.md:0"]


def test_document_links_lead_to_what_exists(opened: Make) -> None:
    here = opened("=== a.md\n[[b#S]] ![[p 1.png]] [[gone]] [x](b.md)\n=== b.md\n# B\n\n## S\n=== p 1.png\nx\n")
    links = here.client.request("textDocument/documentLink", {"textDocument": {"uri": here.uri("a.md")}})
    assert [(here.path(each["target"]), each["range"]["start"]["character"]) for each in links] == [
        ("b.md#L3", 0),
        ("p%201.png", 8),
        ("b.md", 34),
    ]


def test_links_never_cross_from_one_vault_to_another(opened: Make) -> None:
    here = opened("=== log.md\n[[fig]]\n", "one")
    there = opened("=== fig.md\n# Fig\n", "two")
    here.open("log.md")
    assert here.targets("log.md", 0, 2) == []
    assert there.symbols("Fig") == [("Fig", "fig.md")]


def test_a_note_belongs_to_the_innermost_folder(opened: Make) -> None:
    opened("=== inner/fig.md\n# Outer sees\n=== fig.md\n# Fig\n", "outer")
    inner = opened("=== log.md\n[[fig]]\n=== fig.md\n# Mine\n", "outer/inner")
    inner.open("log.md")
    assert inner.targets("log.md", 0, 2) == ["fig.md:0"]


def test_a_folder_that_is_removed_and_added_in_one_event_stays(opened: Make) -> None:
    here = opened("=== a.md\n[[b]]\n=== b.md\n# B\n")
    folder = {"uri": here.root.as_uri(), "name": "vault"}
    here.client.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [folder], "removed": [folder]}})
    assert here.targets("a.md", 0, 2) == ["b.md:0"]


def test_a_folder_that_was_removed_is_forgotten(opened: Make) -> None:
    here = opened("=== a.md\n[[b]]\n=== b.md\n# B\n")
    here.open("a.md")
    assert here.targets("a.md", 0, 2) == ["b.md:0"]
    folder = {"uri": here.root.as_uri(), "name": "vault"}
    here.client.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": [folder]}})
    assert here.targets("a.md", 0, 2) == []
    assert here.symbols("B") == []


def test_a_folder_that_is_not_there_is_reported_and_harms_nobody(tmp_path: Path) -> None:
    root = write(tmp_path / "vault", {"a.md": "[[b]]\n", "b.md": "# B\n"})
    with serving(tmp_path / "cache") as client:
        client.initialize(tmp_path / "gone", root)
        client.wait_for(lambda: client.notified("window/showMessage"))
        assert "gone" in client.notified("window/showMessage")[0]["message"]
        assert client.at("definition", (root / "a.md").as_uri(), 0, 2)
        assert client.at("definition", (tmp_path / "gone/a.md").as_uri(), 0, 2) is None
