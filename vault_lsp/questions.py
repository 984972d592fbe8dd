"""Questions with known answers, as a file holds them: read, checked, and matched with the notes of a vault."""

from __future__ import annotations

import difflib
import json
import math
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from vault_lsp.core import yaml12
from vault_lsp.core.model import NotePath
from vault_lsp.core.text import Text
from vault_lsp.errors import VaultLspError

_KEYS = ("query", "expected_paths", "relevance", "tags")

#: Mistakes of a file that its error lists in full.
_LISTED = 3

#: Unknown paths for which the nearest known one is looked up, which takes a while in a large vault.
_HINTED = 5


class QuestionsError(VaultLspError):
    """The file of questions can't be used."""

    code: ClassVar[str] = "questions"


class Question(NamedTuple):
    """What is asked, how relevant which notes are to it (a grade above 0), and where it stands in its file."""

    query: str
    relevance: Mapping[NotePath, float]
    tags: tuple[str, ...] = ()
    line: int = 0


class UnknownPath(NamedTuple):
    """A path that a question expects and the vault doesn't have; `near` is the one that may be meant."""

    line: int
    path: str
    near: str | None


def read_queries(file: Path) -> list[Question]:
    """Read questions from YAML, JSON (`.json`) or a JSON object a line (`.jsonl`, `.ndjson`).

    QuestionsError names every mistake with file and line.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise QuestionsError(f"{file}: not UTF-8: byte {error.start} can't be read") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise QuestionsError(f"{file}: {reason.lower()}") from error
    return parse_queries(text, file)


def parse_queries(text: str, file: Path) -> list[Question]:
    """Read questions from the text of a file; its name says which format it has."""
    reader = _Reader(text, str(file))
    match file.suffix.lower():
        case ".json":
            items = reader.json_items()
        case ".jsonl" | ".ndjson":
            items = reader.json_lines()
        case _:
            items = reader.yaml_items()
    questions = [question for item in items if (question := reader.question(item)) is not None]
    reader.close()
    if not questions:
        raise QuestionsError(f"{file}: no question in it")
    return questions


def match_paths(questions: Iterable[Question], paths: Iterable[NotePath]) -> tuple[list[Question], list[UnknownPath]]:
    """Take each expected path as the vault writes it, and leave out those that it doesn't have.

    A question whose relevant notes are all unknown is left out too: nothing could answer it.
    """
    known_paths = frozenset(paths)
    by_key = {unicodedata.normalize("NFC", path): path for path in known_paths}
    matched: list[Question] = []
    unknown: list[UnknownPath] = []
    for question in questions:
        relevance: dict[NotePath, float] = {}
        for typed, grade in question.relevance.items():
            known = typed if typed in known_paths else by_key.get(_path_key(typed))
            if known is not None:
                relevance[known] = max(grade, relevance.get(known, grade))
            else:
                hinted = len(unknown) < _HINTED
                near = difflib.get_close_matches(_path_key(typed), by_key, n=1) if hinted else []
                unknown.append(UnknownPath(question.line, typed, near[0] if near else None))
        if any(grade > 0 for grade in relevance.values()):
            matched.append(question._replace(relevance=relevance))
    return matched, unknown


class _Reader:
    """Reads the items of one text as questions, and collects what is wrong with them."""

    def __init__(self, text: str, name: str) -> None:
        self._text = Text(text)
        self._name = name
        self._problems: list[tuple[int, str]] = []
        #: Where reading is, for what has no place of its own.
        self._at = 0

    def yaml_items(self) -> Iterator[yaml12.Node]:
        try:
            root = yaml12.compose(self._text.source).root
        except yaml12.InvalidYamlError as error:
            self._note(f"not YAML: {error.message}", error.offset)
            return
        if isinstance(root, yaml12.Sequence):
            yield from root
        elif root is not None:
            self._note("must be a list of questions", self._start(root))

    def json_items(self) -> Iterator[yaml12.Node]:
        source = self._text.source
        blank = re.compile(r"[ \t\r\n]*")
        at = self._skip(blank, 0)
        if not source.startswith("[", at):
            self._note("must be a list of questions", at)
            return
        at = self._skip(blank, at + 1)
        while not source.startswith("]", at):
            item, end = self._decoded(at)
            if item is None:
                return
            yield item
            at = self._skip(blank, end)
            if source.startswith(",", at):
                at = self._skip(blank, at + 1)
            elif not source.startswith("]", at):
                self._note("not JSON: a comma or a closing bracket is missing", at)
                return
        rest = self._skip(blank, at + 1)
        if rest < len(source):
            self._note("not JSON: something follows the list", rest)

    def json_lines(self) -> Iterator[yaml12.Node]:
        for number, start in enumerate(self._text.line_starts):
            line = self._text.source[start : self._text.line_span(number).end]
            if not line.strip():
                continue
            indent = len(line) - len(line.lstrip())
            item, end = self._decoded(start + indent)
            if item is None:
                continue
            if end > start + len(line.rstrip()) or self._text.source[end : start + len(line)].strip():
                self._note("not JSON: a line holds one question", start)
            else:
                yield item

    def question(self, node: yaml12.Node) -> Question | None:
        """The question that a node holds; None, with its mistakes noted, where it holds none."""
        start = self._at = self._start(node)
        count = len(self._problems)
        if not isinstance(node, yaml12.Mapping):
            self._note("a question must be a mapping with `query` and `expected_paths` or `relevance`", start)
            return None
        values = self._values(node)
        query = self._text_of(values["query"], "“query”") if "query" in values else ""
        relevance = self._relevance(values, start)
        tags = self._texts_of(values["tags"], "tags") if "tags" in values else []
        if "query" not in values:
            self._note("a question needs `query`", start)
        if len(self._problems) > count:
            return None
        return Question(query, relevance, tuple(dict.fromkeys(tags)), self._line(start))

    def close(self) -> None:
        """Raise what was noted."""
        if self._problems:
            lines = [f"{self._name}:{self._line(at)}: {message}" for at, message in sorted(self._problems)]
            more = f" (and {len(lines) - _LISTED} more)" if len(lines) > _LISTED else ""
            raise QuestionsError("; ".join(lines[:_LISTED]) + more)

    def _values(self, node: yaml12.Mapping) -> dict[str, yaml12.Node]:
        values: dict[str, yaml12.Node] = {}
        for key, value in node:
            name = key.value if isinstance(key, yaml12.Scalar) else ""
            if name not in _KEYS:
                near = difflib.get_close_matches(name, _KEYS, n=1)
                hint = f", did you mean “{near[0]}”?" if near else f": a question has {', '.join(_KEYS)}"
                self._note(f"“{name}” is not known{hint}", self._start(key))
            elif name in values:
                self._note(f"“{name}” is there twice", self._start(key))
            else:
                values[name] = value
        return values

    def _relevance(self, values: Mapping[str, yaml12.Node], start: int) -> dict[NotePath, float]:
        relevance: dict[NotePath, float] = {}
        if ("expected_paths" in values) == ("relevance" in values):
            self._note("a question needs `expected_paths` or `relevance`, one of the two", start)
        elif "expected_paths" in values:
            relevance = dict.fromkeys(map(NotePath, self._texts_of(values["expected_paths"], "expected_paths")), 1.0)
        elif isinstance(graded := values["relevance"], yaml12.Mapping):
            for key, node in graded:
                path = self._text_of(key, "a path of “relevance”")
                grade = yaml12.value(node) if isinstance(node, yaml12.Scalar) else None
                if isinstance(grade, bool) or not isinstance(grade, int | float) or not math.isfinite(grade):
                    self._note(f"the grade of {path} must be a number", self._start(node))
                elif path in relevance:
                    self._note(f"{path} is there twice", self._start(key))
                else:
                    relevance[NotePath(path)] = float(grade)
        else:
            self._note("“relevance” must be a mapping of path to grade", self._start(graded))
            return relevance
        if not any(grade > 0 for grade in relevance.values()) and not self._noted_since(start):
            self._note("a question needs at least one note that is relevant", start)
        return relevance

    def _texts_of(self, node: yaml12.Node, name: str) -> list[str]:
        if isinstance(node, yaml12.Mapping):
            self._note(f"“{name}” must be a list of texts", self._start(node))
            return []
        items = [node] if isinstance(node, yaml12.Scalar) else node
        return [self._text_of(item, f"each of “{name}”") for item in items]

    def _text_of(self, node: yaml12.Node, what: str) -> str:
        if not isinstance(node, yaml12.Scalar) or (node.plain and yaml12.value(node) is None) or not node.value.strip():
            self._note(f"{what} must be a text", self._start(node))
            return ""
        return node.value.strip()

    def _start(self, node: yaml12.Node) -> int:
        """Where a node begins; an empty collection has no place but that of what stands around it."""
        for _ in range(100):  # an alias may lead a node into itself
            if isinstance(node, yaml12.Scalar):
                return node.start
            if not node:
                break
            first = node[0]
            node = first[0] if isinstance(first, tuple) and not isinstance(first, yaml12.Scalar) else first
        return self._at

    def _decoded(self, at: int) -> tuple[yaml12.Node | None, int]:
        try:
            value, end = _JSON.raw_decode(self._text.source, at)
        except json.JSONDecodeError as error:
            self._note(f"not JSON: {error.msg.lower()}", error.pos)
        except RecursionError:
            self._note("not JSON: nested too deeply", at)
        else:
            return _as_node(value, at), end
        return None, at

    def _skip(self, blank: re.Pattern[str], at: int) -> int:
        match = blank.match(self._text.source, at)
        return match.end() if match else at

    def _noted_since(self, start: int) -> bool:
        return any(at >= start for at, _ in self._problems)

    def _note(self, message: str, at: int) -> None:
        self._problems.append((at, message))

    def _line(self, at: int) -> int:
        return self._text.point(min(at, len(self._text))).line + 1


def _mapping(pairs: list[tuple[Any, Any]]) -> yaml12.Mapping:
    return yaml12.Mapping(pairs)


#: Keeps the order of keys, and a key that is there twice.
_JSON = json.JSONDecoder(object_pairs_hook=_mapping)


def _as_node(value: object, at: int) -> yaml12.Node:
    """A JSON value as the node that YAML would give; all of it has the place of its question."""
    if isinstance(value, yaml12.Mapping):
        return yaml12.Mapping((_as_node(key, at), _as_node(item, at)) for key, item in value)
    if isinstance(value, list):
        return yaml12.Sequence(_as_node(item, at) for item in value)
    if isinstance(value, str):
        return yaml12.Scalar(value, plain=False, quoted=True, tag=None, start=at, end=at)
    return yaml12.Scalar(json.dumps(value), plain=True, quoted=False, tag=None, start=at, end=at)


def _path_key(path: str) -> str:
    return unicodedata.normalize("NFC", posixpath.normpath(path).lstrip("/"))
