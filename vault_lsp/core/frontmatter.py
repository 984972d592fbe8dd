"""Front matter: properties, title, tags, aliases and links, whatever state the block is in."""

from __future__ import annotations

import collections.abc
import re
from collections.abc import Iterator
from typing import NamedTuple

from vault_lsp.core.inline import RawLink, tag_name, whole_value_link
from vault_lsp.core.text import Span
from vault_lsp.core.yaml12 import (
    PLACEHOLDER,
    Document,
    InvalidYamlError,
    Mapping,
    Node,
    Scalar,
    Sequence,
    compose,
    json_values,
    value,
)


class Named(NamedTuple):
    """A name of the front matter and where it stands."""

    name: str
    span: Span


class Flaw(NamedTuple):
    """A problem of the block; `rule` is the name of a health rule."""

    rule: str
    message: str
    span: Span


class FrontMatter(NamedTuple):
    """What the block says. Offsets are code points into the note."""

    properties: collections.abc.Mapping[str, object]
    title: Named | None
    aliases: tuple[Named, ...]
    tags: tuple[Named, ...]
    links: tuple[RawLink, ...]
    problems: tuple[Flaw, ...]


class Bounds(NamedTuple):
    """The lines between the dashes, and where the body begins."""

    block: Span
    body: int


_OPENING = re.compile(r"---[ \t]*(?:\r\n|\n|\r)")
_CLOSING = re.compile(r"(?:\A|(?<=[\r\n]))---[ \t]*(\r\n|\n|\r|\Z)")
_LINE = re.compile(r"[^\r\n]*")
_BREAK = re.compile(r"\r\n|\n|\r")
_SALVAGED = re.compile(r"\t*([A-Za-z]+)[ \t]*:(?:[ \t]+|\Z)(.*)")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")


def find(source: str) -> Bounds | None:
    """The block at the very start of a note, between lines of three dashes; None where there is none."""
    if not source.startswith("---"):
        return None
    opening = _OPENING.match(source)
    if opening is None:
        return None
    closing = _CLOSING.search(source, opening.end())
    if closing is None:
        return None
    return Bounds(Span(opening.end(), closing.start()), closing.end())


def read(source: str, block: Span) -> FrontMatter:
    """Read the block; total. What can't be read is a problem `invalid-frontmatter` at its line."""
    text = source[block.start : block.end]
    reader = _Reader(text, block.start)
    try:
        document = compose(text)
        return reader.collect(document)
    except InvalidYamlError as error:
        span = reader.line_at(error.offset)
        return reader.salvage(Flaw("invalid-frontmatter", f"Front matter can't be read: {error.message}", span))


