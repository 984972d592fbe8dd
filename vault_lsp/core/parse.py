"""Text of a note → `Note`. Total: whatever the text, there is a note, and what is wrong with it is data.

Markdown is read by pyromark (pulldown-cmark); this module turns its events into what Obsidian would record.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import unquote_to_bytes

import pyromark

from vault_lsp.core import inline
from vault_lsp.core.frontmatter import FrontMatter, read_front_matter
from vault_lsp.core.inline import Run
from vault_lsp.core.model import (
    Anchor,
    Block,
    Definition,
    Heading,
    LabelUse,
    Link,
    LinkKind,
    Note,
    NotePath,
    Problem,
    Tag,
)
from vault_lsp.core.slugs import slugs
from vault_lsp.core.text import Place, Span, Text

#: Changes whenever the same text gives another note: the index is then built anew.
PARSER_VERSION = 1

_OPTIONS = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_FOOTNOTES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
    | pyromark.Options.ENABLE_MATH
    | pyromark.Options.ENABLE_WIKILINKS
)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ATX = re.compile(r"[ \t]{0,3}#{1,6}(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z", re.DOTALL)
_UNDERLINE = re.compile(r"[ \t>]*(?:=+|-+)[ \t]*\Z")
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_HTML_NAME = re.compile(
    r"""<(a\b[^<>]*?\sname|[a-z][^<>]*?\sid)\s*=\s*(?:"([^"<>]+)"|'([^'<>]+)'|([^\s"'<>]+))""", re.IGNORECASE
)
_HEADING_ID = re.compile(r"\{#([^\s{}]+)\}[ \t]*\Z")
_DEFINITION = re.compile(
    r"(?:(?<=[\r\n])|\A)[ \t>]*(?:[-*+][ \t]+)?(\[((?:[^\[\]\\]|\\.){1,999}?)\]:)"
    r"[ \t]*(?:(?:\r\n|\n|\r)[ \t>]*)?(<[^<>\r\n]*>|[^\s<]\S*)([^\r\n]*)"
)
_FRONT_LINK = re.compile(r"!?\[\[([^\[\]\r\n]+)\]\]\Z")
_FRONT_MARKDOWN = re.compile(r"!?\[([^\[\]\r\n]*)\]\(<?([^()<>\s]+)>?\)\Z")
_LEAF = frozenset({"Paragraph", "HtmlBlock"})


class _Raw(NamedTuple):
    """A link before its offsets become places."""

    kind: LinkKind
    target: str
    path: str
    subpath: str
    display: str | None
    embed: bool
    span: Span
    target_span: Span
    subpath_span: Span


class _Open(NamedTuple):
    """A link or an image whose end has not come yet."""

    type: str
    dest: str
    id: str
    embed: bool
    span: Span


class _RawHeading(NamedTuple):
    level: int
    text: str
    raw: str
    span: Span
    linkable: bool


def parse(path: NotePath, text: Text, problems: Sequence[Problem] = ()) -> Note:
    """Read a note. `problems` found before, such as replaced bytes, are handed on."""
    source = text.source
    front = read_front_matter(source)
    body = _Body(source, front.body_start)
    complaints = [*front.complaints]
    try:
        body.read()
    except (Exception, BaseException) as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        # The Rust library panics on a text it can't take; its panic is no ordinary exception.
        from vault_lsp.core.frontmatter import Complaint

        body = _Body(source, front.body_start)
        complaints.append(Complaint("invalid-markdown", "the Markdown can't be read", Span(0, 0)))
    return _note(path, text, front, body, complaints, problems)


def split_target(target: str) -> tuple[str, str]:
    """Path and subpath of a Markdown destination: cut at the first `#`, then each is decoded once."""
    path, mark, subpath = target.partition("#")
    return _decoded(path), mark + _decoded(subpath)


def normal_label(label: str) -> str:
    """A reference label as CommonMark compares it: case folded, white space collapsed."""
    return " ".join(label.split()).casefold()


