"""Names of the vault, matched as people type them: titles, aliases, headings; then notes by what they say and mean."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import apsw

from vault_lsp.core.fuzzy import Folded, best
from vault_lsp.core.links import name_key
from vault_lsp.core.model import Note, NotePath
from vault_lsp.core.text import Place, Point, unpack
from vault_lsp.store import notes
from vault_lsp.store import search as channels
from vault_lsp.store.notes import StoredName

SymbolKind = Literal["note", "alias", "heading", "tag"]

TOP = Place(Point(0, 0, 0, 0), Point(0, 0, 0, 0))


class Symbol(NamedTuple):
    """A name in the vault; `container` is the note's path without its extension."""

    name: str
    kind: SymbolKind
    container: str
    path: NotePath
    place: Place


#: Documents by what they say and mean, best first, each with the chunk that speaks for it if one does.
Texts = Callable[[], Sequence[tuple[int, int | None]]]


class SymbolTable:
    """The names of all indexed notes, kept between questions and renewed note by note."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes = -1
        self._versions: dict[int, bytes] = {}
        self._by_note: dict[int, list[StoredName]] = {}
        self._names: list[StoredName] = []
        self._folded = Folded(())

    def load(self, connection: apsw.Connection) -> tuple[list[StoredName], Folded]:
        """All names as this snapshot has them, ready to be matched."""
        with self._lock:
            changes = notes.state(connection).changes
            if changes != self._changes:
                self._renew(connection)
                self._changes = changes
            return self._names, self._folded

    def _renew(self, connection: apsw.Connection) -> None:
        versions = notes.versions(connection)
        stale = [document for document, version in versions.items() if self._versions.get(document) != version]
        for document in self._versions.keys() - versions.keys():
            self._by_note.pop(document, None)
        for document in stale:
            self._by_note[document] = []
        for name in notes.stored_names(connection, stale):
            self._by_note[name.document].append(name)
        self._versions = versions
        self._names = [name for names in self._by_note.values() for name in names]
        self._folded = Folded(name.name for name in self._names)


def find_symbols(
    connection: apsw.Connection,
    table: SymbolTable,
    query: str,
    limit: int,
    overlay: Mapping[NotePath, Note],
    texts: Texts,
) -> tuple[Symbol, ...]:
    """Names that match a query, best first, then the notes that `texts` gives.

    Open buffers count instead of what is indexed: by their names alone, not by their text.
    """
    if not query.strip():
        return _recent(connection, limit, overlay)
    tagged = _tags(connection, query.strip()[1:], limit, overlay) if query.strip().startswith("#") else ()
    if tagged:
        return tagged
    stored, folded = table.load(connection)
    mine = [symbol for note in overlay.values() for symbol in symbols_of(note)]
    rated: list[tuple[float, int, Symbol]] = []
    for match in best(query, Folded(symbol.name for symbol in mine), limit):
        rated.append((-match.score, len(rated), mine[match.position]))
    for match in best(query, folded, limit + len(overlay)):
        name = stored[match.position]
        if name.path not in overlay:
            rated.append((-match.score, len(rated), _symbol(name)))
    rated.sort(key=lambda item: item[:2])
    found = dict.fromkeys(symbol for _, _, symbol in rated)
    if len(found) < limit:
        shown = {symbol.path for symbol in found}
        for row in channels.hydrate(connection, texts()):
            if row.path not in shown and row.path not in overlay:
                found.setdefault(_text_symbol(row))
    return tuple(found)[:limit]


def symbols_of(note: Note) -> list[Symbol]:
    """The names that a note adds: its title, its aliases, its headings. A title that is a heading counts once."""
    container = _container(note.path)
    found = [
        Symbol(heading.text, "heading", container, note.path, heading.place)
        for heading in note.headings
        if heading.text and heading.place != note.title_place
    ]
    found += [Symbol(alias.name, "alias", container, note.path, TOP) for alias in note.aliases]
    found.append(Symbol(note.title, "note", container, note.path, note.title_place))
    stem = notes.file_stem(note.path)
    if stem.casefold() != note.title.casefold():
        found.append(Symbol(stem, "note", container, note.path, TOP))
    return found


def _symbol(name: StoredName) -> Symbol:
    place = unpack(name.place)[0] if name.place is not None else TOP
    kind: SymbolKind = "heading" if name.kind == "heading" else "alias" if name.kind == "alias" else "note"
    return Symbol(name.name, kind, _container(name.path), name.path, place)


def _text_symbol(row: channels.Row) -> Symbol:
    """A note found by its text: named by its title, placed where the text is."""
    at = Point(row.line_start, 0, 0, 0)
    return Symbol(row.title, "note", _container(row.path), row.path, Place(at, at))


def _recent(connection: apsw.Connection, limit: int, overlay: Mapping[NotePath, Note]) -> tuple[Symbol, ...]:
    """Notes last changed; those that are only open buffers as yet come first."""
    found = [
        Symbol(note.title, "note", _container(path), path, note.title_place)
        for path, note in overlay.items()
        if notes.known_at(connection, path) is None
    ]
    for document, path in channels.recent(connection, channels.NO_FILTERS, limit):
        note = overlay.get(path)
        if note is not None:
            found.append(Symbol(note.title, "note", _container(path), path, note.title_place))
        else:
            title, place = notes.title(connection, document)
            found.append(Symbol(title or notes.file_stem(path), "note", _container(path), path, place or TOP))
    return tuple(found[:limit])


def _tags(connection: apsw.Connection, prefix: str, limit: int, overlay: Mapping[NotePath, Note]) -> tuple[Symbol, ...]:
    """Tags that begin so, in order, each where it stands first; open buffers count instead of what is indexed."""
    wanted = name_key(prefix)
    found: dict[str, Symbol] = {}
    for path, note in overlay.items():
        for tag in note.tags:
            key = name_key(tag.name)
            if key.startswith(wanted):
                found.setdefault(key, Symbol(tag.name, "tag", _container(path), path, tag.place))
    for name, path, place in notes.tags_like(connection, wanted, limit + len(overlay)):
        key = name_key(name)
        if key in found:
            continue
        if path in overlay:
            # The buffer dropped it; another note may hold it still.
            held = [at for at in notes.tag_places(connection, key) if at[0] not in overlay]
        else:
            held = [(path, place)]
        found.update((key, Symbol(name, "tag", _container(path), path, place)) for path, place in held[:1])
    return tuple(found[key] for key in sorted(found))[:limit]


def _container(path: NotePath) -> str:
    return path[:-3] if path[-3:].lower() == ".md" else path
