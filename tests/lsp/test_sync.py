"""Buffers against the disk, positions in every encoding, URIs in every spelling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lsp.conftest import FULL_CLIENT, Opened
from tests.support import Client, serving, vault, write

Make = Callable[[str], Opened]


def edit(line: int, start: int, end: int, text: str) -> dict[str, object]:
    span = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
    return {"range": span, "text": text}


def test_an_edit_is_applied_once(opened: Make) -> None:
    here = opened("=== a.md\n[[B]] text\n=== B.md\n# B\n=== BB.md\n# BB\n")
    uri = here.open("a.md")
    here.client.change(uri, 2, edit(0, 3, 3, "B"))
    assert here.targets("a.md", 0, 3) == ["BB.md:0"]
    here.client.change(uri, 3, edit(0, 3, 4, ""))
    assert here.targets("a.md", 0, 3) == ["B.md:0"]


def test_characters_that_python_breaks_lines_at_end_no_line(opened: Make) -> None:
    text = "one\fpage [[B]]\nsecond line [[C]]\nthird\u2028x [[B]]\nfour\x85 [[C]]\nfive\x0b\x1c end [[B]]\n"
    here = opened(f"=== a.md\n{text}=== B.md\n# B\n=== C.md\n# C\n")
    uri = here.open("a.md")
    spots = [(0, 11, "B"), (1, 14, "C"), (2, 10, "B"), (3, 8, "C"), (4, 13, "B")]
    for line, character, name in spots:
        assert here.targets("a.md", line, character) == [f"{name}.md:0"]
    here.client.change(uri, 2, edit(1, 0, 6, "SECOND [[Gone]]"))
    here.wait_for_findings("a.md", ["broken-link 1:7-15"])
    for line, character, name in [(0, 11, "B"), (1, 23, "C"), *spots[2:]]:
        assert here.targets("a.md", line, character) == [f"{name}.md:0"]


def test_several_edits_of_one_message_follow_each_other(opened: Make) -> None:
    here = opened("=== a.md\n🌱 [[x]] two\n=== One.md\n# One\n")
    uri = here.open("a.md")
    here.client.change(uri, 2, edit(0, 5, 6, "O"), edit(0, 6, 6, "ne"), edit(0, 0, 3, "🌱🌱 "))
    assert here.targets("a.md", 0, 8) == ["One.md:0"]
    assert here.targets("a.md", 0, 4) == []


MIXED = """
=== a.md
😀😀[[B]][[C]]
看𠮷野家 [[B]]，[[Missing]]。
👨‍👩‍👧 é [[C]] tail
=== B.md
# B
=== C.md
# C
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_columns_are_counted_in_the_encoding_that_was_agreed(tmp_path: Path, encoding: str) -> None:
    files, _ = vault(MIXED)
    root = write(tmp_path / "vault", files)
    general = {"general": {"positionEncodings": ["utf-7", encoding, "utf-16"]}}
    lines = files["a.md"].split("\n")

    def column(line: int, text: str, nth: int = 0) -> int:
        before = text.join(lines[line].split(text)[: nth + 1])
        width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
        return len(before.encode({"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[encoding])) // width

    with serving(tmp_path / "cache") as client:
        result = client.initialize(root, capabilities=general)
        assert result["capabilities"]["positionEncoding"] == encoding
        here = Opened(client, root, files, None)
        here.open("a.md")
        for line, name in [(0, "B"), (0, "C"), (1, "B"), (2, "C")]:
            start = column(line, f"[[{name}]]")
            assert here.targets("a.md", line, start) == [f"{name}.md:0"]
            assert here.targets("a.md", line, start + 4) == [f"{name}.md:0"]
        start = column(1, "[[Missing]]")
        here.wait_for_findings("a.md", [f"broken-link 1:{start}-{start + 11}"])
        uses = here.ask("references", "B.md", 0, 2, context={"includeDeclaration": False})
        assert [each["range"]["start"]["character"] for each in uses] == [column(0, "[[B]]"), column(1, "[[B]]")]


def test_utf_16_is_spoken_when_nothing_is_agreed(client: Client) -> None:
    with pytest.raises(Exception, match="initialized already"):
        client.request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_every_line_end_of_the_protocol_ends_a_line(opened: Make, end: str) -> None:
    here = opened("=== B.md\n# B\n=== C.md\n# C\n")
    here.open("a.md", end.join(["a [[B]]", "b [[C]]", "", "[[Missing]]", ""]))
    assert here.targets("a.md", 1, 4) == ["C.md:0"]
    here.wait_for_findings("a.md", ["broken-link 3:0-11"])


def test_positions_beyond_the_text_are_no_error(opened: Make) -> None:
    here = opened("=== B.md\n# B\n")
    here.open("eof.md", "x\n[[B]]")
    here.open("empty.md", "")
    assert here.targets("eof.md", 1, 4) == ["B.md:0"]
    assert here.targets("eof.md", 1, 999) == ["B.md:0"]
    assert here.targets("eof.md", 0, 999) == []
    for path in ("eof.md", "empty.md"):
        assert here.ask("definition", path, 99, 0) is None
        assert here.ask("references", path, 99, 0, context={"includeDeclaration": True}) is None
    assert here.ask("definition", "empty.md", 0, 0) is None


def test_a_buffer_beats_the_disk_until_it_is_closed(opened: Make) -> None:
    here = opened("=== a.md\n# A\n=== b.md\n[[a#New]]\n")
    first = here.open("a.md")
    second = here.open("b.md")
    here.wait_for_findings("b.md", ["broken-heading 0:0-9"])
    here.client.change(first, 2, {"text": "# A\n\n## New\n"})
    here.wait_for_findings("b.md", [])
    (here.root / "a.md").write_text("# A\n\n## Disk\n")
    here.client.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": first, "type": 2}]})
    assert here.targets("b.md", 0, 4) == ["a.md:2"]
    assert here.symbols("New") == [("New", "a.md")]
    here.client.notify("textDocument/didClose", {"textDocument": {"uri": first}})
    here.wait_for_findings("b.md", ["broken-heading 0:0-9"])
    here.client.change(second, 2, {"text": "[[a#Disk]]\n"})
    here.wait_for_findings("b.md", [])


def test_a_saved_buffer_is_indexed(opened: Make) -> None:
    here = opened("=== a.md\n# A\n=== b.md\n[[a#Later]]\n")
    uri = here.open("a.md")
    here.client.change(uri, 2, {"text": "# A\n## Later\n"})
    (here.root / "a.md").write_text("# A\n## Later\n")
    here.client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    here.client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    here.open("b.md")
    here.wait_for_findings("b.md", [])
    assert here.symbols("Later") == [("Later", "a.md")]


def test_a_new_note_counts_before_it_is_saved(opened: Make) -> None:
    here = opened("=== a.md\n# A\n")
    here.open("daily 2.md", "[[a]]")
    assert here.targets("daily 2.md", 0, 2) == ["a.md:0"]


def test_buffers_outside_every_vault_answer_for_themselves(client: Client, tmp_path: Path) -> None:
    for uri in ("untitled:Untitled-1", (tmp_path / "out side.md").as_uri()):
        client.open(uri, "# A\n[[#A]] [[gone]] [[#No]]\n\n## B\n")
        here = client.at("definition", uri, 1, 2)
        assert [(each["targetUri"], each["targetRange"]["start"]["line"]) for each in here] == [(uri, 0)]
        assert client.at("definition", uri, 1, 10) is None
        found = client.at("references", uri, 0, 2, context={"includeDeclaration": False})
        assert [(each["uri"], each["range"]["start"]) for each in found] == [(uri, {"line": 1, "character": 0})]
        outline = client.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
        assert [each["name"] for each in outline[0]["children"]] == ["B"]
        client.wait_for(lambda uri=uri: client.published(uri))
        assert [each["code"] for each in client.published(uri) or []] == ["broken-heading"]
        client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})


def test_files_that_nobody_opened_and_no_vault_holds_have_no_answer(client: Client, tmp_path: Path) -> None:
    uri = (tmp_path / "never.md").as_uri()
    assert client.at("definition", uri, 0, 0) is None
    assert client.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}}) is None
    assert client.request("textDocument/documentLink", {"textDocument": {"uri": uri}}) is None