class _Body:
    """The Markdown of one note, read event by event into lists of spans."""

    def __init__(self, source: str, start: int) -> None:
        self.source = source
        self.start = start
        self.offset = _offsets(source, start)
        self.links: list[_Raw] = []
        self.headings: list[_RawHeading] = []
        self.runs: list[Run] = []
        self.ends: list[Run] = []
        self.anchors: list[tuple[str, Span]] = []
        self.uses: list[tuple[str, Span, bool]] = []
        self.definitions: list[tuple[str, str, Span, Span]] = []
        self.leaves: list[tuple[int, int]] = []
        self.comments: list[Span] = []

    def read(self) -> None:
        """Walk the events of the Markdown reader once."""
        body = self.source[self.start :] if self.start else self.source
        source, offset, runs = self.source, self.offset, self.runs
        nested = 0  # lists, quotes and footnotes: their headings can't be linked
        block = 0
        opened: list[_Open] = []
        inner_end = 0
        heading: list[str] | None = None
        heading_at = (0, 0)
        run_start = run_end = -1
        for event, at in pyromark.events_with_range(body, options=_OPTIONS):
            start, end = offset(at["start"]), offset(at["end"])
            if isinstance(event, str):
                if event in ("SoftBreak", "HardBreak"):
                    if heading is not None:
                        heading.append(" ")
                    inner_end = end
                continue
            ((name, value),) = event.items()
            if name == "Text":
                # A text that differs from its source is an entity: `&#39;` holds no tag.
                if end - start == len(value) and (not opened or opened[-1].type != "wiki"):
                    if start == run_end:
                        run_end = end
                    else:
                        if run_start >= 0:
                            runs.append(Run(run_start, run_end, block))
                        run_start, run_end = start, end
                if heading is not None:
                    heading.append(value)
                inner_end = end
            elif name == "Start":
                kind, detail = (value, None) if isinstance(value, str) else next(iter(value.items()))
                if kind in ("Link", "Image"):
                    opened.append(_opened(detail, Span(start, end), embed=kind == "Image"))
                    inner_end = start + (2 if kind == "Image" else 1)
                    continue
                if kind in ("Emphasis", "Strong", "Strikethrough"):
                    continue
                if run_start >= 0:
                    runs.append(Run(run_start, run_end, block))
                    if kind in ("List", "Item"):
                        self.ends.append(runs[-1])
                    run_start = run_end = -1
                block += 1
                if kind in ("List", "BlockQuote", "FootnoteDefinition"):
                    nested += 1
                    if kind == "FootnoteDefinition":
                        mark = Span(start, start + len(cast(str, detail)) + 3)
                        self.definitions.append((f"^{normal_label(cast(str, detail))}", "", mark, mark))
                elif kind == "Heading":
                    heading, heading_at = [], (start, end)
                    self.leaves.append((start, end))
                elif kind in ("Paragraph", "HtmlBlock", "CodeBlock", "Table"):
                    self.leaves.append((start, end))
            elif name == "End":
                kind = value if isinstance(value, str) else next(iter(value))
                if kind in ("Link", "Image"):
                    self.close_link(opened.pop(), inner_end)
                    inner_end = end
                    continue
                if kind in ("Emphasis", "Strong", "Strikethrough"):
                    inner_end = end
                    continue
                if run_start >= 0:
                    runs.append(Run(run_start, run_end, block))
                    if kind in ("Paragraph", "Item", "Heading", "FootnoteDefinition"):
                        self.ends.append(runs[-1])
                    run_start = run_end = -1
                block += 1
                if kind in ("List", "BlockQuote", "FootnoteDefinition"):
                    nested -= 1
                elif kind == "Heading":
                    level = int(next(iter(value.values()))[1])
                    self.close_heading(level, "".join(heading or ()), heading_at, linkable=not nested)
                    heading = None
            elif name in ("Code", "InlineMath", "DisplayMath"):
                if heading is not None:
                    heading.append(value)
                inner_end = end
            elif name in ("Html", "InlineHtml"):
                if "=" in value:
                    self.html_names(value, start, end)
                inner_end = end
            elif name == "FootnoteReference":
                self.uses.append((f"^{normal_label(value)}", Span(start, end), True))
                inner_end = end
        if run_start >= 0:
            runs.append(Run(run_start, run_end, block))
        self.comments = inline.comments(source, runs)
        for target, span in inline.barred_links(source, runs):
            self.add_wiki(target, None, False, span, span.start + 2)
        for label, span in inline.undefined_labels(source, runs):
            self.uses.append((normal_label(label), span, False))
        if "]:" in body:
            self.find_definitions()

    def close_link(self, link: _Open, inner_end: int) -> None:
        """Record a link at its end: only there it is known where its text stops and its destination begins."""
        source, span = self.source, link.span
        if link.type == "wiki":
            start = span.start + (3 if link.embed else 2)
            inner = source[start : span.end - 2]
            target, bar, display = inner.partition("|")
            if "\n" in inner or "\r" in inner:
                return
            if bar and target.endswith("\\"):
                target = target[:-1]
            self.add_wiki(target, display if bar else None, link.embed, span, start)
            return
        if link.type == "auto":
            return
        display = source[span.start + (2 if link.embed else 1) : inner_end]
        if link.type == "reference":
            self.uses.append((normal_label(link.id), span, True))
            if link.dest and not _is_external(link.dest):
                path, subpath = split_target(link.dest)
                end = Span(span.end, span.end)
                self.links.append(_Raw("reference", link.dest, path, subpath, display, link.embed, span, span, end))
            return
        target_span = _destination(source, inner_end, span.end)
        target = source[slice(*target_span)]
        if not target or _is_external(target):
            return
        path, subpath = _split_raw(target)
        hash_at = target.find("#")
        subpath_start = target_span.start + hash_at if hash_at >= 0 else target_span.end
        self.links.append(
            _Raw(
                *("markdown", target, path, subpath, display, link.embed),
                *(span, target_span, Span(subpath_start, target_span.end)),
            )
        )

    def add_wiki(self, target: str, display: str | None, embed: bool, span: Span, start: int) -> None:  # noqa: FBT001
        """Record a wikilink; never decoded, outer spaces don't count."""
        stripped = target.strip()
        if not stripped:
            return
        start += len(target) - len(target.lstrip())
        path, mark, subpath = stripped.partition("#")
        end = start + len(stripped)
        self.links.append(
            _Raw(
                *("wikilink", stripped, path.rstrip(), mark + subpath, display, embed, span),
                *(Span(start, end), Span(start + len(path) if mark else end, end)),
            )
        )

    def close_heading(self, level: int, text: str, at: tuple[int, int], *, linkable: bool) -> None:
        start, end = at
        while end > start and self.source[end - 1] in "\r\n":
            end -= 1
        written = self.source[start:end]
        lines = _LINE_END.split(written)
        if len(lines) > 1 and _UNDERLINE.match(lines[-1]):
            raw = " ".join(line.strip(" \t>") for line in lines[:-1])
        else:
            match = _ATX.match(written)
            raw = ((match[1] if match else written) or "").strip()
            if re.fullmatch(r"#+", raw):
                raw = ""  # `# #`: nothing but the closing marks
        named = _HEADING_ID.search(raw)
        if named:
            self.anchors.append((named[1], Span(start, end)))
        self.headings.append(_RawHeading(level, " ".join(text.split()), raw, Span(start, end), linkable))

    def html_names(self, value: str, start: int, end: int) -> None:
        for match in _HTML_NAME.finditer(value):
            name = match[2] or match[3] or match[4]
            self.anchors.append((html.unescape(name), Span(start, end)))

    def find_definitions(self) -> None:
        """Definitions `[label]: target`, repeated ones too: they lie between the blocks that Markdown reports."""
        starts = [start for start, _ in self.leaves]
        for match in _DEFINITION.finditer(self.source, self.start):
            at = match.start(1)
            position = bisect_right(starts, at) - 1
            # A table or a quote may hold further leaves: look back to the one that reaches furthest.
            if position >= 0 and any(end > at for _, end in self.leaves[max(0, position - 1) : position + 1]):
                continue
            label = match[2]
            if label.startswith("^") or not label.strip():
                continue
            target = match[3]
            end = match.end(3) + len(match[4].rstrip())
            target = target[1:-1] if target.startswith("<") else target
            self.definitions.append((normal_label(label), target, Span(at, end), Span(at, match.end(1) - 1)))


