"""Link reference definitions, the repeated ones included."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

import pyromark


class RawDefinition(NamedTuple):
    """A definition with byte offsets; `label` is normalised."""

    label: str
    target: str
    start: int
    end: int
    label_start: int
    label_end: int


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
_CANDIDATE = re.compile(
    rb"^(?:[ \t>]|[-*+][ \t]|[0-9]{1,9}[.)][ \t])*+(?=\[(?!\^)(?:[^\[\]\\\n]|\\.)++\]:)", re.MULTILINE
)
# A definition longer than this isn't looked for a second time.
_LONGEST = 2000


def normal_label(label: str) -> str:
    """A label as CommonMark compares it: case folded, white space collapsed."""
    return " ".join(label.split()).casefold()


def definitions(markdown: str, data: bytes) -> list[RawDefinition]:
    """All definitions in document order. The Markdown parser keeps only the first of each label."""
    found = []
    known = set()
    for definition in pyromark.reference_definitions(markdown, options=OPTIONS).values():
        start, end = definition["span"]["start"], definition["span"]["end"]
        known.add(start)
        label = _LABEL.match(data, start, end)
        if label:
            found.append(_definition(label, definition["dest"], start, end))
    if not known:
        return found
    candidates = [match.end() for match in _CANDIDATE.finditer(data) if match.end() not in known]
    if candidates:
        found.extend(_repeated(markdown, data, candidates))
    found.sort(key=lambda definition: definition.start)
    return found


def _repeated(markdown: str, data: bytes, candidates: list[int]) -> list[RawDefinition]:
    """Those candidates that the parser swallowed although another definition holds their label."""
    spans = _content(markdown)
    starts = [start for start, _ in spans]
    result = []
    for at in candidates:
        index = bisect_right(starts, at) - 1
        if index >= 0 and at < spans[index][1]:
            continue
        piece = data[at : at + _LONGEST].decode("utf-8", "ignore")
        for definition in pyromark.reference_definitions(piece, options=OPTIONS).values():
            label = _LABEL.match(data, at)
            if definition["span"]["start"] == 0 and label:
                result.append(_definition(label, definition["dest"], at, at + definition["span"]["end"]))
            break
    return result


def _content(markdown: str) -> list[tuple[int, int]]:
    """Ranges that hold text, code or HTML, so no definition."""
    spans: list[tuple[int, int]] = []
    reach = 0
    for event, span in pyromark.events_with_range(markdown, options=OPTIONS, merge_text=True):
        leaf = isinstance(event, dict) and (
            "Text" in event
            or ("Start" in event and (event["Start"] in ("Paragraph", "HtmlBlock") or "CodeBlock" in event["Start"]))
        )
        if leaf and span["end"] > reach:
            reach = span["end"]
            spans.append((span["start"], reach))
    return spans


def _definition(label: re.Match[bytes], target: str, start: int, end: int) -> RawDefinition:
    name = normal_label(label[1].decode("utf-8", "replace"))
    return RawDefinition(name, target, start, end, label.start(), label.end() - 1)
