"""The YAML block at the head of a note, read as Obsidian reads it: YAML 1.2 core, and never an exception.

Dates, `yes`, `10:30` and `1_000` stay text. A block that can't be read is a problem of the note, and its tags and
aliases are salvaged line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

from vault_lsp.core.text import Span

try:
    from yaml import CParser as _Parser
except ImportError:  # a PyYAML without libyaml
    _Parser = None  # type: ignore[assignment,misc]

#: Nodes of one block, counted with every alias followed: a bomb of aliases ends here.
_MOST_NODES = 20_000
_DEEPEST = 50


class Value(NamedTuple):
    """A text value with the span it stands at, quotes included."""

    text: str
    span: Span


class Complaint(NamedTuple):
    """A problem of the block: the rule it breaks, and where."""

    rule: str
    message: str
    span: Span


@dataclass
class FrontMatter:
    """What the block says. `body_start` is the offset right after it, 0 where there is none."""

    body_start: int = 0
    values: Mapping[str, object] | None = None
    title: Value | None = None
    tags: list[Value] = field(default_factory=list)
    aliases: list[Value] = field(default_factory=list)
    #: Every text value of the block or of its lists: what may be a link.
    texts: list[Value] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)


_OPEN = re.compile(r"---[ \t]*(?:\r\n|\n|\r)")
_CLOSE = re.compile(r"(?:\A|(?<=[\r\n]))---[ \t]*(?:\r\n|\n|\r|\Z)")
_PLACEHOLDER = re.compile(r"\{\{.*\}\}|<%.*%>", re.DOTALL)
_KEY_LINE = re.compile(r"(tags?|alias(?:es)?|title)[ \t]*:[ \t]*(.*)", re.IGNORECASE)
_ITEM_LINE = re.compile(r"[ \t]*-[ \t]+(.*)")
_LINES = re.compile(r"[^\r\n]+")
_SPLIT = re.compile(r"[,\s]+")
_NOT_IN_TAG = re.compile(r"[\s\u2000-\u206f\u2e00-\u2e7f'!\"#$%&()*+,.:;<=>?@^`{|}~\[\]\\]")


def read_front_matter(source: str) -> FrontMatter:
    """Read the block that opens a note's text. Total: every string has an answer."""
    opened = _OPEN.match(source)
    closed = _CLOSE.search(source, opened.end()) if opened else None
    if opened is None or closed is None:
        return FrontMatter()
    front = FrontMatter(body_start=closed.end(), values={})
    start = opened.end()
    block = source[start : closed.start()]
    if not block.strip():
        return front
    try:
        _Reader(block, start, front).read()
    except RecursionError:
        front.complaints.append(
            Complaint("invalid-frontmatter", "the front matter is nested too deeply", Span(start, closed.start()))
        )
        _salvage(block, start, front)
    except yaml.YAMLError as error:
        _complain_of(error, block, start, front)
        _salvage(block, start, front)
    return front


def is_tag(name: str) -> bool:
    """Whether a text is a tag's name: no space or punctuation, and not digits alone."""
    return bool(name) and not name.isdigit() and _NOT_IN_TAG.search(name) is None


class _Resolver(yaml.resolver.BaseResolver):
    """Plain scalars by the core schema of YAML 1.2, and no others."""


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Resolver.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), _first)


if _Parser is not None:

    class _Loader(_Parser, _Resolver):  # type: ignore[misc,valid-type]
        def __init__(self, stream: str) -> None:
            _Parser.__init__(self, stream)
            _Resolver.__init__(self)

else:

    class _Loader(  # type: ignore[no-redef]
        yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer, _Resolver
    ):
        def __init__(self, stream: str) -> None:
            yaml.reader.Reader.__init__(self, stream)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)
            yaml.composer.Composer.__init__(self)
            _Resolver.__init__(self)


