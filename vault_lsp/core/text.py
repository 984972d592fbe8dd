r"""Offsets and positions of one text, in every encoding an editor may ask for.

A line ends at `\r\n`, `\n` or `\r` and nowhere else (LSP 3.17); `str.splitlines` also cuts at form feed, NEL and
U+2028 and is therefore never used.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_LINE_END = re.compile(r"\r\n|\n|\r")


class Span(NamedTuple):
    """Half-open range of code-point offsets into one text."""

    start: int
    end: int


class Point(NamedTuple):
    """A position that serves every encoding: 0-based line, and the column counted in each unit."""

    line: int
    utf32: int
    utf16: int
    utf8: int

    def column(self, encoding: Encoding) -> int:
        """The 0-based column in units of `encoding`."""
        if encoding == "utf-16":
            return self.utf16
        return self.utf32 if encoding == "utf-32" else self.utf8


class Place(NamedTuple):
    """A range of a file as two points, end exclusive.

    Notes and the index hold places, so nothing is read again to answer an editor in its own units.
    """

    start: Point
    end: Point

    def holds(self, point: Point) -> bool:
        """Whether the point lies inside or at the end, where a cursor still touches the range."""
        return self.start[:2] <= point[:2] <= self.end[:2]


class Text:
    """Decoded text with its line starts. Never changes; an edit makes a new one."""

    __slots__ = ("_last", "_starts", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._starts: list[int] | None = None
        self._last = (0, Point(0, 0, 0, 0))

    @property
    def line_starts(self) -> list[int]:
        """Offset of the first character of every line; a final line end opens one more, empty line."""
        if self._starts is None:
            self._starts = [0, *(match.end() for match in _LINE_END.finditer(self.source))]
        return self._starts

    def line_of(self, offset: int) -> int:
        """0-based line that holds `offset`."""
        return bisect_right(self.line_starts, offset) - 1

    def line_span(self, line: int) -> Span:
        """Span of a line without its line end. An IndexError for a line that isn't there."""
        start = self.line_starts[line]
        end = self.line_starts[line + 1] if line + 1 < len(self.line_starts) else len(self.source)
        while end > start and self.source[end - 1] in "\r\n":
            end -= 1
        return Span(start, end)

    def line(self, line: int) -> str:
        """Text of a line without its line end; an IndexError for a line that isn't there."""
        return self.source[slice(*self.line_span(line))]

    def point(self, offset: int) -> Point:
        """Position of an offset in all encodings.

        Counts on from the last answer on the same line, so that rising offsets cost linear time on a long line.
        """
        line = self.line_of(offset)
        origin, point = self._last
        if point.line != line or origin > offset:
            origin, point = self.line_starts[line], Point(line, 0, 0, 0)
        passed = self.source[origin:offset]
        length = len(passed)
        if passed.isascii():
            point = Point(line, point.utf32 + length, point.utf16 + length, point.utf8 + length)
        else:
            point = Point(
                line,
                point.utf32 + length,
                point.utf16 + _utf16_length(passed),
                point.utf8 + len(passed.encode("utf-8", "surrogatepass")),
            )
        self._last = (offset, point)
        return point

    def place(self, span: Span) -> Place:
        """Both ends of a span as positions."""
        return Place(self.point(span.start), self.point(span.end))

    def offset(self, line: int, column: int, encoding: Encoding) -> int:
        """Offset of an editor's position; past a line's end it is the line's end, past the text its end.

        A column that falls inside a character counts as the character's start.
        """
        if line < 0:
            return 0
        if line >= len(self.line_starts):
            return len(self.source)
        start, end = self.line_span(line)
        text = self.source[start:end]
        if encoding == "utf-32" or text.isascii():
            return start + min(max(column, 0), end - start)
        units = 0
        for index, character in enumerate(text):
            width = (
                len(character.encode("utf-8", "surrogatepass")) if encoding == "utf-8" else 1 + (character > "\uffff")
            )
            if units + width > column:
                return start + index
            units += width
        return end

    def replace(self, span: Span, new: str) -> Text:
        """The text with `span` replaced by `new`."""
        return Text(self.source[: span.start] + new + self.source[span.end :])

    def __len__(self) -> int:
        return len(self.source)


def pack(places: Sequence[Place]) -> bytes:
    """Places as the bytes the index stores: a letter for the width, then four numbers a point, little-endian."""
    numbers = [number for place in places for point in place for number in point]
    letter = "H" if max(numbers, default=0) < 1 << 16 else "I"
    return letter.encode() + struct.pack(f"<{len(numbers)}{letter}", *numbers)


def unpack(packed: bytes) -> tuple[Place, ...]:
    """The places of `pack`."""
    size = 2 if packed[:1] == b"H" else 4
    n = struct.unpack(f"<{(len(packed) - 1) // size}{chr(packed[0])}", packed[1:])
    return tuple(Place(Point(*n[i : i + 4]), Point(*n[i + 4 : i + 8])) for i in range(0, len(n), 8))


def _utf16_length(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)
