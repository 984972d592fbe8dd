"""The settings of a vault: `.vault-lsp/config.yaml` as frozen values, and what is wrong with the file.

A wrong value never stops anything: it is reported with its place, and the default stands.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import yaml

from vault_lsp.core.fusion import WEIGHTS
from vault_lsp.core.model import Severity
from vault_lsp.core.rules import PROFILES, ROLES, RULES, HealthConfig
from vault_lsp.core.text import Text

CONFIG_FILE = ".vault-lsp/config.yaml"

#: Keys that later versions read. They are accepted so that one file serves every version.
RESERVED: Mapping[str, frozenset[str]] = {"": frozenset({"text_layers"})}

_T = TypeVar("_T")


class ConfigProblem(NamedTuple):
    """Something in the file that has no effect; line and column count from 1, the column in code points."""

    message: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{CONFIG_FILE}:{self.line}:{self.column}: {self.message}"


@dataclass(frozen=True, slots=True)
class NotesConfig:
    """Where notes are made: folders of new notes and of templates, and the path of a day's note.

    The folder `./` is that of the note that asks.
    """

    new_folder: str = ""
    templates: str = "templates/"
    daily: str = "daily/%Y-%m-%d"


@dataclass(frozen=True, slots=True)
class LinksConfig:
    """How links are read (`resolve_aliases`) and which kind is written (`prefer`)."""

    resolve_aliases: bool = True
    prefer: Literal["wikilink", "markdown"] = "wikilink"


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """Where the index lies: a folder, or None for the platform's cache."""

    path: str | None = None


#: The model of a config that says something of it that can't be read. Another one must not take its place meanwhile:
#: its vectors would replace those that are there.
UNKNOWN_MODEL = ""


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """Which model makes the vectors: auto, none, a model's name, or a folder that holds one; UNKNOWN_MODEL."""

    model: str = "auto"


@dataclass(frozen=True, slots=True)
class RerankConfig:
    """Which model reads the best `top` hits once more, and for how many milliseconds at most."""

    model: str = "none"
    budget_ms: int = 1500
    top: int = 20


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """What counts in a ranking: weights of channels, and factors of areas, of the exact phrase and of recent notes."""

    weights: Mapping[str, float] = field(default_factory=dict)
    areas: Mapping[str, float] = field(default_factory=dict)
    phrase: float = 1.0
    recency: float = 1.0


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a vault; the defaults are those of a vault without a config."""

    exclude: tuple[str, ...] = ()
    gitignore: bool = False
    follow_symlinks: bool = False
    notes: NotesConfig = NotesConfig()
    links: LinksConfig = LinksConfig()
    index: IndexConfig = IndexConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    rerank: RerankConfig = RerankConfig()
    search: SearchConfig = field(default_factory=SearchConfig)
    health: HealthConfig = field(default_factory=HealthConfig)


_UNREADABLE = Config(embedding=EmbeddingConfig(UNKNOWN_MODEL))


def load_config(root: Path) -> tuple[Config, tuple[ConfigProblem, ...]]:
    """Read the config of the vault at `root`; without one, the defaults. A file that can't be read is a problem."""
    try:
        text = (root / CONFIG_FILE).read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return Config(), ()
    except UnicodeDecodeError as error:
        return _UNREADABLE, (ConfigProblem(f"not UTF-8: byte {error.start} can't be read", 1, 1),)
    except OSError as error:
        return _UNREADABLE, (ConfigProblem(f"can't be read: {error.strerror or error}", 1, 1),)
    return parse_config(text)


def parse_config(text: str) -> tuple[Config, tuple[ConfigProblem, ...]]:
    """Read the config from its YAML text, with every unknown key and wrong value in the order of the text."""
    report = _Report(text)
    root = report.compose()
    if problems := report.problems():
        return _UNREADABLE, problems
    section = _Section("", root, report)
    section.accept("$schema")
    notes = section.nested("notes", _notes)
    links = section.nested("links", _links)
    config = Config(
        exclude=section.read("exclude", _texts, ()),
        gitignore=section.read("gitignore", _boolean, default=False),
        follow_symlinks=section.read("follow_symlinks", _boolean, default=False),
        notes=notes,
        links=links,
        index=section.nested("index", _index),
        embedding=section.nested("embedding", _embedding),
        rerank=section.nested("rerank", _rerank),
        search=section.nested("search", _search),
        health=section.nested("health", lambda health: _health(health, notes, links)),
    )
    section.close()
    return config, report.problems()


def _notes(section: _Section) -> NotesConfig:
    default = NotesConfig()
    return NotesConfig(
        new_folder=section.read("new_folder", _folder, default.new_folder),
        templates=section.read("templates", _folder, default.templates),
        daily=section.read("daily", _folder, default.daily),
    )


