"""From a link to what it leads to: keys, the catalogue of names, and the one `resolve` of every surface.

The order is Obsidian's: the exact vault path, then what lies under the source's own folder, then the shortest path.
A link without its source means nothing, so nothing here is ever stored but the key of a link.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from vault_lsp.core.model import Anchor, Block, Found, Heading, LinkKind, Missing, Note, NotePath, Resolution
from vault_lsp.core.text import Place

#: Characters that a heading and a link to it need not share (Obsidian's `stripHeading`).
_HEADING_BLANKS = str.maketrans(dict.fromkeys('!"#$%&()*+,.:;<=>?@^`{|}~/[]\\\r\n', " "))
_NBSP = "\u00a0"


class HeadingAnchor(NamedTuple):
    """A heading as a link finds it: `key` is its `heading_key`, `slug` its lower-cased GitHub anchor."""

    level: int
    key: str
    slug: str
    text: str
    place: Place


class Anchors(NamedTuple):
    """All that can be linked inside one note; block ids and HTML anchor names are lower-cased, the first one wins."""

    headings: tuple[HeadingAnchor, ...] = ()
    blocks: Mapping[str, Place] = {}
    names: Mapping[str, Place] = {}

    @classmethod
    def of(cls, note: Note) -> Anchors:
        """Take the anchors of a parsed note."""
        return cls.build(note.headings, note.blocks, note.anchors)

    @classmethod
    def build(cls, headings: Iterable[Heading], blocks: Iterable[Block], anchors: Iterable[Anchor]) -> Anchors:
        """Take the anchors of a note of which only these parts are at hand, in the order of the text."""
        block_places: dict[str, Place] = {}
        for block in blocks:
            block_places.setdefault(block.id.lower(), block.place)
        name_places: dict[str, Place] = {}
        for anchor in anchors:
            name_places.setdefault(name_key(anchor.name), anchor.place)
        return cls(
            tuple(
                HeadingAnchor(
                    heading.level, heading_key(heading.raw), name_key(heading.slug), heading.text, heading.place
                )
                for heading in headings
                if heading.linkable
            ),
            block_places,
            name_places,
        )


class Names:
    """The catalogue of what exists in the vault, and under which aliases. Never changes; an overlay makes a new one."""

    __slots__ = ("_aliases", "_base", "_files", "_folders", "_replaced")

    def __init__(
        self,
        files: _Paths,
        folders: _Paths,
        aliases: Mapping[str, tuple[NotePath, ...]],
        base: Names | None = None,
        replaced: frozenset[NotePath] = frozenset(),
    ) -> None:
        """Use `Names.of`. Names with a `base` lie on top of it; its aliases of `replaced` paths don't count."""
        self._files = files
        self._folders = folders
        self._aliases = aliases
        self._base = base
        self._replaced = replaced

    @classmethod
    def of(
        cls, files: Iterable[NotePath], folders: Iterable[NotePath], aliases: Iterable[tuple[str, NotePath]]
    ) -> Names:
        """Build the catalogue; the files are all that may be linked: notes, attachments, anything."""
        return cls(_Paths.of(files), _Paths.of(folders), _by_alias(aliases))

    def with_overlay(self, notes: Mapping[NotePath, tuple[str, ...]]) -> Names:
        """Lay open buffers on top: path → aliases, in place of the known ones and of an earlier overlay.

        A path may be new, that is, not on disk yet. Costs time for the overlay alone.
        """
        base = self._base or self
        new = (path for path in notes if not base.has_file(path))
        aliases = ((alias, path) for path, names in notes.items() for alias in names)
        return Names(_Paths.of(new), _Paths.of(()), _by_alias(aliases), base, frozenset(notes))

    def has_file(self, path: NotePath) -> bool:
        """Whether exactly this file exists, bytes and case included."""
        return path in self.files_at(name_key(path))

    def files_named(self, key: str) -> tuple[NotePath, ...]:
        """Every file whose name, extension included, has this `name_key`, wherever it lies."""
        return tuple(path for known in self.files_ending(key) for path in self.files_at(known))

    def files_with_alias(self, key: str) -> tuple[NotePath, ...]:
        """Every note with an alias of this `name_key`."""
        own = self._aliases.get(key, ())
        if self._base is None:
            return own
        return (*own, *(path for path in self._base.files_with_alias(key) if path not in self._replaced))

    def files_at(self, key: str) -> tuple[NotePath, ...]:
        """Files whose whole path has this `name_key`; several differ in case or composition only."""
        own = self._files.exact.get(key, ())
        return own if self._base is None else (*self._base.files_at(key), *own)

    def folders_at(self, key: str) -> tuple[NotePath, ...]:
        """Folders whose whole path has this `name_key`."""
        return self._folders.exact.get(key, ()) if self._base is None else self._base.folders_at(key)

    def files_ending(self, key: str) -> Sequence[str]:
        """Keys of all files whose path is `key` or ends with `/` + `key`."""
        own = self._files.ending(key)
        if self._base is None:
            return own
        base = self._base
        return [*base.files_ending(key), *(known for known in own if not base.files_at(known))]

    def folders_ending(self, key: str) -> Sequence[str]:
        """Keys of all folders whose path is `key` or ends with `/` + `key`."""
        return self._folders.ending(key) if self._base is None else self._base.folders_ending(key)


