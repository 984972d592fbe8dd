"""Link reference definitions, the repeated ones included."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyromark


class RawDefinition(NamedTuple):
    """A definition with byte offsets; `label` is normalised."""

    label: str
    target: str
    start: int
    end: int
    label_start: int
    label_end: int


class Definitions(NamedTuple):
    """All definitions, and the targets by label of those that the Markdown parser doesn't know of."""

    all: list[RawDefinition]
    extra: dict[str, str]


class _Content(NamedTuple):
    start: int
    end: int
    footnote: bool


OPTIONS = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_FOOTNOTES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
    | pyromark.Options.ENABLE_MATH
    | pyromark.Options.ENABLE_WIKILINKS
)

# What may look like a definition: a label with a colon at the head of a line, in quotes and lists too.
_LABEL = re.compile(rb"\[((?:[^\[\]\\]|\\.)++)\]:", re.DOTALL)
_CANDIDATE = re.compile(rb"(?:[ \t>]|[-*+][ \t]|[0-9]{1,9}[.)][ \t])*+(?=\[(?!\^)(?:[^\[\]\\\n]|\\.)++\]:)")
# How far before its colon a label is looked for; CommonMark allows 999 characters.
_WIDEST = 4200
_LEAVES = frozenset({"Paragraph", "HtmlBlock", "CodeBlock"})
# A definition longer than this isn't looked for a second time.
_LONGEST = 2000


def normal_label(label: str) -> str:
    """A label as CommonMark compares it: case folded, white space collapsed."""
    return " ".join(label.split()).casefold()


def definitions(markdown: str, data: bytes) -> Definitions:
    """All definitions in document order.

    The Markdown parser keeps only the first of each label, and takes a definition right below a footnote for more of
    the footnote's text.
    """
    found = []
    known = set()
    for definition in pyromark.reference_definitions(markdown, options=OPTIONS).values():
        start, end = definition["span"]["start"], definition["span"]["end"]
        known.add(start)
        label = _LABEL.match(data, start, end)
        if label:
            found.append(_definition(label, definition["dest"], start, end))
    candidates = [at for at in _candidates(data) if at not in known]
    extra: dict[str, str] = {}
    if candidates:
        labels = {definition.label for definition in found}
        for missed in _missed(markdown, data, candidates):
            found.append(missed)
            if missed.label not in labels:
                extra.setdefault(missed.label, missed.target)
    found.sort(key=lambda definition: definition.start)
    return Definitions(found, extra)


def _candidates(data: bytes) -> Iterator[int]:
    at = data.find(b"]:")
    last = -1
    while at >= 0:
        head = data.rfind(b"\n", max(0, at - _WIDEST), at) + 1
        if head > last and (head or at < _WIDEST):
            match = _CANDIDATE.match(data, head)
            if match:
                yield match.end()
            last = head
        at = data.find(b"]:", at + 2)


def _missed(markdown: str, data: bytes, candidates: list[int]) -> Iterator[RawDefinition]:
    """Those candidates that stand in no text, or below a footnote."""
    spans = _content(markdown)
    starts = [span.start for span in spans]
    for at in candidates:
        index = bisect_right(starts, at) - 1
        if index >= 0 and at < spans[index].end and not (spans[index].footnote and _flush(data, at)):
            continue
        label = _LABEL.match(data, at)
        piece = data[at : at + _LONGEST].decode("utf-8", "ignore")
        first = next(iter(pyromark.reference_definitions(piece, options=OPTIONS).values()), None)
        if first is not None and first["span"]["start"] == 0 and label:
            yield _definition(label, first["dest"], at, at + first["span"]["end"])


def _flush(data: bytes, at: int) -> bool:
    """Whether only white space too narrow for an indented line is before `at` on its line."""
    lead = data[max(0, at - 4) : at].rpartition(b"\n")
    return bool(lead[1]) and not lead[2].strip(b" ")


def _content(markdown: str) -> list[_Content]:
    """Ranges that hold text, code or HTML."""
    spans: list[_Content] = []
    reach = footnotes = 0
    events: Iterator[tuple[Any, Any]] = pyromark.events_with_range(markdown, options=OPTIONS, merge_text=True)
    for event, span in events:
        if event.__class__ is str:
            continue
        ((kind, value),) = event.items()
        leaf = kind == "Text"
        tag = ""
        if kind in {"Start", "End"}:
            tag = value if value.__class__ is str else next(iter(value))
            leaf = kind == "Start" and tag in _LEAVES
            if tag == "FootnoteDefinition":
                footnotes += 1 if kind == "Start" else -1
        if leaf and span["end"] > reach:
            reach = span["end"]
            spans.append(_Content(span["start"], reach, footnotes > 0 and tag == "Paragraph"))
    return spans


def _definition(label: re.Match[bytes], target: str, start: int, end: int) -> RawDefinition:
    name = normal_label(label[1].decode("utf-8", "replace"))
    return RawDefinition(name, target, start, end, label.start(), label.end() - 1)