def _links(section: _Section) -> LinksConfig:
    default = LinksConfig()
    return LinksConfig(
        resolve_aliases=section.read("resolve_aliases", _boolean, default.resolve_aliases),
        prefer=section.read("prefer", _preferred, default.prefer),
    )


def _index(section: _Section) -> IndexConfig:
    return IndexConfig(section.read("path", _text_or_null, None))


def _embedding(section: _Section) -> EmbeddingConfig:
    return EmbeddingConfig(section.read("model", _text, "auto" if section.is_empty() else UNKNOWN_MODEL))


def _rerank(section: _Section) -> RerankConfig:
    default = RerankConfig()
    return RerankConfig(
        model=section.read("model", _text, default.model),
        budget_ms=section.read("budget_ms", _count, default.budget_ms),
        top=section.read("top", _count, default.top),
    )


def _search(section: _Section) -> SearchConfig:
    default = SearchConfig()
    return SearchConfig(
        weights=section.nested("weights", lambda weights: weights.by_name(WEIGHTS, _weight)),
        areas=section.nested("areas", lambda areas: areas.by_name(None, _factor)),
        phrase=section.read("phrase", _factor, default.phrase),
        recency=section.read("recency", _factor, default.recency),
    )


def _health(section: _Section, notes: NotesConfig, links: LinksConfig) -> HealthConfig:
    default = HealthConfig()
    return HealthConfig(
        rules=section.nested("rules", lambda rules: rules.by_rule(_severity)),
        exempt=section.nested("exempt", lambda rules: rules.by_rule(_texts)),
        ignore_key=section.read("ignore_key", _text, default.ignore_key),
        profile=section.read("profile", _profile, default.profile),
        graph_in_editor=section.read("graph_in_editor", _boolean, default.graph_in_editor),
        roles=section.nested("roles", lambda roles: roles.by_name(ROLES, _texts)),
        duplicate_topic=section.read("duplicate_topic", _cosine, default.duplicate_topic),
        archive_after_days=section.read("archive_after_days", _count, default.archive_after_days),
        note_type_tags=section.read("note_type_tags", _tags, ()),
        domain_tags=section.read("domain_tags", _tags, ()),
        expected_files=section.read("expected_files", _files, ()),
        prefer=links.prefer,
        templates=notes.templates,
    )


class _WrongValueError(Exception):
    """A value of another kind than its key wants; the text says which."""

    def __init__(self, expected: str, node: yaml.Node) -> None:
        super().__init__(expected)
        self.expected = expected
        self.node = node


class _Report:
    """The problems of one text, with the places that YAML's marks give."""

    def __init__(self, text: str) -> None:
        self._text = Text(text.removeprefix("\ufeff"))
        self._found: list[ConfigProblem] = []

    def compose(self) -> yaml.Node | None:
        """Node tree of the whole text; None with a problem where it isn't YAML.

        Values are read from the nodes, not constructed: YAML 1.1 would make a boolean of the severity `off`.
        """
        try:
            return yaml.compose(self._text.source, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.add(f"not YAML: {error.problem or error.context}", mark.index if mark else 0)
        except yaml.reader.ReaderError as error:
            self.add(f"not YAML: {error.reason}", int(error.position))
        except RecursionError:
            self.add("not YAML: nested too deeply", 0)
        return None

    def add(self, message: str, offset: int) -> None:
        point = self._text.point(min(offset, len(self._text)))
        self._found.append(ConfigProblem(message, point.line + 1, point.utf32 + 1))

    def problems(self) -> tuple[ConfigProblem, ...]:
        return tuple(sorted(self._found, key=lambda problem: (problem.line, problem.column)))


class _Section:
    """The keys of one mapping. Each is read once; `close` reports those that nothing asked for."""

    def __init__(self, name: str, node: yaml.Node | None, report: _Report) -> None:
        self._name = name
        self._report = report
        self._keys: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        self._known: set[str] = set()
        self._readable = True
        if node is None or _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            report.add(f"{_named(name)} must be a mapping of keys", node.start_mark.index)
            self._readable = False
            return
        for key, value in node.value:
            text = key.value if isinstance(key, yaml.ScalarNode) else ""
            if text in self._keys:
                report.add(f"“{self._full(text)}” is set twice, the first counts", key.start_mark.index)
            else:
                self._keys[text] = (key, value)

    def is_empty(self) -> bool:
        """Whether nothing is said here, as far as one can tell."""
        return self._readable and not self._keys

    def accept(self, key: str) -> None:
        """Let a key pass unread."""
        self._known.add(key)

    def read(self, key: str, reader: Callable[[yaml.Node], _T], default: _T) -> _T:
        """Value of a key; the default where it is absent or wrong."""
        self._known.add(key)
        if key not in self._keys:
            return default
        try:
            return reader(self._keys[key][1])
        except _WrongValueError as error:
            self._report.add(f"“{self._full(key)}” must be {error.expected}", error.node.start_mark.index)
            return default

    def nested(self, key: str, reader: Callable[[_Section], _T]) -> _T:
        """Read the mapping under a key; it is empty where it is absent or no mapping."""
        self._known.add(key)
        section = _Section(self._full(key), self._keys[key][1] if key in self._keys else None, self._report)
        section._readable &= self._readable
        value = reader(section)
        section.close()
        return value

    def by_rule(self, reader: Callable[[yaml.Node], _T]) -> dict[str, _T]:
        """Read all values of a mapping whose keys are names of rules."""
        return self.by_name(RULES, reader)

    def by_name(self, names: Iterable[str] | None, reader: Callable[[yaml.Node], _T]) -> dict[str, _T]:
        """Read all values of a mapping whose keys are some of `names`, or whatever the vault calls them."""
        values: dict[str, _T] = {}
        for name in self._keys if names is None else names:
            value: _T | None = self.read(name, reader, None)
            if value is not None:
                values[name] = value
        return values

    def close(self) -> None:
        """Report the keys that nobody knows."""
        known = self._known | RESERVED.get(self._name, frozenset())
        for key, (node, _) in self._keys.items():
            if key not in known:
                near = difflib.get_close_matches(key, sorted(known), n=1)
                hint = f", did you mean “{near[0]}”?" if near else ""
                self._report.add(f"“{self._full(key)}” is not a setting{hint}", node.start_mark.index)

    def _full(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _named(section: str) -> str:
    return f"“{section}”" if section else "the file"


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in {"", "~", "null", "Null", "NULL"}


def _text(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode) and not _is_null(node):
        return str(node.value)
    raise _WrongValueError("a text", node)


def _text_or_null(node: yaml.Node) -> str | None:
    return None if _is_null(node) else _text(node)


def _texts(node: yaml.Node) -> tuple[str, ...]:
    if isinstance(node, yaml.SequenceNode):
        return tuple(_item(item) for item in node.value)
    if _is_null(node):
        return ()
    raise _WrongValueError("a list of texts", node)


def _item(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode) and not _is_null(node):
        return str(node.value)
    raise _WrongValueError("a list of texts", node)


def _tags(node: yaml.Node) -> tuple[str, ...]:
    """Tags as people write them, with their `#` or without."""
    return tuple(dict.fromkeys(text.strip().removeprefix("#") for text in _texts(node)))


def _files(node: yaml.Node) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_inside(text, node) for text in _texts(node)))


