"""What is wrong with a note: one list of findings for the editor, the command line and every other surface."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from vault_lsp.core.globs import matches_any
from vault_lsp.core.links import Anchors, HeadingAnchor, heading_key
from vault_lsp.core.model import Finding, Found, Link, Missing, Note, NotePath, Related, Resolution, Severity
from vault_lsp.core.text import Place, Point


class Rule(NamedTuple):
    """A kind of finding: how much it matters where the config says nothing, and what it means."""

    severity: Severity
    description: str


#: Every rule by the name that findings, config and command line use.
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "broken-link": Rule(Severity.ERROR, "a link to a file that doesn't exist"),
        "readme-link": Rule(Severity.ERROR, "a README's link to a file that doesn't exist"),
        "broken-heading": Rule(Severity.WARNING, "a link to a heading that its file doesn't have"),
        "broken-block": Rule(Severity.WARNING, "a link to a block that its file doesn't have"),
        "ambiguous-link": Rule(Severity.INFORMATION, "a link that could mean several files"),
        "alias-link": Rule(Severity.INFORMATION, "a link that resolves only through an alias"),
        "broken-reference": Rule(Severity.WARNING, "a reference to a label that isn't defined"),
        "duplicate-definition": Rule(Severity.WARNING, "a label that is defined again"),
        "unused-definition": Rule(Severity.HINT, "a label that is defined and never used"),
        "duplicate-block": Rule(Severity.WARNING, "a block id that occurs again in the same note"),
        "invalid-frontmatter": Rule(Severity.WARNING, "front matter that can't be read"),
        "invalid-encoding": Rule(Severity.WARNING, "bytes that aren't text and were replaced"),
        "unreadable-markdown": Rule(Severity.WARNING, "Markdown that the parser gave up on"),
        "legacy-property": Rule(Severity.INFORMATION, "a property that Obsidian no longer reads"),
    }
)


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """What a vault wants to hear.

    `rules` replaces the severity of a rule, `exempt` has the globs of notes that a rule leaves alone, and `ignore_key`
    is the front-matter key under which a note lists the rules that don't concern it (`true`: none does).
    """

    rules: Mapping[str, Severity] = field(default_factory=dict)
    exempt: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignore_key: str = "vault-lsp-ignore"


_TOP = Place(Point(0, 0, 0, 0), Point(0, 0, 0, 0))
_README = re.compile(r"readme(?:[._-].*)?\.md", re.IGNORECASE)
#: What a template engine fills in later: Obsidian's own `{{…}}` and Templater's `<% … %>`.
_PLACEHOLDER = re.compile(r"\{\{|<%")
#: An address or a drive, but not a title with a colon.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|(?:mailto|tel):|[a-z]:[\\/]", re.IGNORECASE)
#: `[//]: # (a comment)`: a customary way to hide a line.
_COMMENT_TARGETS = frozenset({"", "#", "<>"})
_HEADINGS_SHOWN = 3
_HEADINGS_RELATED = 8


def findings(
    note: Note,
    resolve_link: Callable[[Link], Resolution],
    config: HealthConfig,
    anchors: Callable[[NotePath], Anchors | None] = lambda _: None,
) -> tuple[Finding, ...]:
    """All findings of the note in the order of the text, as the config wants them.

    `anchors` gives the headings that a wrong heading is compared with.
    """
    off = _silent(note, config)
    found = (
        *_link_findings(note, resolve_link, anchors),
        *_reference_findings(note),
        *_block_findings(note),
        *_parse_findings(note),
    )
    kept = (_weighed(finding, config) for finding in found if finding.rule not in off)
    return tuple(
        sorted(
            (finding for finding in kept if finding.severity is not Severity.OFF),
            key=lambda finding: (finding.place, finding.rule, finding.message),
        )
    )


def _silent(note: Note, config: HealthConfig) -> set[str]:
    """Names of the rules that the note's path or front matter switches off."""
    off = {rule for rule, globs in config.exempt.items() if matches_any(globs, note.path)}
    ignored = (note.frontmatter or {}).get(config.ignore_key)
    if ignored is True:
        off.update(RULES)
    elif isinstance(ignored, str):
        off.add(ignored)
    elif isinstance(ignored, list | tuple):
        off.update(rule for rule in ignored if isinstance(rule, str))
    return off


def _weighed(finding: Finding, config: HealthConfig) -> Finding:
    """Give the config's severity; a finding that a rule itself made lighter stays so unless it is off."""
    wanted = config.rules.get(finding.rule, finding.severity)
    if wanted is not Severity.OFF and finding.severity is not _severity(finding.rule):
        return finding
    return finding._replace(severity=wanted)


