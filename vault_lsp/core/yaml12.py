"""YAML 1.2 core documents with the place of every scalar.

PyYAML gives the events, the tree and its values are made here: PyYAML's own loaders follow YAML 1.1 (dates,
sexagesimals, `yes` as a boolean, octal `017`), drop the places, recurse, and unfold aliases without an end.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import yaml


class Scalar(NamedTuple):
    """A scalar. `plain` is neither quoted, nor a block, nor tagged; offsets are code points and cover the quotes."""

    value: str
    plain: bool
    quoted: bool
    tag: str | None
    start: int
    end: int


class Sequence(list["Node"]):
    """A sequence."""


class Mapping(list[tuple["Node", "Node"]]):
    """A mapping in source order, repeated keys included."""


Node = Scalar | Sequence | Mapping


class Remark(NamedTuple):
    """What is wrong with a document that can be read all the same."""

    message: str
    start: int
    end: int


class Document(NamedTuple):
    """The root (None of an empty text), all scalars in source order, and remarks."""

    root: Node | None
    scalars: list[Scalar]
    remarks: list[Remark]


class InvalidYamlError(Exception):
    """The text can't be read; `offset` is where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


#: A template's placeholder, which counts as a word wherever it stands.
PLACEHOLDER = re.compile(r"\{\{[^{}\r\n]*\}\}")

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MASK = "\ue000"
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_CORE = "tag:yaml.org,2002:"
_TEXTS = frozenset({None, "!", _CORE + "str"})
_KNOWN = _TEXTS | {_CORE + name for name in ("int", "float", "bool", "null", "map", "seq")}
_DEEPEST = 100
_MOST_VALUES = 100_000


def compose(text: str) -> Document:
    """Build the document; InvalidYamlError, and nothing else, where it can't be."""
    try:
        return _Composer(text).compose()
    except InvalidYamlError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidYamlError(error.problem or "invalid YAML", mark.index if mark else 0) from error
    except yaml.YAMLError as error:
        match = _UNPRINTABLE.search(text)
        raise InvalidYamlError("a control character is not allowed", match.start() if match else 0) from error
    except Exception as error:
        # Whatever else a YAML library throws, the note is to be read.
        raise InvalidYamlError(type(error).__name__, 0) from error


def json_values(root: Mapping) -> dict[str, object]:
    """The values of a mapping as JSON has them; InvalidYamlError where aliases unfold to too many."""
    return _Unfolding().mapping(root, 0)


def value(node: Scalar) -> object:
    """The value of a scalar after the core schema of YAML 1.2; what JSON can't hold stays text."""
    text = node.value
    if node.tag not in _KNOWN or (not node.plain and node.tag in _TEXTS):
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


class _Composer:
    """One walk over the events of one text, without recursion."""

    def __init__(self, text: str) -> None:
        # As a plain word of the same length a placeholder is in nobody's way.
        masks = "{{" in text and _MASK not in text
        self._hidden = "".join(PLACEHOLDER.findall(text)) if masks else ""
        self._text = PLACEHOLDER.sub(lambda match: _MASK * len(match[0]), text) if masks else text
        self._scalars: list[Scalar] = []
        self._remarks: list[Remark] = []

    def compose(self) -> Document:
        root: Node | None = None
        stack: list[Sequence | Mapping] = []
        keys: list[Node | None] = []
        seen: list[set[str]] = []
        named: dict[str, Node] = {}
        for event in yaml.parse(self._text, Loader=_LOADER):
            node: Node
            if isinstance(event, yaml.ScalarEvent):
                node = self._scalar(event)
            elif isinstance(event, yaml.MappingStartEvent):
                node = Mapping()
            elif isinstance(event, yaml.SequenceStartEvent):
                node = Sequence()
            elif isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                keys.pop()
                seen.pop()
                continue
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in named:
                    raise InvalidYamlError(f"nothing is named &{event.anchor}", _offsets(event)[0])
                node = named[event.anchor]
            elif isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise InvalidYamlError("there is a second document", _offsets(event)[0])
            else:
                continue
            if event.anchor and not isinstance(event, yaml.AliasEvent):
                named[event.anchor] = node
            if not stack:
                root = node
            elif isinstance(stack[-1], Sequence):
                stack[-1].append(node)
            elif (key := keys[-1]) is None:
                keys[-1] = node
                self._note_repeated(node, seen[-1])
            else:
                stack[-1].append((key, node))
                keys[-1] = None
            if isinstance(event, yaml.CollectionStartEvent) and not isinstance(node, Scalar):
                if len(stack) >= _DEEPEST:
                    raise InvalidYamlError("it is nested too deeply", _offsets(event)[0])
                self._note_tag(event.tag, *_offsets(event))
                stack.append(node)
                keys.append(None)
                seen.append(set())
        return Document(root, self._scalars, self._remarks)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        start, end = _offsets(event)
        text = event.value
        if self._hidden and _MASK in text:
            text = self._unmasked(text, start)
        tag = event.tag
        self._note_tag(tag, start, end)
        node = Scalar(text, not event.style and tag is None, event.style in {"'", '"'}, tag, start, end)
        self._scalars.append(node)
        return node

    def _unmasked(self, text: str, start: int) -> str:
        at = self._text.count(_MASK, 0, start)
        characters = []
        for character in text:
            if character == _MASK:
                characters.append(self._hidden[at])
                at += 1
            else:
                characters.append(character)
        return "".join(characters)

    def _note_tag(self, tag: str | None, start: int, end: int) -> None:
        if tag not in _KNOWN:
            self._remarks.append(Remark(f"YAML tag {tag} is not known", start, end))

    def _note_repeated(self, key: Node, seen: set[str]) -> None:
        if isinstance(key, Scalar):
            if key.value in seen:
                self._remarks.append(Remark(f"Property {key.value} is there twice", key.start, key.end))
            seen.add(key.value)


class _Unfolding:
    """Makes values, and counts them: an alias of aliases stands for more than the text has room for."""

    def __init__(self) -> None:
        self._values = 0

    def mapping(self, node: Mapping, depth: int) -> dict[str, object]:
        return {self._key(key, depth): self._json(item, depth) for key, item in node}

    def _json(self, node: Node, depth: int) -> object:
        self._values += 1
        if self._values > _MOST_VALUES or depth > _DEEPEST:
            raise InvalidYamlError("its aliases unfold to too many values", 0)
        if isinstance(node, Scalar):
            return value(node)
        if isinstance(node, Sequence):
            return [self._json(item, depth + 1) for item in node]
        return self.mapping(node, depth + 1)

    def _key(self, node: Node, depth: int) -> str:
        return node.value if isinstance(node, Scalar) else str(self._json(node, depth + 1))


def _offsets(event: yaml.Event) -> tuple[int, int]:
    start, end = event.start_mark, event.end_mark
    return (start.index, end.index) if start and end else (0, 0)
