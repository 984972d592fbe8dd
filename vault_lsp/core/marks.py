"""`%% comments %%` and `$$ formulas $$` that the Markdown parser leaves in running text. Offsets are bytes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Mark(NamedTuple):
    """A `%%` or `$$`: where, in which block, and whether it stands first on its line."""

    start: int
    end: int
    block: int
    opens: bool


_DOLLARS = re.compile(rb"(?<!\\)\$\$")
_PERCENTS = re.compile(rb"%{2,}")
# More white space and quote marks than any line opens with.
_WIDEST_LEAD = 200


def comment_marks(data: bytes, start: int, end: int, block: int) -> Iterator[Mark]:
    """The `%%` of a run of text. An even number of them side by side is an empty comment."""
    for match in _PERCENTS.finditer(data, start, end):
        if len(match[0]) // 2 % 2:
            yield Mark(match.start(), match.end(), block, _heads_line(data, match.start()))


def formula_marks(data: bytes, start: int, end: int, block: int) -> Iterator[Mark]:
    """The `$$` of a run of text."""
    for match in _DOLLARS.finditer(data, start, end):
        yield Mark(match.start(), match.end(), block, _heads_line(data, match.start()))


def comment_spans(marks: Iterable[Mark]) -> list[tuple[int, int]]:
    """Comments: closed within their block, or opened at the head of a line and closed anywhere below.

    A mark that does neither is text and hides nothing.
    """
    spans = []
    opened: Mark | None = None
    for mark in marks:
        if opened is not None and (opened.opens or opened.block == mark.block):
            spans.append((opened.start, mark.end))
            opened = None
        else:
            opened = mark
    return spans


def formula_spans(marks: Iterable[Mark]) -> list[tuple[int, int]]:
    """Formulas opened at the head of a line.

    The Markdown parser cuts one in pieces when a line of it, such as a lone `=`, reads as a block of its own.
    """
    spans = []
    opened: Mark | None = None
    for mark in marks:
        if opened is not None:
            spans.append((opened.start, mark.end))
            opened = None
        elif mark.opens:
            opened = mark
    return spans


def inside(offset: int, spans: list[tuple[int, int]]) -> bool:
    """Whether an offset lies in one of these sorted spans."""
    if not spans:
        return False
    index = bisect_right(spans, (offset, spans[-1][1])) - 1
    return index >= 0 and offset < spans[index][1]


def _heads_line(data: bytes, at: int) -> bool:
    lead = data[max(0, at - _WIDEST_LEAD) : at].rpartition(b"\n")
    return bool(lead[1] or at <= _WIDEST_LEAD) and not lead[2].strip(b" \t>")
