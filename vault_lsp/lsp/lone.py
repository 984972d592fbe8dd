"""A note without a vault: a file outside every folder, or a buffer that was never saved.

It answers from itself alone. What its links to other files lead to is unknown, so nothing is said about them.
"""

from __future__ import annotations

from collections.abc import Iterable

from vault_lsp.core import health
from vault_lsp.core.links import Anchors, Names, resolve
from vault_lsp.core.model import Finding, Found, Link, Missing, Note, NotePath, Resolution
from vault_lsp.core.parse import parse
from vault_lsp.core.rules import HealthConfig
from vault_lsp.core.text import Place, Point, Text
from vault_lsp.symbols import Symbol
from vault_lsp.view import Location, Resolved, Target

_TOP = Place(Point(0, 0, 0, 0), Point(0, 0, 0, 0))
_NO_NAMES = Names.of((), (), ())
_BETWEEN_FILES = frozenset({"broken-link", "readme-link", "ambiguous-link", "alias-link"})


def parse_lone(path: NotePath, source: str) -> Note:
    """What a text says as a note of its own."""
    return parse(path, Text(source), ())


class LoneView:
    """The answers of `View` for one note."""

    def __init__(self, note: Note) -> None:
        self.path = note.path
        self._note = note
        self._anchors = Anchors.of(note)
        self.names = _NO_NAMES

    def paths(self) -> tuple[NotePath, ...]:
        """The note alone."""
        return (self.path,)

    def note(self, _path: NotePath) -> Note:
        """The note itself."""
        return self._note

    def saved(self, _path: NotePath) -> Note:
        """The note itself: nothing that was saved is known."""
        return self._note

    def links(self, _path: NotePath) -> tuple[Resolved, ...]:
        """The note's links into itself."""
        found = [Resolved(link, self.resolve(self.path, link)) for link in self._note.links]
        return tuple(each for each in found if isinstance(each.resolution, Found))

    def symbols(self, _query: str, _limit: int, _superseded: object = None) -> tuple[Symbol, ...]:
        """Nothing: what belongs to no vault is found in no vault."""
        return ()

    def definition(self, _path: NotePath, point: Point) -> tuple[Target, ...]:
        """The heading or block that a link into the note itself leads to, or the definition of a reference mark."""
        for link in self._note.links:
            if link.place.holds(point) and isinstance(found := self.resolve(self.path, link), Found):
                return (Target(self.path, found.anchor or _TOP, link.place),)
        for use in self._note.label_uses:
            if use.place.holds(point):
                return tuple(
                    Target(self.path, each.place, use.place)
                    for each in self._note.definitions
                    if each.label == use.label
                )[:1]
        return ()

    def references(self, _path: NotePath, point: Point, *, declaration: bool) -> tuple[Location, ...]:
        """The note's links to the heading or block under the cursor, or to the one that the link there leads to."""
        targets = [block.place for block in self._note.blocks if block.place.holds(point)]
        targets += [heading.place for heading in self._note.headings if heading.place.holds(point)]
        targets += [target.place for target in self.definition(self.path, point)]
        if not targets:
            return ()
        uses = [
            link.place
            for link in self._note.links
            if isinstance(found := self.resolve(self.path, link), Found) and found.anchor == targets[0]
        ]
        return tuple(Location(self.path, place) for place in ([targets[0], *uses] if declaration else uses))

    def findings(self, path: NotePath) -> tuple[Finding, ...]:
        """What is wrong within the note."""
        found: Iterable[Finding] = health.findings(self._note, self, HealthConfig())
        return tuple(each for each in found if each.rule not in _BETWEEN_FILES and each.path == path)

    def anchors(self, path: NotePath) -> Anchors | None:
        """What can be linked inside the note."""
        return self._anchors if path == self.path else None

    def resolve(self, _source: NotePath, link: Link) -> Resolution:
        """Where a link leads: into the note itself, or it isn't known."""
        if link.path:
            return Missing()
        return resolve(link.kind, "", link.subpath, self.path, _NO_NAMES, self.anchors)
