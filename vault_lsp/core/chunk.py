"""Cut a note into the pieces that are searched and embedded.

A piece holds about `LIMIT` tokens and ends, in order of preference, before a heading, after a paragraph, a line, a
sentence, a word. Among equally good places the choice depends on the text around them and not on what went before, so
that after an edit the old cuts are soon found again and few vectors have to be made anew.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from vault_lsp.core.model import Chunk, Heading, Note
from vault_lsp.core.text import Span, Text

#: Changes whenever some note is cut differently: chunks and vectors are then made anew.
CHUNKER_VERSION = 2

#: Tokens of a chunk at most, by the estimate of `_fitting`.
LIMIT = 400


class _Section(NamedTuple):
    start: int
    level: int
    path: tuple[str, ...]


def chunks(note: Note, text: Text) -> tuple[Chunk, ...]:
    """Cut the body of a note; front matter alone gives one chunk of its values. A blank note has none.

    Every line of the body that is not blank lies in a chunk. Time is linear in the text.
    """
    body = _body_start(note, text)
    sections = _sections(note.headings, text)
    found: list[Chunk] = []
    for span in _spans(text.source, body, sections):
        start, end = _trimmed(text.source, span)
        if start < end:
            piece = _unified_line_ends(text.source[start:end])
            lines = (text.line_of(start), text.line_of(end - 1))
            path = _heading_path(sections, start, end)
            found.append(Chunk(len(found), path, *lines, piece, _sha(passage(note.title, path, piece))))
    if not found and body and (values := property_text(note)):
        sha = _sha(passage(note.title, (), values))
        found.append(Chunk(0, (), 0, max(0, text.line_of(body - 1)), values, sha))
    return tuple(found)


def passage(title: str, heading_path: Iterable[str], piece: str) -> str:
    """The text that is embedded for a piece: a piece alone often doesn't name what it is about."""
    above = " › ".join(dict.fromkeys((title, *heading_path)))
    return f"{above}\n{piece}"


def property_text(note: Note) -> str:
    """List the front-matter values that no other part of the index holds, one a line."""
    if not note.frontmatter:
        return ""
    values = (value for key, value in note.frontmatter.items() if key.lower() not in _INDEXED_PROPERTIES)
    return "\n".join(dict.fromkeys(_scalars(values)))


_INDEXED_PROPERTIES = frozenset({"title", "alias", "aliases", "tag", "tags"})

# Characters that cost a token each; four of any other kind make one.
_DENSE = re.compile(
    "[\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\u9fff\ua000-\ua4cf\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0003ffff]+"
)
_PARAGRAPH_END = re.compile(r"\n(?:[ \t\r]*\n)+")
_LINE_END = re.compile(r"\r\n|\n|\r")
_SENTENCE_END = re.compile(r"[。！？；…]+[」』”’）]*|[.!?;]+[\"')\]”’]*[ \t]+")
_WORD_END = re.compile(r"[ \t]+|[，、：,]")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)
_CLOSING_RULE = re.compile(r"(?:---|\.\.\.)[ \t]*\Z")


def _body_start(note: Note, text: Text) -> int:
    """Offset of the first line after the front matter; 0 without front matter that could be read."""
    if note.frontmatter is None or not text.source.lstrip("\ufeff").startswith("---"):
        return 0
    for line in range(1, len(text.line_starts)):
        if _CLOSING_RULE.match(text.line(line)):
            return text.line_starts[line + 1] if line + 1 < len(text.line_starts) else len(text.source)
    return 0


def _sections(headings: Iterable[Heading], text: Text) -> list[_Section]:
    """Linkable headings with the path that leads to each, in order."""
    sections: list[_Section] = []
    above: list[tuple[int, str]] = []
    for heading in headings:
        if not heading.linkable:
            continue
        while above and above[-1][0] >= heading.level:
            above.pop()
        above.append((heading.level, heading.text))
        path = tuple(name for _, name in above if name)
        sections.append(_Section(text.line_starts[heading.place.start.line], heading.level, path))
    return sections