def _note(
    path: NotePath,
    text: Text,
    front: FrontMatter,
    body: _Body,
    complaints: Sequence[Any],
    problems: Sequence[Problem],
) -> Note:
    source = text.source
    hidden = body.comments
    raw_links = sorted([*_front_links(front), *body.links], key=lambda link: link.span.start)
    headings = [heading for heading in body.headings if not _inside(hidden, heading.span.start)]
    tags = [(value.text, value.span) for value in front.tags]
    tags += inline.tags(source, body.runs) if "#" in source else []
    blocks = [found for run in body.ends if (found := inline.block_id(source, run))] if "^" in source else []
    title_heading = next((h for h in headings if h.level == 1 and h.linkable and h.text), None)
    definitions = sorted(body.definitions, key=lambda definition: definition[2].start)

    spans: list[Span] = [Span(0, 0)]
    for link in raw_links:
        spans += (link.span, link.target_span, link.subpath_span)
    spans += [heading.span for heading in headings]
    spans += [span for _, span in (*tags, *blocks, *body.anchors)]
    spans += [span for _, _, *both in definitions for span in both]
    spans += [span for _, span, _ in body.uses]
    spans += [complaint.span for complaint in complaints]
    if front.title is not None:
        spans.append(front.title.span)
    place = _places(text, spans)

    if title_heading is not None:
        title, title_place = title_heading.text, place[title_heading.span]
    elif front.title is not None:
        title, title_place = front.title.text, place[front.title.span]
    else:
        title, title_place = _file_title(path), place[Span(0, 0)]
    anchors = slugs(h.text for h in headings)
    found = [Problem(complaint.rule, complaint.message, place[complaint.span]) for complaint in complaints]
    found += _duplicate_blocks(blocks, place)
    return Note(
        path=path,
        title=title,
        title_place=title_place,
        aliases=tuple(dict.fromkeys(value.text for value in front.aliases)),
        tags=tuple(Tag(name, place[span]) for name, span in tags),
        headings=tuple(
            Heading(h.level, h.text, h.raw, anchor, place[h.span], h.linkable)
            for h, anchor in zip(headings, anchors, strict=True)
        ),
        links=tuple(
            Link(
                *(link.kind, link.target, link.path, link.subpath, link.display, link.embed),
                *(place[link.span], place[link.target_span], place[link.subpath_span]),
                comment=_inside(hidden, link.span.start),
            )
            for link in raw_links
        ),
        blocks=tuple(Block(name, place[span]) for name, span in blocks),
        anchors=tuple(Anchor(name, place[span]) for name, span in body.anchors),
        definitions=tuple(Definition(label, target, place[span], place[at]) for label, target, span, at in definitions),
        label_uses=tuple(
            LabelUse(label, place[span], defined) for label, span, defined in sorted(body.uses, key=lambda use: use[1])
        ),
        frontmatter=front.values or None,
        problems=(*problems, *found),
    )


