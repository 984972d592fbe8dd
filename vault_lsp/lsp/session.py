"""What one session knows: the client's abilities, its settings, its folders and its open buffers.

The only mutable state of the server, and only the event loop touches it. Work that leaves the loop takes values along
that nobody changes: documents are replaced, never edited.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from lsprotocol import types

from vault_lsp.core.model import Note, NotePath
from vault_lsp.core.text import Encoding, Span, Text
from vault_lsp.lsp import convert

if TYPE_CHECKING:
    from vault_lsp.service import Vault

#: Files whose vault path is kept.
_MOST_PATHS = 10_000

_ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """What the client can do, read once from its answer-sized tree of options."""

    encoding: Encoding = "utf-16"
    definition_links: bool = False
    nested_symbols: bool = False
    related_information: bool = False
    pull_diagnostics: bool = False
    refresh_diagnostics: bool = False
    watches_files: bool = False
    work_done_progress: bool = False
    configuration: bool = False
    registers_configuration: bool = False

    @classmethod
    def of(cls, capabilities: types.ClientCapabilities) -> ClientCapabilities:
        """Reads the capabilities of `initialize`; whatever is absent is off."""

        def has(path: str) -> bool:
            value: object = capabilities
            for name in path.split("."):
                value = getattr(value, name, None)
            return value is True or (value is not None and not isinstance(value, bool))

        offered = [str(getattr(each, "value", each)) for each in _position_encodings(capabilities)]
        return cls(
            encoding=next((known for each in offered for known in _ENCODINGS if each == known), "utf-16"),
            definition_links=has("text_document.definition.link_support"),
            nested_symbols=has("text_document.document_symbol.hierarchical_document_symbol_support"),
            related_information=has("text_document.publish_diagnostics.related_information")
            or has("text_document.diagnostic.related_information"),
            pull_diagnostics=has("text_document.diagnostic"),
            refresh_diagnostics=has("workspace.diagnostics.refresh_support"),
            watches_files=has("workspace.did_change_watched_files.dynamic_registration"),
            work_done_progress=has("window.work_done_progress"),
            configuration=has("workspace.configuration"),
            registers_configuration=has("workspace.did_change_configuration.dynamic_registration"),
        )


def _position_encodings(capabilities: types.ClientCapabilities) -> Iterable[object]:
    general = capabilities.general
    return (general.position_encodings or ()) if general else ()


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user sets in the editor under `vaultLsp`."""

    diagnostics_enable: bool = True
    #: Quiet time after which a run of changes is checked; the first change after a pause is checked at once.
    diagnostics_debounce_ms: int = 200
    symbols_limit: int = 200
    #: Whether this server embeds what has no vector, as far as the vault's config has a model for it.
    embedding_enable: bool = True

    def updated(self, given: object) -> tuple[Settings, list[str]]:
        """The settings with those of a client's object, and one sentence for each that isn't usable.

        The object may be flat or hold a `vaultLsp` section; names may be snake_case or camelCase, nested or dotted.
        What isn't given, and what isn't usable, stays as it is.
        """
        if given is None:
            return self, []
        if not isinstance(given, Mapping):
            return self, [f"settings must be an object, not {type(given).__name__}"]
        section = given.get("vaultLsp", given)
        if not isinstance(section, Mapping):
            return self, [f"vaultLsp must be an object, not {type(section).__name__}"]
        kinds = get_type_hints(Settings)
        names = {name.name for name in fields(self)}
        changes: dict[str, Any] = {}
        problems: list[str] = []
        for key, value in _flat(section):
            name = key.removeprefix("vaultLsp.").replace(".", "_")
            name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
            if name not in names or value is None:
                continue
            if type(value) is not kinds[name] or (isinstance(value, int) and not 0 <= value <= 100_000):
                expected = "true or false" if kinds[name] is bool else "a number from 0 to 100000"
                problems.append(f"vaultLsp.{key} must be {expected}, not {value!r}")
                continue
            changes[name] = value
        return replace(self, **changes), problems