def _severity(rule: str) -> Severity:
    return RULES[rule].severity if rule in RULES else Severity.WARNING


def _finding(note: Note, rule: str, place: Place, message: str, related: Iterable[Related] = ()) -> Finding:
    return Finding(rule, _severity(rule), note.path, place, message, tuple(related))


def _link_findings(
    note: Note, resolve_link: Callable[[Link], Resolution], anchors: Callable[[NotePath], Anchors | None]
) -> Iterator[Finding]:
    for link in note.links:
        if link.comment or _PLACEHOLDER.search(link.path + link.subpath):
            continue
        resolution = resolve_link(link)
        if isinstance(resolution, Missing):
            yield from _missing_file(note, link, resolution)
            continue
        if resolution.others:
            yield _ambiguous(note, link, resolution)
        if resolution.alias:
            yield _alias(note, link, resolution)
        if resolution.missing == "heading":
            yield _missing_heading(note, link, resolution, anchors(resolution.path))
        elif resolution.missing == "block":
            block = link.subpath.rpartition("^")[2]
            message = f"No block “^{block}” in {_file(note, resolution)}"
            yield _finding(note, "broken-block", _subpath_place(link), message)


def _missing_file(note: Note, link: Link, missing: Missing) -> Iterator[Finding]:
    if link.kind != "wikilink" and link.path.startswith("//"):
        return  # an address that leaves the scheme to the browser
    rule = "readme-link" if _README.fullmatch(note.path.rpartition("/")[2]) else "broken-link"
    place = _target_place(link)
    if _ADDRESS.match(link.path.strip()):
        message = f"“{link.path}” is an address, not a note: write [text]({link.path})"
        yield _finding(note, rule, place, message)._replace(severity=Severity.HINT)
    elif missing.reason == "outside":
        yield _finding(note, rule, place, f"“{link.path}” lies outside the vault")
    elif "\\" in link.path:
        yield _finding(note, rule, place, f"No file “{link.path}”: folders are parted by “/”")
    else:
        yield _finding(note, rule, place, f"No file “{link.path}” in the vault")


def _ambiguous(note: Note, link: Link, found: Found) -> Finding:
    paths = (found.path, *found.others)
    named = ", ".join(paths[:4]) + (", …" if len(paths) > 4 else "")
    message = f"“{link.path}” could be any of {len(paths)} files, the first is taken: {named}"
    related = (Related(path, _TOP, f"“{link.path}” could be this file") for path in paths)
    return _finding(note, "ambiguous-link", _target_place(link), message, related)


def _alias(note: Note, link: Link, found: Found) -> Finding:
    name = re.sub(r"\.md\Z", "", found.path.rpartition("/")[2], flags=re.IGNORECASE)
    written = f"{'!' if link.embed else ''}[[{name}{link.subpath}|{link.display or link.path.strip()}]]"
    message = f"“{link.path}” is only an alias of {found.path}: write {written}"
    return _finding(note, "alias-link", _target_place(link), message)._replace(fixable=not found.others)


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
    return _finding(note, "broken-heading", _subpath_place(link), message, related)


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


def _reference_findings(note: Note) -> Iterator[Finding]:
    for use in note.label_uses:
        if not use.defined and not use.label.startswith("^") and not _PLACEHOLDER.search(use.label):
            yield _finding(note, "broken-reference", use.place, f"“[{use.label}]” has no definition")
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
            yield _finding(note, "duplicate-definition", definition.label_place, message, related)
            continue
        first[label] = definition.label_place
        if label not in used:
            yield _finding(note, "unused-definition", definition.place, f"“[{label}]” is never used")


def _block_findings(note: Note) -> Iterator[Finding]:
    first: dict[str, Place] = {}
    for block in note.blocks:
        place = first.setdefault(block.id.lower(), block.place)
        if place is not block.place:
            message = f"“^{block.id}” is on line {place.start.line + 1} already, and links go there"
            related = [Related(note.path, place, "the block that links go to")]
            yield _finding(note, "duplicate-block", block.place, message, related)


def _parse_findings(note: Note) -> Iterator[Finding]:
    for problem in note.problems:
        if problem.rule != "duplicate-block":  # told by `_block_findings`, with the place of the first one
            yield _finding(note, problem.rule, problem.place, problem.message)


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


def _target_place(link: Link) -> Place:
    return link.target_place if link.kind in {"markdown", "reference"} else link.place


def _subpath_place(link: Link) -> Place:
    return link.subpath_place if link.kind == "markdown" else _target_place(link)


def _file(note: Note, found: Found) -> str:
    return "this note" if found.path == note.path else found.path