def test_a_file_whose_vault_is_marked_brings_it_along(tmp_path: Path) -> None:
    root = write(tmp_path / "vault", {".obsidian/app.json": "{}", "sub/a.md": "[[b]]\n", "b.md": "# B\n"})
    with serving(tmp_path / "cache") as client:
        client.initialize()
        uri = (root / "sub/a.md").as_uri()
        client.open(uri, "[[b]]\n")
        assert [each["uri"] for each in client.at("definition", uri, 0, 2)] == [(root / "b.md").as_uri()]


def test_all_spellings_of_a_uri_are_one_document(opened: Make) -> None:
    here = opened("=== a b@1.md\n[[目标]]\n=== 目标.md\n# T\n")
    typed = here.root.as_uri() + "/a%20b@1.md"
    here.client.open(typed, "x [[目标]]\n")
    for spelling in (typed, here.uri("a b@1.md"), here.root.as_uri() + "/%61%20b%401.md"):
        found = here.client.at("definition", spelling, 0, 4)
        assert [each["targetUri"] for each in found] == [here.uri("目标.md")]
    lower = here.root.as_uri() + "/%e7%9b%ae%e6%a0%87.md"
    found = here.client.at("references", lower, 0, 2, context={"includeDeclaration": False})
    assert [(each["uri"], each["range"]["start"]["character"]) for each in found] == [(typed, 2)]
    here.client.change(here.uri("a b@1.md"), 2, {"text": "[[gone]]\n"})
    here.client.wait_for(lambda: here.client.published(typed))


