"""Rules of what a note links to: files, headings, blocks, labels."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from vault_lsp.core.links import Anchors, HeadingAnchor, heading_key
from vault_lsp.core.model import Finding, Found, Link, Missing, Note, Related, Severity
from vault_lsp.core.rules import PLACEHOLDER, TOP, Catalogue, finding, is_readme
from vault_lsp.core.text import Place

#: An address or a drive, but not a title with a colon.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|(?:mailto|tel):|[a-z]:[\\/]", re.IGNORECASE)
#: `[//]: # (a comment)`: a customary way to hide a line.
_COMMENT_TARGETS = frozenset({"", "#", "<>"})
_HEADINGS_SHOWN = 3
_HEADINGS_RELATED = 8


def link_findings(note: Note, catalogue: Catalogue) -> Iterator[Finding]:
    """Links that lead nowhere, not all the way, or to several files."""
    for link in note.links:
        if link.comment or PLACEHOLDER.search(link.path + link.subpath):
            continue
        resolution = catalogue.resolve(note.path, link)
        if isinstance(resolution, Missing):
            yield from _missing_file(note, link, resolution)
            continue
        if resolution.others:
            yield _ambiguous(note, link, resolution)
        if resolution.alias:
            yield _alias(note, link, resolution)
        if resolution.missing == "heading":
            yield _missing_heading(note, link, resolution, catalogue.anchors(resolution.path))
        elif resolution.missing == "block":
            block = link.subpath.rpartition("^")[2]
            message = f"No block “^{block}” in {_file(note, resolution)}"
            yield finding(note.path, "broken-block", _subpath_place(link), message, subject=link.target)


def _missing_file(note: Note, link: Link, missing: Missing) -> Iterator[Finding]:
    if link.kind != "wikilink" and link.path.startswith("//"):
        return  # an address that leaves the scheme to the browser
    rule = "readme-link" if is_readme(note.path) else "broken-link"

    def tell(message: str) -> Finding:
        return finding(note.path, rule, _target_place(link), message, subject=link.path)

    if _ADDRESS.match(link.path.strip()):
        message = f"“{link.path}” is an address, not a note: write [text]({link.path})"
        yield tell(message)._replace(severity=Severity.HINT)
    elif missing.reason == "outside":
        yield tell(f"“{link.path}” lies outside the vault")
    elif "\\" in link.path:
        yield tell(f"No file “{link.path}”: folders are parted by “/”")
    else:
        yield tell(f"No file “{link.path}” in the vault")


def _ambiguous(note: Note, link: Link, found: Found) -> Finding:
    paths = (found.path, *found.others)
    named = ", ".join(paths[:4]) + (", …" if len(paths) > 4 else "")
    message = f"“{link.path}” could be any of {len(paths)} files, the first is taken: {named}"
    related = (Related(path, TOP, f"“{link.path}” could be this file") for path in paths)
    return finding(note.path, "ambiguous-link", _target_place(link), message, related, subject=link.path)


def _alias(note: Note, link: Link, found: Found) -> Finding:
    name = re.sub(r"\.md\Z", "", found.path.rpartition("/")[2], flags=re.IGNORECASE)
    written = f"{'!' if link.embed else ''}[[{name}{link.subpath}|{link.display or link.path.strip()}]]"
    message = f"“{link.path}” is only an alias of {found.path}: write {written}"
    told = finding(note.path, "alias-link", _target_place(link), message, subject=link.path)
    return told._replace(fixable=not found.others)


def _missing_heading(note: Note, link: Link, found: Found, anchors: Anchors | None) -> Finding:
    wanted = link.subpath.lstrip("#")
    last = next((segment for segment in reversed(wanted.split("#")) if segment.strip()), "")
    message = f"No heading “{wanted}” in {_file(note, found)}"
    near = _nearest(last, anchors.headings) if anchors else []
    if near:
        message += "; it has " + ", ".join(f"“{heading.text}”" for heading in near[:_HEADINGS_SHOWN])
        message += ", …" if anchors and len(anchors.headings) > _HEADINGS_SHOWN else ""
    elif anchors:
        message += ", which has no headings"
    related = (Related(found.path, heading.place, heading.text) for heading in near)
    return finding(note.path, "broken-heading", _subpath_place(link), message, related, subject=link.target)


def _nearest(wanted: str, headings: Iterable[HeadingAnchor]) -> list[HeadingAnchor]:
    """Headings that look most like the wanted one, then the first ones of the note."""
    by_key: dict[str, HeadingAnchor] = {}
    for heading in headings:
        if heading.text.strip():
            by_key.setdefault(heading.key[:80], heading)
    # The comparison is costly; a note with more headings than this is a list of something.
    known = list(by_key)[:500]
    close = difflib.get_close_matches(heading_key(wanted)[:80], known, n=_HEADINGS_RELATED, cutoff=0.5)
    order = dict.fromkeys((*close, *known[:_HEADINGS_RELATED]))
    return [by_key[key] for key in order][:_HEADINGS_RELATED]


def reference_findings(note: Note) -> Iterator[Finding]:
    """Labels without a definition, defined twice, or never used."""
    for use in note.label_uses:
        if not use.defined and not use.label.startswith("^") and not PLACEHOLDER.search(use.label):
            message = f"“[{use.label}]” has no definition"
            yield finding(note.path, "broken-reference", use.place, message, subject=use.label)
    used = {use.label for use in note.label_uses}
    for link in note.links:
        if link.kind == "wikilink":
            # To CommonMark `[[a]]` is the reference `[a]` in brackets, and some editors keep definitions for that.
            inside = link.target if link.display is None else f"{link.target}|{link.display}"
            used.update((_label(link.target), _label(inside)))
    first: dict[str, Place] = {}
    for definition in note.definitions:
        label = definition.label
        if label.startswith("^") or definition.target in _COMMENT_TARGETS:
            continue
        if label in first:
            message = f"“[{label}]” is defined on line {first[label].start.line + 1} already, and that one counts"
            related = [Related(note.path, first[label], "the definition that counts")]
            yield finding(note.path, "duplicate-definition", definition.label_place, message, related, subject=label)
            continue
        first[label] = definition.label_place
        if label not in used:
            message = f"“[{label}]” is never used"
            yield finding(note.path, "unused-definition", definition.place, message, subject=label)


def block_findings(note: Note) -> Iterator[Finding]:
    """Block ids that occur again."""
    first: dict[str, Place] = {}
    for block in note.blocks:
        place = first.setdefault(block.id.lower(), block.place)
        if place is not block.place:
            message = f"“^{block.id}” is on line {place.start.line + 1} already, and links go there"
            related = [Related(note.path, place, "the block that links go to")]
            yield finding(note.path, "duplicate-block", block.place, message, related, subject=block.id)


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


def _target_place(link: Link) -> Place:
    return link.target_place if link.kind in {"markdown", "reference"} else link.place


def _subpath_place(link: Link) -> Place:
    return link.subpath_place if link.kind == "markdown" else _target_place(link)


def _file(note: Note, found: Found) -> str:
    return "this note" if found.path == note.path else found.path
