"""Front matter: YAML 1.2 core values with their places, whatever state the block is in.

PyYAML gives the events, the values are made here: its loaders follow YAML 1.1 (dates, sexagesimals, `yes` as a
boolean, octal `017`), and a block that doesn't parse must still yield its tags and aliases.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import yaml

from vault_lsp.core.inline import RawLink, tag_name, whole_value_link
from vault_lsp.core.text import Span


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

    properties: Mapping[str, object]
    title: Named | None
    aliases: tuple[str, ...]
    tags: tuple[Named, ...]
    links: tuple[RawLink, ...]
    problems: tuple[Flaw, ...]


class Bounds(NamedTuple):
    """The lines between the dashes, and where the body begins."""

    block: Span
    body: int


class _Scalar(NamedTuple):
    value: str
    plain: bool
    quoted: bool
    tag: str | None
    start: int
    end: int


class _Sequence(list["_Node"]):
    """A YAML sequence."""


class _Mapping(list[tuple["_Node", "_Node"]]):
    """A YAML mapping in source order, repeated keys included."""


_Node = _Scalar | _Sequence | _Mapping


class _InvalidError(Exception):
    """The block can't be read; `offset` is where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


_OPENING = re.compile(r"---[ \t]*(?:\r\n|\n|\r)")
_CLOSING = re.compile(r"(?:\A|(?<=[\r\n]))---[ \t]*(\r\n|\n|\r|\Z)")
_LINE = re.compile(r"[^\r\n]*")
_BREAK = re.compile(r"\r\n|\n|\r")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLACEHOLDER = re.compile(r"\{\{[^{}\r\n]*\}\}")
_MASK = "\ue000"
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_CORE = "tag:yaml.org,2002:"
_KNOWN_TAGS = {None, "!", *(_CORE + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))}
_DEEPEST = 100
_MOST_VALUES = 100_000
_SALVAGED = re.compile(r"([A-Za-z]+)[ \t]*:(?:[ \t]+|\Z)(.*)")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


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
    reader = _Reader(source, block)
    try:
        root = reader.compose()
        return reader.collect(root)
    except _InvalidError as invalid:
        message, offset = invalid.message, invalid.offset
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message, offset = error.problem or "invalid YAML", mark.index if mark else 0
    except yaml.YAMLError:
        match = _UNPRINTABLE.search(source[block.start : block.end])
        message, offset = "a control character is not allowed", match.start() if match else 0
    except Exception as error:  # noqa: BLE001 - whatever a YAML library throws, the note must still be read
        message, offset = type(error).__name__, 0
    flaw = Flaw("invalid-frontmatter", f"Front matter can't be read: {message}", reader.line_at(offset))
    return reader.salvage(flaw)