def name_key(name: str) -> str:
    """Names and paths as they compare: NBSP → space, NFC, stripped, lower case (not case-folded: `ß` is no `ss`)."""
    if not name.isascii():
        name = _composed(name)
    return name.strip().lower()


def heading_key(text: str) -> str:
    """Headings as they compare with a link's heading part.

    Blind to case, to most ASCII punctuation and to runs of white space of any kind.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.translate(_HEADING_BLANKS).split()).lower()


def link_key(path: str, source: NotePath) -> str | None:
    """Key under which a link is stored; it depends on the link and its own source path alone.

    Absolute keys (of `./`, `../` and `/` links, and of links into the same note) begin with `/`, others are suffixes of
    a path. A final `.md` or `/` is dropped. None for a link that climbs out of the vault.
    """
    want = _wanted(path, source)
    if want is None:
        return None
    return "/" + _without_md(want.key) if want.absolute else _without_md(want.key)


def target_keys(path: NotePath, aliases: Iterable[str] = ()) -> tuple[str, ...]:
    """Every `link_key` that a link to this file or folder can have.

    A link with one of these keys need not lead here, but a link that leads here has one of them.
    """
    whole = name_key(path)
    keys: dict[str, None] = {}
    # A link may leave out one `.md`, and its key leaves out one more.
    for form in (_without_md(whole), _without_md(_without_md(whole))):
        keys["/" + form] = None
        suffix = form
        while suffix:
            keys[suffix] = None
            suffix = suffix.partition("/")[2]
    for alias in aliases:
        if key := name_key(alias):
            keys[_without_md(key if key == "/" else key.removesuffix("/"))] = None
    return tuple(keys)


def resolve(
    kind: LinkKind,
    path: str,
    subpath: str,
    source: NotePath,
    names: Names,
    anchors: Callable[[NotePath], Anchors | None],
    *,
    aliases: bool = True,
) -> Resolution:
    """Find what a link in the note `source` leads to.

    `anchors` gives None for a file that isn't a note or whose content isn't known: any subpath fits it. The vault's
    own root is the folder with the empty path.
    """
    want = _wanted(path, source)
    if want is None:
        return Missing("outside")
    if not path.strip():
        return _within(Found(source), kind, subpath, anchors)
    found = _find(want, path, source, names)
    if found is None and aliases and kind in {"wikilink", "frontmatter"} and not want.relative:
        found = _find_alias(name_key(path), source, names)
    return Missing() if found is None else _within(found, kind, subpath, anchors)


class _Paths(NamedTuple):
    """Paths by key.

    `exact` holds the paths of one key (they differ in case or composition only), `by_name` the keys by their last
    component.
    """

    exact: Mapping[str, tuple[NotePath, ...]]
    by_name: Mapping[str, list[str]]

    @classmethod
    def of(cls, paths: Iterable[NotePath]) -> _Paths:
        exact: dict[str, tuple[NotePath, ...]] = {}
        by_name: dict[str, list[str]] = {}
        for path in paths:
            key = name_key(path)
            twins = exact.get(key)
            if twins is None:
                exact[key] = (path,)
                name = key[key.rfind("/") + 1 :]
                alike = by_name.get(name)
                if alike is None:
                    by_name[name] = [key]
                else:
                    alike.append(key)
            elif path not in twins:
                exact[key] = (*twins, path)
        return cls(exact, by_name)

    def ending(self, key: str) -> Sequence[str]:
        found = self.by_name.get(key[key.rfind("/") + 1 :], ())
        if "/" not in key:
            return found
        tail = "/" + key
        return [known for known in found if known == key or known.endswith(tail)]


class _Wanted(NamedTuple):
    """What the path of a link asks for. An absolute key starts at the root, another may be the end of any path."""

    key: str
    absolute: bool = False
    relative: bool = False
    folder: bool = False


def _wanted(path: str, source: NotePath) -> _Wanted | None:
    """None for a path that climbs out of the vault."""
    key = name_key(path)
    if not key:
        return _Wanted(name_key(source), absolute=True, relative=True)
    folder = key.endswith("/")
    last = key.removesuffix("/").rpartition("/")[2]
    if key.startswith(("./", "../")) or key in {".", ".."}:
        joined = _join(name_key(source).split("/")[:-1], key.removesuffix("/"))
        if joined is None:
            return None
        return _Wanted(joined, absolute=True, relative=True, folder=folder or last in {".", ".."})
    if key.startswith("/"):
        return _Wanted(key[1:].removesuffix("/"), absolute=True, folder=folder)
    return _Wanted(key.removesuffix("/"), folder=folder)


def _join(folder: list[str], path: str) -> str | None:
    for part in path.split("/"):
        if part == "..":
            if not folder:
                return None
            folder.pop()
        elif part != ".":
            folder.append(part)
    return "/".join(folder)


def _find(want: _Wanted, path: str, source: NotePath, names: Names) -> Found | None:
    """Find the file or folder, without what is inside.

    Files go before folders, and a name as it stands before one + `.md`; but where it has no dot, the note goes before a
    file without extension.
    """
    key = want.key
    if want.absolute and not key:
        return Found(NotePath(""))
    if not want.folder:
        dotted = "." in key[key.rfind("/") + 1 :]
        for form in (key, key + ".md") if dotted else (key + ".md", key):
            found = _pick(form, names.files_at, None if want.absolute else names.files_ending, path, source)
            if found:
                return found
    return _pick(key, names.folders_at, None if want.absolute else names.folders_ending, path, source)


def _pick(
    key: str,
    at: Callable[[str], tuple[NotePath, ...]],
    ending: Callable[[str], Sequence[str]] | None,
    path: str,
    source: NotePath,
) -> Found | None:
    """Choose among the paths that are `key` or (given `ending`) end with it.

    The others are told only where nothing but the length of the path decided.
    """
    if at(key):
        return _spelled(at(key), path)
    keys = ending(key) if ending else ()
    if not keys:
        return None
    winner, *others = sorted(keys, key=lambda known: (len(known), known)) if len(keys) > 1 else keys
    if others and "/" in source:
        folder = name_key(source).rpartition("/")[0] + "/"
        own = next((known for known in (winner, *others) if known.startswith(folder)), None)
        if own is not None:
            winner, others = own, []
    best = _spelled(at(winner), path)
    return best._replace(others=(*best.others, *(path for known in others for path in at(known)))) if others else best


def _spelled(twins: tuple[NotePath, ...], path: str) -> Found:
    """Of paths that differ in case or composition only, the one spelled as in the link; without one they are equals."""
    if len(twins) == 1:
        return Found(twins[0])

    def misspelled(twin: NotePath) -> tuple[bool, bool, str]:
        return not _ends_as_written(twin, path), not _ends_as_written(_composed(twin), _composed(path)), twin

    best, second, *rest = sorted(twins, key=misspelled)
    if misspelled(best)[:2] != misspelled(second)[:2]:
        return Found(best)
    return Found(best, others=(second, *rest))


def _ends_as_written(twin: str, path: str) -> bool:
    written = path.strip().removesuffix("/")
    while written.startswith(("./", "../", "/")):
        written = written.partition("/")[2]
    return twin.endswith(written) or twin[: -len(".md")].endswith(written)


def _find_alias(key: str, source: NotePath, names: Names) -> Found | None:
    """Find the note with this alias: under the source's folder, then the shortest path, then by name.

    All others stay candidates, because an alias belongs to no place.
    """
    notes = names.files_with_alias(key)
    if len(notes) < 2:
        return Found(notes[0], alias=True) if notes else None
    folder = source.rpartition("/")[0]
    best, *others = sorted(notes, key=lambda path: (not (folder and path.startswith(folder + "/")), len(path), path))
    return Found(best, others=tuple(others), alias=True)


def _within(found: Found, kind: LinkKind, subpath: str, anchors: Callable[[NotePath], Anchors | None]) -> Found:
    """Add the place of the heading or block that `subpath` names."""
    segments = [segment for segment in subpath.split("#") if segment.strip() not in {"", "^"}]
    if not segments:
        return found
    inside = anchors(found.path)
    if inside is None:
        return found
    last = segments[-1].strip()
    if last.startswith("[^"):
        # A footnote: known to Obsidian's API, not to the index.
        return found
    if last.startswith("^"):
        block = inside.blocks.get(last[1:].lower())
        return found._replace(anchor=block) if block else found._replace(missing="block")
    place = _walk(inside.headings, segments)
    if place is None and kind in {"markdown", "reference"}:
        place = _fragment(inside, name_key(subpath[1:]))
    return found._replace(anchor=place) if place else found._replace(missing="heading")


def _walk(headings: tuple[HeadingAnchor, ...], segments: list[str]) -> Place | None:
    """Find the heading of the last segment, each after and deeper than the one before it."""
    keys = [heading_key(segment) for segment in segments]
    level = matched = 0
    for heading in headings:
        if heading.level > level and heading.key == keys[matched]:
            matched += 1
            level = heading.level
            if matched == len(keys):
                return heading.place
    return None


def _fragment(inside: Anchors, fragment: str) -> Place | None:
    """Find what a browser would jump to: a heading by its slug, else an HTML anchor."""
    for heading in inside.headings:
        if heading.slug == fragment:
            return heading.place
    return inside.names.get(fragment)


def _by_alias(aliases: Iterable[tuple[str, NotePath]]) -> dict[str, tuple[NotePath, ...]]:
    notes: dict[str, tuple[NotePath, ...]] = {}
    for alias, path in aliases:
        key = name_key(alias)
        known = notes.get(key, ())
        if key and path not in known:
            notes[key] = (*known, path)
    return notes


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text.replace(_NBSP, " "))


def _without_md(key: str) -> str:
    return key.removesuffix(".md")
