from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from vault_lsp.core.text import Encoding, Text
from vault_lsp.lsp.session import ClientCapabilities, Document, Settings, folders_of, without_surrogates

texts = st.text(st.sampled_from("ab🌱𠮷é́\n\r\f\u2028\x0b\x85"), max_size=30)


def units(text: str, encoding: Encoding) -> int:
    widths = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
    return len(text.encode(encoding + ("" if encoding == "utf-8" else "-le"))) // widths[encoding]


def position_of(text: str, offset: int, encoding: Encoding) -> types.Position:
    """The position of an offset, counted without the code under test."""
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    return types.Position(before.count("\n"), units(before.rpartition("\n")[2], encoding))


@given(texts, st.data(), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_ranges_that_a_client_sends_edit_what_it_means(text: str, data: st.DataObject, encoding: Encoding) -> None:
    """Several edits in one notification, each against the text that the one before it left."""
    expected = text
    changes = []
    for _ in range(data.draw(st.integers(1, 3))):
        inside = [at for at in range(len(expected) + 1) if expected[at - 1 : at + 1] != "\r\n"]
        start, end = sorted(data.draw(st.sampled_from(inside)) for _ in "ab")
        new = data.draw(texts)
        span = types.Range(position_of(expected, start, encoding), position_of(expected, end, encoding))
        changes.append(types.TextDocumentContentChangePartial(span, new))
        expected = expected[:start] + new + expected[end:]
    document = Document("file:///a.md", 1, Text(text)).changed(2, changes, encoding)
    assert document.text.source == expected
    assert (document.version, document.edited) == (2, True)


def test_a_whole_text_and_a_range_may_follow_each_other() -> None:
    changes = [
        types.TextDocumentContentChangeWholeDocument("one\ntwo"),
        types.TextDocumentContentChangePartial(types.Range(types.Position(1, 0), types.Position(1, 3)), "2"),
    ]
    assert Document("untitled:1", 1, Text("x")).changed(5, changes, "utf-16").text.source == "one\n2"


def test_a_position_past_a_line_or_the_text_is_the_nearest_end() -> None:
    insert = types.TextDocumentContentChangePartial(types.Range(types.Position(0, 99), types.Position(0, 99)), "X")
    append = types.TextDocumentContentChangePartial(types.Range(types.Position(99, 0), types.Position(99, 0)), "Y")
    assert (
        Document("untitled:1", 1, Text("abc\r\nd")).changed(2, [insert, append], "utf-16").text.source == "abcX\r\ndY"
    )


def test_lone_surrogates_become_replacement_characters_of_the_same_width() -> None:
    assert without_surrogates("a\ud800b\udc00🌱") == "a\ufffdb\ufffd🌱"


@pytest.mark.parametrize(
    "given_settings",
    [
        {"diagnostics": {"enable": False, "debounce_ms": 5}, "symbols": {"limit": 7}},
        {"vaultLsp": {"diagnostics": {"enable": False, "debounceMs": 5}, "symbols": {"limit": 7}}},
        {"vaultLsp.diagnostics.enable": False, "vaultLsp.diagnostics.debounceMs": 5, "vaultLsp.symbols.limit": 7},
        {"vaultLsp": {"diagnostics.enable": False, "diagnostics.debounce_ms": 5, "symbols.limit": 7}},
    ],
)
def test_settings_may_be_nested_flat_or_in_a_section(given_settings: object) -> None:
    assert Settings().updated(given_settings) == (Settings(False, 5, 7), [])


def test_what_is_not_usable_is_named_and_stays_as_it_was() -> None:
    settings, problems = Settings(symbols_limit=9).updated(
        {"diagnostics": {"enable": "yes", "debounce_ms": True}, "symbols": {"limit": -1}, "unknown": 1}
    )
    assert settings == Settings(symbols_limit=9)
    assert problems == [
        "vaultLsp.diagnostics.enable must be true or false, not 'yes'",
        "vaultLsp.diagnostics.debounce_ms must be a number from 0 to 100000, not True",
        "vaultLsp.symbols.limit must be a number from 0 to 100000, not -1",
    ]


@pytest.mark.parametrize("nothing", [None, {}, {"vaultLsp": {}}, {"other": {"enable": 1}}])
def test_no_settings_change_nothing(nothing: object) -> None:
    assert Settings().updated(nothing) == (Settings(), [])


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (None, "utf-16"),
        ([], "utf-16"),
        (["utf-8", "utf-16"], "utf-8"),
        (["utf-16", "utf-8"], "utf-16"),
        (["utf-32", "utf-8"], "utf-32"),
        (["utf-7", "utf-32"], "utf-32"),
        (["utf-7"], "utf-16"),
    ],
)
def test_the_clients_first_known_encoding_is_taken(offered: list[str] | None, chosen: str) -> None:
    general = types.GeneralClientCapabilities(position_encodings=offered)
    assert ClientCapabilities.of(types.ClientCapabilities(general=general)).encoding == chosen


@pytest.mark.parametrize(
    ("named", "folders"),
    [
        ({"workspaceFolders": [("file:///a", "a"), ("file:///b%20c", "b")], "rootUri": "file:///x"}, ["/a", "/b c"]),
        ({"rootUri": "file:///r", "rootPath": "/x"}, ["/r"]),
        ({"rootPath": "/p q"}, ["/p q"]),
        ({"workspaceFolders": [("vscode-vfs://github/x", "x")]}, []),
        ({}, []),
    ],
)
def test_folders_come_from_what_the_client_names(named: dict[str, object], folders: list[str]) -> None:
    listed = named.get("workspaceFolders")
    assert listed is None or isinstance(listed, list)
    params = types.InitializeParams(
        types.ClientCapabilities(),
        root_uri=str(named["rootUri"]) if "rootUri" in named else None,
        root_path=str(named["rootPath"]) if "rootPath" in named else None,
        workspace_folders=[types.WorkspaceFolder(*each) for each in listed] if listed else None,
    )
    assert [folder for _uri, folder in folders_of(params)] == folders