def _folder(node: yaml.Node) -> str:
    return (
        "" if _is_null(node) or (isinstance(node, yaml.ScalarNode) and not node.value) else _inside(_text(node), node)
    )


def _inside(text: str, node: yaml.Node) -> str:
    if text.startswith("/") or re.match(r"[A-Za-z]:[\\/]", text) or ".." in text.split("/"):
        raise _WrongValueError("a path inside the vault", node)
    return text


def _boolean(node: yaml.Node) -> bool:
    if isinstance(node, yaml.ScalarNode) and node.style is None and node.value.lower() in {"true", "false"}:
        return bool(node.value.lower() == "true")
    raise _WrongValueError("true or false", node)


def _count(node: yaml.Node) -> int:
    if isinstance(node, yaml.ScalarNode) and node.style is None and re.fullmatch(r"[1-9][0-9]{0,8}", node.value):
        return int(node.value)
    raise _WrongValueError("a whole number above 0", node)


def _weight(node: yaml.Node) -> float:
    value = _number(node)
    if value is None or not 0 <= value <= 1000:
        raise _WrongValueError("a number from 0 to 1000", node)
    return value


def _cosine(node: yaml.Node) -> float:
    value = _number(node)
    if value is None or not 0 < value <= 1:
        raise _WrongValueError("a number above 0, 1 at most", node)
    return value


def _factor(node: yaml.Node) -> float:
    value = _number(node)
    if value is None or not 0 < value <= 100:
        raise _WrongValueError("a number above 0, 100 at most", node)
    return value


def _number(node: yaml.Node) -> float | None:
    if isinstance(node, yaml.ScalarNode) and node.style is None and re.fullmatch(r"[0-9]*\.?[0-9]+", node.value):
        return float(node.value)
    return None


def _preferred(node: yaml.Node) -> Literal["wikilink", "markdown"]:
    match node:
        case yaml.ScalarNode(value="wikilink"):
            return "wikilink"
        case yaml.ScalarNode(value="markdown"):
            return "markdown"
    raise _WrongValueError(_one_of(["wikilink", "markdown"]), node)


def _profile(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode) and node.value in PROFILES:
        return str(node.value)
    raise _WrongValueError(_one_of(PROFILES), node)


def _severity(node: yaml.Node) -> Severity:
    if isinstance(node, yaml.ScalarNode) and node.value in set(Severity):
        return Severity(node.value)
    raise _WrongValueError(_one_of(Severity), node)


def _one_of(words: Iterable[str]) -> str:
    return "one of " + ", ".join(words)