def _front_links(front: FrontMatter) -> Iterable[_Raw]:
    """Values that are a link as a whole."""
    for value in front.texts:
        text = value.text.strip()
        if not text.endswith(("]]", ")")):
            continue
        embed = text.startswith("!")
        if match := _FRONT_LINK.match(text):
            target, bar, display = match[1].partition("|")
            target = target.strip()
            path, mark, subpath = target.partition("#")
            parts = (path.rstrip(), mark + subpath, display if bar else None)
        elif match := _FRONT_MARKDOWN.match(text):
            target = match[2]
            if _is_external(target):
                continue
            parts = (*_split_raw(target), match[1])
        else:
            continue
        if target:
            end = Span(value.span.end, value.span.end)
            yield _Raw("frontmatter", target, *parts, embed, value.span, value.span, end)


def _duplicate_blocks(blocks: Sequence[tuple[str, Span]], place: dict[Span, Place]) -> Iterable[Problem]:
    first: dict[str, Place] = {}
    for name, span in blocks:
        known = first.setdefault(name.lower(), place[span])
        if known != place[span]:
            message = f"block id ^{name} stands already in line {known.start.line + 1}"
            yield Problem("duplicate-block", message, place[span])


def _opened(detail: Any, span: Span, *, embed: bool) -> _Open:
    kind = detail["link_type"]
    if isinstance(kind, dict):
        type_ = "wiki"
    elif kind in ("Reference", "Collapsed", "Shortcut"):
        type_ = "reference"
    else:
        type_ = "inline" if kind == "Inline" else "auto"
    return _Open(type_, detail["dest_url"], detail["id"], embed, span)


