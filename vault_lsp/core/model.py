"""What one note says, as frozen values: no I/O, no SQL, no protocol.

Every item carries its `Place`, so that the same value serves the parser, an open buffer, the index and every surface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, NewType

from vault_lsp.core.text import Place

#: Vault-relative path with "/" separators, exactly as it stands on disk.
NotePath = NewType("NotePath", str)

LinkKind = Literal["wikilink", "markdown", "reference", "frontmatter"]


class Heading(NamedTuple):
    """A heading of the outline.

    `text` is what a reader sees, `raw` the source between the marks (links resolve against it), `slug` the GitHub
    anchor, unique within the note. `place` covers the heading's lines without the final line end. A heading inside a
    list or a quote has `linkable` False: it is in the outline but no link reaches it.
    """

    level: int
    text: str
    raw: str
    slug: str
    place: Place
    linkable: bool = True


class Tag(NamedTuple):
    """A tag without its `#`, as written. In the body `place` covers `#tag`, in the front matter the value."""

    name: str
    place: Place


class Alias(NamedTuple):
    """Another name of the note, from its front matter; `place` covers the value."""

    name: str
    place: Place


class Block(NamedTuple):
    """A block id without its `^`; `place` covers `^id`."""

    id: str
    place: Place


class Anchor(NamedTuple):
    """An HTML anchor that a fragment may name: `<a name>`, `id=` of any tag, `{#id}` after a heading."""

    name: str
    place: Place


class Link(NamedTuple):
    """A link of the note, of any kind, that points into the vault (no scheme).

    `target` is the text before the bar as written (of a reference link: the definition's destination). `path` and
    `subpath` are its parts ready to be resolved: unescaped and percent-decoded where the kind asks for it; `subpath`
    keeps its leading `#`, or is empty. `place` covers the whole link, `target_place` the target (without angle
    brackets), `subpath_place` the `#…` part, empty at the target's end where there is none. Of a reference link the
    latter two lie in the link text's label. A link in a `%% comment %%` is a link but raises no finding.
    """

    kind: LinkKind
    target: str
    path: str
    subpath: str
    display: str | None
    embed: bool
    place: Place
    target_place: Place
    subpath_place: Place
    comment: bool = False


class Definition(NamedTuple):
    """A link reference definition `[label]: destination`; `label` is normalised as CommonMark compares labels."""

    label: str
    target: str
    place: Place
    label_place: Place


class LabelUse(NamedTuple):
    """A use of a reference label: `[text][label]`, `[label][]`, `[label]`, or a footnote mark `[^x]` (label `^x`).

    `defined` is False for a full or collapsed reference that has no definition in the note; a lone `[label]` without
    a definition is plain text and no use.
    """

    label: str
    place: Place
    defined: bool = True


class Problem(NamedTuple):
    """Something wrong with the note itself, found while parsing. `rule` is the name of a health rule."""

    rule: str
    message: str
    place: Place


@dataclass(frozen=True, slots=True)
class Note:
    """All that the parser sees in one note. Depends on the path, the text and the parser version alone."""

    path: NotePath
    title: str
    title_place: Place
    aliases: tuple[Alias, ...] = ()
    tags: tuple[Tag, ...] = ()
    headings: tuple[Heading, ...] = ()
    links: tuple[Link, ...] = ()
    blocks: tuple[Block, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    definitions: tuple[Definition, ...] = ()
    label_uses: tuple[LabelUse, ...] = ()
    #: Every front-matter key with a JSON value.
    frontmatter: Mapping[str, object] | None = None
    problems: tuple[Problem, ...] = ()


class Stamp(NamedTuple):
    """What tells that a file is unchanged without reading it; times in nanoseconds."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class Chunk(NamedTuple):
    """A piece of a note that is searched and embedded as one.

    `heading_path` holds the texts of the headings above it, outermost first; lines are 0-based and inclusive. `sha`
    is the hex SHA-256 of what is embedded (`core.chunk.passage`), so that nothing is ever embedded twice. Pages are
    set for text layers only.
    """

    ordinal: int
    heading_path: tuple[str, ...]
    line_start: int
    line_end: int
    text: str
    sha: str
    page_start: int | None = None
    page_end: int | None = None


class Found(NamedTuple):
    """The link leads to the file or folder `path`.

    `anchor` is the place inside it, None for the file as a whole. `others` are further candidates where neither an
    exact path nor the own folder decided (the link is ambiguous). `alias` tells that only an alias matched.
    `missing` tells that the file is there but the heading or block is not.
    """

    path: NotePath
    anchor: Place | None = None
    others: tuple[NotePath, ...] = ()
    alias: bool = False
    missing: Literal["", "heading", "block"] = ""


class Missing(NamedTuple):
    """The link leads to nothing inside the vault."""

    reason: Literal["no-file", "outside"] = "no-file"


Resolution = Found | Missing


class Severity(StrEnum):
    """How much a finding matters; `off` silences its rule."""

    ERROR = "error"
    WARNING = "warning"
    INFORMATION = "information"
    HINT = "hint"
    OFF = "off"


class Related(NamedTuple):
    """Another place that explains a finding."""

    path: NotePath
    place: Place
    message: str


class Finding(NamedTuple):
    """One thing that is wrong, where, and what belongs to it. The same value on every surface."""

    rule: str
    severity: Severity
    path: NotePath
    place: Place
    message: str
    related: tuple[Related, ...] = ()
    fixable: bool = False
    #: What the finding is about, as written: a link, a label, a tag. It stays when lines move.
    subject: str = ""
