"""The rules by name, what a vault's config makes of them, and what a rule may ask."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from vault_lsp.core.globs import matches_any
from vault_lsp.core.links import Anchors, Names
from vault_lsp.core.model import Finding, Link, Note, NotePath, Related, Resolution, Severity
from vault_lsp.core.text import Place, Point

#: What a rule looks at: one note and the catalogue; the graph of all notes; the vault's own files.
Scope = Literal["note", "graph", "vault"]

#: What a folder can be to a vault: `health.roles` of the config.
ROLES = ("wiki", "clippings", "archive", "technical")

PROFILES = ("default", "governed")


class Rule(NamedTuple):
    """A kind of finding: how much it matters where the config says nothing, and what it means.

    A rule that is off by default has the severity `asked` once somebody wants it.
    """

    severity: Severity
    description: str
    scope: Scope = "note"
    asked: Severity = Severity.WARNING

    @property
    def weight(self) -> Severity:
        """Severity of the rule when it runs."""
        return self.asked if self.severity is Severity.OFF else self.severity


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
        "duplicate-alias": Rule(Severity.INFORMATION, "an alias that is a name or an alias of another note too"),
        "duplicate-name": Rule(Severity.INFORMATION, "a note whose file name another note has too"),
        "missing-frontmatter": Rule(Severity.OFF, "a note without front matter"),
        "missing-tags": Rule(Severity.OFF, "a note without a tag, or without one of the registered note types"),
        "missing-domain-tag": Rule(Severity.OFF, "a technical note without one of the registered domains"),
        "unregistered-tag": Rule(Severity.OFF, "a tag that the config doesn't list"),
        "wikilink-in-note": Rule(Severity.OFF, "a wikilink where the vault wants Markdown links"),
        "missing-file": Rule(
            Severity.OFF, "a file that the config expects and that isn't there", "vault", Severity.ERROR
        ),
        "isolated-note": Rule(Severity.INFORMATION, "a note without a link in or out", "graph"),
        "missing-backlink": Rule(Severity.INFORMATION, "a wiki note that never links back", "graph"),
        "weakly-connected": Rule(Severity.INFORMATION, "a note that hangs on the rest by a thread", "graph"),
        "duplicate-topic": Rule(Severity.INFORMATION, "two notes about the same thing", "graph"),
        "unsourced-clipping": Rule(Severity.INFORMATION, "a clipping that no wiki note cites", "graph"),
        "stale-archive": Rule(Severity.INFORMATION, "an archived note that nobody has touched for long", "graph"),
    }
)

#: What `profile: governed` turns on, beside what the config says itself.
_GOVERNED: Mapping[str, Severity] = {
    rule: RULES[rule].asked
    for rule in ("missing-frontmatter", "missing-tags", "missing-domain-tag", "unregistered-tag", "wikilink-in-note")
}
#: Notes that are written for a program or for a repository's visitors; a governed vault asks nothing of them.
_INSTRUCTIONS = ("README*", "AGENTS.md", "CLAUDE.md", "GEMINI.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE.md")


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """What a vault wants to hear.

    `rules` replaces the severity of a rule, `exempt` has the globs of notes that a rule leaves alone, and `ignore_key`
    is the front-matter key under which a note lists the rules that don't concern it (`true`: none does). `roles` has
    the globs of folders by what they are to the vault (ROLES). `duplicate_topic` is a cosine.
    """

    rules: Mapping[str, Severity] = field(default_factory=dict)
    exempt: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignore_key: str = "vault-lsp-ignore"
    profile: str = "default"
    graph_in_editor: bool = False
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    duplicate_topic: float = 0.92
    archive_after_days: int = 365
    note_type_tags: tuple[str, ...] = ()
    domain_tags: tuple[str, ...] = ()
    expected_files: tuple[str, ...] = ()
    #: `links.prefer` and `notes.templates` of the config, which rules need as well.
    prefer: Literal["wikilink", "markdown"] = "wikilink"
    templates: str = "templates/"

    def severity(self, rule: str) -> Severity:
        """How much a rule matters here; `off` where it doesn't run."""
        wanted = self.rules.get(rule)
        if wanted is not None:
            return wanted
        if rule == "missing-file" and self.expected_files:
            return RULES[rule].asked
        if rule == "wikilink-in-note" and self.prefer != "markdown":
            return RULES[rule].severity
        if self.profile == "governed" and rule in _GOVERNED:
            return _GOVERNED[rule]
        return RULES[rule].severity if rule in RULES else Severity.WARNING

    def exempts(self, rule: str, path: NotePath) -> bool:
        """Whether a rule leaves the note at a path alone."""
        return matches_any(self.exempt.get(rule, ()), path) or (
            rule in _GOVERNED
            and (self.is_template(path) or self.has_role(path, "clippings") or matches_any(_INSTRUCTIONS, path))
        )

    def has_role(self, path: NotePath, role: str) -> bool:
        """Whether a note lies in a folder of this role."""
        return matches_any(self.roles.get(role, ()), path)

    def is_template(self, path: NotePath) -> bool:
        """Whether a note is one to make others from."""
        folder = self.templates.strip("/").casefold()
        return bool(folder) and f"/{path}".casefold().startswith(f"/{folder}/")

    def only(self, rules: Iterable[str]) -> HealthConfig:
        """The same, where just these rules run, whatever the config says."""
        wanted = set(rules)
        return replace(
            self,
            rules={
                rule: (found if (found := self.severity(rule)) is not Severity.OFF else RULES[rule].weight)
                if rule in wanted
                else Severity.OFF
                for rule in RULES
            },
        )


class Catalogue(Protocol):
    """What lies between the notes, as a rule may ask it."""

    @property
    def names(self) -> Names:
        """Everything that a link can lead to."""

    def resolve(self, source: NotePath, link: Link) -> Resolution:
        """Where a link of the note `source` leads."""

    def anchors(self, path: NotePath) -> Anchors | None:
        """What can be linked inside a note; None for other files."""


TOP = Place(Point(0, 0, 0, 0), Point(0, 0, 0, 0))
#: What a template engine fills in later: Obsidian's own `{{…}}` and Templater's `<% … %>`.
PLACEHOLDER = re.compile(r"\{\{|<%")
_README = re.compile(r"readme(?:[._-].*)?\.md", re.IGNORECASE)


def is_readme(path: NotePath) -> bool:
    """Whether a note is a README, whose links visitors of the folder follow."""
    return _README.fullmatch(path.rpartition("/")[2]) is not None


def finding(
    path: NotePath, rule: str, place: Place, message: str, related: Iterable[Related] = (), *, subject: str = ""
) -> Finding:
    """A finding with the rule's own weight. `subject` is what it is about, whatever line that stands on."""
    return Finding(rule, RULES[rule].weight, path, place, message, tuple(related), subject=subject)


def ignored(note: Note, config: HealthConfig) -> Container[str]:
    """Names of the rules that the note's own front matter switches off."""
    listed = (note.frontmatter or {}).get(config.ignore_key)
    if listed is True:
        return RULES
    if isinstance(listed, str):
        return (listed,)
    return frozenset(rule for rule in listed if isinstance(rule, str)) if isinstance(listed, list | tuple) else ()


def weighed(found: Finding, config: HealthConfig) -> Finding:
    """Give the config's severity; a finding that a rule itself made lighter stays so unless it is off."""
    wanted = config.severity(found.rule)
    if wanted is not Severity.OFF and found.severity is not RULES[found.rule].weight:
        return found
    return found._replace(severity=wanted)
