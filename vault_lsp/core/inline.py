"""The small grammars inside a line: link targets, tags, block ids, HTML anchors.

Body text is scanned as UTF-8, in which the Markdown parser counts; what a link says is split as text. Every pattern
is linear in its input.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from vault_lsp.core.model import LinkKind


class RawLink(NamedTuple):
    """A link with offsets in the unit of whoever found it. The `#…` part ends where the target ends."""

    kind: LinkKind
    target: str
    path: str
    subpath: str
    display: str | None
    embed: bool
    start: int
    end: int
    target_start: int
    target_end: int
    subpath_start: int


class Wikilink(NamedTuple):
    """What stands between `[[` and `]]`. `hash` is the index of the `#`, or the target's length."""

    target: str
    path: str
    subpath: str
    display: str | None
    hash: int


class Destination(NamedTuple):
    """The destination of a Markdown link, split at `#` and percent-decoded once."""

    path: str
    subpath: str


class Named(NamedTuple):
    """A tag, a block id or an anchor with byte offsets."""

    name: str
    start: int
    end: int


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,31});")
_MARKDOWN_LINK = re.compile(
    r"\[((?:[^\[\]\\\n]|\\.)*+)\]\([ \t]*(?:<([^<>\n]*)>|((?:[^\s()<\\]|\\.|\((?:[^\s()\\]|\\.)*+\))"
    r"(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*+\))*+))(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'))?[ \t]*\)"
)

# What ends a tag beside ASCII: NEL, NBSP, U+1680, U+2000-206F, U+2E00-2E7F, U+3000, U+FEFF.
_ENDS = (
    rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\xbf]|\xe2\x81[\x80-\xaf]|\xe2\xb8[\x80-\xbf]|\xe2\xb9[\x80-\xbf]"
    rb"|\xe3\x80\x80|\xef\xbb\xbf"
)
_NAME = rb"(?:[0-9A-Za-z_/\-]++|(?!" + _ENDS + rb")[\xc2-\xf4][\x80-\xbf]++)++"
_TAG_NAME = re.compile(_NAME)
# White space (also the wide kinds), a mark of emphasis, the opening of a comment or an escaped character may stand
# before a tag; `#` comes first in the pattern so that the search runs at the speed of one byte.
_TAG = re.compile(
    rb"#(?:(?<=[\t-\r _*]#)|(?<=~~#)|(?<===#)|(?<=%%#)|(?<=\xc2[\x85\xa0]#)|(?<=\xe1\x9a\x80#)"
    rb"|(?<=\xe2\x80[\x80-\x8a\xa8\xa9\xaf]#)|(?<=\xe2\x81\x9f#)|(?<=\xe3\x80\x80#)|(?<=\xef\xbb\xbf#)"
    rb"|(?<=\\[!-\"$-/:-@\[\]-`{-~]#))(" + _NAME + rb"(?:#" + _NAME + rb")*+)"
)
_TAG_AT_START = re.compile(rb"#(" + _NAME + rb"(?:#" + _NAME + rb")*+)")
_MARKED = b"_*~="
_BLOCK_ID = re.compile(rb"\^([0-9A-Za-z-]++)[ \t]*\Z")
_WIDE_SPACE = re.compile(rb"(?:\xc2\xa0|\xe3\x80\x80|\xe2\x80[\x80-\x8b])\Z")
_BAR_TARGET = re.compile(rb"(?<!\\)!?\[\[(\|[^\[\]\n]*+)\]\]")
_HTML_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_HTML_TAG = re.compile(rb"<([A-Za-z][\w-]*+)\s([^<>]*+)>")
_ATTRIBUTE = re.compile(rb"(?:(?<=\s)|\A)(id|name)\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'=`]++))", re.IGNORECASE)


def is_external(destination: str) -> bool:
    """Whether a destination leaves the vault: it has a scheme or names a host."""
    return _SCHEME.match(destination) is not None


def split_wikilink(inside: str) -> Wikilink | None:
    """Split at the first bar (escaped or not), then at the first `#`; None for an empty target.

    A bar in front belongs to the target, as Obsidian has it.
    """
    bar = inside.find("|", 1)
    target, display = (inside, None) if bar < 0 else (inside[:bar].removesuffix("\\"), inside[bar + 1 :])
    if not target.strip():
        return None
    cut = target.find("#")
    if cut < 0:
        return Wikilink(target, target.strip(), "", display, len(target))
    return Wikilink(target, target[:cut].strip(), target[cut:].rstrip(), display, cut)


def split_destination(destination: str) -> Destination:
    """Split an unescaped destination at its first `#` and decode each part once; a broken percent code stays."""
    path, cut, fragment = destination.partition("#")
    return Destination(_decoded(path), cut + _decoded(fragment))


def raw_hash(raw: str) -> int:
    """Index of the `#` that parts a destination as written, its length when there is none."""
    at = raw.find("#")
    while at > 0 and raw[at - 1] == "&" and _ENTITY.match(raw, at - 1):
        at = raw.find("#", at + 1)
    return at if at >= 0 else len(raw)