def _destination(source: str, inner_end: int, end: int) -> Span:
    """Where the destination of an inline link stands, without its angle brackets."""
    at = source.find("](", inner_end, end)
    at = (at if at >= 0 else inner_end) + 2
    while at < end and source[at] in " \t\r\n>":
        at += 1
    if source[at : at + 1] == "<":
        stop = at + 1
        while stop < end and source[stop] != ">":
            stop += 2 if source[stop] == "\\" else 1
        return Span(at + 1, stop)
    stop, depth = at, 0
    while stop < end:
        character = source[stop]
        if character == "\\":
            stop += 2
            continue
        if character in " \t\r\n" or (character == ")" and depth == 0):
            break
        depth += (character == "(") - (character == ")")
        stop += 1
    return Span(at, min(stop, end))


def _split_raw(target: str) -> tuple[str, str]:
    path, mark, subpath = target.partition("#")
    return _decoded(_plain(path)), mark + _decoded(_plain(subpath))


def _plain(text: str) -> str:
    """Markdown's escapes and entities undone."""
    if "&" in text:
        text = html.unescape(text)
    return _ESCAPE.sub(r"\1", text) if "\\" in text else text


def _decoded(text: str) -> str:
    """Percent-decoded once; what does not decode to UTF-8 stays as it is."""
    if "%" not in text:
        return text
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeError:
        return text


def _is_external(target: str) -> bool:
    return target.startswith("//") or _SCHEME.match(target) is not None


def _inside(spans: Sequence[Span], offset: int) -> bool:
    if not spans:
        return False
    position = bisect_right(spans, Span(offset, 1 << 62)) - 1
    return position >= 0 and offset < spans[position].end


def _file_title(path: NotePath) -> str:
    name = path.rpartition("/")[2]
    return name[:-3] if name[-3:].lower() == ".md" else name


def _places(text: Text, spans: Iterable[Span]) -> dict[Span, Place]:
    """Positions of all spans; asked in order, so that even one endless line costs linear time."""
    unique = set(spans)
    points = {offset: text.point(offset) for offset in sorted({offset for span in unique for offset in span})}
    return {span: Place(points[span.start], points[span.end]) for span in unique}


_STEP = 1024
_CONTINUATION = bytes(range(0x80, 0xC0))


def _offsets(source: str, start: int) -> Any:
    """A function from byte offsets of the body to offsets of the source: the Markdown reader counts UTF-8 bytes."""
    if source.isascii():
        return start.__add__
    data = source[start:].encode("utf-8", "surrogatepass")
    counts = [start]
    for at in range(0, len(data), _STEP):
        counts.append(counts[-1] + len(data[at : at + _STEP].translate(None, _CONTINUATION)))

    def offset(byte: int) -> int:
        block = byte // _STEP
        return counts[block] + len(data[block * _STEP : byte].translate(None, _CONTINUATION))

    return offset