@pytest.mark.parametrize("name", ["C# notes?.md", "100% [x] (y).md", "a&b;c=d.md", "Cafe\u0301.md", "Café.md"])
def test_odd_names_are_percent_encoded_and_keep_their_bytes(opened: Make, name: str) -> None:
    here = opened(f"=== {name}\n# T\n[[other]]\n=== other.md\n# O\n")
    found = here.client.at("references", here.uri("other.md"), 0, 2, context={"includeDeclaration": False})
    assert [each["uri"] for each in found] == [here.uri(name)]
    assert here.targets(name, 1, 3) == ["other.md:0"]


def test_a_folder_behind_a_symlink_keeps_the_clients_name(tmp_path: Path) -> None:
    root = write(tmp_path / "real", {"a.md": "[[b]]\n", "b.md": "# B\n"})
    link = tmp_path / "link"
    link.symlink_to(root)
    with serving(tmp_path / "cache") as client:
        client.initialize(link, capabilities=FULL_CLIENT)
        client.open((link / "a.md").as_uri(), "[[b]]\n")
        found = client.at("definition", (link / "a.md").as_uri(), 0, 2)
        assert [each["targetUri"] for each in found] == [(link / "b.md").as_uri()]
        real = client.at("definition", (root / "a.md").as_uri(), 0, 2)
        assert [each["targetUri"] for each in real] == [(link / "b.md").as_uri()]


def test_text_that_no_file_can_hold_is_taken_all_the_same(opened: Make) -> None:
    here = opened("=== B.md\n# B\n")
    here.open("a.md", "\ud800\x00 [[B]]\n")
    assert here.targets("a.md", 0, 5) == ["B.md:0"]


def test_a_note_that_is_opened_with_another_text_than_it_was_saved_with_counts(opened: Make) -> None:
    here = opened("=== a.md\n[[b#New]]\n=== b.md\n# Old\n")
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-heading 0:0-9"])
    uri = here.open("b.md", "# New\n")
    here.wait_for_findings("a.md", [])
    here.client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    here.wait_for_findings("a.md", ["broken-heading 0:0-9"])


def test_a_folder_within_a_folder_answers_for_its_own_notes(opened: Make) -> None:
    outer = opened("=== a.md\n[[quince#New]]\n=== in/quince.md\n# Old\n\n[[a]]\n")
    outer.client.wait_for(lambda: outer.symbols("quince"))
    inner = Opened(outer.client, outer.root / "in", {}, None)
    added = {"uri": inner.root.as_uri(), "name": "in"}
    change = {"event": {"added": [added], "removed": []}}
    outer.client.notify("workspace/didChangeWorkspaceFolders", change)
    try:
        outer.open("a.md")
        outer.wait_for_findings("a.md", ["broken-heading 0:0-14"])
        inner.open("quince.md", "# New\n\n[[a]]\n")
        outer.wait_for_findings("a.md", [])
        for _ in range(2):
            assert outer.targets("a.md", 0, 12) == ["in/quince.md:0"]
            assert inner.targets("quince.md", 2, 3) == []
        assert len(outer.symbols("new")) == 1
        assert len(outer.client.request("vault/search", {"query": "old"})["results"]) == 1
        reports = outer.client.request("workspace/diagnostic", {"previousResultIds": []})["items"]
        assert len([each for each in reports if each["uri"] == inner.uri("quince.md")]) == 1
    finally:
        change = {"event": {"added": [], "removed": [added]}}
        outer.client.notify("workspace/didChangeWorkspaceFolders", change)
