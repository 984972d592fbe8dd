"""Rules of the note itself: its names, its front matter and tags, and what the parser met."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from vault_lsp.core.links import name_key
from vault_lsp.core.model import Finding, Note, NotePath, Related, Severity
from vault_lsp.core.rules import PLACEHOLDER, TOP, Catalogue, HealthConfig, finding, is_readme
from vault_lsp.core.text import Place

#: File names that every folder may have.
_EVERYWHERE = frozenset({"index", "_index", "home", "agents", "claude"})
_NAMED = 4


def parse_findings(note: Note) -> Iterator[Finding]:
    """What the parser met."""
    for problem in note.problems:
        if problem.rule != "duplicate-block":  # told by `block_findings`, with the place of the first one
            yield finding(note.path, problem.rule, problem.place, problem.message, subject=problem.message)


def name_findings(note: Note, catalogue: Catalogue) -> Iterator[Finding]:
    """Names that other notes claim as well."""
    name = note.path.rpartition("/")[2]
    stem = _without_md(name_key(name))
    if stem not in _EVERYWHERE and not is_readme(note.path):
        others = [path for path in catalogue.names.files_named(name_key(name)) if path != note.path]
        if others:
            message = f"“{_without_md(name)}” is also the name of {_listed(others)}"
            related = [Related(path, TOP, "has the same name") for path in others]
            yield finding(note.path, "duplicate-name", note.title_place, message, related, subject=stem)
    for alias in note.aliases:
        key = _without_md(name_key(alias.name))
        named = catalogue.names.files_named(key + ".md")
        others = [
            path
            for path in dict.fromkeys((*named, *catalogue.names.files_with_alias(name_key(alias.name))))
            if path != note.path
        ]
        if others:
            message = f"“{alias.name}” is also a name of {_listed(others)}"
            related = [Related(path, TOP, "claims the name as well") for path in others]
            yield finding(note.path, "duplicate-alias", alias.place, message, related, subject=key)


def governance_findings(note: Note, config: HealthConfig) -> Iterator[Finding]:
    """What a governed vault asks of its notes."""
    bare = note.frontmatter is None
    if bare and _runs("missing-frontmatter", note, config):
        yield finding(note.path, "missing-frontmatter", TOP, "The note has no front matter")
    else:
        # A note without front matter is told once what it lacks.
        yield from _missing_tags(note, config)
    if _runs("unregistered-tag", note, config):
        yield from _unregistered(note, config)
    if _runs("wikilink-in-note", note, config) and not config.has_role(note.path, "wiki"):
        yield from _wikilinks(note)


def _missing_tags(note: Note, config: HealthConfig) -> Iterator[Finding]:
    tags = {name_key(tag.name) for tag in note.tags}
    types, domains = config.note_type_tags, config.domain_tags
    if _runs("missing-tags", note, config):
        if not tags:
            yield finding(note.path, "missing-tags", TOP, f"The note has no tag{_one_of(types)}")
        elif types and not any(_under(tag, types) for tag in tags):
            yield finding(
                note.path, "missing-tags", _tags_place(note), f"No tag tells what the note is{_one_of(types)}"
            )
    technical = config.has_role(note.path, "technical") if config.roles.get("technical") else True
    lacking = bool(domains) and technical and not any(_under(tag, domains) for tag in tags)
    if lacking and _runs("missing-domain-tag", note, config):
        message = f"No tag tells what the note is about{_one_of(domains)}"
        yield finding(note.path, "missing-domain-tag", _tags_place(note), message)


def _unregistered(note: Note, config: HealthConfig) -> Iterator[Finding]:
    registered = (*config.note_type_tags, *config.domain_tags)
    for tag in note.tags:
        if registered and not _under(name_key(tag.name), registered):
            near = difflib.get_close_matches(tag.name, registered, n=1)
            hint = f", did you mean “{near[0]}”?" if near else ""
            message = f"The config lists no tag “{tag.name}”{hint}"
            yield finding(note.path, "unregistered-tag", tag.place, message, subject=name_key(tag.name))


def _wikilinks(note: Note) -> Iterator[Finding]:
    for link in note.links:
        if link.kind == "wikilink" and not link.comment and not PLACEHOLDER.search(link.target):
            message = f"“{link.target}” is linked as a wikilink, and this vault wants [text](path)"
            yield finding(note.path, "wikilink-in-note", link.place, message, subject=link.target)


def _runs(rule: str, note: Note, config: HealthConfig) -> bool:
    return config.severity(rule) is not Severity.OFF and not config.exempts(rule, note.path)


def _under(tag: str, registered: tuple[str, ...]) -> bool:
    """Whether a tag is one of these or lies below one."""
    return any(tag == name_key(each) or tag.startswith(name_key(each) + "/") for each in registered)


def _tags_place(note: Note) -> Place:
    """The first tag, where there is one, else the top."""
    return min((tag.place for tag in note.tags), default=TOP)


def _one_of(tags: tuple[str, ...]) -> str:
    return f": one of {', '.join(tags)}" if tags else ""


def _listed(paths: list[NotePath]) -> str:
    return ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")


def _without_md(name: str) -> str:
    return name[:-3] if name[-3:].lower() == ".md" else name
