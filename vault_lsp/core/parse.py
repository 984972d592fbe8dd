"""Text to Note. Total: whatever the text, a note comes back, and what is wrong with it is in `Note.problems`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vault_lsp.core import frontmatter
from vault_lsp.core.frontmatter import FrontMatter
from vault_lsp.core.inline import RawLink
from vault_lsp.core.marks import inside
from vault_lsp.core.model import (
    Alias,
    Anchor,
    Block,
    Definition,
    Heading,
    LabelUse,
    Link,
    Note,
    NotePath,
    Problem,
    Tag,
)
from vault_lsp.core.scan import Scan, scan
from vault_lsp.core.slugs import slugs
from vault_lsp.core.text import Place, Point, Text


class _Head(NamedTuple):
    """The front matter of a note as the note holds it."""

    properties: Mapping[str, object] | None = None
    title: tuple[str, Place] | None = None
    aliases: tuple[Alias, ...] = ()
    tags: tuple[Tag, ...] = ()
    links: tuple[Link, ...] = ()
    problems: tuple[Problem, ...] = ()


#: Goes up when the same text gives another Note, so that indexes are built anew.
PARSER_VERSION = 2

_START = Place(Point(0, 0, 0, 0), Point(0, 0, 0, 0))
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_LINE_END = re.compile(r"\r\n|\n|\r")
_ASTRAL = re.compile(rb"[\xf0-\xf4]")
_ASTRAL_LEADS = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")


def parse(path: NotePath, text: Text, problems: Iterable[Problem] = ()) -> Note:
    """Parse a note. Never raises; `problems` of reading the file come first in the note's own."""
    source = _encodable(text.source)
    bounds = frontmatter.find(source)
    if bounds is None:
        head, body, line = _Head(), source, 0
    else:
        head = _head(source[: bounds.body], frontmatter.read(source, bounds.block))
        body = source[bounds.body :]
        line = sum(1 for _ in _LINE_END.finditer(source, 0, bounds.body))
    if "\r" in body:
        # The Markdown parser takes a lone carriage return for a line end in some places and not in others.
        body = _LONE_RETURN.sub("\n", body)
    data = body.encode()
    found = list(problems)
    found.extend(head.problems)
    try:
        scanned = scan(body, data)
    except BaseException as error:  # a panic of the Markdown parser is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        scanned = Scan()
        found.append(Problem("unreadable-markdown", f"The Markdown can't be parsed: {error}", _START))
    return _note(path, head, scanned, data, line, found)


def _encodable(source: str) -> str:
    try:
        source.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", source)
    return source


def _head(front: str, read: FrontMatter) -> _Head:
    text = Text(front)
    return _Head(
        read.properties,
        None if read.title is None else (read.title.name, text.place(read.title.span)),
        tuple(Alias(alias.name, text.place(alias.span)) for alias in read.aliases),
        tuple(Tag(tag.name, text.place(tag.span)) for tag in read.tags),
        tuple(_front_link(link, text) for link in read.links),
        tuple(Problem(flaw.rule, flaw.message, text.place(flaw.span)) for flaw in read.problems),
    )


def _front_link(link: RawLink, text: Text) -> Link:
    offsets = {offset: text.point(offset) for offset in link[6:]}
    return _link(link, offsets, comment=False)


def _note(path: NotePath, head: _Head, found: Scan, data: bytes, line: int, problems: list[Problem]) -> Note:
    comments = found.comments
    found.links.sort(key=lambda link: link.start)
    found.uses.sort(key=lambda use: use.start)
    raw_headings = [heading for heading in found.headings if not inside(heading.start, comments)]
    raw_blocks = [block for block in found.blocks if not inside(block.start, comments)]
    offsets: set[int] = set()
    for link in found.links:
        offsets.update(link[6:])
    for definition in found.definitions:
        offsets.update(definition[2:])
    for named in (*found.tags, *raw_blocks, *found.anchors):
        offsets.update(named[1:])
    for use in found.uses:
        offsets.update(use[1:3])
    for heading in raw_headings:
        offsets.update(heading[3:5])
    at = _points(data, offsets, line)

    anchors = slugs(heading.text for heading in raw_headings)
    headings = tuple(
        Heading(
            heading.level,
            heading.text,
            heading.raw,
            anchor,
            Place(at[heading.start], at[heading.end]),
            heading.linkable,
        )
        for heading, anchor in zip(raw_headings, anchors, strict=True)
    )
    blocks = tuple(Block(block.name, Place(at[block.start], at[block.end])) for block in raw_blocks)
    problems.extend(_repeated_blocks(blocks))
    title, title_place = _title(path, head, headings)
    return Note(
        path,
        title,
        title_place,
        head.aliases,
        (*head.tags, *(Tag(tag.name, Place(at[tag.start], at[tag.end])) for tag in found.tags)),
        headings,
        (*head.links, *(_link(link, at, comment=inside(link.start, comments)) for link in found.links)),
        blocks,
        tuple(Anchor(anchor.name, Place(at[anchor.start], at[anchor.end])) for anchor in found.anchors),
        tuple(
            Definition(label, target, Place(at[start], at[end]), Place(at[label_start], at[label_end]))
            for label, target, start, end, label_start, label_end in sorted(
                found.definitions, key=lambda raw: raw.start
            )
        ),
        tuple(LabelUse(use.label, Place(at[use.start], at[use.end]), use.defined) for use in found.uses),
        head.properties,
        tuple(problems),
    )


def _link(raw: RawLink, at: Mapping[int, Point], *, comment: bool) -> Link:
    kind, target, path, subpath, display, embed, start, end, target_start, target_end, subpath_start = raw
    behind = at[target_end]
    return Link(
        kind,
        target,
        path,
        subpath,
        display,
        embed,
        Place(at[start], at[end]),
        Place(at[target_start], behind),
        Place(at[subpath_start], behind),
        comment,
    )


def _title(path: NotePath, head: _Head, headings: tuple[Heading, ...]) -> tuple[str, Place]:
    for heading in headings:
        if heading.level == 1 and heading.linkable and heading.text:
            return heading.text, heading.place
    if head.title is not None:
        return head.title
    name = path.rpartition("/")[2]
    return (name[:-3] or name) if name.lower().endswith(".md") else name, _START


def _repeated_blocks(blocks: Iterable[Block]) -> Iterable[Problem]:
    first: dict[str, Block] = {}
    for block in blocks:
        known = first.setdefault(block.id.lower(), block)
        if known is not block:
            where = known.place.start.line + 1
            yield Problem("duplicate-block", f"Block ^{block.id} is already on line {where}", block.place)


def _points(data: bytes, offsets: Iterable[int], line: int) -> dict[int, Point]:
    """Byte offsets as positions, in one pass; `line` is the line at which the data begins."""
    result = {}
    ascii_only = data.isascii()
    astral = not ascii_only and any(lead in data for lead in _ASTRAL_LEADS)
    start = previous = utf32 = utf16 = 0
    for offset in sorted(offsets):
        lines = data.count(b"\n", previous, offset)
        if lines:
            line += lines
            previous = start = data.rfind(b"\n", previous, offset) + 1
            utf32 = utf16 = 0
        if ascii_only:
            column = offset - start
            result[offset] = Point(line, column, column, column)
        else:
            piece = data[previous:offset]
            if piece.isascii():
                length = len(piece)
                utf32 += length
                utf16 += length
            else:
                length = len(piece.decode())
                utf32 += length
                utf16 += length + (len(_ASTRAL.findall(piece)) if astral else 0)
            result[offset] = Point(line, utf32, utf16, offset - start)
        previous = offset
    return result
