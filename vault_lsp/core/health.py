"""What is wrong with a note: one list of findings for the editor, the command line and every other surface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vault_lsp.core.link_rules import block_findings, link_findings, reference_findings
from vault_lsp.core.model import Finding, Note, Severity
from vault_lsp.core.note_rules import governance_findings, name_findings, parse_findings
from vault_lsp.core.rules import Catalogue, HealthConfig, ignored, weighed


def findings(note: Note, catalogue: Catalogue, config: HealthConfig) -> tuple[Finding, ...]:
    """All findings of the note in the order of the text, as the config wants them; those of the graph are not here."""
    return judged(note, _found(note, catalogue, config), config)


def judged(note: Note, found: Iterable[Finding], config: HealthConfig) -> tuple[Finding, ...]:
    """What a note's findings come to: with the config's severities, without what is silenced, in order."""
    off = ignored(note, config)
    kept = (
        weighed(each, config) for each in found if each.rule not in off and not config.exempts(each.rule, note.path)
    )
    return ordered(each for each in kept if each.severity is not Severity.OFF)


def ordered(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of one note in the order of every surface."""
    return tuple(sorted(found, key=lambda each: (each.place, each.rule, each.message)))


def _found(note: Note, catalogue: Catalogue, config: HealthConfig) -> Iterator[Finding]:
    yield from link_findings(note, catalogue)
    yield from reference_findings(note)
    yield from block_findings(note)
    yield from parse_findings(note)
    if not config.is_template(note.path):
        yield from name_findings(note, catalogue)
        yield from governance_findings(note, config)
