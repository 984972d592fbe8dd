"""Answers from one snapshot: a read transaction, the names of that moment, and the open buffers on top.

A View is made by `service.Vault.view` and lives as long as one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import apsw

from vault_lsp.config import Config
from vault_lsp.core import health, link_rules
from vault_lsp.core.inline import is_external, split_destination
from vault_lsp.core.links import Anchors, Names, link_key, name_key, resolve, target_keys
from vault_lsp.core.model import (
    Definition,
    Finding,
    Found,
    Link,
    Note,
    NotePath,
    Resolution,
)
from vault_lsp.core.parse import parse
from vault_lsp.core.rules import HealthConfig
from vault_lsp.core.text import Place, Point, Text
from vault_lsp.core.tokens import query_terms
from vault_lsp.errors import NotFound, NotInMemory
from vault_lsp.ranking import POOL, Query, rank
from vault_lsp.search import About, SearchResult, answer
from vault_lsp.semantic import Meanings
from vault_lsp.store import notes
from vault_lsp.store.notes import Backlink
from vault_lsp.symbols import TOP, Symbol, SymbolTable, find_symbols

#: Rules of links that lead nowhere, or not all the way.
_BROKEN = frozenset({"broken-link", "readme-link", "broken-heading", "broken-block"})


#: Channels of a search that find a note also if it shares no word with the query.
_ONLY_MEANT = frozenset({"vector", "indegree"})

#: So many of these a query is shown while it is typed.
_NEAR = 20

#: Statements of SQLite between two looks at whether the caller still wants the answer.
STEPS = 20_000

#: Notes whose anchors are kept between questions.
_MOST_ANCHORS = 5_000


class Location(NamedTuple):
    """A place in a file of the vault."""

    path: NotePath
    place: Place


class Target(NamedTuple):
    """Where a definition leads: `origin` is what stands under the cursor."""

    path: NotePath
    place: Place
    origin: Place


class Resolved(NamedTuple):
    """A link of a note with where it leads."""

    link: Link
    resolution: Resolution


class _Placed(Protocol):
    @property
    def place(self) -> Place: ...


_Item = TypeVar("_Item", bound=_Placed)


class _Wanted(NamedTuple):
    """What references are asked for: a file, or one anchor inside it."""

    path: NotePath
    anchor: Place | None
    declaration: Place


class _SupersededError(Exception):
    """A newer question has come, and the answer to this one needs no more."""


class View:
    """One consistent look at a vault. Not for use by two threads at once."""

    def __init__(
        self,
        connection: apsw.Connection,
        names: Names,
        anchors: dict[NotePath, Anchors | None],
        table: SymbolTable,
        text: Callable[[NotePath], Text | None],
        overlay: Mapping[NotePath, Note],
        config: Config,
        cancelled: Callable[[], None],
        meanings: Meanings | None,
    ) -> None:
        self.connection = connection
        self.config = config
        self._overlay = overlay
        self._table = table
        self._text = text
        self._cancelled = cancelled
        self._meanings = meanings
        self.names = (
            names.with_overlay({path: tuple(alias.name for alias in note.aliases) for path, note in overlay.items()})
            if overlay
            else names
        )
        self._anchors = anchors  # of indexed notes: shared by all views of this state of the index
        self._own_anchors: dict[NotePath, Anchors] = {}
        self._parsed: dict[NotePath, Note | None] = {}

    # Notes ----------------------------------------------------------------------------------------------------------

    def note(self, path: NotePath) -> Note | None:
        """What a note says: its open buffer, else what is indexed, else (while a first index runs) its file.

        None for anything that is no note, and for a note that can't be read.
        """
        known = self._overlay.get(path) or notes.note(self.connection, path)
        return known if known is not None else self._unread(path)

    def saved(self, path: NotePath) -> Note | None:
        """What the index says of a note, whatever its open buffer says."""
        return notes.note(self.connection, path)

    def paths(self) -> tuple[NotePath, ...]:
        """Every note, of the index and of open buffers, in order."""
        return tuple(sorted({*notes.known(self.connection), *self._overlay}))

    def for_rules(self) -> Iterator[Note]:
        """Every note with what rules look at, but its headings: for questions to the whole vault at once."""
        known = set()
        for note in notes.for_rules(self.connection):
            known.add(note.path)
            yield self._overlay.get(note.path, note)
        for path in self.paths():
            if path not in known and (unread := self.note(path)) is not None:
                yield unread

    def require(self, path: NotePath) -> Note:
        """The same, or NotFound."""
        found = self.note(path)
        if found is None:
            known = notes.known_at(self.connection, path)
            reason = known.skipped if known is not None and known.skipped else "no such note in the vault"
            raise NotFound(f"{path}: {reason}")
        return found

    def anchors(self, path: NotePath) -> Anchors | None:
        """What can be linked inside a note; None for other files."""
        open_buffer = self._overlay.get(path)
        if open_buffer is not None:
            if path not in self._own_anchors:
                self._own_anchors[path] = Anchors.of(open_buffer)
            return self._own_anchors[path]
        if path not in self._anchors:
            known = notes.anchors(self.connection, path)
            if known is None and (unread := self._unread(path)) is not None:
                known = Anchors.of(unread)
            if len(self._anchors) >= _MOST_ANCHORS:
                self._anchors.clear()
            self._anchors[path] = known
            return known
        return self._anchors.get(path)

    def _unread(self, path: NotePath) -> Note | None:
        """The file of a note whose name is in the index already and whose content isn't yet."""
        if path not in self._parsed:
            known = notes.known_at(self.connection, path)
            waiting = known is not None and known.hash is None and known.skipped is None
            text = self._text(path) if waiting else None
            self._parsed[path] = None if text is None else parse(path, text)
        return self._parsed[path]

    def resolve(self, source: NotePath, link: Link) -> Resolution:
        """Where a link of a note leads."""
        return resolve(
            *(link.kind, link.path, link.subpath, source, self.names, self.anchors),
            aliases=self.config.links.resolve_aliases,
        )

    def links(self, path: NotePath) -> tuple[Resolved, ...]:
        """The links of a note, in its order."""
        return tuple(Resolved(link, self.resolve(path, link)) for link in self.require(path).links)

    def findings(self, path: NotePath, config: HealthConfig | None = None) -> tuple[Finding, ...]:
        """What is wrong with a note, by the vault's config or another; the same list on every surface."""
        note = self.note(path)
        if note is None:
            return ()
        return health.findings(note, self, config or self.config.health)

    def problem(self, path: NotePath, link: Link) -> str | None:
        """The rule that a link of a note breaks by leading nowhere, whatever the config silences; None for a sound one.

        The same function as for findings decides, so a template's placeholder or a comment is no problem here either.
        """
        alone = Note(path, "", TOP, links=(link,))
        found = link_rules.link_findings(alone, self)
        return next((finding.rule for finding in found if finding.rule in _BROKEN), None)

    def skipped(self) -> dict[NotePath, str]:
        """What could not be indexed, each with the reason."""
        return notes.skipped(self.connection)

    def misread(self) -> dict[NotePath, str]:
        """Notes with bytes that had to be replaced, with how many."""
        return notes.misread(self.connection)

    # Where things are -----------------------------------------------------------------------------------------------

    def definition(self, path: NotePath, point: Point) -> tuple[Target, ...]:
        """Where the link or the reference mark under the cursor leads; empty where there is none or it is broken.

        A label's definition leads to its destination, a footnote's to the first mark in the text.
        """
        note = self.note(path)
        if note is None:
            return ()
        link = _at(note.links, point)
        if link is not None:
            resolution = self.resolve(path, link)
            if isinstance(resolution, Found):
                return (Target(resolution.path, resolution.anchor or TOP, link.place),)
            return ()
        use = _at(note.label_uses, point)
        if use is not None:
            return tuple(Target(path, d.place, use.place) for d in note.definitions if d.label == use.label)[:1]
        defined = _at(note.definitions, point)
        if defined is None:
            return ()
        if defined.label.startswith("^"):
            if not defined.label_place.holds(point):
                return ()
            uses = (use.place for use in note.label_uses if use.label == defined.label)
            return tuple(Target(path, place, defined.label_place) for place in uses)[:1]
        return self._destination(path, defined)

    def references(self, path: NotePath, point: Point, *, declaration: bool) -> tuple[Location, ...]:
        """Every place that means what stands under the cursor: a link's target, a heading, a block, a tag, a label."""
        note = self.note(path)
        if note is None:
            return ()
        link = _at(note.links, point)
        if link is not None:
            resolution = self.resolve(path, link)
            if not isinstance(resolution, Found):
                return self._same_broken(path, link)
            return self._references(_Wanted(resolution.path, resolution.anchor, resolution.anchor or TOP), declaration)
        label = _at(note.label_uses, point) or _definition_at(note, point)
        if label is not None:
            uses = [Location(path, use.place) for use in note.label_uses if use.label == label.label]
            declared = [Location(path, d.place) for d in note.definitions if d.label == label.label]
            return tuple([*declared, *uses] if declaration else uses)
        tag = _at(note.tags, point)
        if tag is not None:
            return tuple(self._tagged(name_key(tag.name)))
        block = _at(note.blocks, point)
        if block is not None:
            return self._references(_Wanted(path, block.place, block.place), declaration)
        if note.title_place != TOP and note.title_place.holds(point):
            # The title stands for the whole note.
            return self._references(_Wanted(path, None, note.title_place), declaration)
        heading = _at(note.headings, point)
        if heading is not None:
            return self._references(_Wanted(path, heading.place, heading.place), declaration)
        return ()

    def backlinks(self, path: NotePath) -> tuple[Backlink, ...]:
        """The links of other notes that lead to a note or file, by source and place."""
        found = [link for link in self._links_to(path) if link.source != path]
        return tuple(sorted(found, key=lambda backlink: (backlink.source, backlink.link.place)))

    def lost_links(self, path: NotePath) -> tuple[Backlink, ...]:
        """The links that would lead to a file that is gone, and lead nowhere now."""
        lost = (each for each in self._candidates(target_keys(path, ())) if not self._leads(each))
        return tuple(sorted(lost, key=lambda each: (each.source, each.link.place)))

    def indegree(self, path: NotePath) -> int:
        """How many other notes link to a note."""
        return len({link.source for link in self._links_to(path) if link.source != path})

    def indegrees(self, paths: Sequence[NotePath]) -> list[int]:
        """The same for several notes at once: where nothing else has a note's name, its links need no resolving."""
        plain = (
            [path for path in paths if self._is_alone(path) and path not in self._overlay] if not self._overlay else []
        )
        aliased = notes.with_aliases(self.connection, plain)
        counted = [path for path in plain if path not in aliased]
        keys = [target_keys(path) for path in counted]
        counts = dict(zip(counted, notes.sources_by_keys(self.connection, keys, counted), strict=True))
        return [counts[path] if path in counts else self.indegree(path) for path in paths]

    def popularity(self, paths: Sequence[NotePath]) -> list[int]:
        """About how many notes link to each of the paths, for ranking: links are counted by name and not resolved.

        Of notes that share a name only those links count that name a folder as well; aliases don't.
        """
        keys = []
        for path in paths:
            found = target_keys(path)
            keys.append(found if self._is_alone(path) else [key for key in found if "/" in key])
        return notes.sources_by_keys(self.connection, keys, paths)

    def _is_alone(self, path: NotePath) -> bool:
        """Whether no other file can be meant by a note's name, with or without its extension."""
        key = name_key(path.rpartition("/")[2])
        return self.names.files_named(key) == (path,) and not self.names.files_named(key.removesuffix(".md"))

    # Search ---------------------------------------------------------------------------------------------------------

    def search(self, query: Query, *, patient: bool = True) -> SearchResult:
        """Hybrid search over what is indexed; open buffers take no part.

        Whoever isn't `patient` gets an answer without vectors while the model is being loaded.
        """
        if self._meanings is None:
            raise NotInMemory(query.text)
        meaning = self._meanings.meaning(self.connection, query, self._cancelled, patient=patient)
        reread = self._meanings.reread(query, self._cancelled)
        about = About(self._text, self.indegrees, self.popularity)
        return answer(self.connection, query, self.config, about, meaning, reread)

    def symbols(self, query: str, limit: int, superseded: Callable[[], bool] = lambda: False) -> tuple[Symbol, ...]:
        """Notes, aliases and headings by name, and notes by what they say and mean; best first.

        Without a query: the notes last changed. Names alone will do once the question is `superseded` by another.
        """

        def texts() -> list[tuple[int, int | None]]:
            return self._texts(query, min(limit, POOL), superseded)

        return find_symbols(self.connection, self._table, query, limit, self._overlay, texts)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _texts(self, text: str, limit: int, superseded: Callable[[], bool]) -> list[tuple[int, int | None]]:
        """The best documents for a query that is being typed, each with its best chunk; nothing waits for a model."""
        if self._meanings is None:
            raise NotInMemory(text)

        def check() -> None:
            self._cancelled()
            if superseded():
                raise _SupersededError

        query = Query(text, limit, mode="hybrid" if _means_something(text) else "keyword")
        self.connection.set_progress_handler(superseded, STEPS, id=_SupersededError)
        try:
            check()
            nearest = self._meanings.meaning(self.connection, query, check, patient=False).nearest
            check()
            ranking = rank(self.connection, query, query_terms(text), self.config.search, self.popularity, nearest)
        except (apsw.InterruptError, _SupersededError):
            self._cancelled()
            return []
        finally:
            self.connection.set_progress_handler(None, id=_SupersededError)
        # Every note is near to everything somehow: of those that share no word with the query only the nearest count.
        found = [
            item.document
            for item in ranking.fused
            if not item.channels.keys() <= _ONLY_MEANT or item.channels["vector"].rank <= _NEAR
        ]
        return [(document, ranking.chunks.get(document)) for document in found[:limit]]

    def _destination(self, path: NotePath, defined: Definition) -> tuple[Target, ...]:
        """Where `[label]: destination` leads, also if nothing uses the label."""
        if is_external(defined.target):
            return ()
        file, subpath = split_destination(defined.target)
        resolution = resolve("reference", file, subpath, path, self.names, self.anchors)
        if not isinstance(resolution, Found):
            return ()
        return (Target(resolution.path, resolution.anchor or TOP, defined.place),)

    def _references(self, wanted: _Wanted, declaration: bool) -> tuple[Location, ...]:  # noqa: FBT001 - as in LSP
        found = []
        title = self._title_anchor(wanted)
        for source, link in self._links_to(wanted.path):
            if wanted.anchor is None or title:
                # A fragment alone means its own heading, not the note that it stands in.
                if source == wanted.path and not link.path and not (title and self._leads_to(source, link, title)):
                    continue
            elif not self._leads_to(source, link, wanted.anchor):
                continue
            found.append(Location(source, link.place))
        found.sort()
        return tuple([Location(wanted.path, wanted.declaration), *found] if declaration else found)

    def _title_anchor(self, wanted: _Wanted) -> Place | None:
        """The title heading, when that is what is wanted: by the first heading of level one."""
        if wanted.anchor is not None:
            return None
        note = self.note(wanted.path)
        if note is None:
            return None
        return next((h.place for h in note.headings if h.place == note.title_place), None)

    def _leads_to(self, source: NotePath, link: Link, anchor: Place) -> bool:
        if not link.subpath:
            return False
        resolution = self.resolve(source, link)
        return isinstance(resolution, Found) and resolution.anchor == anchor

    def _links_to(self, path: NotePath) -> Iterator[Backlink]:
        """Every link that leads to a file, of open buffers too: a look-up by key, then each is resolved."""
        note = self._overlay.get(path)
        aliases = (
            tuple(alias.name for alias in note.aliases) if note is not None else notes.aliases(self.connection, path)
        )
        keys = target_keys(path, aliases)
        for candidate in self._candidates(keys):
            self._cancelled()
            resolution = self.resolve(candidate.source, candidate.link._replace(subpath=""))
            if isinstance(resolution, Found) and resolution.path == path:
                yield candidate

    def _leads(self, each: Backlink) -> bool:
        return isinstance(self.resolve(each.source, each.link), Found)

    def _candidates(self, keys: tuple[str, ...]) -> Iterator[Backlink]:
        for backlink in notes.links_with_keys(self.connection, keys):
            if backlink.source not in self._overlay:
                yield backlink
        wanted = set(keys)
        for source, note in self._overlay.items():
            for link in note.links:
                if link_key(link.path, source) in wanted:
                    yield Backlink(source, link)

    def _same_broken(self, source: NotePath, link: Link) -> tuple[Location, ...]:
        """All links to the same name that leads nowhere yet."""
        key = link_key(link.path, source)
        if key is None:
            return (Location(source, link.place),)
        return tuple(
            sorted(
                Location(other.source, other.link.place) for other in self._candidates((key,)) if not self._leads(other)
            )
        )

    def _tagged(self, key: str) -> list[Location]:
        found = [
            Location(path, place) for path, place in notes.tag_places(self.connection, key) if path not in self._overlay
        ]
        found += [
            Location(path, tag.place)
            for path, note in self._overlay.items()
            for tag in note.tags
            if name_key(tag.name) == key
        ]
        return sorted(found)


def _at(items: Iterable[_Item], point: Point) -> _Item | None:
    """The innermost item under a cursor; one that the cursor only touches at its end counts where no other holds it."""
    touched = [item for item in items if item.place.holds(point)]
    inside = [item for item in touched if point[:2] < item.place.end[:2]] or touched
    return max(inside, key=lambda item: item.place.start, default=None)


def _definition_at(note: Note, point: Point) -> Definition | None:
    return _at(note.definitions, point)


def _means_something(text: str) -> bool:
    """Whether what was typed is enough to have a meaning: the first letters of a word have none."""
    letters = [letter for letter in text if letter.isalnum()]
    return len(letters) >= (3 if text.isascii() else 2)