class _Reader:
    """One reading of one block: collects while it walks."""

    def __init__(self, text: str, base: int) -> None:
        self._base = base
        self._text = text
        self._problems: list[Flaw] = []

    def line_at(self, offset: int) -> Span:
        """The line of the block that holds an offset, or its last line with text."""
        offset = min(offset, len(self._text.rstrip()))
        start = max(self._text.rfind("\n", 0, offset), self._text.rfind("\r", 0, offset)) + 1
        match = _LINE.match(self._text, start)
        end = match.end() if match else start
        return self._span(start, end)

    def collect(self, document: Document) -> FrontMatter:
        """What the document says; InvalidYamlError where its aliases unfold without an end."""
        root = document.root
        for remark in document.remarks:
            self._flaw("invalid-frontmatter", remark.message, self._span(remark.start, remark.end))
        if not isinstance(root, Mapping):
            if root is not None and not (isinstance(root, Scalar) and value(root) is None):
                self._flaw("invalid-frontmatter", "Front matter holds no properties", self.line_at(0))
            return FrontMatter({}, None, (), (), (), tuple(self._problems))
        properties = json_values(root)
        links = [link for node in document.scalars if node.quoted and (link := self._link(node))]
        title: Named | None = None
        aliases: list[Named] = []
        tags: list[Named] = []
        # Of a repeated key the last value counts, here as among the properties.
        last = {key.value: node for key, node in root if isinstance(key, Scalar)}
        for key, node in root:
            if not isinstance(key, Scalar) or last[key.value] is not node:
                continue
            name = key.value
            match name.lower():
                case "title" if isinstance(node, Scalar) and node.value.strip() and value(node) is not None:
                    title = Named(node.value.strip(), self._inner(node))
                case "tags" | "tag":
                    tags.extend(self._tags(name, key, node))
                case "aliases" | "alias":
                    aliases.extend(self._aliases(name, key, node))
        return FrontMatter(properties, title, _distinct(aliases), tuple(tags), tuple(links), tuple(self._problems))

    def salvage(self, flaw: Flaw) -> FrontMatter:
        """Tags and aliases of a block that doesn't parse, read line by line."""
        tags: list[Named] = []
        aliases: list[Named] = []
        key = ""
        start = 0
        for line in _BREAK.split(self._text):
            found = _SALVAGED.match(line)
            item = _ITEM.match(line)
            if found:
                key = found[1].lower()
                values = found[2].strip()
                if values.startswith("["):
                    values = values.strip("[]")
                pieces = values.split(",")
            elif item and key:
                pieces = [item[1]]
            else:
                key = key if not line.strip() else ""
                pieces = []
            column = found.start(2) if found else 0
            for piece in pieces:
                word = piece.strip().strip("\"'").strip()
                at = line.find(word, column)
                column = at + len(word)
                offset = self._base + start + at
                if key in {"tags", "tag"}:
                    name = tag_name(word)
                    if name:
                        offset += word.find(name)
                        tags.append(Named(name, Span(offset, offset + len(name))))
                elif key in {"aliases", "alias"} and word and not PLACEHOLDER.search(word):
                    aliases.append(Named(word, Span(offset, offset + len(word))))
            start += len(line)
            start += 2 if self._text.startswith("\r\n", start) else 1
        return FrontMatter({}, None, _distinct(aliases), tuple(tags), (), (flaw,))

    def _link(self, node: Scalar) -> RawLink | None:
        """The link that a quoted value as a whole is."""
        if "[[" not in node.value and "](" not in node.value:
            return None
        link = whole_value_link(node.value)
        if link is None:
            return None
        start, end = self._inner(node)
        if self._text[start - self._base : end - self._base] == node.value:
            return RawLink(*link[:6], *(start + offset for offset in link[6:]))
        # Escapes or folded lines: the parts can't be told apart in the source, so the value stands for them.
        return RawLink(*link[:6], start, end, start, end, end)

    def _flaw(self, rule: str, message: str, span: Span) -> None:
        self._problems.append(Flaw(rule, message, span))

    def _span(self, start: int, end: int) -> Span:
        return Span(self._base + start, self._base + end)

    def _inner(self, node: Scalar) -> Span:
        """The span of a scalar without its quotes."""
        return self._span(node.start + node.quoted, node.end - node.quoted)

    def _spanned(self, node: Scalar, word: str, after: int) -> Span:
        """Where a word of a scalar stands; the scalar where escapes hide it."""
        at = self._text.find(word, max(after, node.start), node.end)
        return self._span(at, at + len(word)) if at >= 0 else self._inner(node)

    def _tags(self, name: str, key: Scalar, node: Node) -> Iterator[Named]:
        if isinstance(node, Scalar):
            text = value(node)
            words = re.split(r"[,\s]+", text.strip()) if isinstance(text, str) else []
            self._note_legacy(name, key, node, several=len(words) > 1)
            yield from self._words(node, words)
            return
        self._note_legacy(name, key, node, several=False)
        for item in self._items(name, key, node):
            if isinstance(value(item), str):
                yield from self._words(item, [item.value])

    def _words(self, node: Scalar, words: list[str]) -> Iterator[Named]:
        after = node.start
        for word in words:
            name = tag_name(word)
            if name:
                span = self._spanned(node, name, after)
                after = span.end - self._base
                yield Named(name, span)

    def _aliases(self, name: str, key: Scalar, node: Node) -> Iterator[Named]:
        if isinstance(node, Scalar):
            words = [word.strip() for word in node.value.split(",")]
            self._note_legacy(name, key, node, several=len(words) > 1)
            pieces = [(node, word) for word in words] if value(node) is not None else []
        else:
            self._note_legacy(name, key, node, several=False)
            pieces = [(item, item.value.strip()) for item in self._items(name, key, node) if value(item) is not None]
        after, last = 0, None
        for item, word in pieces:
            after = after if item is last else item.start
            if word and not PLACEHOLDER.search(word):
                span = self._spanned(item, word, after)
                after, last = span.end - self._base, item
                yield Named(word, span)

    def _items(self, name: str, key: Scalar, node: Node) -> Iterator[Scalar]:
        """The single values of a list; anything else is of a wrong type."""
        wrong = isinstance(node, Mapping)
        for item in node if isinstance(node, Sequence) else ():
            if isinstance(item, Scalar):
                yield item
            else:
                wrong = True
        if wrong:
            self._flaw("invalid-frontmatter", f"Property {name} must be a list of texts", self.line_at(key.start))

    def _note_legacy(self, name: str, key: Scalar, node: Node, *, several: bool) -> None:
        if isinstance(node, Scalar) and value(node) is None:
            return
        span = self._span(key.start, key.end)
        plural = {"tag": "tags", "alias": "aliases"}.get(name.lower())
        if plural:
            self._flaw("legacy-property", f"Property {name} is now called {plural}", span)
        elif several:
            self._flaw("legacy-property", f"Property {name} should be a list, not one text with several values", span)


def _distinct(aliases: list[Named]) -> tuple[Named, ...]:
    """Each name once, where it stands first."""
    first: dict[str, Named] = {}
    for alias in aliases:
        first.setdefault(alias.name, alias)
    return tuple(first.values())