class _Reader:
    """One block: its nodes become JSON values, and the known keys their own lists."""

    def __init__(self, block: str, start: int, front: FrontMatter) -> None:
        self.block = block
        self.start = start
        self.front = front
        self.left = _MOST_NODES

    def read(self) -> None:
        # libyaml ends a line at NEL and U+2028 too, and refuses control characters: to us both are characters.
        loader = _Loader(self.block)
        try:
            root = loader.get_single_node()
        finally:
            if hasattr(loader, "dispose"):
                loader.dispose()
        if root is None:
            return
        if not isinstance(root, yaml.MappingNode):
            self.complain("the front matter is no list of `key: value`", root)
            return
        values: dict[str, object] = {}
        for key_node, value_node in root.value:
            key = self.key(key_node)
            if key in values:
                self.complain(f"the key `{key}` stands twice", key_node)
            values[key] = self.json(value_node, 1)
            self.take(key, value_node)
        self.front.values = values

    def take(self, key: str, node: yaml.Node) -> None:
        known = key.lower()
        if known == "title" and isinstance(node, yaml.ScalarNode) and node.value.strip() and not _is_null(node):
            self.front.title = Value(node.value.strip(), self.span(node))
        elif known in ("tags", "tag"):
            if known == "tag":
                self.complain("`tag` is no longer read by Obsidian: write `tags`", node, "legacy-property")
            self.take_tags(node)
        elif known in ("aliases", "alias"):
            if known == "alias":
                self.complain("`alias` is no longer read by Obsidian: write `aliases`", node, "legacy-property")
            self.take_aliases(node)

    def take_tags(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            if _is_null(node):
                return
            names = [name for name in _SPLIT.split(node.value) if name]
            if len(names) > 1:
                self.complain("several tags in one text: write a list", node, "legacy-property")
            for name in names:
                self.add_tag(name, node)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                if isinstance(item, yaml.ScalarNode):
                    if not _is_null(item):
                        self.add_tag(item.value.strip(), item)
                else:
                    self.complain("a tag must be a text", item)
        else:
            self.complain("`tags` must be a list of texts", node)

    def add_tag(self, name: str, node: yaml.Node) -> None:
        if node.tag != "tag:yaml.org,2002:str":
            return
        name = name.removeprefix("#").rstrip("/")
        if is_tag(name):
            self.front.tags.append(Value(name, self.span(node)))

    def take_aliases(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            if _is_null(node):
                return
            names = [name.strip() for name in node.value.split(",") if name.strip()]
            if len(names) > 1:
                self.complain("several aliases in one text: write a list", node, "legacy-property")
            self.front.aliases += [Value(name, self.span(node)) for name in names]
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                if not isinstance(item, yaml.ScalarNode):
                    self.complain("an alias must be a text", item)
                elif not _is_null(item) and item.value.strip():
                    self.front.aliases.append(Value(item.value.strip(), self.span(item)))
        else:
            self.complain("`aliases` must be a list of texts", node)

    def key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        return self.source(node)

    def json(self, node: yaml.Node, depth: int) -> object:
        self.left -= 1
        if self.left < 0 or depth > _DEEPEST:
            raise yaml.YAMLError("the front matter is too large")
        if isinstance(node, yaml.ScalarNode):
            value = _scalar(node)
            if isinstance(value, str) and value:
                self.front.texts.append(Value(value, self.span(node)))
            return value
        if isinstance(node, yaml.SequenceNode):
            return [self.json(item, depth + 1) for item in node.value]
        source = self.source(node)
        if _PLACEHOLDER.fullmatch(source):
            return source
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if key in result:
                self.complain(f"the key `{key}` stands twice", key_node)
            result[key] = self.json(value_node, depth + 1)
        return result

    def source(self, node: yaml.Node) -> str:
        return self.block[node.start_mark.index : node.end_mark.index].strip()

    def span(self, node: yaml.Node) -> Span:
        start, end = node.start_mark.index, node.end_mark.index
        while end > start and self.block[end - 1].isspace():
            end -= 1
        return Span(self.start + start, self.start + end)

    def complain(self, message: str, node: yaml.Node, rule: str = "invalid-frontmatter") -> None:
        span = self.span(node)
        line = re.compile(r"[^\r\n]*").match(self.block, span.start - self.start)
        end = self.start + line.end() if line else span.end
        self.front.complaints.append(Complaint(rule, message, Span(span.start, min(span.end, max(end, span.start)))))


def _scalar(node: yaml.ScalarNode) -> object:
    kind, text = node.tag.rpartition(":")[2], node.value
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int" and len(text) < 20:
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if kind == "float" and len(text) < 40:
        number = float(text)
        return number if number - number == 0 else text  # JSON has no infinity
    return text


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _complain_of(error: yaml.YAMLError, block: str, start: int, front: FrontMatter) -> None:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    at = mark.index if mark is not None else getattr(error, "position", 0) or 0
    lines = [match.span() for match in _LINES.finditer(block)]
    place = next((span for span in lines if span[0] <= at <= span[1]), lines[-1] if lines else (0, len(block)))
    # A placeholder of a template is no mistake, though the block can only be read once it is filled in.
    if _PLACEHOLDER.search(block[slice(*place)]):
        return
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).partition("\n")[0]
    front.complaints.append(
        Complaint("invalid-frontmatter", f"YAML: {problem}", Span(start + place[0], start + place[1]))
    )


def _salvage(block: str, start: int, front: FrontMatter) -> None:
    """Tags, aliases and title of a block that can't be read, line by line."""
    front.tags.clear()
    front.aliases.clear()
    front.texts.clear()
    front.title = None
    front.values = {}
    key = ""
    for match in _LINES.finditer(block):
        found = _KEY_LINE.fullmatch(match[0])
        if found:
            key, rest, at = found[1].lower(), found[2], found.start(2)
        elif key and (item := _ITEM_LINE.fullmatch(match[0])):
            rest, at = item[1], item.start(1)
        else:
            key = ""
            continue
        for value in _plain_values(rest, start + match.start() + at):
            if key.startswith("tag"):
                name = value.text.removeprefix("#").rstrip("/")
                if is_tag(name):
                    front.tags.append(Value(name, value.span))
            elif key.startswith("alias"):
                front.aliases.append(value)
            elif front.title is None:
                front.title = Value(rest.strip().strip("\"'"), Span(value.span.start, start + match.end()))


def _plain_values(text: str, start: int) -> Iterator[Value]:
    for match in re.finditer(r"\"([^\"]*)\"|'([^']*)'|[^,\[\]\"']+", text):
        value = (match[1] or match[2] or match[0]).strip().strip("\"'")
        if value and not value.startswith("#!"):
            yield Value(value, Span(start + match.start(), start + match.end()))