def _spans(source: str, start: int, sections: list[_Section]) -> Iterator[Span]:
    starts = [section.start for section in sections]
    fences = _fences(source)
    while start < len(source):
        end = start + _fitting(source, start, LIMIT)
        if end < len(source):
            least = start + max(1, (end - start) // 8)
            # The wider the choice, the sooner the old cuts are found again; the narrower, the fuller the chunks.
            quarter = start + max(1, (end - start) // 4)
            middle = start + max(1, (end - start) * 3 // 8)
            inside = sections[bisect_left(starts, least) : bisect_right(starts, end)]
            end = _heading_cut(source, inside, quarter) if inside else _text_cut(source, middle, end, fences)
        yield Span(start, end)
        start = end


def _fitting(source: str, start: int, limit: int) -> int:
    """How many characters from `start` make up `limit` tokens, at least 1."""
    budget = 4 * limit
    window = source[start : start + budget]
    if window.isascii():
        return len(window)
    spent = 0  # characters, the dense ones fourfold
    seen = 0
    for run in _DENSE.finditer(window):
        before, length = run.start() - seen, run.end() - run.start()
        if spent + before >= budget:
            break
        spent += before
        seen = run.start()
        if spent + 4 * length > budget:
            return max(1, seen + (budget - spent) // 4)
        spent += 4 * length
        seen = run.end()
    return max(1, min(len(window), seen + budget - spent))


def _heading_cut(source: str, inside: list[_Section], early: int) -> int:
    """Cut before a heading of the highest rank, past the first quarter if there is one."""
    level = min(section.level for section in inside)
    starts = [section.start for section in inside if section.level == level]
    late = [start for start in starts if start >= early]
    return _settled(source, late) if late else starts[-1]


def _text_cut(source: str, middle: int, end: int, fences: list[Span]) -> int:
    """Cut between `middle` and `end` at the best place there is."""
    window = source[middle:end]
    paragraphs = [middle + match.end() for match in _PARAGRAPH_END.finditer(window)]
    if fences:
        paragraphs = [cut for cut in paragraphs if not _within(fences, cut)]
    for cuts in (
        paragraphs,
        [middle + match.end() for match in _LINE_END.finditer(window)],
        [middle + match.end() for match in _SENTENCE_END.finditer(window)],
    ):
        if cuts:
            return _settled(source, cuts)
    for match in _WORD_END.finditer(window):
        end = middle + match.end()
    return _grapheme_start(source, end, middle)


def _settled(source: str, cuts: list[int]) -> int:
    """Take one of the cuts, chosen by the text that follows each."""
    return min(cuts, key=lambda cut: crc32(source[cut : cut + 48].encode("utf-8", "surrogatepass")))


def _grapheme_start(source: str, cut: int, least: int) -> int:
    """Move a cut back, by a few characters at most, so that no mark loses its letter and no line end is torn."""
    for place in range(cut, max(least, cut - 32), -1):
        joined = place < len(source) and (
            source[place] in "\u200d\n"
            or unicodedata.category(source[place])[0] == "M"
            or source[place - 1] == "\u200d"
        )
        if not joined:
            return place
    return cut


def _fences(source: str) -> list[Span]:
    """Spans of the fenced code blocks, in order."""
    if "```" not in source and "~~~" not in source:
        return []
    spans: list[Span] = []
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(source):
        if opened is None:
            if match[1][0] == "~" or "`" not in match[2]:
                opened = match
        elif match[1].startswith(opened[1]) and not match[2].strip():
            spans.append(Span(opened.start(), match.end()))
            opened = None
    if opened is not None:
        spans.append(Span(opened.start(), len(source)))
    return spans


def _within(fences: list[Span], offset: int) -> bool:
    index = bisect_left(fences, (offset,)) - 1
    return index >= 0 and offset < fences[index].end


def _heading_path(sections: list[_Section], start: int, end: int) -> tuple[str, ...]:
    """Name what all of the chunk stands under: the part that the paths of its sections have in common."""
    first = bisect_right(sections, start, key=lambda section: section.start) - 1
    path = sections[first].path if first >= 0 else ()
    for section in sections[first + 1 :]:
        if section.start >= end or not path:
            break
        common = 0
        while common < min(len(path), len(section.path)) and path[common] == section.path[common]:
            common += 1
        path = path[:common]
    return path


def _trimmed(source: str, span: Span) -> Span:
    """Leave out blank lines at both ends; the first line keeps its indentation."""
    piece = source[span.start : span.end]
    end = span.start + len(piece.rstrip())
    blank = len(piece) - len(piece.lstrip())
    line = max(piece.rfind("\n", 0, blank), piece.rfind("\r", 0, blank)) + 1
    return Span(span.start + line, max(end, span.start + line))


def _unified_line_ends(piece: str) -> str:
    return piece.replace("\r\n", "\n").replace("\r", "\n") if "\r" in piece else piece


def _sha(piece: str) -> str:
    return sha256(piece.encode("utf-8", "surrogatepass")).hexdigest()


def _scalars(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            if value.strip():
                yield value.strip()
        elif isinstance(value, dict):
            yield from _scalars(value.values())
        elif isinstance(value, list | tuple):
            yield from _scalars(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)