def _flat(section: Mapping[Any, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


class Document:
    """One version of an open buffer. Its note is parsed by whichever thread asks first, and kept."""

    __slots__ = ("_note", "_parsing", "edited", "file", "key", "text", "uri", "version")

    def __init__(self, uri: str, version: int | None, text: Text, *, edited: bool = False) -> None:
        self.uri = uri
        #: Whether it was changed since it was opened or saved.
        self.edited = edited
        self.file = convert.file_of(uri)
        self.key = self.file or uri
        self.version = version
        self.text = text
        self._note: Note | None = None
        self._parsing = threading.Lock()

    def changed(self, version: int | None, changes: Iterable[Any], encoding: Encoding) -> Document:
        """The next version; each change counts from the text that the one before it left."""
        text = self.text
        for change in changes:
            new = without_surrogates(change.text)
            span = getattr(change, "range", None)
            if span is None:
                text = Text(new)
                continue
            start = convert.offset_of(text, span.start, encoding)
            end = convert.offset_of(text, span.end, encoding)
            text = text.replace(Span(min(start, end), max(start, end)), new)
        return Document(self.uri, version, text, edited=True)

    @property
    def parsed(self) -> Note | None:
        """What the buffer says, where somebody has asked before."""
        return self._note

    def note(self, path: NotePath, parse: Callable[[NotePath, str], Note]) -> Note:
        """What the buffer says as the note at `path`."""
        with self._parsing:
            if self._note is None or self._note.path != path:
                self._note = parse(path, self.text.source)
            return self._note


def without_surrogates(text: str) -> str:
    """The text with lone surrogates, which JSON can carry and UTF-8 can't, replaced one for one."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Root:
    """One workspace folder and, once it is open, its vault."""

    def __init__(self, uri: str, folder: str) -> None:
        self.uri = uri
        self.folder = folder
        self.config_file = str(Path(folder, ".vault-lsp", "config.yaml"))
        #: Set when opening has ended, well or not.
        self.opened = asyncio.Event()
        #: Set when the names of all notes are known, so that a missing note is really missing; of a small vault when
        #: all is known.
        self.named = asyncio.Event()
        #: Set when the first scan has ended, well or not.
        self.scanned = asyncio.Event()
        #: Set when the folder is no longer part of the session; work in threads polls it.
        self.closed = threading.Event()
        self.vault: Vault | None = None
        self.begun = time.monotonic()
        #: Whether the vault has no index yet.
        self.first_index = False
        self.readers = 0
        #: What `Vault.data_version` was when last asked.
        self.data_version: object = None
        #: The diagnostics of the whole vault, and the state that they belong to.
        self.checked: tuple[object, list[Any]] | None = None
        #: Rises whenever the index changes.
        self.revision = 0
        #: The revision at which the index was last read.
        self.read_at = -1
        self._paths: dict[str, NotePath | None] = {}

    def holds(self, file: str) -> bool:
        """Whether a file lies in the folder, by either of its names where it was reached through a symlink."""
        return any(file == folder or file.startswith(_as_prefix(folder)) for folder in self._folders())

    def path_of(self, file: str) -> NotePath | None:
        """The vault's path of a file of the folder, None when the vault leaves it out. May read the disk."""
        if self.vault is None:
            return None
        if file not in self._paths:
            if len(self._paths) >= _MOST_PATHS:
                self._paths.clear()
            self._paths[file] = next(
                (
                    self.vault.path_of(self.vault.root / file[len(_as_prefix(folder)) :])
                    for folder in self._folders()
                    if file.startswith(_as_prefix(folder))
                ),
                None,
            )
        return self._paths.get(file)

    def note_path(self, file: str) -> NotePath | None:
        """The same for a note, None for every other file."""
        return self.path_of(file) if _is_note(file) else None

    def known_path(self, file: str) -> NotePath | None:
        """The note's path from memory: None too where nobody has asked before."""
        return self._paths.get(file) if _is_note(file) else None

    def knows(self, file: str) -> bool:
        """Whether `known_path` has its answer."""
        return file in self._paths or not _is_note(file)

    @property
    def settled(self) -> bool:
        """Whether what was read of the index is what it says now, as far as the session knows."""
        return self.read_at == self.revision and (self.scanned.is_set() or not self.first_index)

    def file_of(self, path: NotePath) -> str:
        """The file of a vault path, named the way the client names the folder."""
        return _as_prefix(self.folder) + path.replace("/", os.sep)

    def _folders(self) -> tuple[str, ...]:
        return (self.folder,) if self.vault is None else (self.folder, str(self.vault.root))


def _is_note(file: str) -> bool:
    return file[-3:].lower() == ".md"


def _as_prefix(folder: str) -> str:
    return folder if folder.endswith(os.sep) else folder + os.sep


@dataclass
class Session:
    """The state of the server between two messages."""

    client: ClientCapabilities = field(default_factory=ClientCapabilities)
    settings: Settings = field(default_factory=Settings)
    documents: dict[str, Document] = field(default_factory=dict)
    roots: list[Root] = field(default_factory=list)
    #: Rises with every change of the open buffers.
    edits: int = 0
    #: Rises with every request for the symbols of the workspace.
    searches: int = 0

    def put(self, document: Document) -> None:
        """Keeps a new version of a buffer, or one that was just opened."""
        self.edits += 1
        self.documents[document.key] = document

    def drop(self, document: Document) -> None:
        """Forgets a buffer that was closed."""
        self.edits += 1
        del self.documents[document.key]

    @property
    def state(self) -> tuple[object, ...]:
        """Changes whenever an answer may: with the buffers, the folders, their index and the settings."""
        return (self.edits, self.settings, *((root, root.revision) for root in self.roots))

    def document(self, uri: str) -> Document | None:
        """The open buffer of any spelling of its URI."""
        return self.documents.get(convert.file_of(uri) or uri)

    def root_of(self, file: str | None) -> Root | None:
        """The innermost folder that holds a file."""
        holding = [root for root in self.roots if file is not None and root.holds(file)]
        return max(holding, key=lambda root: len(root.folder), default=None)

    def documents_of(self, root: Root | None) -> list[Document]:
        """The open buffers whose innermost folder is `root`: those that it answers for."""
        return [document for document in self.documents.values() if self.root_of(document.file) is root]

    def buffers_in(self, root: Root | None) -> list[Document]:
        """The open buffers that a folder holds, also where a folder within it answers for them."""
        if root is None:
            return self.documents_of(None)
        return [document for document in self.documents.values() if document.file and root.holds(document.file)]

    def owns(self, root: Root, uri: str) -> bool:
        """Whether a folder, and not one within it, answers for a file."""
        return len(self.roots) == 1 or self.root_of(convert.file_of(uri)) is root


def folders_of(params: types.InitializeParams) -> list[tuple[str, str]]:
    """URI and folder of every workspace folder of `initialize`; older clients send one root URI or path."""
    uris = [folder.uri for folder in params.workspace_folders or ()]
    if not uris and params.root_uri:
        uris = [params.root_uri]
    if not uris and params.root_path:
        uris = [convert.uri_of(convert.normal_file(str(Path(params.root_path).absolute())))]
    found = [(uri, convert.file_of(uri)) for uri in uris]
    return [(uri, folder) for uri, folder in found if folder is not None]
