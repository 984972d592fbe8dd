from __future__ import annotations

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.model import Heading
from vault_lsp.core.text import Place, Point
from vault_lsp.lsp import convert

names = st.binary(min_size=1, max_size=12).filter(lambda name: b"/" not in name and b"\0" not in name)


@given(st.lists(names.filter(lambda name: name not in (b".", b"..")), min_size=1, max_size=4))
def test_every_file_name_survives_its_uri(parts: list[bytes]) -> None:
    file = "/" + "/".join(map(os.fsdecode, parts))
    assert convert.file_of(convert.uri_of(file)) == file


@given(st.lists(names.filter(lambda name: name not in (b".", b"..")), min_size=1, max_size=4))
def test_a_uri_is_spelled_as_pathlib_spells_it(parts: list[bytes]) -> None:
    file = "/" + "/".join(map(os.fsdecode, parts))
    assert convert.uri_of(file) == PurePosixPath(file).as_uri()


@pytest.mark.parametrize(
    "spelling",
    [
        "file:///v/a%20b%401.md",
        "file:///v/a%20b@1.md",
        "file:///v/a b@1.md",
        "file:///v/%61%20b%401.md",
        "FILE:///v/a%20b%401.md",
        "file://localhost/v/a%20b%401.md",
        "file:/v/a%20b%401.md",
        "file:///v/./x/../a%20b%401.md",
        "file:///v//a%20b%401.md",
        "file:////v/a%20b%401.md",
    ],
)
def test_all_spellings_of_a_uri_name_one_file(spelling: str) -> None:
    assert convert.file_of(spelling) == "/v/a b@1.md"


def test_letter_case_of_percent_encoding_makes_no_difference() -> None:
    assert convert.file_of("file:///%e7%9b%ae.md") == convert.file_of("file:///%E7%9B%AE.md") == "/目.md"


def test_percent_signs_and_marks_of_a_name_are_decoded_once() -> None:
    assert convert.file_of("file:///v/100%2525%23%3F.md") == "/v/100%25#?.md"
    assert convert.file_of("file:///v/C#?.md") == "/v/C#?.md"


@pytest.mark.parametrize("spelling", ["file:///c%3A/v/a.md", "file:///C:/v/a.md", "file:///c:/v/x/../a.md"])
def test_drive_letters_have_one_form_on_windows(spelling: str) -> None:
    file = convert.file_of(spelling, windows=True)
    assert file == "C:\\v\\a.md"
    assert convert.uri_of(file, windows=True) == "file:///c:/v/a.md"


def test_a_network_share_is_named_by_its_host() -> None:
    file = convert.file_of("file://server/share/a%20b.md", windows=True)
    assert file == "\\\\SERVER\\SHARE\\a b.md"
    assert convert.uri_of(file, windows=True) == "file://SERVER/SHARE/a%20b.md"


@pytest.mark.parametrize(
    "uri", ["untitled:Untitled-1", "vscode-notebook-cell:/v/a.md", "a.md", "", "file:", "file://", "file:///\ud800"]
)
def test_what_is_no_file_has_no_file_name(uri: str) -> None:
    assert convert.file_of(uri) is None


def heading(level: int, text: str, line: int) -> Heading:
    place = Place(Point(line, 0, 0, 0), Point(line, len(text), len(text), len(text)))
    return Heading(level, text, text, text, place)


def tree(symbols: object) -> list[object]:
    assert isinstance(symbols, list)
    return [[each["name"], *tree(each["children"])] if each["children"] else each["name"] for each in symbols]


def test_an_outline_nests_under_the_nearest_higher_heading() -> None:
    headings = [heading(1, "A", 0), heading(3, "C", 1), heading(2, "B", 2), heading(1, "D", 3)]
    outline = convert.wire_outline(headings, Point(9, 0, 0, 0), "utf-16")
    assert tree(outline) == [["A", "C", "B"], "D"]
    assert [each["range"]["end"]["line"] for each in outline] == [3, 9]  # type: ignore[index]


def test_an_outline_may_begin_low_and_leaves_nameless_headings_out() -> None:
    headings = [heading(3, "low", 0), heading(1, " ", 1), heading(1, "top", 2)]
    assert tree(convert.wire_outline(headings, Point(3, 0, 0, 0), "utf-8")) == ["low", "top"]
    assert [each["name"] for each in convert.wire_flat_symbols(headings, "u", "utf-8")] == ["low", "top"]


def test_a_flat_symbol_names_the_heading_above_it() -> None:
    headings = [heading(1, "A", 0), heading(2, "B", 1), heading(1, "C", 2)]
    symbols = convert.wire_flat_symbols(headings, "file:///a.md", "utf-16")
    assert [each.get("containerName") for each in symbols] == [None, "A", None]


@given(st.lists(st.integers(1, 6), max_size=30))
def test_every_heading_appears_once_and_inside_its_parents_range(levels: list[int]) -> None:
    headings = [heading(level, f"h{line}", line) for line, level in enumerate(levels)]
    seen: list[str] = []

    def visit(symbols: object, start: int, end: int) -> None:
        assert isinstance(symbols, list)
        for each in symbols:
            first, last = each["range"]["start"]["line"], each["range"]["end"]["line"]
            assert start <= first <= last <= end
            assert first <= each["selectionRange"]["start"]["line"] <= last
            seen.append(each["name"])
            visit(each["children"], first, last)

    visit(convert.wire_outline(headings, Point(len(levels), 0, 0, 0), "utf-16"), 0, len(levels))
    assert seen == [each.text for each in headings]