def whole_value_link(value: str) -> RawLink | None:
    """The link that a front-matter value as a whole is, with offsets into it; None for any other text."""
    stripped = value.strip()
    lead = value.find(stripped[:1]) if stripped else 0
    end = lead + len(stripped)
    if stripped.startswith("[[") and stripped.endswith("]]"):
        inside = stripped[2:-2]
        if "[[" in inside or "]]" in inside or "\n" in inside:
            return None
        parts = split_wikilink(inside)
        if parts is None:
            return None
        start = lead + 2
        target_end, subpath_start = start + len(parts.target), start + parts.hash
        return RawLink("frontmatter", *parts[:4], False, lead, end, start, target_end, subpath_start)
    match = _MARKDOWN_LINK.fullmatch(stripped)
    if match is None:
        return None
    group = 2 if match[2] is not None else 3
    raw = match[group]
    destination = html.unescape(_ESCAPED.sub(r"\1", raw)) if "\\" in raw or "&" in raw else raw
    if not destination or is_external(destination):
        return None
    at = lead + match.start(group)
    path, subpath = split_destination(destination)
    target_end, subpath_start = at + len(raw), at + raw_hash(raw)
    return RawLink("frontmatter", raw, path, subpath, match[1], False, lead, end, at, target_end, subpath_start)


def tag_name(text: str) -> str | None:
    """The tag that a front-matter value names, None where it is no valid tag. A leading `#` is allowed."""
    name = text.strip().removeprefix("#").rstrip("/")
    if not name or (name.isascii() and name.isdigit()):
        return None
    return name if _TAG_NAME.fullmatch(name.encode("utf-8", "replace")) else None


def tags(data: bytes, start: int, end: int, *, fresh: bool) -> Iterator[Named]:
    """Tags of a run of plain text. `fresh` tells that the run opens a line, a cell, a link text or follows HTML."""
    if fresh and data[start - 1 : start] != b"\\":
        match = _TAG_AT_START.match(data, start, end)
        if match:
            if not _inside_address(data, start):
                yield from _chain(match[1], start)
            start = match.end()
    for match in _TAG.finditer(data, start, end):
        if not _inside_address(data, match.start()):
            yield from _chain(match[1], match.start())


def block_id(data: bytes, start: int, end: int) -> Named | None:
    """The block id at the end of a run of text that ends a block."""
    at = data.rfind(b"^", start, end)
    match = _BLOCK_ID.match(data, at, end) if at >= 0 else None
    if match is None:
        return None
    before = data[max(0, at - 1) : at]
    # After an image or a link the id may follow without a space; `x^2` in running text is no id.
    opens = not before or before in b" \t\n\r\f\v]" or (at == start and before in b")>|")
    if opens or _WIDE_SPACE.search(data, max(0, at - 3), at):
        return Named(match[1].decode(), at, match.end(1))
    return None


def bar_wikilinks(data: bytes, start: int, end: int) -> Iterator[RawLink]:
    """`[[|x]]`, which Obsidian takes for a link to a note named `|x`."""
    for match in _BAR_TARGET.finditer(data, start, end):
        link = wikilink(match[1].decode(), match.start(), match.end(), embed=match[0].startswith(b"!"))
        if link is not None:
            yield link


def wikilink(inside: str, start: int, end: int, *, embed: bool) -> RawLink | None:
    """A wikilink of the body at these byte offsets; None for an empty target."""
    parts = split_wikilink(inside)
    if parts is None:
        return None
    at = start + 2 + embed
    if inside.isascii():
        target_end, subpath_start = at + len(parts.target), at + parts.hash
    else:
        target_end = at + len(parts.target.encode())
        subpath_start = at + len(parts.target[: parts.hash].encode())
    return RawLink("wikilink", *parts[:4], embed, start, end, at, target_end, subpath_start)


def anchors(data: bytes, start: int, end: int) -> Iterator[Named]:
    """`id=` of any tag and `name=` of `<a>` in a stretch of HTML, outside its comments."""
    piece = data[start:end]
    if b"=" not in piece:
        return
    if b"<!--" in piece:
        piece = _HTML_COMMENT.sub(lambda match: b" " * len(match[0]), piece)
    for tag in _HTML_TAG.finditer(piece):
        for match in _ATTRIBUTE.finditer(tag[2]):
            if match[1].lower() == b"name" and tag[1].lower() != b"a":
                continue
            group = match.lastindex or 1
            name = html.unescape(match[group].decode("utf-8", "replace"))
            if name:
                at = start + tag.start(2)
                yield Named(name, at + match.start(group), at + match.end(group))


def _chain(names: bytes, at: int) -> Iterator[Named]:
    """`#a#b` holds two tags; digits alone are none, and nothing follows them."""
    for piece in names.split(b"#"):
        name = piece.rstrip(b"/")
        if not name or name.isdigit():
            return
        yield Named(name.decode("utf-8", "replace"), at, at + 1 + len(name))
        at += 1 + len(piece)


def _inside_address(data: bytes, at: int) -> bool:
    """Whether a mark of emphasis before `at` belongs to a bare web address, which is no longer than addresses are."""
    if not at or data[at - 1] not in _MARKED:
        return False
    words = data[max(0, at - 2000) : at].split()
    return bool(words) and b"://" in words[-1]


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text
