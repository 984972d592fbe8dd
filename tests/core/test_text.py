"""Offsets, positions and lines of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.text import Encoding, Place, Point, Span, Text, pack, unpack

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
texts = st.text(st.sampled_from("ab \r\n\f\x85\u2028é中😀𠮷\ud800\0"), max_size=40)


def units(text: str, encoding: Encoding) -> int:
    codec, width = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}[encoding]
    return len(text.encode(codec, "surrogatepass")) // width


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", [""]),
        ("one", ["one"]),
        ("one\n", ["one", ""]),
        ("one\r\ntwo\rthree\nfour", ["one", "two", "three", "four"]),
        ("\r\r\n\n", ["", "", "", ""]),
        ("a\fb\x0bc\x1cd\x85e\u2028f\u2029g", ["a\fb\x0bc\x1cd\x85e\u2028f\u2029g"]),
    ],
)
def test_lines_end_at_line_feed_and_carriage_return_only(source: str, lines: list[str]) -> None:
    text = Text(source)
    assert [text.line(number) for number in range(len(text.line_starts))] == lines


def test_a_line_that_is_not_there_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        Text("a\nb").line(2)


def test_a_point_counts_the_column_in_every_unit() -> None:
    assert Text("x\né😀b").point(4) == Point(1, 2, 3, 6)
    point = Point(1, 2, 3, 6)
    assert [point.column(encoding) for encoding in ENCODINGS] == [6, 3, 2]


@pytest.mark.parametrize(
    ("line", "column", "encoding", "offset"),
    [
        (0, 1, "utf-16", 0),  # in the middle of a pair
        (0, 2, "utf-16", 1),
        (0, 3, "utf-8", 0),
        (0, 4, "utf-8", 1),
        (0, 99, "utf-16", 2),
        (0, 99, "utf-32", 2),
        (1, 99, "utf-8", 4),
        (0, -1, "utf-32", 0),
        (-1, 5, "utf-16", 0),
        (7, 0, "utf-16", 5),
    ],
)
def test_a_position_past_an_end_is_that_end(line: int, column: int, encoding: Encoding, offset: int) -> None:
    assert Text("😀a\nb\n").offset(line, column, encoding) == offset


def test_replacing_a_span_makes_a_new_text() -> None:
    text = Text("one two three")
    assert text.replace(Span(4, 7), "2").source == "one 2 three"
    assert text.source == "one two three"
    assert len(text) == 13


def test_a_place_holds_the_point_at_its_end() -> None:
    text = Text("ab [[c]] d")
    place = text.place(Span(3, 8))
    assert [place.holds(text.point(offset)) for offset in (2, 3, 5, 8, 9)] == [False, True, True, True, False]


@given(texts, st.data())
def test_an_offset_survives_the_way_through_a_position_in_every_encoding(source: str, data: st.DataObject) -> None:
    text = Text(source)
    offset = data.draw(st.integers(0, len(source)))
    if source[max(0, offset - 1) : offset + 1] == "\r\n":
        offset -= 1
    point = text.point(offset)
    start = text.line_starts[point.line]
    for encoding in ENCODINGS:
        assert point.column(encoding) == units(source[start:offset], encoding)
        assert text.offset(point.line, point.column(encoding), encoding) == offset


@given(texts, st.data())
def test_the_order_of_questions_does_not_change_an_answer(source: str, data: st.DataObject) -> None:
    offsets = data.draw(st.lists(st.integers(0, len(source)), max_size=8))
    text = Text(source)
    assert [text.point(offset) for offset in offsets] == [Text(source).point(offset) for offset in offsets]


@given(texts)
def test_the_lines_and_their_ends_make_up_the_text(source: str) -> None:
    text = Text(source)
    bounds = [*text.line_starts, len(source)]
    pieces = [source[bounds[number] : bounds[number + 1]] for number in range(len(bounds) - 1)]
    assert "".join(pieces) == source
    for number, piece in enumerate(pieces):
        assert piece.removesuffix("\n").removesuffix("\r") == text.line(number)
        assert all(text.line_of(bounds[number] + index) == number for index in range(len(piece)))


numbers = st.integers(0, 70_000)
points = st.builds(Point, numbers, numbers, numbers, numbers)


@given(st.lists(st.builds(Place, points, points), max_size=5))
def test_packed_places_come_back(places: list[Place]) -> None:
    assert unpack(pack(places)) == tuple(places)


def test_small_places_are_packed_in_two_bytes_a_number() -> None:
    small = Place(Point(1, 2, 3, 4), Point(1, 5, 6, 7))
    large = Place(Point(70_000, 2, 3, 4), Point(70_000, 5, 6, 7))
    assert (len(pack([small])), len(pack([large]))) == (17, 33)


def test_rising_offsets_on_one_long_line_cost_linear_time() -> None:
    text = Text("é" * 400_000)
    assert [text.point(offset).utf8 for offset in range(0, 400_000, 2)][-1] == 2 * 399_998
