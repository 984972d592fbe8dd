"""One pass over the events of the Markdown parser: what a note's body holds, in byte offsets.

pulldown-cmark (through pyromark) decides what is code, HTML, mathematics, a heading or a link. On top come tags, block
ids, comments and the cases where Obsidian reads a wikilink otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyromark

from vault_lsp.core import inline
from vault_lsp.core.definitions import OPTIONS, RawDefinition, definitions, normal_label
from vault_lsp.core.inline import Named, RawLink
from vault_lsp.core.marks import Mark, comment_marks, comment_spans, formula_marks, formula_spans, inside
from vault_lsp.core.model import LinkKind


class RawHeading(NamedTuple):
    """A heading with byte offsets."""

    level: int
    text: str
    raw: str
    start: int
    end: int
    linkable: bool


class RawUse(NamedTuple):
    """A use of a reference label or a footnote mark."""

    label: str
    start: int
    end: int
    defined: bool


@dataclass(slots=True)
class Scan:
    """What the body holds, each list in document order of where it was met."""

    headings: list[RawHeading] = field(default_factory=list)
    links: list[RawLink] = field(default_factory=list)
    tags: list[Named] = field(default_factory=list)
    blocks: list[Named] = field(default_factory=list)
    anchors: list[Named] = field(default_factory=list)
    definitions: list[RawDefinition] = field(default_factory=list)
    uses: list[RawUse] = field(default_factory=list)
    #: `%% … %%`, sorted, from the first mark to behind the second.
    comments: list[tuple[int, int]] = field(default_factory=list)
    #: Starts of `[[` whose link would run over a line end, which Obsidian doesn't allow.
    broken: list[int] = field(default_factory=list)


_LINKS = frozenset({"Link", "Image"})
_ADDRESSES = frozenset({"Autolink", "Email"})
_INLINE = frozenset({"Emphasis", "Strong", "Strikethrough"})
_LITERAL = frozenset({"CodeBlock", "HtmlBlock"})
_SPOKEN = frozenset({"Code", "InlineMath", "DisplayMath"})
# Events after which a `#` stands as at the head of a line.
_FRESH = frozenset({"Start", "InlineHtml", "SoftBreak", "HardBreak"})
_CONTAINERS = frozenset({"BlockQuote", "List", "FootnoteDefinition"})
_LINE_END = re.compile(r"\r?\n")
_TO_DESTINATION = re.compile(rb"[\s>]*+\]\((?:[ \t\r]|\n[ \t>]*+)*+")
_TO_LABEL = re.compile(rb"[\s>]*+\]\[")
_ANGLED = re.compile(rb"<((?:[^<>\\\n]|\\.)*+)>")
_BARE = re.compile(rb"[^\s()\\]++(?=[\s)])")
_STEP = re.compile(rb"[^\s()\\]++|\\[!-/:-@\[-`{-~]|\\|[()]")
_ATX = re.compile(r"#{1,6}(?=[ \t]|\Z)")
_ATTRIBUTES = re.compile(r"[ \t]*\{(?:[^{}#]*[ \t])?#([^{}\s]+)(?:[ \t][^{}]*)?\}[ \t]*\Z")
# Before the bracket of an index expression such as `a[i][j]`.
_INDEXED = re.compile(rb"[0-9A-Za-z_\])]")


def scan(markdown: str, data: bytes) -> Scan:
    """Scan a body, given as text and as UTF-8. No line may end at a lone carriage return."""
    found = _events(markdown, data)
    # A link that runs over a line end is plain text with other marks in it: hide its brackets and look again.
    for _ in range(3):
        if not found.broken:
            break
        hidden = bytearray(markdown, "utf-8")
        for at in found.broken:
            hidden[at : at + 2] = b",,"
        markdown = hidden.decode()
        found = _events(markdown, data)
    return found


def _events(markdown: str, data: bytes) -> Scan:
    found = Scan()
    undefined: list[Any] = []
    extra: dict[str, str] = {}
    if b"]:" in data:
        found.definitions, extra = definitions(markdown, data)

    def undefined_label(link: Any) -> tuple[str, str] | None:
        target = extra.get(normal_label(link["reference"]))
        if target is None:
            undefined.append(link)
            return None
        return target, ""

    carets, percents, dollars, bars = b"^" in data, b"%%" in data, b"$$" in data, b"[[|" in data
    marks: list[Mark] = []
    formulas: list[Mark] = []
    # For each open link its data and place; None for those whose text is no running text.
    links: list[tuple[Any, Any, bool] | None] = []
    heading: list[str] | None = None
    # The last run of text when it may end in a block id, as long as nothing inline comes after it.
    caret: Any = None
    depth = block = mute = 0
    before = ""
    last: Any = None
    about: Any
    events: Iterator[tuple[Any, Any]] = pyromark.events_with_range(
        markdown,
        options=OPTIONS,
        merge_text=True,
        broken_link_callback=undefined_label if extra or b"][" in data else None,
    )
    for event, span in events:
        if event.__class__ is str:
            kind = event
            caret = None
            if heading is not None:
                heading.append(" ")
        else:
            # An event is ours alone: taking it apart is the fastest way to read it.
            kind, value = event.popitem()
            if kind == "Text":
                if not mute:
                    if "#" in value:
                        fresh = before in _FRESH
                        found.tags.extend(inline.tags(data, span["start"], span["end"], fresh=fresh))
                    caret = span if carets and "^" in value else None
                    if percents and "%%" in value:
                        marks.extend(comment_marks(data, span["start"], span["end"], block))
                    if dollars and "$$" in value:
                        formulas.extend(formula_marks(data, span["start"], span["end"], block))
                    if bars and "[[|" in value:
                        found.links.extend(inline.bar_wikilinks(data, span["start"], span["end"]))
                if heading is not None:
                    heading.append(value)
            elif kind == "Start":
                tag, about = (value, None) if value.__class__ is str else value.popitem()
                if tag in _LINKS:
                    caret = None
                    image = tag == "Image"
                    if about["link_type"].__class__ is dict:
                        _wikilink(data, span["start"], span["end"], found, embed=image)
                        links.append(None)
                        mute += 1
                    elif image or about["link_type"] in _ADDRESSES:
                        links.append((about, span, image))
                        mute += 1
                    else:
                        links.append((about, span, image))
                elif tag in _INLINE:
                    caret = None
                else:
                    if caret is not None:
                        _block_id(data, caret, found)
                        caret = None
                    block += 1
                    if tag in _CONTAINERS:
                        depth += 1
                        if tag == "FootnoteDefinition":
                            _footnote(data, about, span["start"], span["end"], found)
                    elif tag in _LITERAL:
                        mute += 1
                    elif tag == "Heading":
                        heading = []
            elif kind == "End":
                tag, about = (value, None) if value.__class__ is str else value.popitem()
                if tag in _LINKS:
                    caret = None
                    opened = links.pop()
                    if opened is None:
                        mute -= 1
                    else:
                        about, place, image = opened
                        start = place["start"]
                        inner = start + 1 + image if last is place else last["end"]
                        _link(data, about, start, span["end"], inner, found, image=image)
                        if image or about["link_type"] in _ADDRESSES:
                            mute -= 1
                elif tag in _INLINE:
                    caret = None
                else:
                    if caret is not None:
                        if tag != "TableCell" or _whole_line(data, caret["start"], caret["end"]):
                            _block_id(data, caret, found)
                        caret = None
                    if tag in _CONTAINERS:
                        depth -= 1
                    elif tag in _LITERAL:
                        mute -= 1
                        if tag == "HtmlBlock":
                            found.anchors.extend(inline.anchors(data, span["start"], span["end"]))
                    elif heading is not None and tag == "Heading":
                        _heading(data, int(about[1]), "".join(heading), span, found, linkable=not depth)
                        heading = None
            else:
                caret = None
                if kind == "InlineHtml":
                    if "=" in value:
                        found.anchors.extend(inline.anchors(data, span["start"], span["end"]))
                elif kind == "FootnoteReference":
                    found.uses.append(RawUse("^" + normal_label(value), span["start"], span["end"], True))
                elif heading is not None and kind in _SPOKEN:
                    heading.append(value)
        before = kind
        last = span
    if extra:
        heads = {definition.start for definition in found.definitions}
        found.links = [link for link in found.links if link.start not in heads]
        found.uses = [use for use in found.uses if use.start not in heads]
    if formulas:
        _hide(formula_spans(formulas), found)
    found.comments = comment_spans(marks)
    _undefined_uses(data, undefined, found)
    return found


def _link(data: bytes, about: Any, start: int, end: int, inner: int, found: Scan, *, image: bool) -> None:
    """Record an inline link, or a reference and the label it uses. `inner` is where the link text ends."""
    how, dest = about["link_type"].removesuffix("Unknown"), about["dest_url"]
    if how in _ADDRESSES:
        return
    local = not (dest == "" or inline.is_external(dest))
    text = start + 1 + image
    if how == "Inline":
        if not local:
            return
        first, behind = _destination(data, inner, end)
        raw = data[first:behind].decode()
        cut = behind if "#" not in dest else first + len(raw[: inline.raw_hash(raw)].encode())
        target = raw
    else:
        to_label = _TO_LABEL.match(data, inner, end) if how == "Reference" else None
        if to_label:
            first, behind = to_label.end(), end - 1
        else:
            # Where the parser had to ask for the label, the place of `[label][]` ends before the empty brackets.
            if how == "Collapsed" and data[end - 2 : end] != b"[]":
                end += 2
            first, behind = text, end - 3 if how == "Collapsed" else end - 1
        found.uses.append(RawUse(normal_label(about["id"]), first - 1, behind + 1, True))
        if not local:
            return
        cut = behind
        target = dest
    path, subpath = inline.split_destination(dest)
    kind: LinkKind = "markdown" if how == "Inline" else "reference"
    display = data[text:inner].decode()
    found.links.append(RawLink(kind, target, path, subpath, display, image, start, end, first, behind, cut))


def _destination(data: bytes, inner: int, end: int) -> tuple[int, int]:
    """Where the destination of an inline link stands, without angle brackets."""
    lead = _TO_DESTINATION.match(data, inner, end)
    if lead is None:
        return end - 1, end - 1
    at = lead.end()
    angled = _ANGLED.match(data, at, end)
    if angled:
        return angled.span(1)
    bare = _BARE.match(data, at, end)
    if bare:
        return bare.span()
    depth = 0
    behind = at
    while step := _STEP.match(data, behind, end):
        if step[0] == b"(":
            depth += 1
        elif step[0] == b")":
            if not depth:
                break
            depth -= 1
        behind = step.end()
    return at, behind


def _wikilink(data: bytes, start: int, end: int, found: Scan, *, embed: bool) -> None:
    inside = data[start + 2 + embed : end - 2]
    if b"\n" in inside:
        found.broken.append(start + embed)
        return
    link = inline.wikilink(inside.decode(), start, end, embed=embed)
    if link is not None:
        found.links.append(link)


def _heading(data: bytes, level: int, text: str, span: Any, found: Scan, *, linkable: bool) -> None:
    start = span["start"]
    end = start + len(data[start : span["end"]].rstrip(b"\r\n"))
    source = data[start:end].decode()
    mark = _ATX.match(source)
    if mark and "\n" not in source:
        raw = source[mark.end() :].strip(" \t")
        closed = raw.rstrip("#")
        if not closed or closed[-1] in " \t":
            raw = closed.rstrip(" \t")
    else:
        lines = source.split("\n")[:-1]
        raw = "\n".join(line.strip(" \t\r") if linkable else line.strip(" \t\r>") for line in lines)
    attributes = _ATTRIBUTES.search(raw) if raw.endswith("}") else None
    if attributes:
        text = _ATTRIBUTES.sub("", text)
        name = attributes[1]
        at = data.rfind(b"#" + name.encode(), start, end) + 1
        found.anchors.append(Named(name, at, at + len(name.encode())))
    if "\n" in text:
        text = _LINE_END.sub(" ", text)
    found.headings.append(RawHeading(level, text.strip(), raw, start, end, linkable))


def _footnote(data: bytes, name: str, start: int, end: int, found: Scan) -> None:
    close = data.find(b"]:", start, end)
    behind = close + 1 if close >= 0 else end
    line_end = data.find(b"\n", start, end)
    end = start + len(data[start : line_end if line_end >= 0 else end].rstrip())
    found.definitions.append(RawDefinition("^" + normal_label(name), "", start, end, start, behind))


def _block_id(data: bytes, span: Any, found: Scan) -> None:
    block = inline.block_id(data, span["start"], span["end"])
    if block is not None:
        found.blocks.append(block)


def _whole_line(data: bytes, start: int, end: int) -> bool:
    """Whether a run is its line: a table takes an id right below it for a row."""
    return data[start - 1 : start] in (b"", b"\n") and data[end : end + 1] in (b"", b"\n", b"\r")


def _hide(spans: list[tuple[int, int]], found: Scan) -> None:
    found.headings = [heading for heading in found.headings if not inside(heading.start, spans)]
    found.links = [link for link in found.links if not inside(link.start, spans)]
    found.tags = [tag for tag in found.tags if not inside(tag.start, spans)]
    found.blocks = [block for block in found.blocks if not inside(block.start, spans)]


def _undefined_uses(data: bytes, undefined: list[Any], found: Scan) -> None:
    """Full and collapsed references without a definition; a lone `[label]` is plain text."""
    seen = set()
    for link in undefined:
        start, end = link["span"]["start"], link["span"]["end"]
        label = link["reference"]
        how = link["link_type"]
        if how not in ("Reference", "Collapsed") or label.startswith("^") or start in seen:
            continue
        seen.add(start)
        if _INDEXED.match(data, start - 1):
            continue
        first = data.rfind(b"[", start, end) if how == "Reference" else start
        found.uses.append(RawUse(normal_label(label), first, end, False))