class _Reader:
    """One reading of one block: collects while it walks."""

    def __init__(self, source: str, block: Span) -> None:
        self._source = source
        self._base = block.start
        self._text = source[block.start : block.end]
        self._hidden = ""
        self._masked = self._text
        if "{{" in self._text and _MASK not in self._text:
            # A template's placeholder is no YAML; as a plain word of the same length it is in nobody's way.
            self._hidden = "".join(_PLACEHOLDER.findall(self._text))
            self._masked = _PLACEHOLDER.sub(lambda match: _MASK * len(match[0]), self._text)
        self._problems: list[Flaw] = []
        self._links: list[RawLink] = []
        self._values = 0

    def line_at(self, offset: int) -> Span:
        """The line of the block that holds an offset, or its last line with text."""
        offset = min(offset, len(self._text.rstrip()))
        start = max(self._text.rfind("\n", 0, offset), self._text.rfind("\r", 0, offset)) + 1
        match = _LINE.match(self._text, start)
        end = match.end() if match else start
        return Span(self._base + start, self._base + end)

    def compose(self) -> _Node | None:
        """The tree of the first document; yaml.YAMLError or _InvalidError when it can't be built."""
        root: _Node | None = None
        stack: list[_Sequence | _Mapping] = []
        keys: list[_Node | None] = []
        seen: list[set[str]] = []
        named: dict[str, _Node] = {}
        for event in yaml.parse(self._masked, Loader=_LOADER):
            node: _Node
            if isinstance(event, yaml.ScalarEvent):
                node = self._scalar(event)
            elif isinstance(event, yaml.MappingStartEvent):
                node = _Mapping()
            elif isinstance(event, yaml.SequenceStartEvent):
                node = _Sequence()
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in named:
                    raise _InvalidError(f"nothing is named &{event.anchor}", _offsets(event)[0])
                node = named[event.anchor]
            elif isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                keys.pop()
                seen.pop()
                continue
            elif isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise _InvalidError("there is a second document", _offsets(event)[0])
            else:
                continue
            if isinstance(event, yaml.NodeEvent) and event.anchor and not isinstance(event, yaml.AliasEvent):
                named[event.anchor] = node
            if not stack:
                root = node
            else:
                parent = stack[-1]
                if isinstance(parent, _Sequence):
                    parent.append(node)
                elif keys[-1] is None:
                    keys[-1] = node
                    self._note_repeated(node, seen[-1])
                else:
                    parent.append((keys[-1], node))
                    keys[-1] = None
            if isinstance(event, yaml.CollectionStartEvent) and isinstance(node, _Sequence | _Mapping):
                if len(stack) >= _DEEPEST:
                    raise _InvalidError("it is nested too deeply", _offsets(event)[0])
                self._note_tag(event.tag, *_offsets(event))
                stack.append(node)
                keys.append(None)
                seen.append(set())
        return root

    def collect(self, root: _Node | None) -> FrontMatter:
        """What the tree says, with the values made JSON-safe."""
        if not isinstance(root, _Mapping):
            if root is not None and not (isinstance(root, _Scalar) and _value(root) is None):
                self._flaw("invalid-frontmatter", "Front matter holds no properties", self.line_at(0))
            return FrontMatter({}, None, (), (), (), tuple(self._problems))
        properties: dict[str, object] = {}
        title: Named | None = None
        aliases: list[str] = []
        tags: list[Named] = []
        for key, node in root:
            name = self._key(key)
            properties[name] = self._json(node, 0)
            match name.lower():
                case "title" if isinstance(node, _Scalar) and node.value.strip() and _value(node) is not None:
                    title = Named(node.value.strip(), self._inner(node))
                case "tags" | "tag":
                    tags.extend(self._tags(name, key, node))
                case "aliases" | "alias":
                    aliases.extend(self._aliases(name, key, node))
        return FrontMatter(
            properties, title, tuple(dict.fromkeys(aliases)), tuple(tags), tuple(self._links), tuple(self._problems)
        )

    def salvage(self, flaw: Flaw) -> FrontMatter:
        """Tags and aliases of a block that doesn't parse, read line by line."""
        tags: list[Named] = []
        aliases: list[str] = []
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
                elif key in {"aliases", "alias"} and word and not _PLACEHOLDER.search(word):
                    aliases.append(word)
            start += len(line)
            start += 2 if self._text.startswith("\r\n", start) else 1
        return FrontMatter({}, None, tuple(dict.fromkeys(aliases)), tuple(tags), (), (flaw,))

    def _scalar(self, event: yaml.ScalarEvent) -> _Scalar:
        start, end = _offsets(event)
        value = event.value
        if _MASK in value and self._hidden:
            value = self._unmasked(value, start)
        quoted = event.style in ("'", '"')
        self._note_tag(event.tag, start, end)
        node = _Scalar(value, not event.style and event.tag is None, quoted, event.tag, start, end)
        if quoted and ("[[" in value or "](" in value):
            self._find_link(node)
        return node

    def _unmasked(self, value: str, start: int) -> str:
        at = self._masked.count(_MASK, 0, start)
        characters = []
        for character in value:
            if character == _MASK:
                characters.append(self._hidden[at])
                at += 1
            else:
                characters.append(character)
        return "".join(characters)

    def _find_link(self, node: _Scalar) -> None:
        link = whole_value_link(node.value)
        if link is None:
            return
        written = self._text[node.start + 1 : node.end - 1]
        if written == node.value:
            at = self._base + node.start + 1
            offsets = [at + offset for offset in link[6:]]
        else:
            # Escapes or folded lines: the parts can't be told apart in the source, so the value stands for them.
            start, end = self._base + node.start + 1, self._base + node.end - 1
            offsets = [start, end, start, end, end]
        self._links.append(RawLink(*link[:6], *offsets))

    def _note_tag(self, tag: str | None, start: int, end: int) -> None:
        if tag not in _KNOWN_TAGS:
            span = Span(self._base + start, self._base + end)
            self._flaw("invalid-frontmatter", f"YAML tag {tag} is not known", span)

    def _note_repeated(self, key: _Node, seen: set[str]) -> None:
        if not isinstance(key, _Scalar):
            return
        if key.value in seen:
            span = Span(self._base + key.start, self._base + key.end)
            self._flaw("invalid-frontmatter", f"Property {key.value} is there twice", span)
        seen.add(key.value)

    def _flaw(self, rule: str, message: str, span: Span) -> None:
        self._problems.append(Flaw(rule, message, span))

    def _key(self, node: _Node) -> str:
        return node.value if isinstance(node, _Scalar) else str(self._json(node, 0))

    def _json(self, node: _Node, depth: int) -> object:
        self._values += 1
        if self._values > _MOST_VALUES or depth > _DEEPEST:
            raise _InvalidError("its aliases unfold to too many values", 0)
        if isinstance(node, _Scalar):
            return _value(node)
        if isinstance(node, _Sequence):
            return [self._json(item, depth + 1) for item in node]
        return {self._key(key): self._json(item, depth + 1) for key, item in node}

    def _inner(self, node: _Scalar) -> Span:
        """The span of a scalar without its quotes."""
        return Span(self._base + node.start + node.quoted, self._base + node.end - node.quoted)

    def _spanned(self, node: _Scalar, word: str, after: int) -> Span:
        """Where a word of a scalar stands; the scalar where escapes hide it."""
        at = self._text.find(word, max(after, node.start), node.end)
        return Span(self._base + at, self._base + at + len(word)) if at >= 0 else self._inner(node)

    def _tags(self, name: str, key: _Node, node: _Node) -> Iterator[Named]:
        if isinstance(node, _Scalar):
            value = _value(node)
            words = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else []
            self._note_legacy(name, key, node, several=len(words) > 1)
            yield from self._words(node, words)
            return
        self._note_legacy(name, key, node, several=False)
        for item in self._items(name, key, node):
            if isinstance(_value(item), str):
                yield from self._words(item, [item.value])

    def _words(self, node: _Scalar, words: list[str]) -> Iterator[Named]:
        after = node.start
        for word in words:
            name = tag_name(word)
            if name:
                span = self._spanned(node, name, after)
                after = span.end - self._base
                yield Named(name, span)

    def _aliases(self, name: str, key: _Node, node: _Node) -> Iterator[str]:
        if isinstance(node, _Scalar):
            words = [word.strip() for word in node.value.split(",")]
            self._note_legacy(name, key, node, several=len(words) > 1)
            if _value(node) is None:
                return
        else:
            self._note_legacy(name, key, node, several=False)
            words = [item.value.strip() for item in self._items(name, key, node) if _value(item) is not None]
        yield from (word for word in words if word and not _PLACEHOLDER.search(word))

    def _items(self, name: str, key: _Node, node: _Node) -> Iterator[_Scalar]:
        """The single values of a list; anything else is of a wrong type."""
        wrong = isinstance(node, _Mapping)
        for item in node if isinstance(node, _Sequence) else ():
            if isinstance(item, _Scalar):
                yield item
            else:
                wrong = True
        if wrong and isinstance(key, _Scalar):
            self._flaw("invalid-frontmatter", f"Property {name} must be a list of texts", self.line_at(key.start))

    def _note_legacy(self, name: str, key: _Node, node: _Node, *, several: bool) -> None:
        if not isinstance(key, _Scalar) or (isinstance(node, _Scalar) and _value(node) is None):
            return
        span = Span(self._base + key.start, self._base + key.end)
        plural = {"tag": "tags", "alias": "aliases"}.get(name.lower())
        if plural:
            self._flaw("legacy-property", f"Property {name} is now called {plural}", span)
        elif several:
            self._flaw("legacy-property", f"Property {name} should be a list, not one text with several values", span)


def _offsets(event: yaml.Event) -> tuple[int, int]:
    start, end = event.start_mark, event.end_mark
    return (start.index, end.index) if start and end else (0, 0)


def _value(node: _Node) -> object:
    """The JSON value of a scalar after the core schema of YAML 1.2; what JSON can't hold stays text."""
    if not isinstance(node, _Scalar):
        return node
    text = node.value
    if node.tag not in _KNOWN_TAGS or (not node.plain and node.tag in {None, "!", _CORE + "str"}):
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
